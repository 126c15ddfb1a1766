"""Readers of documents: bytes -> text and the places in it."""
