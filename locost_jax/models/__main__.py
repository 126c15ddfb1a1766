"""`python -m locost_jax.models` is `python -m locost_jax.known_models`."""

from locost_jax import known_models

if __name__ == '__main__':
  known_models.run()
