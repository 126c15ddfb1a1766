"""Metrics that need the model, one file each."""
