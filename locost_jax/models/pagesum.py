"""PageSum (Liu et al., EMNLP 2022): BART over pages, mixed by a confidence.

Every page is read alone, and the targets are decoded for every page alone:

  h[p, t]                      the decoder's state where row p reads page p
  s[p, t] = softmax over p of (w . h[p, t] + b)             the page's weight
  logits[t] = E sum_p s[p, t] h[p, t] + bias                  (equation 9)

Pages are rows of BART's stacks: positions begin at 0 in each. Parameter paths
are BART's and `confidence`.

decoding: 'pages', as above; 'global' (section 5.6): one decoder reads the
states of all pages, one after the other; it has no confidence.
padding: what a page without tokens weighs. 'tokens': nothing (the paper's
documents have different numbers of pages); 'release': as much as another.

Inputs are [B, P, L]; [B, L] is one page. Axes: B documents, P pages, L tokens
of a page, T target length, D d_model, R rows of a decoding step.
"""

import dataclasses

import jax
import jax.numpy as jnp

from locost_jax.errors import check_choice
from locost_jax.models import bart
from locost_jax.models import bart_layers
from locost_jax.models import layers


@dataclasses.dataclass(frozen=True)
class PageSumConfig(bart_layers.BartConfig):
  """BART's keys, and how pages are decoded; see the top of this module."""

  # See `models.page_forms`.
  PAGE_FORMS = ('spatial', 'discourse', 'document')

  decoding: str = 'pages'
  padding: str = 'tokens'

  def __post_init__(self):
    super().__post_init__()
    check_choice('model.decoding', self.decoding, ('pages', 'global'))
    check_choice('model.padding', self.padding, ('tokens', 'release'))

  @property
  def weighs_pages(self):
    """Whether `PageSum.page_weights` says how much each page counts."""
    return self.decoding == 'pages'

  def decoder_rows(self, pages, length):
    if self.decoding == 'global':
      return 1, pages * length
    return pages, length


class PageSum(bart.Bart):
  """The model: encode, decode, cache, step, of pages.

  The memory is {'states': [B, P, L, D], 'mask': bool [B, P, L]}.
  """

  config: PageSumConfig

  def setup(self):
    super().setup()
    self.confidence = layers.dense(
        1, self.config.d_model**-0.5, self.dtype, None, use_bias=True
    )

  def encode(self, inputs, input_mask=None, deterministic=True):
    """Reads each page alone.

    Args:
      inputs: [B, P, L] token ids, or [B, L].
      input_mask: of the same shape, true at tokens; None: where inputs are
        not pad_id.
      deterministic: no dropout.

    Returns:
      {'states': [B, P, L, D], 'mask': bool [B, P, L]}.

    Raises:
      InputError: a page has more tokens than there are positions.
    """
    inputs = as_pages(inputs)
    if input_mask is not None:
      input_mask = fold(as_pages(input_mask))
    memory = super().encode(fold(inputs), input_mask, deterministic)
    return jax.tree.map(
        lambda x: x.reshape(*inputs.shape, *x.shape[2:]), memory
    )

  def states(self, inputs, targets_in, input_mask=None, deterministic=True):
    """`__call__` up to the `head`: the mixed states [B, T, D]."""
    memory = self.encode(inputs, input_mask, deterministic)
    return self.mix(*self.read(memory, targets_in, deterministic))

  def decode(self, memory, targets_in, deterministic=True):
    """targets_in [B, T], starting with the start id -> logits [B, T, V]."""
    return self.head(self.mix(*self.read(memory, targets_in, deterministic)))

  def page_weights(self, memory, targets_in):
    """How much each page counts for each target: float32 [B, P, T]."""
    return self.weights(*self.read(memory, targets_in))

  def cross_mass(self, memory, targets_in, segments, num_segments):
    """A page's mass times its weight; segments [B, P, L], or [B, L].

    Arguments and result as of `encoder_decoder.EncoderDecoder.cross_mass`;
    segments do not decrease within a page, in `global` decoding nowhere.
    """
    sources = self.sources({**memory, 'segments': as_pages(segments)})
    B, P, _ = sources['mask'].shape
    rows = jax.tree.map(fold, sources)
    mass = (
        super()
        .cross_mass(
            rows,
            jnp.repeat(targets_in, P, axis=0),
            rows['segments'],
            num_segments,
        )
        .reshape(B, P, targets_in.shape[1], num_segments)
    )
    if not self.config.weighs_pages:
      return mass[:, 0]
    return jnp.einsum(
        'bpt,bpts->bts', self.page_weights(memory, targets_in), mass
    )

  def read(self, memory, targets_in, deterministic=True):
    """The decoder's states by page: h [B, P, T, D], has_tokens [B, P]."""
    memory = self.sources(memory)
    B, P, _ = memory['mask'].shape
    h = jnp.repeat(self.vectors(targets_in), P, axis=0)
    h = self.decoder(h, jax.tree.map(fold, memory), deterministic)
    return h.reshape(B, P, *h.shape[1:]), memory['mask'].any(-1)

  def sources(self, memory):
    """Memory as the decoder's rows read it: by page, or all pages as one."""
    if self.config.decoding == 'pages':
      return memory
    return jax.tree.map(
        lambda x: x.reshape(x.shape[0], 1, -1, *x.shape[3:]), memory
    )

  def weights(self, h, has_tokens):
    """s of pages: h [B, P, ..., D], has_tokens [B, P] -> [B, P, ...]."""
    scores = layers.at_least_float32(self.confidence(h)[..., 0])
    if self.config.padding == 'tokens':
      shape = has_tokens.shape + (1,) * (scores.ndim - 2)
      scores = jnp.where(
          has_tokens.reshape(shape), scores, jnp.finfo(scores.dtype).min
      )
    return jax.nn.softmax(scores, axis=1)

  def mix(self, h, has_tokens):
    """sum_p s[p] h[p]: h [B, P, ..., D] -> [B, ..., D]."""
    if self.config.decoding == 'global':
      return h[:, 0]
    s = self.weights(h, has_tokens)
    return jnp.einsum('bp...,bp...d->b...d', s, h).astype(h.dtype)

  def init_cache(self, memory, max_length):
    """(shared, per_row): BART's of B P rows, a row's pages on an axis more."""
    memory = self.sources(memory)
    B, P, L = memory['mask'].shape
    shared, per_row = super().init_cache(jax.tree.map(fold, memory), max_length)
    shared['mask'] = memory['mask']
    own = jax.tree.map(lambda x: x.reshape(B, P, *x.shape[1:]), per_row['own'])
    return shared, {'own': own, 'position': per_row['position'][::P]}

  def step(self, tokens, shared, per_row, ancestors=None):
    """`encoder_decoder.EncoderDecoder.step`; pages share the ancestors."""
    has_tokens = shared['mask'].any(-1)
    P, R = has_tokens.shape[1], tokens.shape[0]
    h = jnp.repeat(self.vectors(tokens)[:, None], P, axis=0)
    h, per_row = self.decoder.step(h, shared, per_row, ancestors)
    h = self.mix(
        h.reshape(R, P, -1),
        jnp.repeat(has_tokens, R // has_tokens.shape[0], axis=0),
    )
    return self.head(h), per_row


def as_pages(x):
  """[B, P, L], or [B, L] as one page -> [B, P, L]."""
  return x if x.ndim == 3 else x[:, None]


def fold(x):
  """[B, P, ...] -> [B P, ...]."""
  return x.reshape(-1, *x.shape[2:])
