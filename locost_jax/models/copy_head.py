"""A copy head: the next token comes from the vocabulary or from the input.

  q[t] = W_q h[t]                      of the decoder's last state h
  k[s] = W_k e[s]                      of the encoder's states e, which are read
  a[t, s] = softmax over s of q[t] . k[s]
  g[t] = sigmoid(w . h[t] + b)         the share of the vocabulary
  p[t](v) = g[t] p_vocabulary[t](v) + (1 - g[t]) sum of a[t, s] where x[s] = v

See et al. 2017, equations 8 and 9, with an attention of its own, `copy_dim`
wide, in place of the decoder's. Gate and mixture are in float32 at least.

Axes: B documents, S input tokens, T target length, D d_model, V vocabulary.
"""

from typing import NamedTuple

from flax import linen as nn
import jax
import jax.numpy as jnp

from locost_jax.models import layers
from locost_jax.ops import copy_attention


class Copied(NamedTuple):
  """The parts of the mixture at the targets but p_vocabulary, [B, T] each.

  log_gate: log g.
  log_copy: log (1 - g).
  log_mass: log of the attention that falls on the target.
  log_largest: log of the largest a[t, s].
  """

  log_gate: jax.Array
  log_copy: jax.Array
  log_mass: jax.Array
  log_largest: jax.Array

  def mixed(self, log_p):
    """log p of the targets, of their log p_vocabulary [B, T]."""
    return jnp.logaddexp(self.log_gate + log_p, self.log_copy + self.log_mass)


class CopiedFrom(NamedTuple):
  """Where the targets were copied from, [B, T] each.

  share: (1 - g) c(target) / p(target), the part of p that is copied.
  place: of the input tokens that are the target, the one that weighs most; of
    pages or chunks, all of them one after the other.
  weight: its attention; 0 where the input does not have the target.
  """

  share: jax.Array
  place: jax.Array
  weight: jax.Array


class CopyHead(nn.Module):
  """The parameters, and the mixture at the targets or of all tokens."""

  d_model: int
  copy_dim: int
  dtype: jnp.dtype

  def setup(self):
    D, C = self.d_model, self.copy_dim
    self.query = layers.dense(C, (D * C) ** -0.5, self.dtype, 'query')
    self.key = layers.dense(C, D**-0.5, self.dtype, 'key')
    precise = jnp.promote_types(self.dtype, jnp.float32)
    self.gate = layers.dense(1, D**-0.5, precise, 'gate', use_bias=True)

  def source(self, memory):
    """Returns the input as it is copied: its tokens and a key for each.

    Args:
      memory: {'states': [B, S, D], 'mask': [B, S], 'tokens': int [B, S]}.

    Returns:
      {'keys': [B, S, C], 'mask', 'tokens'}.
    """
    keys = self.key(memory['states'])
    return {'keys': keys, 'mask': memory['mask'], 'tokens': memory['tokens']}

  def at_targets(self, h, source, targets):
    """h [B, T, D], targets int [B, T] -> Copied."""
    log_mass, log_largest = copy_attention.at_targets(
        self.query(h), **source, targets=targets
    )
    return Copied(*self.log_gates(h, source), log_mass, log_largest)

  def copied_from(self, h, source, targets, logits):
    """h [B, T, D], targets int [B, T], logits [B, T, V] -> CopiedFrom."""
    copied = self.at_targets(h, source, targets)
    log_p = jax.nn.log_softmax(layers.at_least_float32(logits))
    log_p = jnp.take_along_axis(log_p, targets[..., None], -1)[..., 0]
    share = jnp.exp(copied.log_copy + copied.log_mass - copied.mixed(log_p))
    found = copy_attention.places(self.query(h), **source, targets=targets)
    return CopiedFrom(share, *found)

  def log_probs(self, h, source, logits):
    """Returns log p of all tokens. Not made to be differentiated.

    Args:
      h: [B, T, D].
      source: of `source`.
      logits: [B, T, V], the vocabulary's.

    Returns:
      [B, T, V], float32 at least.
    """
    copied = copy_attention.of_all(
        self.query(h), **source, vocab_size=logits.shape[-1]
    )
    log_gate, log_copy = (x[..., None] for x in self.log_gates(h, source))
    least = jnp.finfo(copied.dtype).tiny
    return jnp.logaddexp(
        log_gate + jax.nn.log_softmax(layers.at_least_float32(logits)),
        log_copy + jnp.log(jnp.maximum(copied, least)),
    )

  def log_gates(self, h, source):
    """h [B, T, D] -> log g, log (1 - g), [B, T] each.

    g is 1 where there is nothing to copy: in a document without tokens.
    """
    score = self.gate(layers.at_least_float32(h))[..., 0]
    has_tokens = source['mask'].any(1)[:, None]
    never = jnp.finfo(score.dtype).min
    return (
        jnp.where(has_tokens, jax.nn.log_sigmoid(score), 0),
        jnp.where(has_tokens, jax.nn.log_sigmoid(-score), never),
    )


def with_tokens(config, memory, inputs):
  """The memory of a model, with the input's tokens where they can be copied."""
  return memory | ({'tokens': inputs} if config.copy else {})


class CopyingModel(nn.Module):
  """A model with `config` and `head`, and a copy head where config.copy asks.

  With a copy head the memory also holds the input's 'tokens', and `decode` and
  `step` return log-probabilities in place of logits; log_softmax does not
  change them.
  """

  def make_copy_head(self):
    """Returns the head, or None. Call it in `setup`."""
    c = self.config
    return CopyHead(c.d_model, c.copy_dim, self.dtype) if c.copy else None

  def source(self, memory):
    """Returns `CopyHead.source` of a memory; None without a copy head."""
    return self.copy_head.source(memory) if self.config.copy else None

  def predict(self, h, source):
    """h [B, T, D], source of `source` -> logits [B, T, V], see above."""
    logits = self.head(h)
    if source is None:
      return logits
    return self.copy_head.log_probs(h, source, logits)

  def with_source(self, shared, memory):
    """Returns the shared caches with the `source`, where there is one."""
    source = self.source(memory)
    return shared if source is None else shared | {'source': source}

  def predict_next(self, h, shared):
    """h [R, 1, D] and the caches -> logits [R, V], see above."""
    source = shared.get('source')
    if source is None:
      return self.head(h)[:, 0]
    h = h.reshape(source['mask'].shape[0], -1, h.shape[-1])
    logits = self.predict(h, source)
    return logits.reshape(-1, logits.shape[-1])

  def copied(self, h, source, targets):
    """h [B, T, D], targets [B, T] -> `Copied`."""
    return self.copy_head.at_targets(h, source, targets)

  def copied_from(self, memory, targets_in, targets):
    """Where each target was copied from.

    Args:
      memory: of `encode`.
      targets_in: [B, T], what the decoder read.
      targets: [B, T], what it wrote.

    Returns:
      `CopiedFrom`.
    """
    h, source = self.decoder_states(memory, targets_in)
    return self.copy_head.copied_from(h, source, targets, self.head(h))
