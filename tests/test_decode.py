"""Greedy decoding against a loop over the parallel decoder."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax import decode
from locost_jax import models
from locost_jax.pretrained import Summarizer


def scripted(table):
  """A `step` that reads its logits from table [R, T, V], whatever came."""
  table = jnp.asarray(table, jnp.float32)

  def step(tokens, shared, position):
    del tokens, shared
    return table[jnp.arange(table.shape[0]), position], position + 1

  return step, jnp.zeros(table.shape[0], jnp.int32)


def preferring(*rows, vocab=8):
  """Logits that prefer the tokens of each row, then token 7, 6, ..."""
  table = np.tile(np.linspace(0, 1, vocab), (len(rows), len(rows[0]), 1))
  for r, row in enumerate(rows):
    table[r, np.arange(len(row)), row] = 5
  return table


def run(rows, max_length, **settings):
  step, start = scripted(preferring(*rows))
  return decode.greedy(
      step, None, start, len(rows), max_length, **settings).tolist()


def test_a_row_ends_at_its_eos_and_the_others_go_on():
  rows = [3, 4, 1, 5, 6], [3, 1, 4, 4, 4], [2, 3, 4, 5, 1]
  assert run(rows, 5) == [[3, 4, 1, 0, 0], [3, 1, 0, 0, 0], [2, 3, 4, 5, 1]]


def test_the_loop_stops_when_all_rows_have_ended():
  step, start = scripted(preferring([3, 1, 4, 4], [1, 4, 4, 4]))
  calls = []

  def counting(tokens, shared, position):
    jax.debug.callback(lambda: calls.append(1))
    return step(tokens, shared, position)

  decode.greedy(counting, None, start, 2, 4).block_until_ready()
  jax.effects_barrier()
  assert len(calls) == 2


def test_min_length_counts_eos():
  rows = [[1, 1, 1, 1, 1]]
  assert run(rows, 5, min_length=0) == [[1, 0, 0, 0, 0]]
  assert run(rows, 5, min_length=1) == [[1, 0, 0, 0, 0]]
  assert run(rows, 5, min_length=3) == [[7, 7, 1, 0, 0]]
  assert run(rows, 5, min_length=5) == [[7, 7, 7, 7, 1]]


@pytest.mark.parametrize('size', (1, 2, 3, 4))
def test_no_ngram_is_written_twice(size):
  """Against a search through the tokens written so far."""
  rng = np.random.default_rng(size)
  table = rng.normal(size=(3, 20, 6))
  table[..., 1] = -9
  step, start = scripted(table)
  got = decode.greedy(step, None, start, 3, 20, no_repeat_ngram_size=size)
  for r in range(3):
    want = []
    for t in range(20):
      seen = {tuple(want[i:i + size]) for i in range(t - size + 1)}
      allowed = [v for v in range(6)
                 if (*want[len(want) - size + 1:], v) not in seen]
      want.append(max(allowed, key=lambda v: table[r, t, v]) if allowed else 0)
      if want[-1] == 1:
        break
    want += [0] * (20 - len(want))
    assert got[r].tolist() == want


@pytest.fixture(scope='module')
def model_and_params():
  from configs import default  # pylint: disable=g-import-not-at-top
  config = default.get_config().model
  config.update(dict(vocab_size=20, d_model=32, d_state=8, d_ff=64, d_kv=8,
                     num_heads=4, num_layers=2, num_decoder_layers=2))
  model = models.build(config)
  one = np.ones((1, 4), np.int32)
  params = jax.jit(model.init)(jax.random.key(3), one, one)['params']
  # A longer embedding of eos: some rows end with it, at different places.
  embedding = params['token_embedding']['embedding']
  params['token_embedding']['embedding'] = embedding.at[1].multiply(3)
  return model, params


def slow_greedy(model, params, inputs, mask, max_length):
  """The whole decoder again for every token; each row by itself."""
  apply = jax.jit(model.apply)
  outputs = []
  for row, row_mask in zip(inputs, mask):
    written = []
    while len(written) < max_length and (not written or written[-1] != 1):
      targets_in = np.zeros((1, max_length), np.int32)
      targets_in[0, 1:1 + len(written)] = written[:max_length - 1]
      logits = apply({'params': params}, row[None], targets_in, row_mask[None])
      written.append(int(logits[0, len(written)].argmax()))
    outputs.append(written + [0] * (max_length - len(written)))
  return np.array(outputs)


def test_greedy_is_the_slow_loop_with_and_without_eos(model_and_params):
  """Rows that write eos early, late and never; ragged inputs; one batch."""
  model, params = model_and_params
  rng = np.random.default_rng(0)
  inputs = rng.integers(2, 20, (12, 11))
  mask = np.arange(11) < rng.integers(3, 12, 12)[:, None]
  want = slow_greedy(model, params, inputs * mask, mask, 10)
  ends = (want == 1).any(1)
  assert ends.any() and not ends.all(), 'the case must have both kinds of rows'
  assert (want[ends] == 0).any(), 'and an end before the maximum'
  got = Summarizer(model, params).generate(inputs * mask, mask, max_length=10)
  np.testing.assert_array_equal(
      np.pad(got, ((0, 0), (0, 10 - got.shape[1]))), want)


def test_rows_of_one_document_share_its_states(model_and_params):
  """R = 3 B rows with one copy of the caches equal three runs."""
  model, params = model_and_params
  inputs = np.random.default_rng(0).integers(2, 20, (2, 9))
  apply = functools.partial(model.apply, {'params': params})
  memory = apply(inputs, method='encode')
  shared, per_row = apply(memory, 6, method='init_cache')
  step = functools.partial(apply, method='step')
  want = decode.greedy(step, shared, per_row, 2, 6)
  tripled = jax.tree.map(lambda x: jnp.repeat(x, 3, 0), per_row)
  got = decode.greedy(step, shared, tripled, 6, 6)
  np.testing.assert_array_equal(got, np.repeat(want, 3, 0))
