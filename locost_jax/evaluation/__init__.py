"""How good a model is on a split, and how good its baselines are."""
