"""Hugging Face directories: names, configs and tensors, read and written."""
