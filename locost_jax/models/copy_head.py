"""A copy head: the next token comes from the vocabulary or from the input.

  q[t] = W_q h[t]                      of the decoder's last state h
  k[s] = W_k e[s]                      of the states e that the decoder reads
  w[t] = W_n h[t] + b_n                [N], N = copy_ngram
  g[t] = sigmoid(w_g . h[t] + b_g)     the share of the vocabulary
  p[t](v) = g[t] p_vocabulary[t](v) + (1 - g[t]) c[t](v)

c is `ops.copy_attention`'s, of q, k and w (See et al. 2017, equations 8 and 9,
but with a separate attention, `copy_dim` wide, instead of the decoder's). Gate
and mixture are in float32 at least. w lets the head continue the word or name
that it is copying; an n-gram lies within one page or chunk.

Axes: B documents, S input tokens, T target length, D d_model, N longest n-gram,
V vocabulary.
"""

from typing import NamedTuple

from flax import linen as nn
import jax
import jax.numpy as jnp

from locost_jax.models import layers
from locost_jax.ops import copy_attention


class Copied(NamedTuple):
  """The mixture at the targets without p_vocabulary, [B, T] each."""

  log_gate: jax.Array  # log g
  log_copy: jax.Array  # log (1 - g)
  log_mass: jax.Array  # log of the attention that falls on the target
  log_largest: jax.Array  # log of the largest a[t, s]

  def mixed(self, log_p):
    """log p of the targets, from their log p_vocabulary [B, T]."""
    return jnp.logaddexp(self.log_gate + log_p, self.log_copy + self.log_mass)


class Written(NamedTuple):
  """The decoder's side of the copy head."""

  h: jax.Array  # [B, T, D], the decoder's last states
  before: jax.Array  # int [B, T, N], of `tokens_before` each target


class CopiedFrom(NamedTuple):
  """Where the targets were copied from, [B, T] each.

  share: (1 - g) c(target) / p(target), the part of p that is copied.
  place: the index of the input token equal to the target with the largest
    attention; pages or chunks count as one sequence.
  weight: its attention; 0 if the target is not in the input.
  """

  share: jax.Array
  place: jax.Array
  weight: jax.Array


class CopyHead(nn.Module):
  """The parameters, and the mixture at the targets or for all tokens."""

  d_model: int
  copy_dim: int
  copy_ngram: int
  dtype: jnp.dtype

  def setup(self):
    D, C, N = self.d_model, self.copy_dim, self.copy_ngram
    self.query = layers.dense(C, (D * C) ** -0.5, self.dtype, 'query')
    self.key = layers.dense(C, D**-0.5, self.dtype, 'key')
    precise = jnp.promote_types(self.dtype, jnp.float32)
    self.gate = layers.dense(1, D**-0.5, precise, 'gate', use_bias=True)
    if N:
      self.ngrams = nn.Dense(
          N,
          dtype=precise,
          kernel_init=nn.initializers.normal(D**-0.5),
          bias_init=nn.initializers.constant(2.0),
      )

  def source(self, memory):
    """Returns the `copy_attention.Source` of a memory of `with_tokens`."""
    return copy_attention.Source(
        self.key(memory['states']),
        memory['mask'],
        memory['tokens'],
        memory['before'],
    )

  def queries(self, written):
    """Written -> `copy_attention.Queries`."""
    h = layers.at_least_float32(written.h)
    weights = self.ngrams(h) if self.copy_ngram else h[..., :0]
    return copy_attention.Queries(
        self.query(written.h), weights, written.before
    )

  def at_targets(self, written, source, targets):
    """Written, targets int [B, T] -> Copied."""
    found = copy_attention.at_targets(self.queries(written), source, targets)
    return Copied(*self.log_gates(written.h, source), *found)

  def copied_from(self, written, source, targets, logits):
    """Written, targets int [B, T], logits [B, T, V] -> CopiedFrom."""
    copied = self.at_targets(written, source, targets)
    log_p = jax.nn.log_softmax(layers.at_least_float32(logits))
    log_p = jnp.take_along_axis(log_p, targets[..., None], -1)[..., 0]
    share = jnp.exp(copied.log_copy + copied.log_mass - copied.mixed(log_p))
    found = copy_attention.places(self.queries(written), source, targets)
    return CopiedFrom(share, *found)

  def log_probs(self, written, source, logits):
    """Returns log p of all tokens. Not meant to be differentiated.

    logits [B, T, V], the vocabulary's -> [B, T, V], float32 at least.
    """
    copied = copy_attention.of_all(
        self.queries(written), source, logits.shape[-1]
    )
    log_gate, log_copy = (
        x[..., None] for x in self.log_gates(written.h, source)
    )
    least = jnp.finfo(copied.dtype).tiny
    return jnp.logaddexp(
        log_gate + jax.nn.log_softmax(layers.at_least_float32(logits)),
        log_copy + jnp.log(jnp.maximum(copied, least)),
    )

  def log_gates(self, h, source):
    """h [B, T, D] -> log g, log (1 - g), [B, T] each.

    g is 1 for a document without tokens: nothing can be copied.
    """
    score = self.gate(layers.at_least_float32(h))[..., 0]
    has_tokens = source.mask.any(1)[:, None]
    never = jnp.finfo(score.dtype).min
    return (
        jnp.where(has_tokens, jax.nn.log_sigmoid(score), 0),
        jnp.where(has_tokens, jax.nn.log_sigmoid(-score), never),
    )


def with_tokens(config, memory, inputs):
  """Adds to a memory the inputs, 'tokens', and 'before' of `tokens_before`."""
  if not config.copy:
    return memory
  before = tokens_before(inputs, config.copy_ngram)
  return memory | {'tokens': inputs, 'before': before}


def tokens_before(tokens, most):
  """Returns the tokens before each token, the nearest first.

  tokens int [..., S] -> int [..., S, N = most], -1 before the first token.
  """
  S, lead = tokens.shape[-1], [(0, 0)] * (tokens.ndim - 1)
  padded = jnp.pad(tokens, [*lead, (most, 0)], constant_values=-1)
  found = [
      padded[..., most - n : most - n + S, None] for n in range(1, most + 1)
  ]
  return jnp.concatenate([tokens[..., None][..., :0], *found], axis=-1)


class CopyingModel(nn.Module):
  """A model with `config` and `head`, and a copy head if config.copy is set.

  With a copy head the memory also holds what `with_tokens` adds,
  `decoder_states` returns a `Written` instead of h, and `decode` and `step`
  return log-probabilities instead of logits; log_softmax does not change them.
  """

  def make_copy_head(self):
    """Returns the head, or None. Call it in `setup`."""
    c = self.config
    if not c.copy:
      return None
    return CopyHead(c.d_model, c.copy_dim, c.copy_ngram, self.dtype)

  def source(self, memory):
    """Returns `CopyHead.source` of a memory; None without a copy head."""
    return self.copy_head.source(memory) if self.config.copy else None

  def written(self, h, targets_in):
    """h [B, T, D], targets_in int [B, T] -> h, or `Written` with a copy head.

    The first target has one token before it, the start token.
    """
    if not self.config.copy:
      return h
    most = self.config.copy_ngram
    # A target follows the token that the decoder reads for it.
    behind = jnp.pad(targets_in, ((0, 0), (0, 1)))
    return Written(h, tokens_before(behind, most)[:, 1:])

  def predict(self, written, source):
    """written of `written`, source of `source` -> logits [B, T, V]."""
    if source is None:
      return self.head(written)
    return self.copy_head.log_probs(written, source, self.head(written.h))

  def with_source(self, shared, per_row, memory):
    """Adds to caches 'source' and 'before', that of the token read next."""
    source = self.source(memory)
    if source is None:
      return shared, per_row
    before = jnp.full(
        (source.mask.shape[0], self.config.copy_ngram), -1, jnp.int32
    )
    return shared | {'source': source}, per_row | {'before': before}

  def predict_next(self, h, tokens, shared, per_row, caches):
    """The last part of a `step`: logits or log p [R, V], and per_row.

    Args:
      h: [R, 1, D].
      tokens: int [R], read in this step.
      shared, per_row: the caches before the step.
      caches: per_row after it, without the entries of the copy head.
    """
    source = shared.get('source')
    if source is None:
      return self.head(h)[:, 0], caches
    before = jnp.concatenate([tokens[:, None], per_row['before']], axis=1)
    before = before[:, : self.config.copy_ngram]
    documents = source.mask.shape[0]
    shape = documents, tokens.size // documents
    written = Written(h.reshape(*shape, -1), before.reshape(*shape, -1))
    logits = self.predict(written, source)
    return logits.reshape(-1, logits.shape[-1]), caches | {'before': before}

  def copied(self, written, source, targets):
    """written of `written`, targets [B, T] -> `Copied`."""
    return self.copy_head.at_targets(written, source, targets)

  def copied_from(self, memory, targets_in, targets):
    """Where targets [B, T] were copied from, given targets_in: `CopiedFrom`."""
    written, source = self.decoder_states(memory, targets_in)
    logits = self.head(written.h)
    return self.copy_head.copied_from(written, source, targets, logits)
