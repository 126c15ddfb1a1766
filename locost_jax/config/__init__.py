"""Every config key, once: its default, its meaning, its values, old names."""
