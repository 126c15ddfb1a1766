"""The parts of `python -m locost_jax.bench`."""
