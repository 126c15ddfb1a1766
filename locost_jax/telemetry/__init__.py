"""Metrics, progress and profiles of a training run."""
