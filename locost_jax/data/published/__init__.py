"""Readers of what the authors of the corpora published, by kind of text."""
