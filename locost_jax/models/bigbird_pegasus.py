"""BigBird-PEGASUS (Zaheer et al. 2020): PEGASUS with sparse attention.

The encoder's input is padded to n blocks of W = `block_size` tokens. The first
and the last block are global: their queries attend to all tokens. A query of
another block i attends to blocks i - 1, i and i + 1 and to both global ones:

  softmax over s in blocks 0, i - 1, i, i + 1, n - 1 of q_t . k_s + c_s

each token once. r = `num_random_blocks` of the published model's keys are
random blocks. When it evaluates, transformers takes block 0 for each of them:
its keys then count 1 + r times, c_s = log(1 + r), and c_s = 0 elsewhere. Here
training does the same, so that a model is evaluated as it was trained
(transformers draws the blocks anew for each length in training).

Up to (5 + 2 r) W tokens, and with attention='original_full', attention is full.
The padding counts in the length: a document's last block, and whether its
attention is sparse, depend on the padded length as in transformers. So
`summarize` and `generate` pad inputs to whole blocks only; the batches of
training and of `main --evaluate` have the padding of `data.input_buckets`.

Pre-norm with a norm after each stack and none after the embedding; positions
are learned, and their tables begin with position 0. Attention has biases if
`use_bias`. The rest, also the decoder, is BART (see `bart`).

Axes: those of `encoder_decoder.Model`, W tokens of a block, n blocks.
"""

import jax.numpy as jnp
import numpy as np

from locost_jax.errors import InputError
from locost_jax.models import bart
from locost_jax.models import model_config
from locost_jax.ops import local_attention


@model_config.with_keys('bigbird_pegasus')
class BigBirdPegasusConfig(bart.BartConfig):
  """The config of a BigBird-Pegasus."""

  position_offset = 0
  has_embedding_norm = False

  def __post_init__(self):
    super().__post_init__()
    if self.sinusoidal or not self.norms_first:
      raise InputError(
          f'model.sinusoidal={self.sinusoidal}, model.norms_first='
          f'{self.norms_first}: expected False and True for bigbird_pegasus'
      )

  @property
  def padding_unit(self):
    """See `ModelConfig`: W, because the last block is global."""
    return self.block_size if self.attention == 'block_sparse' else 0

  def is_sparse(self, length):
    """Whether attention over this padded length is sparse."""
    most = (5 + 2 * self.num_random_blocks) * self.block_size
    return self.attention == 'block_sparse' and length > most

  def keys_seen(self, length):
    """Keys per query of the encoder, with those of the 2 W global queries."""
    return 7 * self.block_size if self.is_sparse(length) else length

  def mixer_bytes(self, batch, length):
    """See `ModelConfig`: scores of sparse attention exist twice."""
    parts = 2 if self.is_sparse(length) else 3
    return super().mixer_bytes(batch, length) * parts // 3


class EncoderLayer(bart.EncoderLayer):
  """One layer of the encoder; a step of `nn.scan`."""

  def attend(self, h, mask, deterministic):
    """Self-attention without residual, [B, L, D]."""
    c, own = self.config, self.self_attention
    L, W = h.shape[1], c.block_size
    if not c.is_sparse(L):
      return super().attend(h, mask, deterministic)
    rate = 0.0 if deterministic else c.attention_dropout_rate
    last = (L - 1) // W * W  # where the last block begins

    def ends(x):
      """The first and the last block, [B, 2 W, ...]."""
      behind = [(0, 0), (0, last + W - L)] + [(0, 0)] * (x.ndim - 2)
      return jnp.concatenate([x[:, :W], jnp.pad(x[:, last:], behind)], 1)

    keys, values = own.keys_values(h)
    precise = jnp.promote_types(h.dtype, jnp.float32)
    count = np.repeat([1 + c.num_random_blocks, 1], W)
    bias = jnp.asarray(np.log(count), precise)
    further = local_attention.Further(
        ends(keys), ends(values), ends(mask), lambda start, size: bias
    )
    position = jnp.arange(L)
    near = mask & (position >= W) & (position < last)
    window = local_attention.Window(W, 2 * W, 5 * W, None, further)
    key = self.make_rng('dropout') if rate else None
    context = local_attention.in_blocks(
        own.queries(h), keys, values, near, window, rate, key
    )
    middle = own.merge_heads(context[:, W:last])
    far = own.cross(ends(h), keys, values, mask, deterministic)
    return jnp.concatenate([far[:, :W], middle, far[:, W : L + W - last]], 1)


class Encoder(bart.Encoder):
  """Vectors of tokens [B, L, D], mask [B, L] -> states [B, L, D]."""

  LAYER = EncoderLayer


class BigBirdPegasus(bart.Bart):
  """The model: encode, decode, cache, step; remat: see `models.build`."""

  ENCODER = Encoder
