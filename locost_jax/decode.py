"""Writing a summary token by token: greedy decoding.

Works on any model through its `step(tokens [R], shared, per_row) -> (logits
[R, V], per_row)` and knows nothing else of it. One jitted loop: nothing comes
back to the host until every row has finished.

Lengths count generated tokens, eos included and the start token not. Axes: R
rows, T written so far, V vocabulary.
"""

import jax
import jax.numpy as jnp

NEVER = float('-inf')


def ban_eos(logits, position, min_length, eos_id):
  """logits [R, V] without eos while the output would be below min_length."""
  too_short = position + 1 < min_length
  return logits.at[:, eos_id].set(
      jnp.where(too_short, NEVER, logits[:, eos_id]))


def ban_repeated_ngrams(logits, written, position, size):
  """logits [R, V] without the tokens that would write an n-gram twice.

  Args:
    logits: [R, V].
    written: [R, max_length], tokens before position are set.
    position: scalar, the next token's.
    size: n; 0 bans nothing.
  """
  if not size or size > written.shape[1]:
    return logits
  rows, length = written.shape
  starts = jnp.arange(length - size + 1)
  same = jnp.broadcast_to(starts + size <= position, (rows, starts.size))
  for i in range(size - 1):  # do the first n - 1 tokens equal the last written?
    last = jnp.take(written, position - (size - 1) + i, axis=1, mode='clip')
    same &= written[:, i:i + starts.size] == last[:, None]
  tokens = written[:, size - 1:]
  banned = jnp.zeros(logits.shape, bool)
  banned = banned.at[jnp.arange(rows)[:, None], tokens].max(same)
  return jnp.where(banned, NEVER, logits)


def greedy(step, shared, per_row, batch_size, max_length, eos_id=1, pad_id=0,
           start_id=0, min_length=0, no_repeat_ngram_size=0):
  """The most probable token at every step.

  Args:
    step: (tokens [R], shared, per_row) -> (logits [R, V], per_row).
    shared: what the model keeps per document.
    per_row: what it keeps per row, before the first token.
    batch_size: R, rows.
    max_length: most tokens written.
    eos_id: the token that ends a row.
    pad_id: the token after it.
    start_id: what the first step reads.
    min_length: fewest tokens written, eos included.
    no_repeat_ngram_size: no n-gram of this size twice in a row; 0: no limit.

  Returns:
    int32 [R, max_length]: tokens up to and including eos, then pad.
  """
  def unfinished(carry):
    position, _, _, done, _ = carry
    return (position < max_length) & ~done.all()

  def write(carry):
    position, tokens, written, done, per_row = carry
    logits, per_row = step(tokens, shared, per_row)
    logits = ban_eos(logits, position, min_length, eos_id)
    logits = ban_repeated_ngrams(
        logits, written, position, no_repeat_ngram_size)
    tokens = jnp.where(done, pad_id, logits.argmax(-1).astype(jnp.int32))
    written = written.at[:, position].set(tokens)
    return position + 1, tokens, written, done | (tokens == eos_id), per_row

  start = jnp.full((batch_size,), start_id, jnp.int32)
  written = jnp.full((batch_size, max_length), pad_id, jnp.int32)
  done = jnp.zeros((batch_size,), bool)
  carry = jnp.int32(0), start, written, done, per_row
  return jax.lax.while_loop(unfinished, write, carry)[2]
