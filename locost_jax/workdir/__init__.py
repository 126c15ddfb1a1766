"""A run's directory: phases, checkpoints, manifests."""
