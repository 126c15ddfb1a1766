"""PEGASUS-X (Phang et al. 2022): PEGASUS for long inputs.

A token of the encoder attends to its block of `block_size` tokens and to G
global tokens, which are learned vectors and no part of the text. In every other
layer blocks begin half a block earlier, so that information crosses their ends
(staggered blocks). Global tokens attend to each other and to all tokens:

  local   softmax over s in t's block and global s of q_t . k_s
  global  softmax over all tokens and global s of q_g . k_s

Both run through the same projections and feed-forward; global tokens have their
own norm before attention. Attention and logits have no biases. Positions are
`sinusoids`. The rest, also the decoder, is PEGASUS (see `bart`).

Axes: those of `encoder_decoder.Model`, and G global tokens.
"""

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from locost_jax.errors import InputError
from locost_jax.models import bart
from locost_jax.models import model_config
from locost_jax.models import stack
from locost_jax.ops import local_attention
from locost_jax.ops import long_attention


@model_config.with_keys('pegasus_x')
class PegasusXConfig(bart.BartConfig):
  """The config of a PEGASUS-X."""

  use_bias = has_logits_bias = False

  def __post_init__(self):
    super().__post_init__()
    if not self.sinusoidal:
      raise InputError('model.sinusoidal=False: expected True for pegasus_x')

  def sinusoids(self, positions):
    """int [T] -> float32 [T, D]: sines, then cosines.

    Position p has the angles p / 10000^(i / (D / 2 - 1)), float32 as where
    published models were trained.
    """
    half = self.d_model // 2
    rates = np.exp(-np.arange(half) * np.log(10000.0) / (half - 1))
    angles = positions[:, None] * rates.astype(np.float32)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], 1)

  def keys_seen(self, length):
    """Returns how many keys a query of the encoder attends to."""
    return min(self.block_size, length) + self.global_tokens

  def mixer_flops(self, batch, length):
    """See `ModelConfig`: also the projections and scores of global tokens."""
    parts = super().mixer_flops(batch, length)
    D, G = self.d_model, self.global_tokens
    parts['dense'] += 6 * batch * G * 4 * D * D
    parts['attention'] += 12 * batch * G * (length + G) * D
    return parts

  def mixer_bytes(self, batch, length):
    """See `ModelConfig`: also the scores of global tokens."""
    scores = 4 * batch * self.num_heads * self.global_tokens * length
    return super().mixer_bytes(batch, length) + 3 * scores


class EncoderLayer(bart.EncoderLayer):
  """One layer of the encoder; a step of `nn.scan`."""

  def setup(self):
    super().setup()
    self.global_norm = self.config.make_norm(self.dtype)

  def __call__(self, h, mask, deterministic, in_pieces=False):
    """h (tokens [B, L, D], global ones [B, G, D], layer's number) -> h, None."""
    h, g, layer = h
    drop = lambda x: self.dropout(x, deterministic)
    start = layer % 2 * (self.config.block_size // 2)
    h_in, g_in = self.self_attention_norm(h), self.global_norm(g)
    x, y = self.mix(h_in, g_in, mask, start, deterministic)
    h = self.feed(stack.lay_read(h + drop(x)), deterministic, in_pieces)
    return (h, self.add(g + drop(y), deterministic), layer + 1), None

  def mix(self, h, g, mask, start, deterministic):
    """Self-attention without residuals: [B, L, D] and [B, G, D].

    start: tokens that the first block lacks, traced.
    """
    c, own = self.config, self.self_attention
    rate = 0.0 if deterministic else c.attention_dropout_rate
    draw = lambda: self.make_rng('dropout') if rate else None
    L, W, further = h.shape[1], c.block_size, own.keys_values(g)
    exists = jnp.ones(g.shape[:2], bool)
    read = own.queries(h), *own.keys_values(h), mask

    def later(x):
      x = jnp.pad(x, ((0, 0), (0, W), *[(0, 0)] * (x.ndim - 2)))
      return jnp.roll(x, start, 1)

    more = local_attention.Further(*further, exists)
    window = local_attention.Window(W, W, c.keys_seen(L), None, more, sides=0)
    local = local_attention.in_blocks(*map(later, read), window, rate, draw())
    both = lambda x, y: jnp.concatenate([x, y], 1)
    far = long_attention.plain(
        own.queries(g),
        *map(both, further, read[1:3]),
        both(exists, mask)[:, None, None],
        drop=long_attention.dropping(rate, draw()),
    )
    local = jax.lax.dynamic_slice_in_dim(local, start, L, 1)
    return own.merge_heads(local), own.merge_heads(far)


class Encoder(bart.Encoder):
  """Vectors of tokens [B, L, D], mask [B, L] -> states [B, L, D]."""

  LAYER = EncoderLayer

  def setup(self):
    super().setup()
    D = self.config.d_model
    self.global_embedding = self.param(
        'global_embedding',
        nn.initializers.normal(D**-0.5),
        (self.config.global_tokens, D),
    )

  def start(self, h, mask):
    """See `bart.Encoder`: the global tokens and the layer's number, too."""
    g = self.global_embedding.astype(self.dtype)
    return (h, jnp.broadcast_to(g, (len(h), *g.shape)), jnp.int32(0)), mask


class PegasusX(bart.Bart):
  """The model: encode, decode, cache, step; remat: see `models.build`."""

  ENCODER = Encoder
