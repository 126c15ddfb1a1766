"""Documents in, summaries and their sources out."""
