"""Beams that read through a table of ancestors match beams that copy caches."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.generation import decode
from locost_jax.summarizing import batch_memory
from tests.generation.test_decode import search_in_lists
from tests.models import small
from tests.models import test_pagesum
from tests.ops.compiled import temporary_bytes

ONE = dict(num_layers=1, num_decoder_layers=3)
MODELS = {
    name: small.FAMILIES[name] | ONE
    for name in ('t5', 'longt5', 'locost', 'bart', 'pagesum')
}
MODELS['global'] = MODELS['pagesum'] | dict(decoding='global')
EARLY = decode_settings.Settings(
    num_beams=4, max_length=9, eos_id=7, pad_id=1, start_id=2
)
LATE = decode_settings.Settings(
    num_beams=3, max_length=12, eos_id=7, pad_id=1, start_id=2, min_length=12
)


@functools.lru_cache
def make(name):
  """(model, variables, memory) of a small model and two documents."""
  config = MODELS[name]
  model = models.build(config)
  inputs = small.documents()
  if config['name'] == 'pagesum':
    inputs = test_pagesum.documents()
  variables = small.moved_params(config, 0.1)
  encode = jax.jit(functools.partial(model.apply, method='encode'))
  return model, variables, encode(variables, inputs)


def boost_eos(step, settings, amount):
  """Wraps a step to raise the logit of eos, so that beams end at any length."""

  def boosted(*args):
    logits, per_row = step(*args)
    return logits.at[:, settings.eos_id].add(amount), per_row

  return boosted


def write(model, variables, memory, settings, copies=False):
  """Returns the final state of beam search; copies: beams copy their caches."""
  shared, per_row = model.apply(
      variables, memory, settings.max_length, method='init_cache'
  )
  step = functools.partial(model.apply, variables, method='step')
  if copies:
    per_row = {'moves': per_row}
    own = step

    def step(tokens, shared, per_row):
      logits, per_row = own(tokens, shared, per_row['moves'])
      return logits, {'moves': per_row}

  step = boost_eos(step, settings, 4.0)
  state = decode.begin(settings, per_row, memory['mask'].shape[0])
  return decode.advance(settings, step, shared, state, settings.max_length)


def copying_beams(s, step, shared, per_row):
  """Beam search of one document; beams copy their parent's caches.

  Returns:
    (tokens, score, how often a beam continued another beam).
  """
  per_row = jax.tree.map(lambda x: np.repeat(x, s.num_beams, axis=0), per_row)

  def score(texts, parents):
    nonlocal per_row
    per_row = jax.tree.map(lambda x: x[np.array(parents)].copy(), per_row)
    last = np.array([[s.start_id, *text][-1] for text in texts])
    logits, per_row = jax.tree.map(np.array, step(last, shared, per_row))
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    if len(texts[0]) + 1 < s.min_length:
      log_p[:, s.eos_id] = -np.inf
    return log_p

  return search_in_lists(s, score)


soak = functools.partial(pytest.param, marks=pytest.mark.soak)
more = functools.partial(pytest.param, marks=pytest.mark.products)
# LongT5 and LOCOST have T5's decoder.
MORE = 't5-late', 'bart-early', 'pagesum-early', 'global-early'
SOAK = [f'{name}-late' for name in MODELS if name != 't5']
SOAK += 'longt5-early', 'locost-early'
PAIRS = ['t5-early', *map(more, MORE), *map(soak, SOAK)]


@pytest.mark.parametrize('name', PAIRS)
def test_the_table_matches_copied_caches(name):
  name, kind = name.split('-')
  settings = EARLY if kind == 'early' else LATE
  model, variables, memory = make(name)
  state = jax.jit(lambda memory: write(model, variables, memory, settings))(
      memory
  )
  tokens, scores = decode.finish(settings, state)
  step = functools.partial(model.apply, variables, method='step')
  step = jax.jit(boost_eos(step, settings, 4.0))
  begin = jax.jit(
      lambda memory: model.apply(
          variables, memory, settings.max_length, method='init_cache'
      )
  )
  ended = []
  for row in range(2):
    document = jax.tree.map(lambda x: np.asarray(x)[row : row + 1], memory)
    text, score, moved = copying_beams(settings, step, *begin(document))
    assert moved > 2
    ended.append(len(text) < settings.max_length)
    padding = [settings.pad_id] * (settings.max_length - len(text))
    assert tokens[row].tolist() == text + padding
    np.testing.assert_allclose(scores[row], score, rtol=1e-5)
  assert any(ended) == (settings == EARLY)


def copies_in_loops(program, size):
  """Returns the operations in loops of HLO that copy at least `size` numbers."""
  loops = program[: program.index('\nENTRY ')]
  found = re.findall(
      r'= \w+\[([\d,]+)\]\S* (copy|gather|transpose|concatenate)\(', loops
  )
  return {
      name
      for shape, name in found
      if np.prod([int(n) for n in shape.split(',')]) >= size
  }


@pytest.mark.memory
@pytest.mark.parametrize('name', ('t5', soak('bart'), 'pagesum'))
def test_no_step_copies_a_cache(name):
  """Reads the compiled program; negative control: the copying reference."""
  model, variables, memory = make(name)
  settings = decode_settings.Settings(num_beams=4, max_length=32)
  c = model.config
  rows = 4 * np.prod(memory['mask'].shape[:-1])
  size = rows * c.num_decoder_layers * 32 * c.num_heads * c.d_kv

  def find(copies):
    run = jax.jit(
        lambda memory: write(model, variables, memory, settings, copies)
    )
    return copies_in_loops(run.lower(memory).compile().as_text(), size)

  assert find(False) == set()
  assert 'gather' in find(True)


@pytest.mark.memory
@pytest.mark.parametrize('name', ('t5', soak('bart')))
def test_memory_of_decoding(name):
  """The estimated growth per token written matches the program's."""
  model, variables, memory = make(name)

  def taken(length, copies):
    settings = decode_settings.Settings(num_beams=4, max_length=length)
    run = lambda memory: decode.finish(
        settings, write(model, variables, memory, settings, copies)
    )
    return temporary_bytes(run, memory)

  def estimated(length):
    return batch_memory.needed_bytes(
        model,
        variables,
        2,
        (13,),
        decode_settings.Settings(num_beams=4, max_length=length),
    )['decoding']

  growth = estimated(40) - estimated(20)
  assert 0.8 < (taken(40, False) - taken(20, False)) / growth < 1.25
  assert (taken(40, True) - taken(20, True)) / growth > 1.25


@pytest.mark.filterwarnings('error::FutureWarning')
def test_the_table_is_int32_where_integers_are_64_bits():
  """JAX will refuse to write wider integers into it; today it warns."""
  with jax.enable_x64(True):
    settings = decode_settings.Settings(num_beams=2, max_length=4, eos_id=1)
    per_row = {decode.STAYS: jnp.zeros((2, 4)), 'position': jnp.zeros(2)}

    def step(tokens, shared, per_row, ancestors):
      del shared
      assert ancestors.dtype == jnp.int32
      return jnp.eye(8)[(tokens + 3) % 8], per_row

    state = decode.begin(settings, per_row, 2)
    state = decode.advance(settings, step, None, state, 4)
    assert state['ancestors'].dtype == jnp.int32
