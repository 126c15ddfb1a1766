"""Readers of the files that the authors of the corpora published."""
