"""Metrics of written summaries, one file each."""
