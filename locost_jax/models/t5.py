"""T5, v1.0 and v1.1 (Raffel et al. 2020; Shazeer 2020).

The T5-style stack with attention of every token to every other in the encoder.

  v1.0  feed_forward 'relu', tie_embeddings
  v1.1  feed_forward 'gated-gelu', a separate output layer
"""

import dataclasses

from locost_jax.models import model_config
from locost_jax.models import stack


@dataclasses.dataclass(frozen=True)
class T5Config(stack.T5StyleConfig):
  """No keys but those of every T5-style model."""

  mixer_flops = model_config.attention_flops
  mixer_bytes = model_config.attention_bytes
  shares_arrays = True

  def keys_seen(self, length):
    """Returns how many keys a query of the encoder attends to."""
    return length
