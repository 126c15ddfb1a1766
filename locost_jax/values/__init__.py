"""Allowed values of config keys and flags."""
