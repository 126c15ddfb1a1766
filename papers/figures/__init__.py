"""Pictures of runs and models; they need matplotlib (the extra `plot`)."""
