"""Several processes, one run: connecting, signals, hangs."""
