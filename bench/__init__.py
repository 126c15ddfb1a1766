"""Measures speed and memory: `python -m bench QUESTION`, from a checkout."""
