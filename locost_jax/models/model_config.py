"""The base of every model's config: its sizes, and what other modules ask."""

import dataclasses

from locost_jax.config import model_keys
from locost_jax.ops import long_attention


def with_keys(model):
  """Decorates the config of a model, a frozen dataclass: its keys are fields.

  Args:
    model: its name in `config.model_keys`, which explains each key; 't5-style':
      the keys that these models share.
  """
  keys = {'t5-style': model_keys.T5_STYLE, **model_keys.MODELS}[model]

  def decorate(Config):
    Config.__annotations__ = {x: type(keys[x].default) for x in keys}
    for name, key in keys.items():
      default = {} if key.is_needed else {'default': key.default}
      setattr(Config, name, dataclasses.field(**default))
    return dataclasses.dataclass(frozen=True, kw_only=True)(Config)

  return decorate


class ModelConfig:
  """The facts about a model that other modules need besides its keys.

  The facts below are those of self-attention over the whole input. A model's
  own config overrides them: by a key of the same name, a constant or a method.
  """

  pad_id = 0  # the token that counts as padding
  max_positions = None  # most tokens read or written in a sequence, if limited
  # The values of data.pages that the model reads [B, P, L]; (): it reads
  # [B, L].
  page_forms = ()
  padding = 'tokens'  # 'release': a page without tokens counts like any other
  weighs_pages = False  # whether the model has `page_weights`
  # If results depend on the padded length: inputs to summarise are padded to a
  # multiple of this number of tokens; 0: to any length.
  padding_unit = 0
  select = 'none'  # what the decoder reads of a memory, see `simcas`
  # Whether most of a memory may be unread: then `compact_memory` drops that.
  is_compacted = False
  comes_in_parts = False  # see `low_memory_encoder`
  norms_first = True  # h + f(norm(h)) in a layer, else norm(h + f(h))
  biases_per_layer = False  # whether layers have a position bias each
  separator_id = None  # of tokens that attend to all, see `led`
  max_separators = 0  # of them in an input
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

  def of_targets(self):
    """The config that the decoder has; its max_positions may be another."""
    return self

  def keys_seen(self, length):
    """Keys that a query of the encoder attends to; 0 without attention."""
    return length

  def mixer_flops(self, batch, length):
    """Operations of an encoder layer's mixer in a step: {part: float}.

    Here those of attention: projections, scores, weighted values.
    """
    HK, tokens = self.num_heads * self.d_kv, float(batch) * length
    return {
        'dense': 6 * tokens * 4 * self.d_model * HK,
        'attention': 12 * tokens * self.keys_seen(length) * HK,
    }

  def further_flops(self, batch, pages, length):
    """{part: float} of a step, beyond mixers, feed-forward and decoder."""
    del batch, pages, length
    return {}

  def mixer_bytes(self, batch, length):
    """Most bytes of temporary arrays in inference, without [B, L, D] ones.

    Those are in `low_memory_encoder.encoder_bytes`. Here those of attention
    whose queries run in pieces.
    """
    scores = 4 * batch * self.num_heads * length * self.keys_seen(length)
    return 3 * min(scores, long_attention.PIECE_BYTES)

  def kernel_bytes(self, length):
    """Bytes of a layer's `spectra` for inputs of this length; 0: none."""
    del length
    return 0
