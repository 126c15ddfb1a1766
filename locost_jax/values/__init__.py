"""Which values config keys and flags may have."""
