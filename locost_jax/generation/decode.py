"""Writing a summary token by token: greedy, beam search, sampling.

Of the model it needs only `step(tokens [R], shared, per_row) -> (logits [R, V],
per_row)`. Every method has three functions: `begin` makes a state, `advance`
runs one `while_loop` over tokens on the device, `finish` reads the result. The
state may be advanced a few tokens at a time; `until` is traced, so all calls
share one compiled program.

Scores are sums of log p over the tokens written, divided by a length penalty:
- 'hugging_face': length^p. The length counts the start token but not eos.
- 'gnmt': ((5 + length) / 6)^p (Wu et al. 2016, equation 14). The length counts
  the tokens written, eos too.
For a text that ends with eos both are the number of tokens written. The
repetition penalty changes log p in beam search and logits otherwise. Banned
tokens get log p = -inf without renormalising, forced tokens log p = 0.

Beam search is that of Hugging Face's transformers 4.30: of the 2K best
continuations of K beams, those among the first K that end with eos become
finished texts, and the K best others continue. A document is done when it has K
finished texts and no beam, penalised at its current length, beats the worst of
them; with `early_stopping` K finished texts suffice. Beams still open at the
end count as finished. Reordering beams copies no caches: see
`ops.beam_attention`. transformers 5 differs: the length of an open beam is the
number of tokens written, only beams that continue can prevent the end, and at
the end only open beams among the first K continuations count.

Lengths count written tokens, eos included and the start token not. Axes: B
documents, K beams, R = B * K rows, T max_length, V vocabulary.
"""

import jax
import jax.numpy as jnp

from locost_jax.config import decode_settings
from locost_jax.generation import decode_limits

NEVER = decode_limits.NEVER
# The score of a finished text with a banned token. Below it: no text.
WORST = float(jnp.finfo(jnp.float32).min)
# The score of all beams but the first, which are equal to it at the start.
UNUSED = -1e9
# The key of per_row whose arrays are never reordered: the caches.
STAYS = 'own'


def penalty(settings, length, ended):
  """The divisor of the sum of log p; length counts eos if it has `ended`."""
  if settings.length_penalty_form == 'hugging_face':
    base = jnp.where(ended, length, length + 1)
  else:
    base = (5 + length) / 6
  return base.astype(jnp.float32) ** settings.length_penalty


def begin(settings, per_row, batch_size, keys=None, inputs=None):
  """The state before the first token, a dict.

  position (scalar, tokens written), written [R, 1 + T] with the start token
  first, scores [R] (sums of log p), done [B], per_row, and entries of its
  method: beams with caches have ancestors, int [B, K, T].

  Args:
    per_row: the model's state per row, for one row per document. It moves with
      its beam, except for per_row['own'] of a dict, which stays in its row.
    keys: one random key per document [B]; only sampling needs them.
    inputs: token ids of the documents [B, ...]; only
      encoder_no_repeat_ngram_size needs them.
  """
  method = decode_settings.method_of(settings)
  K, T = settings.num_beams, settings.max_length
  rows = batch_size * K
  written = jnp.full((rows, 1 + T), settings.pad_id, jnp.int32)
  state = dict(
      position=jnp.int32(0),
      written=written.at[:, 0].set(settings.start_id),
      scores=jnp.zeros(rows, jnp.float32),
      done=jnp.zeros(batch_size, bool),
      per_row=jax.tree.map(lambda x: jnp.repeat(x, K, axis=0), per_row),
  )
  if method == 'sample':
    state['keys'] = keys
  if settings.encoder_no_repeat_ngram_size:
    state['inputs'] = inputs
  if method == 'beam':
    first = jnp.arange(rows) % K == 0
    state['scores'] = jnp.where(first, 0.0, UNUSED).astype(jnp.float32)
    # The finished texts, best first; -inf: no text.
    state['texts'] = jnp.full(
        (batch_size, K, 1 + T), settings.pad_id, jnp.int32
    )
    state['text_scores'] = jnp.full((batch_size, K), NEVER, jnp.float32)
    if isinstance(per_row, dict) and STAYS in per_row:
      ancestors = jnp.full((batch_size, K, T), -1, jnp.int32)
      state['ancestors'] = ancestors.at[:, :, 0].set(_beams(K))
  return state


def advance(settings, step, shared, state, until):
  """Writes tokens until every document is done or `until` are written.

  Args:
    step: (tokens [R], shared, per_row) -> (logits [R, V], per_row). If the
      state has ancestors, they are a fourth argument.
    shared: what the model keeps per document.
    state: of `begin` or `advance`, like the result.
    until: scalar, capped at max_length.
  """
  beams = decode_settings.method_of(settings) == 'beam'
  until = jnp.minimum(until, settings.max_length)

  def unfinished(state):
    return (state['position'] < until) & ~state['done'].all()

  def write(state):
    position, written = state['position'], state['written']
    tokens = jnp.take(written, position, axis=1)
    table = (state['ancestors'],) if 'ancestors' in state else ()
    logits, per_row = step(tokens, shared, state['per_row'], *table)
    scores = _log_p(settings, logits, written, position)
    scores = decode_limits.process(
        settings, scores, written, position, state.get('inputs')
    )
    state = dict(state, per_row=per_row)
    state = (_write_beams if beams else _write_row)(settings, scores, state)
    return dict(state, position=position + 1)

  return jax.lax.while_loop(unfinished, write, state)


def _log_p(settings, logits, written, position):
  """The log p of the next token, with the repetition penalty: [R, V]."""
  penalise = lambda scores: decode_limits.penalise_repetition(
      scores, written, position + 1, settings.repetition_penalty
  )
  if decode_settings.method_of(settings) == 'beam':
    return penalise(jax.nn.log_softmax(logits).astype(jnp.float32))
  return jax.nn.log_softmax(penalise(logits)).astype(jnp.float32)


def _write_row(settings, scores, state):
  """The next token of every row: the best one, or one drawn."""
  position, done = state['position'], state['done']
  if decode_settings.method_of(settings) == 'sample':
    keys = jax.vmap(jax.random.fold_in, (0, None))(state['keys'], position)
    tokens = jax.vmap(jax.random.categorical)(
        keys, decode_limits.restrict(settings, scores)
    )
  else:
    tokens = scores.argmax(-1)
  gained = jnp.take_along_axis(scores, tokens[:, None], axis=1)[:, 0]
  tokens = jnp.where(done, settings.pad_id, tokens).astype(jnp.int32)
  return dict(
      state,
      written=state['written'].at[:, position + 1].set(tokens),
      scores=state['scores'] + jnp.where(done, 0, gained),
      done=done | (tokens == settings.eos_id),
  )


def _write_beams(settings, scores, state):
  """The K best continuations of every document, and its finished texts."""
  K, position, done = settings.num_beams, state['position'], state['done']
  B, V = done.size, scores.shape[1]
  scores = (state['scores'][:, None] + scores).reshape(B, K * V)
  scores, places = decode_limits.top_k(scores, 2 * K)
  parents, tokens = places // V, (places % V).astype(jnp.int32)
  written = _take(state['written'].reshape(B, K, -1), parents)
  written = written.at[:, :, position + 1].set(tokens)
  ended = tokens == settings.eos_id

  length = position + 1
  finished = ended & (jnp.arange(2 * K) < K) & ~done[:, None]
  texts, text_scores = _keep_best(
      state,
      written,
      jnp.where(finished, _worth(settings, scores, length, True), NEVER),
  )
  full = text_scores[:, -1] > NEVER
  if settings.early_stopping:
    done = done | full
  else:
    hope = _worth(settings, scores[:, 0], length, False)
    done = done | full & (text_scores[:, -1] >= hope)

  # The first K that have not ended. K exist: a beam ends in one way only.
  going_on = jnp.argsort(ended, axis=1, stable=True)[:, :K]
  parents = _take(parents, going_on)
  return dict(
      _reorder(state, parents),
      written=_take(written, going_on).reshape(B * K, -1),
      scores=_take(scores, going_on).reshape(-1),
      done=done,
      texts=texts,
      text_scores=text_scores,
  )


def _reorder(state, parents):
  """The state in which beam k continues beam parents[k]; parents [B, K].

  The caches stay in place: the beam copies a row of ancestors instead.
  """
  B, K = parents.shape

  def take(x):
    return _take(x.reshape(B, K, *x.shape[1:]), parents).reshape(x.shape)

  if 'ancestors' not in state:
    return dict(state, per_row=jax.tree.map(take, state['per_row']))
  ancestors = _take(state['ancestors'], parents)
  return dict(
      state,
      ancestors=ancestors.at[:, :, state['position'] + 1].set(_beams(K)),
      per_row={
          key: x if key == STAYS else jax.tree.map(take, x)
          for key, x in state['per_row'].items()
      },
  )


def _beams(K):
  """The numbers of the beams, int32 as the table of ancestors is."""
  return jnp.arange(K, dtype=jnp.int32)


def _take(x, places):
  """x [B, N, ...], places [B, M] -> [B, M, ...], each document by itself."""
  return jax.vmap(lambda x, i: x[i])(x, places)


def _worth(settings, scores, length, ended):
  """Penalised scores of texts, at least WORST."""
  worth = scores / penalty(settings, length, ended)
  return jnp.maximum(worth, WORST)


def _keep_best(state, written, scores):
  """The K best of the finished texts and new ones: [B, K, 1 + T], [B, K]."""
  texts = jnp.concatenate([state['texts'], written], axis=1)
  scores = jnp.concatenate([state['text_scores'], scores], axis=1)
  scores, places = jax.lax.top_k(scores, state['text_scores'].shape[1])
  return _take(texts, places), scores


def finish(settings, state):
  """The best text of every document: tokens int32 [B, T], scores [B].

  Tokens up to and including eos, then pad; scores are the sum of log p divided
  by the length penalty.
  """
  position, done = state['position'], state['done']
  if decode_settings.method_of(settings) == 'beam':
    B, K = state['text_scores'].shape
    scores = _worth(settings, state['scores'].reshape(B, K), position, False)
    texts, scores = _keep_best(
        state,
        state['written'].reshape(B, K, -1),
        jnp.where(done[:, None], NEVER, scores),
    )
    return texts[:, 0, 1:], scores[:, 0]
  tokens = state['written'][:, 1:]
  length = (tokens == settings.eos_id).argmax(1) + 1
  length = jnp.where(done, length, position)
  return tokens, state['scores'] / penalty(settings, length, done)
