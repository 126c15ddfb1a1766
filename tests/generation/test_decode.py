"""Greedy decoding, beam search and sampling on scripted tables.

In these tables the next token depends on the document, the position and,
through `per_row`, on all earlier tokens, so a cache that does not follow its
beam is detected.
"""

import functools
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from locost_jax.config import decode_settings
from locost_jax.errors import InputError
from locost_jax.generation import decode
from locost_jax.generation import decode_limits

MEMORIES = 5  # number of states in which a row remembers its earlier tokens


def step(tokens, table, per_row):
  """Reads logits from table [B, T, MEMORIES, V]; R / B rows per document."""
  past, position = per_row
  past = (3 * past + tokens) % MEMORIES
  documents = jnp.arange(tokens.size) // (tokens.size // table.shape[0])
  return table[documents, position, past], (past, position + 1)


# Ids of documents for encoder_no_repeat_ngram_size: two pages of 9 tokens.
INPUTS = np.random.default_rng(1).integers(0, 9, (8, 2, 9))


@functools.partial(jax.jit, static_argnums=0)
def run(settings, table, keys=None):
  """Returns tokens [B, T] and scores [B]."""
  B = table.shape[0]
  zeros = jnp.zeros(B, jnp.int32)
  state = decode.begin(settings, (zeros, zeros), B, keys, INPUTS[:B])
  state = decode.advance(settings, step, table, state, settings.max_length)
  return decode.finish(settings, state)


def random_table(seed, B, T, V, eos=0.0):
  """Returns a random table of logits; `eos` is added to the logits of eos."""
  table = np.random.default_rng(seed).normal(size=(B, T, MEMORIES, V)) * 2
  table[..., 1] += eos
  return table.astype(np.float32)


def limited(s, table, document, written):
  """Returns log p [V] after the tokens written: penalty, bans, forced tokens."""
  past = 0
  for token in (s.start_id, *written):
    past = (3 * past + token) % MEMORIES
  logits = table[document, len(written), past].astype(np.float64)
  everything = [s.start_id, *written]
  if s.num_beams == 1:
    logits = penalised(s, logits, everything)
  scores = logits - np.log(np.exp(logits).sum())
  if s.num_beams > 1:
    scores = penalised(s, scores, everything)
  for n, texts in (
      (s.no_repeat_ngram_size, [everything]),
      (s.encoder_no_repeat_ngram_size, INPUTS[document].tolist()),
  ):
    grams = [
        text[i : i + n] for text in texts for i in range(len(text) - n + 1)
    ]
    for token in range(len(scores)):
      gram = [*everything, token][-n:]
      if n and len(gram) == n and gram in grams:
        scores[token] = -np.inf
  if len(written) + 1 < s.min_length:
    scores[s.eos_id] = -np.inf
  for forced, when in (
      (s.forced_first_token, 0),
      (s.forced_last_token, s.max_length - 1),
  ):
    if forced >= 0 and len(written) == when:
      scores[:] = -np.inf
      scores[forced] = 0
  return scores


def penalised(s, scores, everything):
  """Returns scores with the penalty of the tokens that are there."""
  p = s.repetition_penalty
  changed = np.where(scores < 0, scores * p, scores / p)
  is_there = np.isin(np.arange(len(scores)), everything)
  return np.where(is_there, changed, scores)


def worth(s, total, length, ended):
  if s.length_penalty_form == 'gnmt':
    return total / ((5 + length) / 6) ** s.length_penalty
  return total / (length + (0 if ended else 1)) ** s.length_penalty


def slow_greedy(s, table, document):
  written, total = [], 0.0
  while len(written) < s.max_length and s.eos_id not in written:
    scores = limited(s, table, document, written)
    written.append(int(scores.argmax()))
    total += scores[written[-1]]
  return written, worth(s, total, len(written), s.eos_id in written)


def slow_beams(s, table, document):
  """Beam search of one document of a table."""

  def score(texts, parents):
    del parents
    return [limited(s, table, document, written) for written in texts]

  return search_in_lists(s, score)[:2]


def search_in_lists(s, score):
  """Beam search of one document in lists; shares no code with decode.py.

  Args:
    s: a Settings.
    score: texts of the beams, and the beam that each was one token earlier ->
      for each beam the log p of its next token.

  Returns:
    (tokens, score, how often a beam continued another beam).
  """
  K = s.num_beams
  beams, parents = [(0.0, [])] + [(-1e9, [])] * (K - 1), range(K)
  texts, moved, done = [], 0, False
  for length in range(1, s.max_length + 1):
    log_p = score([written for _, written in beams], parents)
    candidates = sorted(
        (
            (total + own, k, [*written, token])
            for k, (total, written) in enumerate(beams)
            for token, own in enumerate(log_p[k])
        ),
        key=lambda candidate: -candidate[0],
    )[: 2 * K]
    for total, _, written in candidates[:K]:
      if written[-1] == s.eos_id:
        texts.append((worth(s, total, length, True), written))
    texts = sorted(texts, key=lambda text: -text[0])[:K]
    going_on = [x for x in candidates if x[2][-1] != s.eos_id][:K]
    parents = [k for _, k, _ in going_on]
    moved += sum(k != parent for k, parent in enumerate(parents))
    beams = [(total, written) for total, _, written in going_on]
    best = worth(s, candidates[0][0], length, False)
    if len(texts) == K and (s.early_stopping or texts[-1][0] >= best):
      done = True
      break
  if not done:
    texts += [
        (worth(s, total, s.max_length, False), written)
        for total, written in beams
    ]
  score, written = max(texts, key=lambda text: text[0])
  return written, score, moved


def compare(settings, tables, slow):
  """Returns how many texts ended with eos before the maximum, and did not."""
  ended, T = [], settings.max_length
  for table in tables:
    tokens, scores = run(settings, table)
    for document in range(len(table)):
      want, score = slow(settings, table, document)
      ended.append(len(want) < T)
      assert tokens[document].tolist() == want + [0] * (T - len(want))
      assert scores[document] == pytest.approx(score, rel=1e-4, abs=1e-5)
  return sum(ended), len(ended) - sum(ended)


LIMITS = (
    dict(),
    dict(min_length=4, no_repeat_ngram_size=2),
    dict(no_repeat_ngram_size=1, forced_last_token=1, start_id=3),
    dict(
        forced_first_token=4,
        forced_last_token=1,
        min_length=3,
        no_repeat_ngram_size=3,
    ),
    dict(repetition_penalty=1.7),
    dict(encoder_no_repeat_ngram_size=2, repetition_penalty=0.6, start_id=3),
    dict(encoder_no_repeat_ngram_size=3, no_repeat_ngram_size=2, min_length=2),
    # BART forces <s>, which is 0; here it is the padding as well.
    dict(forced_first_token=0, start_id=2),
)


@pytest.mark.parametrize('limits', LIMITS)
def test_greedy_matches_the_slow_loop(limits):
  settings = decode_settings.Settings(max_length=6, **limits)
  early, late = compare(
      settings,
      [random_table(seed, 8, 6, 9, 1.0) for seed in range(6)],
      slow_greedy,
  )
  assert early > 3 and late > 3


EARLY = dict(num_beams=4, length_penalty=2.0, early_stopping=True)
LATE = dict(num_beams=3, length_penalty=0.8)
GNMT = dict(num_beams=2, length_penalty=0.6, length_penalty_form='gnmt')


PAIRS = [(EARLY, i) for i in (0, 3, 4, 7)]
PAIRS += [(LATE, i) for i in (0, 2, 5)] + [(GNMT, i) for i in (0, 1, 6)]


@pytest.mark.parametrize('beams, i', PAIRS)
def test_beams_match_the_slow_search(beams, i):
  settings = decode_settings.Settings(max_length=7, **LIMITS[i], **beams)
  early, late = compare(
      settings,
      [
          random_table(seed, 4, 7, 9, bias)
          for seed in range(10)
          for bias in (-1.0, 0.5, 2.0)
      ],
      slow_beams,
  )
  assert early > 5 and late > 5


def test_enough_beams_find_the_best_of_all_texts():
  """3 tokens and eos: 27 beams hold all texts of length 3."""
  settings = decode_settings.Settings(
      num_beams=27, max_length=3, length_penalty=0.0
  )
  for seed in range(5):
    table = random_table(seed, 2, 3, 4)
    tokens, scores = run(settings, table)
    for document in range(2):
      best = max(
          (
              sum(
                  limited(settings, table, document, text[:i])[token]
                  for i, token in enumerate(text)
              ),
              text,
          )
          for n in (1, 2, 3)
          for text in itertools.product(range(4), repeat=n)
          if 1 not in text[:-1] and (n == 3 or text[-1] == 1)
      )
      assert scores[document] == pytest.approx(best[0], abs=1e-5)
      assert tokens[document].tolist() == [*best[1], 0, 0][:3]


@pytest.mark.parametrize('num_beams', (1, 2))
def test_the_loop_stops_when_all_documents_are_done(num_beams):
  table = np.zeros((2, 9, MEMORIES, 6), np.float32)
  table[..., 3] = 3
  table[0, 1:, :, 1] = 9
  table[1, 3:, :, 1] = 9
  table = jnp.asarray(table)
  zeros = jnp.zeros(2, jnp.int32)
  settings = decode_settings.Settings(max_length=9, num_beams=num_beams)
  state = decode.begin(settings, (zeros, zeros), 2)
  state = decode.advance(settings, step, table, state, 9)
  tokens, _ = decode.finish(settings, state)
  assert tokens[:, :4].tolist() == [[3, 1, 0, 0], [3, 3, 3, 1]]
  assert not tokens[:, 4:].any()
  assert 4 <= state['position'] < 9
  assert state['done'].all()


def test_pad_if_every_token_is_banned():
  """Each of four tokens is written once; then every token is banned."""
  settings = decode_settings.Settings(
      max_length=7, min_length=7, no_repeat_ngram_size=1
  )
  tokens, scores = run(settings, random_table(0, 2, 7, 6))
  assert [sorted(row) for row in tokens[:, :4].tolist()] == [[2, 3, 4, 5]] * 2
  assert not tokens[:, 4:6].any() and np.isneginf(scores).all()


def numpy_restrict(scores, temperature, top_k, top_p):
  """The expected probabilities [V] of sampling in one row."""
  order = np.argsort(-scores)
  p = np.exp(scores[order] / temperature)
  p[top_k or len(p) :] = 0
  p /= p.sum()
  for i in range(1, len(p)):
    if p[:i].sum() >= top_p:
      p[i:] = 0
      break
  probabilities = np.empty_like(p)
  probabilities[order] = p / p.sum()
  return probabilities


@pytest.mark.parametrize(
    'temperature, top_k, top_p',
    (
        (1.0, 0, 1.0),
        (0.7, 1, 1.0),
        (1.5, 3, 1.0),
        (1.0, 0, 0.6),
        (0.5, 5, 0.8),
        (2.0, 50, 0.95),
        (1.0, 0, 1e-9),
    ),
)
def test_sampling_is_from_the_right_distribution(temperature, top_k, top_p):
  """Compares support and probabilities, then the counts of samples."""
  settings = decode_settings.Settings(
      method='sample',
      temperature=temperature,
      top_k=top_k,
      top_p=top_p,
      max_length=1,
  )
  rows = np.random.default_rng(0).normal(size=(20, 12)) * 2
  got = jax.nn.softmax(
      decode_limits.restrict(settings, jnp.asarray(rows, jnp.float32))
  )
  want = np.stack(
      [numpy_restrict(row, temperature, top_k, top_p) for row in rows]
  )
  np.testing.assert_array_equal(got > 0, want > 0)
  np.testing.assert_allclose(got, want, atol=1e-6)
  n = 4000
  table = np.broadcast_to(rows[0], (n, 1, MEMORIES, 12)).astype(np.float32)
  tokens, scores = run(settings, table, jax.random.split(jax.random.key(1), n))
  counts = np.bincount(tokens[:, 0], minlength=12)
  assert (counts[want[0] == 0] == 0).all()
  bound = 5 * np.sqrt(n * want[0] * (1 - want[0])) + 1e-3 * n
  assert (abs(counts - n * want[0]) <= bound).all()
  # The score is log p of the model, not of the sampling distribution.
  log_p = rows[0] - np.log(np.exp(rows[0]).sum())
  length = np.where(tokens[:, 0] == 1, 1, 2)
  np.testing.assert_allclose(scores, log_p[tokens[:, 0]] / length, rtol=1e-5)


@pytest.mark.parametrize('spread', (0.1, 4.0))
def test_a_nucleus_may_be_larger_than_the_first_sort(spread):
  """With probability spread out, and concentrated on few tokens."""
  rows = np.random.default_rng(0).normal(size=(5, 3 * decode_limits.NUCLEUS))
  rows *= spread
  settings = decode_settings.Settings(method='sample', top_p=0.8)
  got = jax.nn.softmax(
      decode_limits.restrict(settings, jnp.asarray(rows, jnp.float32))
  )
  want = np.stack([numpy_restrict(row, 1.0, 0, 0.8) for row in rows])
  sizes = (want > 0).sum(1)
  assert (sizes > decode_limits.NUCLEUS).all() == (spread < 1)
  assert (abs((got > 0).sum(1) - sizes) <= 1).all()  # 600 roundings
  both = (got > 0) & (want > 0)
  np.testing.assert_allclose(got[both], want[both], rtol=5e-3)


@pytest.mark.parametrize(
    'changes, message',
    (
        (dict(num_beams=2.5), 'num_beams=2.5: expected an integer, 1 <='),
        (dict(min_length=51, max_length=4), 'lie between 0 and max_length=4'),
        (dict(temperature=float('nan')), 'temperature=nan: expected a fin'),
        (dict(top_p=1.5), 'top_p=1.5: expected 0 < top_p <= 1'),
        (dict(num_beams=4, method='sample'), "must be 1 with method='sample'"),
        (
            dict(num_beams=4, temperature=0.7),
            'temperature=0.7 must be 1.0 with',
        ),
        (dict(method='best'), "method='best': expected one of '', 'greedy'"),
        (dict(early_stopping='never'), "='never': expected True or"),
        (dict(forced_first_token=99), "below the vocabulary's size, 50"),
        (dict(eos_id=[1, 2]), r'eos_id=\[1, 2\]: expected an integer, 0'),
    ),
)
def test_invalid_settings_are_named(changes, message):
  with pytest.raises(InputError, match=message) as error:
    decode_settings.check(decode_settings.Settings(**changes), vocab_size=50)
  assert '\n' not in str(error.value)


def test_the_method_follows_from_the_options():
  beams = decode_settings.Settings(
      num_beams=4, length_penalty=2.0, min_length=3
  )
  sampling = decode_settings.Settings(top_p=0.9, max_length=40)
  assert decode_settings.method_of(decode_settings.Settings()) == 'greedy'
  assert decode_settings.method_of(beams) == 'beam'
  assert decode_settings.method_of(sampling) == 'sample'

  def after(settings, **changes):
    changed = decode_settings.change(settings, changes)
    decode_settings.check(changed)
    return changed.method, changed.num_beams, changed.top_p, changed.temperature

  assert after(beams) == ('beam', 4, 1.0, 1.0)
  assert after(beams, num_beams=None, max_length=9) == ('beam', 4, 1.0, 1.0)
  assert after(beams, num_beams=1) == ('greedy', 1, 1.0, 1.0)
  assert after(beams, temperature=1.0) == ('sample', 1, 1.0, 1.0)
  assert after(beams, method='greedy') == ('greedy', 1, 1.0, 1.0)
  assert after(sampling, num_beams=2) == ('beam', 2, 1.0, 1.0)
  assert after(sampling, temperature=0.5) == ('sample', 1, 0.9, 0.5)
  assert after(sampling, num_beams=1) == ('sample', 1, 0.9, 1.0)
  assert decode_settings.change(beams, dict(num_beams=2)).length_penalty == 2.0
  with pytest.raises(InputError, match='num_beams=4 must be 1'):
    after(beams, num_beams=4, temperature=0.5)
  with pytest.raises(InputError, match='num_beams=0'):
    after(beams, num_beams=0)


def test_config_decode_becomes_settings():
  config = default.get_config().decode
  assert decode_settings.from_config(config) == decode_settings.Settings()
  config.num_beams = 4
  assert (
      decode_settings.method_of(decode_settings.from_config(config)) == 'beam'
  )
  old = dict(
      method='greedy', max_length=9, min_length=2, no_repeat_ngram_size=1
  )
  assert decode_settings.from_config(old).max_length == 9
  with pytest.raises(InputError, match='decode.beams: unknown option of decod'):
    decode_settings.from_config(dict(old, beams=4))


@pytest.mark.parametrize(
    'B, N, k',
    [(3, 1000, 5), (2, 16_000, 8), (1, 129, 1), (4, 300, 3), (4, 6, 6)],
)
@pytest.mark.parametrize('different', [2, 7, 10**6])
def test_top_k_matches_jax(B, N, k, different):
  """Also with repeated numbers, and with rows of -inf alone, or almost."""
  generator = np.random.default_rng(N)
  x = generator.integers(0, different, (B, N)).astype(np.float32)
  x[0, : N - k - 1] = x[1:2] = -np.inf
  numbers, places = jax.jit(decode_limits.top_k, static_argnums=1)(x, k)
  order = np.argsort(-x, axis=1, kind='stable')[:, :k]
  np.testing.assert_array_equal(places, order)
  np.testing.assert_array_equal(numbers, np.take_along_axis(x, order, 1))


def test_equal_numbers_in_different_blocks():
  """The largest number is in the last block, after equal smaller ones."""
  x = np.zeros((1, 10 * decode_limits.BLOCK), np.float32)
  x[0, [5, 900, 1200]] = 1, 1, 2
  x[0, 1201] = 1
  _, places = decode_limits.top_k(x, 4)
  assert places.tolist() == [[1200, 5, 900, 1201]]


def test_a_beam_search_sorts_no_whole_row():
  V, K = 4000, 4
  settings = decode_settings.Settings(max_length=6, num_beams=K)
  table = jax.ShapeDtypeStruct((2, 6, MEMORIES, V), np.float32)
  program = run.lower(settings, table).compile().as_text()
  rows = [
      int(size) for size in re.findall(r' = \(\w+\[2,(\d+)\].* sort\(', program)
  ]
  assert rows and max(rows) <= 2 * K * decode_limits.BLOCK < K * V
