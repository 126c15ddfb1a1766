"""Metrics, progress, profiles and energy of a training run."""
