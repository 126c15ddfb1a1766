"""Shared by stacks of layers: sizes, modules, how layers run, caches."""

from flax import linen as nn
import jax
import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.models import attention
from locost_jax.models import layers
from locost_jax.models import model_config
from locost_jax.ops import long_attention
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import tokenwise

# remat='auto': limit for what the backward pass keeps of an encoder whose
# layers do not run in pieces.
AUTO_BYTES = 1 << 30
CPU_AUTO_BYTES = 128 << 20


@model_config.with_keys('t5-style')
class T5StyleConfig(model_config.ModelConfig):
  """The base of the T5-style configs, each of which describes its mixer."""

  # A bidirectional encoder gives each sign half of the buckets, and half of
  # those to exact distances: see `attention.relative_buckets`.
  LEAST_BUCKETS = 4

  def __post_init__(self):
    buckets = self.relative_attention_num_buckets
    exact = buckets // 2  # of the decoder, which has more than an encoder
    if buckets < self.LEAST_BUCKETS:
      raise InputError(
          f'model.relative_attention_num_buckets={buckets}: expected at least '
          f'{self.LEAST_BUCKETS}'
      )
    if self.relative_attention_max_distance <= exact:
      raise InputError(
          'model.relative_attention_max_distance='
          f'{self.relative_attention_max_distance}: expected more than {exact}, '
          'half of model.relative_attention_num_buckets: these distances have '
          'a bucket each'
      )

  @property
  def decoder_heads(self):
    """H of the decoder."""
    return self.num_heads

  @property
  def decoder_d_ff(self):
    """d_ff of the decoder."""
    return self.d_ff

  def make_norm(self, dtype):
    """Returns a norm, like the next two for use in `setup`."""
    return layers.RMSNorm(self.layer_norm_epsilon, dtype)

  def make_attention(self, dtype, heads):
    """Returns an attention with this many heads."""
    return attention.Attention(
        heads, self.d_kv, self.d_model, self.dropout_rate, dtype
    )

  def make_feed_forward(self, dtype, d_ff):
    """Returns a feed-forward with d_ff hidden units."""
    return layers.FeedForward(d_ff, self.feed_forward, self.dropout_rate, dtype)


def lay_read(h):
  """Lays out h [B, L, D] of the encoder on the mesh."""
  return mesh_lib.lay_out(h, mesh_lib.ROWS, mesh_lib.SEQUENCE)


def as_pages(x):
  """[B, P, L], or [B, L] as one page -> [B, P, L]."""
  return x if x.ndim == 3 else x[:, None]


def in_line(memory):
  """Joins the pages of arrays: [B, P, L, ...] -> [B, P L, ...]."""
  return jax.tree.map(
      lambda x: lay_read(x.reshape(x.shape[0], -1, *x.shape[3:])), memory
  )


def lay_written(h):
  """Lays out h [B, T, D] of the decoder on the mesh."""
  return mesh_lib.lay_out(h, mesh_lib.ROWS)


class Layer(nn.Module):
  """A layer of a stack: branches of h [B, L, D], the last a feed-forward."""

  config: model_config.ModelConfig
  dtype: jnp.dtype

  along = mesh_lib.SEQUENCE  # splits the length; a decoder's: None

  def setup(self):
    c = self.config
    self.feed_forward = c.make_feed_forward(self.dtype, self.hidden_units())
    self.feed_forward_norm = c.make_norm(self.dtype)
    self.dropout = nn.Dropout(c.dropout_rate)

  def hidden_units(self):
    """Returns d_ff of this stack."""
    return self.config.d_ff

  def branch(self, h, norm, function, deterministic=True):
    """h + drop(function(norm(h))), or norm(h + drop(function(h))); like h."""
    drop = lambda x: self.dropout(x, deterministic)
    if self.config.norms_first:
      h = h + drop(function(norm(h)))
    else:
      h = norm(h + drop(function(h)))
    return lay_read(h) if self.along else lay_written(h)

  def add(self, h, deterministic=True):
    """The branch of the feed-forward."""
    run = lambda x: self.feed_forward(x, deterministic)
    return self.branch(h, self.feed_forward_norm, run, deterministic)

  def feed(self, h, deterministic, in_pieces):
    """`add`, over pieces of the length if in_pieces."""
    if not in_pieces:
      return self.add(h, deterministic)
    draws = not deterministic and self.config.has_dropout
    return tokenwise.method(self, 'add', h, along=self.along, draws=draws)


def reads_in_pieces(config, remat, B, L):
  """Whether an encoder's layers run over pieces of inputs [B, L].

  With remat='none' the backward pass keeps about 32 float32 arrays [B, L, D] of
  a layer. Measured on a CPU, each layer added 34 to 35 such arrays to XLA's
  temporary memory, with its gradients (D 768 and 256, F 2.7 D and 2 D). A layer
  of BART added 29, or 10 if computed in pieces (D 256, F 4 D, L 1024). On two
  cores pieces are faster: a step of 2 layers takes 0.47 to 0.6 of the time at
  16 and 8 x 1,024 tokens of width 128, 0.84 at 4,096 of width 768.
  """
  along = mesh_lib.SEQUENCE
  if remat == 'none' or not tokenwise.is_long(B, L, along):
    return False
  rows, length = tokenwise.on_device(B, L, along)
  kept = 32 * 4 * config.num_layers * rows * length * config.d_model
  most = CPU_AUTO_BYTES if mesh_lib.platform() == 'cpu' else AUTO_BYTES
  return remat != 'auto' or kept > most


def init_cache(config, dtype, memory, cross_cache, max_length):
  """The caches of a decoding of at most max_length tokens: (shared, per_row).

  shared belongs to the documents and is only read: the mask and either 'cross',
  the keys and values of cross_cache(states), or, for L >=
  long_attention.ABSORBED, 'states' [B, L, D]. per_row changes with every step
  and has rows as the first axis of every leaf: 'own', keys and values [B,
  layers, H, max_length, K], which stay in the row that wrote them, and the
  'position' [B].
  """
  c, (B, L, _) = config, memory['states'].shape
  if L >= long_attention.ABSORBED:
    shared = {'states': memory['states'], 'mask': memory['mask']}
  else:
    shared = {'cross': cross_cache(memory['states']), 'mask': memory['mask']}
  H = c.decoder_heads
  shape = B, c.num_decoder_layers, H, max_length, c.num_heads * c.d_kv // H
  own = jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)
  return shared, {'own': own, 'position': jnp.zeros(B, jnp.int32)}


def stacked(num_layers, remat):
  """How parameters and randomness run over the layers of a stack.

  Up to two layers are unrolled. A loop copies the values for the backward pass
  into and out of arrays of all layers: with it a step of the quickstart took
  1.15 times as long on a CPU and compiled no faster. With remat='full' they
  stay a loop, which keeps XLA from merging the recomputation with the original.
  """
  is_unrolled = num_layers <= 2 and remat != 'full'
  return dict(
      variable_axes={'params': 0},
      split_rngs={'params': True, 'dropout': True},
      length=num_layers,
      unroll=num_layers if is_unrolled else 1,
  )


def make_encoder_layers(layer, config, remat, *arguments):
  """Returns an encoder's layers, layer(config, *arguments), as one module."""
  if remat == 'full':
    layer = nn.remat(layer, prevent_cse=False, static_argnums=(3, 4))
  over = stacked(config.num_layers, remat)
  axes = nn.broadcast
  if config.biases_per_layer:
    axes = (nn.broadcast,) * 3 + (0,)
  return nn.scan(layer, in_axes=axes, **over)(config, *arguments)
