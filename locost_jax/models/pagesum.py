"""PageSum (Liu et al., EMNLP 2022): BART over pages, mixed by a confidence.

Every page is read alone, and the targets are decoded for every page alone:

  h[p, t]                      the decoder's state where row p reads page p
  s[p, t] = softmax over p of (w . h[p, t] + b)             the page's weight
  logits[t] = E sum_p s[p, t] h[p, t] + bias                  (equation 9)

Pages are rows of BART's stacks: positions begin at 0 in each. Parameter paths
are BART's and `confidence`. On a mesh, pages lie over `sequence`
(`mesh.by_page`): only sums over pages cross between its devices.

decoding 'global' (section 5.6): one decoder reads the states of all pages, one
after the other; it has no confidence. padding: the weight of a page without
tokens is 0 ('tokens': the paper's documents have different numbers of pages),
or as that of any page ('release').

Inputs are [B, P, L]; [B, L] is one page. Axes: B documents, P pages, L tokens
of a page, T target length, D d_model, R rows of a decoding step.
"""

import functools

import jax
import jax.numpy as jnp

from locost_jax.models import bart
from locost_jax.models import layers
from locost_jax.models import model_config
from locost_jax.models import stack
from locost_jax.ops import mesh as mesh_lib


@model_config.with_keys('pagesum')
class PageSumConfig(bart.BartConfig):
  """The config of a PageSum; see the top of this module."""

  page_forms = ('spatial', 'discourse', 'document')

  @property
  def weighs_pages(self):
    """Whether pages have weights, see `PageSum.page_weights`."""
    return self.decoding == 'pages'

  def decoder_rows(self, pages, length):
    """Returns (rows, tokens of each) that the decoder reads of a document."""
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
    """Reads each page alone: {'states': [B, P, L, D], 'mask': bool [B, P, L]}.

    inputs [B, P, L], or [B, L]; input_mask of the same shape, true at tokens;
    None: where inputs are not pad_id.

    Raises:
      InputError: a page has more tokens than there are positions, or
        `sequence` does not divide P.
    """
    read = functools.partial(super().encode, deterministic=deterministic)
    return mesh_lib.by_page(
        read, *jax.tree.map(stack.as_pages, (inputs, input_mask))
    )

  def decoder_states(self, memory, targets_in, deterministic=True):
    """memory of `encode`, targets_in [B, T] -> see `states`."""
    h = self.mix(*self.read(memory, targets_in, deterministic))
    return self.written(h, targets_in), self.source(memory)

  def source(self, memory):
    """`CopyingModel.source` of all pages, one after the other."""
    return super().source(stack.in_line(memory)) if self.config.copy else None

  def page_weights(self, memory, targets_in):
    """How much each page counts for each target: float32 [B, P, T]."""
    return self.weights(*self.read(memory, targets_in))

  def cross_mass(self, memory, targets_in, segments, num_segments):
    """A page's mass times its weight; segments [B, P, L], or [B, L].

    Arguments and result as in `encoder_decoder.Model.cross_mass`;
    segments do not decrease within a page, in `global` decoding nowhere.
    """
    sources = self.sources({**memory, 'segments': stack.as_pages(segments)})
    P = sources['mask'].shape[1]
    h = jnp.repeat(self.vectors(targets_in)[:, None], P, axis=1)

    def trace(h, memory):
      return self.decoder.traced(h, memory, memory['segments'], num_segments)

    mass = mesh_lib.by_page(trace, h, sources)
    if not self.config.weighs_pages:
      return mass[:, 0]
    return jnp.einsum(
        'bpt,bpts->bts', self.page_weights(memory, targets_in), mass
    )

  def read(self, memory, targets_in, deterministic=True):
    """The decoder's states by page: h [B, P, T, D], has_tokens [B, P]."""
    memory = self.sources(memory)
    P = memory['mask'].shape[1]
    h = jnp.repeat(self.vectors(targets_in)[:, None], P, axis=1)
    decode = functools.partial(self.decoder, deterministic=deterministic)
    return mesh_lib.by_page(decode, h, memory), memory['mask'].any(-1)

  def sources(self, memory):
    """Memory as the decoder's rows read it: by page, or all pages as one."""
    if self.config.decoding == 'pages':
      return memory
    return jax.tree.map(lambda x: x[:, None], stack.in_line(memory))

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
    mixed = jnp.einsum('bp...,bp...d->b...d', s, h).astype(h.dtype)
    return stack.lay_written(mixed)

  def init_cache(self, memory, max_length):
    """(shared, per_row): BART's with B P rows; in per_row P is an axis."""
    memory = self.sources(memory)
    P = memory['mask'].shape[1]
    rows = jax.tree.map(mesh_lib.to_rows, memory)
    shared, per_row = self.caches(rows, max_length)
    own = jax.tree.map(lambda x: mesh_lib.to_pages(x, P), per_row['own'])
    per_row = {'own': own, 'position': per_row['position'][::P]}
    return self.with_source(shared | {'mask': memory['mask']}, per_row, memory)

  def step(self, tokens, shared, per_row, ancestors=None):
    """`encoder_decoder.Model.step`; pages share the ancestors."""
    B, P, _ = shared['mask'].shape
    has_tokens = jnp.repeat(shared['mask'].any(-1), tokens.size // B, axis=0)
    shared = dict(shared, mask=mesh_lib.split_pages(shared['mask']))
    if ancestors is not None:
      of_pages = jnp.repeat(ancestors[:, None], P, axis=1)
      ancestors = mesh_lib.split_pages(of_pages)[:, 0]
    position = per_row['position']
    # Two axes for rows: XLA would copy caches if they were reshaped first.
    own = jax.tree.map(mesh_lib.split_pages, per_row['own'])

    def decode(h):
      rows = {'own': own, 'position': position}
      h, rows = self.decoder.step(h, shared, rows, ancestors)
      return h, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows['own'])

    h = jnp.repeat(self.vectors(tokens)[:, None, None], P, axis=1)
    h, own = mesh_lib.by_page(decode, h)
    mixed = self.mix(h[:, :, 0], has_tokens)[:, None]
    caches = {'own': own, 'position': position + 1}
    return self.predict_next(mixed, tokens, shared, per_row, caches)
