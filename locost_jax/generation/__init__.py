"""Tokens out of a model: greedy search, beam search and sampling."""
