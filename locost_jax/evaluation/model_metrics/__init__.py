"""Metrics that a model computes, one file each."""
