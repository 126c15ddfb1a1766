"""T5, v1.0 and v1.1 (Raffel et al. 2020; Shazeer 2020).

The shell with attention of every token to every other in the encoder.

  v1.0  feed_forward 'relu', tie_embeddings
  v1.1  feed_forward 'gated-gelu', an output layer of its own
"""

import dataclasses

from locost_jax.models import shell


@dataclasses.dataclass(frozen=True)
class T5Config(shell.ShellConfig):
  """The shell's keys and no others."""

  def keys_seen(self, length):
    """Keys that a query of the encoder is multiplied with."""
    return length
