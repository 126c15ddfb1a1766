"""The measurements of `python -m locost_jax.bench`."""
