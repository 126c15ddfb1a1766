"""The base of every model's config: its sizes, and what other modules ask."""

import dataclasses

from locost_jax.ops import long_attention


@dataclasses.dataclass(frozen=True)
class ModelConfig:
  """The keys of every model; config/model_keys.py explains each.

  Other modules know a model by these keys and the facts below, which a model's
  own config overrides: by a key of the same name, which is a field, or by a
  constant or a method. Such a field without a default needs
  `dataclasses.field()`, or it would have the constant here as its default.
  """

  vocab_size: int
  d_model: int
  d_ff: int
  num_heads: int
  num_layers: int
  num_decoder_layers: int
  feed_forward: str
  dropout_rate: float
  # See `copy_head`.
  copy: bool = dataclasses.field(default=False, kw_only=True)
  copy_dim: int = dataclasses.field(default=64, kw_only=True)
  copy_ngram: int = dataclasses.field(default=0, kw_only=True)

  pad_id = 0  # the token that counts as padding
  max_positions = None  # most tokens read or written in a sequence, if limited
  # The values of data.pages that the model reads [B, P, L]; (): it reads
  # [B, L].
  page_forms = ()
  padding = 'tokens'  # 'release': a page without tokens counts like any other
  weighs_pages = False  # whether the model has `page_weights`
  convolution = 'exact'  # 'release': results depend on the padded length
  select = 'none'  # what the decoder reads of a memory, see `simcas`
  # Whether most of a memory may be unread: then `compact_memory` drops that.
  is_compacted = False
  comes_in_parts = False  # see `low_memory_encoder`
  shares_arrays = False  # whether the mixer has a `Common`, see `encoder`

  @property
  def has_dropout(self):
    """Whether a layer draws random numbers in training."""
    return bool(self.dropout_rate)

  def check_mask(self, mask, what='input_mask'):
    """Raises an InputError for a mask [B, L], [B, P, L] that cannot be read."""

  def decoder_rows(self, pages, length):
    """(rows of the decoder, tokens that each reads) of a document of pages."""
    return pages, length

  def keys_seen(self, length):
    """Keys that a query of the encoder attends to; 0 without attention."""
    raise NotImplementedError(f'{type(self).__name__} lacks keys_seen')

  def mixer_flops(self, batch, length):
    """Operations of an encoder layer's mixer in a step: {part: float}."""
    raise NotImplementedError(f'{type(self).__name__} lacks mixer_flops')

  def further_flops(self, batch, pages, length):
    """{part: float} of a step, beyond mixers, feed-forward and decoder."""
    del batch, pages, length
    return {}

  def mixer_bytes(self, batch, length):
    """Most bytes of temporary arrays in inference.

    Arrays of the input's size, [B, L, D], do not count:
    `low_memory_encoder.encoder_bytes` has them.
    """
    raise NotImplementedError(f'{type(self).__name__} lacks mixer_bytes')

  def kernel_bytes(self, length, dtype):
    """Bytes of a layer's `spectra` for inputs of this length; 0: none."""
    del length, dtype
    return 0


def attention_flops(config, batch, length):
  """`mixer_flops` of self-attention: projections, scores, weighted values."""
  HK = config.num_heads * config.d_kv
  tokens = float(batch) * length
  return {
      'dense': 6 * tokens * 4 * config.d_model * HK,
      'attention': 12 * tokens * config.keys_seen(length) * HK,
  }


def attention_bytes(config, batch, length):
  """`mixer_bytes` of self-attention whose queries run in pieces."""
  scores = 4 * batch * config.num_heads * length * config.keys_seen(length)
  return 3 * min(scores, long_attention.PIECE_BYTES)
