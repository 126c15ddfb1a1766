"""Writing a summary token by token: greedy, beam search, sampling.

Works on any model through its `step(tokens [R], shared, per_row) -> (logits
[R, V], per_row)` and knows nothing else of it. All methods are three functions:
`begin` makes a state, `advance` runs one `while_loop` over tokens without
coming back to the host, `finish` reads the result off. The state may be advanced
piecewise; `until` is traced, so all pieces are one compiled program.

Scores are sums of log p over the tokens written, divided by a length penalty:
- 'hugging_face': length^p. The length counts the start token but not eos.
- 'gnmt': ((5 + length) / 6)^p (Wu et al. 2016, equation 14). The length counts
  the tokens written, eos too.
Both are the number of tokens written where a text ends with eos. What is banned
gets log p = -inf without renormalising, a forced token log p = 0.

Beam search is that of Hugging Face's transformers 4.30: of the 2K best
continuations of K beams, those among the first K that end with eos are kept as
finished texts, the K best others go on. A document is done when it has K
finished texts and none of its beams, penalised at its present length, is better
than the worst of them; with `early_stopping` K finished texts suffice. Beams
that are open at the end count as finished.

Lengths count written tokens, eos included and the start token not. Axes: B
documents, K beams, R = B * K rows, T max_length, V vocabulary.
"""

import dataclasses
import numbers

import jax
import jax.numpy as jnp

from locost_jax import decode_limits
from locost_jax.errors import InputError

METHODS = 'greedy', 'beam', 'sample'
LENGTH_PENALTY_FORMS = 'hugging_face', 'gnmt'
# What a setting is when it asks for nothing.
SAMPLING = {'temperature': 1.0, 'top_k': 0, 'top_p': 1.0}

NEVER = decode_limits.NEVER
# A finished text that had to take a banned token; below it, no text at all.
WORST = float(jnp.finfo(jnp.float32).min)
# The score of all beams but the first, which are equal to it at the start.
UNUSED = -1e9


@dataclasses.dataclass(frozen=True)
class Settings:
  """How to write; hashable, static under jit.

  Attributes:
    method: 'greedy', 'beam', 'sample', or '': what the others ask for, that is
      'beam' with num_beams above 1, 'sample' with a temperature, top_k or top_p
      of its own, else 'greedy'.
    max_length: most tokens written.
    min_length: fewest tokens written.
    no_repeat_ngram_size: n-grams of this size are written at most once in a
      text, start token included; 0: no limit.
    num_beams: K.
    length_penalty: the exponent p.
    length_penalty_form: 'hugging_face' or 'gnmt'.
    early_stopping: whether a document is done with its first K finished texts.
    temperature: what log p is divided by before sampling.
    top_k: sample from this many of the most probable tokens; 0: all.
    top_p: sample from the fewest most probable tokens that have this much
      probability together; 1: all. After temperature and top_k.
    forced_first_token: the first token; -1: none.
    forced_last_token: the token at max_length; -1: none.
    eos_id: the token that ends a text.
    pad_id: the token after it.
    start_id: what the first step reads.
  """
  method: str = ''
  max_length: int = 512
  min_length: int = 0
  no_repeat_ngram_size: int = 0
  num_beams: int = 1
  length_penalty: float = 1.0
  length_penalty_form: str = 'hugging_face'
  early_stopping: bool = False
  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0
  forced_first_token: int = -1
  forced_last_token: int = -1
  eos_id: int = 1
  pad_id: int = 0
  start_id: int = 0


def method_of(settings):
  """'greedy', 'beam' or 'sample'."""
  if settings.method:
    return settings.method
  if settings.num_beams > 1:
    return 'beam'
  own = any(getattr(settings, key) != SAMPLING[key] for key in SAMPLING)
  return 'sample' if own else 'greedy'


def change(settings, changes):
  """Settings with some values replaced; the method follows what is asked for.

  num_beams asks for beam search (1: for none), temperature, top_k or top_p for
  sampling, unless `method` is among the changes. Where the method changes, what
  belongs to the former one is forgotten.

  Args:
    settings: a Settings.
    changes: dict of its fields; None: as it is.
  """
  changes = {key: x for key, x in changes.items() if x is not None}
  before = method_of(settings)
  if 'method' in changes:
    method = changes['method']
  elif SAMPLING.keys() & changes.keys():
    method = 'sample'
  elif changes.get('num_beams', 1) != 1:
    method = 'beam'
  elif 'num_beams' in changes and before == 'beam':
    method = 'greedy'
  else:
    method = before
  if method != before:
    changes = {'num_beams': 1, **SAMPLING, **changes}
  return dataclasses.replace(settings, **{**changes, 'method': method})


def with_ids(settings, vocabulary):
  """Settings with the eos_id, pad_id and start_id of a vocabulary."""
  return dataclasses.replace(
      settings, eos_id=vocabulary.eos_id, pad_id=vocabulary.pad_id,
      start_id=vocabulary.start_id)


def from_config(values):
  """config.decode, or what an older run kept of it -> checked Settings.

  Args:
    values: dict of fields of Settings; `seed` is passed over.

  Raises:
    InputError: an unknown key, or a value that cannot be.
  """
  values = {key: x for key, x in dict(values).items() if key != 'seed'}
  names = [field.name for field in dataclasses.fields(Settings)]
  for key in values:
    if key not in names:
      raise InputError(f'decode.{key}: unknown; expected one of '
                       f'{", ".join(names)}')
  settings = Settings(**values)
  check(settings)
  return settings


def check(settings, vocab_size=None):
  """Raises an InputError for settings that cannot be.

  Args:
    settings: a Settings.
    vocab_size: the model's, or None: forced tokens are not compared with it.
  """
  s = settings

  def need(good, key, expected):
    if not good:
      raise InputError(f'{key}={getattr(s, key)!r} must {expected}')

  for key, least in (
      ('max_length', 1), ('no_repeat_ngram_size', 0), ('num_beams', 1),
      ('top_k', 0), ('forced_first_token', -1), ('forced_last_token', -1),
      ('eos_id', 0), ('pad_id', 0), ('start_id', 0)):
    value = getattr(s, key)
    need(_is_integer(value) and value >= least, key,
         f'be an integer of at least {least}')
  need(_is_integer(s.min_length) and 0 <= s.min_length <= s.max_length,
       'min_length', f'lie between 0 and max_length={s.max_length}')
  for key in ('length_penalty', 'temperature', 'top_p'):
    value = getattr(s, key)
    need(isinstance(value, numbers.Real) and abs(value) < float('inf'), key,
         'be a number')
  need(s.temperature > 0, 'temperature', 'be above 0')
  need(0 < s.top_p <= 1, 'top_p', 'be above 0 and at most 1')
  need(isinstance(s.early_stopping, bool), 'early_stopping',
       'be True or False')
  need(s.method in ('', *METHODS), 'method',
       f'be one of {", ".join(map(repr, METHODS))}')
  need(s.length_penalty_form in LENGTH_PENALTY_FORMS, 'length_penalty_form',
       f'be one of {", ".join(map(repr, LENGTH_PENALTY_FORMS))}')
  method = method_of(s)
  if method == 'beam':
    need(s.num_beams > 1, 'num_beams', "be at least 2 with method='beam'")
  else:
    need(s.num_beams == 1, 'num_beams', f'be 1 with method={method!r}')
  if method != 'sample':
    for key, neutral in SAMPLING.items():
      need(getattr(s, key) == neutral, key,
           f'be {neutral} with method={method!r}: only sampling has it')
  if vocab_size is not None:
    for key in ('forced_first_token', 'forced_last_token'):
      need(getattr(s, key) < vocab_size, key,
           f"be below the vocabulary's size, {vocab_size}")


def _is_integer(value):
  return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def penalty(settings, length, ended):
  """What the sum of log p is divided by: length counts eos if it has `ended`.
  """
  if settings.length_penalty_form == 'hugging_face':
    base = jnp.where(ended, length, length + 1)
  else:
    base = (5 + length) / 6
  return base.astype(jnp.float32) ** settings.length_penalty


def begin(settings, per_row, batch_size, keys=None):
  """The state before the first token.

  Args:
    settings: a Settings.
    per_row: what the model keeps per row, for one row per document.
    batch_size: B.
    keys: one random key per document [B]; only sampling needs them.

  Returns:
    A dict: position (scalar, tokens written), written [R, 1 + T] with the start
    token first, scores [R] (sums of log p), done [B], per_row, and what its
    method needs more.
  """
  method = method_of(settings)
  K, T = settings.num_beams, settings.max_length
  rows = batch_size * K
  written = jnp.full((rows, 1 + T), settings.pad_id, jnp.int32)
  state = dict(
      position=jnp.int32(0), written=written.at[:, 0].set(settings.start_id),
      scores=jnp.zeros(rows, jnp.float32), done=jnp.zeros(batch_size, bool),
      per_row=jax.tree.map(lambda x: jnp.repeat(x, K, axis=0), per_row))
  if method == 'sample':
    state['keys'] = keys
  if method == 'beam':
    first = jnp.arange(rows) % K == 0
    state['scores'] = jnp.where(first, 0.0, UNUSED).astype(jnp.float32)
    # The finished texts, best first; -inf: there is none.
    state['texts'] = jnp.full((batch_size, K, 1 + T), settings.pad_id,
                              jnp.int32)
    state['text_scores'] = jnp.full((batch_size, K), NEVER, jnp.float32)
  return state


def advance(settings, step, shared, state, until):
  """Writes tokens until every document is done or `until` are written.

  Args:
    settings: a Settings.
    step: (tokens [R], shared, per_row) -> (logits [R, V], per_row).
    shared: what the model keeps per document.
    state: of `begin` or `advance`.
    until: scalar, at most max_length counts.

  Returns:
    The new state.
  """
  beams = method_of(settings) == 'beam'
  until = jnp.minimum(until, settings.max_length)

  def unfinished(state):
    return (state['position'] < until) & ~state['done'].all()

  def write(state):
    position, written = state['position'], state['written']
    tokens = jnp.take(written, position, axis=1)
    logits, per_row = step(tokens, shared, state['per_row'])
    scores = jax.nn.log_softmax(logits).astype(jnp.float32)
    scores = decode_limits.process(settings, scores, written, position)
    state = dict(state, per_row=per_row)
    state = (_write_beams if beams else _write_row)(settings, scores, state)
    return dict(state, position=position + 1)

  return jax.lax.while_loop(unfinished, write, state)


def _write_row(settings, scores, state):
  """The next token of every row: the best one, or one drawn."""
  position, done = state['position'], state['done']
  if method_of(settings) == 'sample':
    keys = jax.vmap(jax.random.fold_in, (0, None))(state['keys'], position)
    tokens = jax.vmap(jax.random.categorical)(
        keys, decode_limits.restrict(settings, scores))
  else:
    tokens = scores.argmax(-1)
  gained = jnp.take_along_axis(scores, tokens[:, None], axis=1)[:, 0]
  tokens = jnp.where(done, settings.pad_id, tokens).astype(jnp.int32)
  return dict(
      state, written=state['written'].at[:, position + 1].set(tokens),
      scores=state['scores'] + jnp.where(done, 0, gained),
      done=done | (tokens == settings.eos_id))


def _write_beams(settings, scores, state):
  """The K best continuations of every document, and its finished texts."""
  K, position, done = settings.num_beams, state['position'], state['done']
  B, V = done.size, scores.shape[1]
  scores = (state['scores'][:, None] + scores).reshape(B, K * V)
  scores, places = jax.lax.top_k(scores, 2 * K)
  parents, tokens = places // V, (places % V).astype(jnp.int32)
  written = _take(state['written'].reshape(B, K, -1), parents)
  written = written.at[:, :, position + 1].set(tokens)
  ended = tokens == settings.eos_id

  length = position + 1
  finished = ended & (jnp.arange(2 * K) < K) & ~done[:, None]
  texts, text_scores = _keep_best(
      state, written,
      jnp.where(finished, _worth(settings, scores, length, True), NEVER))
  full = text_scores[:, -1] > NEVER
  if settings.early_stopping:
    done = done | full
  else:
    hope = _worth(settings, scores[:, 0], length, False)
    done = done | full & (text_scores[:, -1] >= hope)

  # The first K that have not ended: there are K, a beam ends in one way only.
  going_on = jnp.argsort(ended, axis=1, stable=True)[:, :K]
  parents = _take(parents, going_on)
  per_row = jax.tree.map(
      lambda x: _take(x.reshape(B, K, *x.shape[1:]), parents).reshape(x.shape),
      state['per_row'])
  return dict(
      state, written=_take(written, going_on).reshape(B * K, -1),
      scores=_take(scores, going_on).reshape(-1), done=done, per_row=per_row,
      texts=texts, text_scores=text_scores)


def _take(x, places):
  """x [B, N, ...], places [B, M] -> [B, M, ...], each document by itself."""
  return jax.vmap(lambda x, i: x[i])(x, places)


def _worth(settings, scores, length, ended):
  """Scores of texts, above those of no text."""
  worth = scores / penalty(settings, length, ended)
  return jnp.maximum(worth, WORST)


def _keep_best(state, written, scores):
  """The K best of the finished texts and new ones: [B, K, 1 + T], [B, K]."""
  texts = jnp.concatenate([state['texts'], written], axis=1)
  scores = jnp.concatenate([state['text_scores'], scores], axis=1)
  scores, places = jax.lax.top_k(scores, state['text_scores'].shape[1])
  return _take(texts, places), scores


def finish(settings, state):
  """The result: the best text of every document.

  Returns:
    tokens int32 [B, T], up to and including eos, then pad; and their scores
    [B], the sum of log p divided by the length penalty.
  """
  position, done = state['position'], state['done']
  if method_of(settings) == 'beam':
    B, K = state['text_scores'].shape
    scores = _worth(
        settings, state['scores'].reshape(B, K), position, False)
    texts, scores = _keep_best(
        state, state['written'].reshape(B, K, -1),
        jnp.where(done[:, None], NEVER, scores))
    return texts[:, 0, 1:], scores[:, 0]
  tokens = state['written'][:, 1:]
  length = (tokens == settings.eos_id).argmax(1) + 1
  length = jnp.where(done, length, position)
  return tokens, state['scores'] / penalty(settings, length, done)
