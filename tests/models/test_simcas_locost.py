"""LOCOST with a selector matches LOCOST (all kept) and plain loops."""

import dataclasses
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.generation import generate
from locost_jax.models import low_memory_encoder
from locost_jax.models import parameters
from locost_jax.models import selector as selector_lib
from locost_jax.models import simcas_locost
from locost_jax.ops import long_attention
from locost_jax.ops import mesh as mesh_lib
from locost_jax.summarizing import batch_memory
from tests import products
from tests.models import small
from tests.ops.compiled import shape
from tests.ops.compiled import temporary_bytes

SIZES = dict(
    vocab_size=60,
    d_model=32,
    d_state=8,
    d_ff=64,
    d_kv=8,
    num_heads=4,
    num_layers=1,
    num_decoder_layers=1,
)
LOCOST = dict(default.locost()) | SIZES
OURS = dict(default.simcas_locost()) | SIZES | dict(chunk_length=8)
LENGTHS = [5, 8, 9, 29]  # 1, 1, 2 and 4 chunks
SETTINGS = decode_settings.Settings(max_length=6, eos_id=1, start_id=0)


def tokens(seed, *shape):
  return np.random.default_rng(seed).integers(2, 60, shape).astype(np.int32)


def documents(length=29):
  """Pads to `length`, which need not be a multiple of the chunk length."""
  inputs = tokens(1, len(LENGTHS), 29)
  inputs = np.where(np.arange(29) < np.array(LENGTHS)[:, None], inputs, 0)
  return np.pad(inputs, ((0, 0), (0, length - 29))).astype(np.int32)


@pytest.fixture
def small_buckets(monkeypatch):
  """Allows a compact memory with as few states as were selected."""
  monkeypatch.setattr(selector_lib, 'SMALLEST', 2)


# The actor keeps about half.
run = small.Runner(OURS, 0.1)
small_params = run.small_params
locost = small.Runner(LOCOST, 0.1)
of_locost = functools.partial(run.params_without, 'selector')


def with_bias(skip, select):
  """Returns the parameters with another bias of the actor."""
  params = jax.tree.map(np.array, small_params())
  params['params']['selector']['actor']['output']['bias'] += np.float32(
      [skip, select]
  )
  return params


def write(model, params, inputs, **options):
  settings = dataclasses.replace(SETTINGS, **options)
  steps = generate.Steps()
  return generate.generate(model, params, inputs, None, settings, steps=steps)


def test_parameters_are_those_of_locost_and_the_selector():
  added = small.added_parameters(OURS, LOCOST)
  assert {path.split('/')[0] for path in added} == {'selector'}


@pytest.mark.parametrize('how', ['none', 'first_k', 'ppo'])
def test_a_document_kept_whole_matches_locost(how):
  """Compares logits, and the texts of greedy search and of beams."""
  params = with_bias(-50, 50) if how == 'ppo' else small_params()
  changes = dict(select=how, limit=29)
  inputs, targets = documents(32), tokens(7, 4, 5)
  want = locost(inputs, targets, params=of_locost())
  found = run(inputs, targets, params=params, **changes)
  np.testing.assert_allclose(found, want, 0, 1e-5)
  model, plain = models.build(OURS | changes), models.build(LOCOST)
  for options in dict(), dict(num_beams=3):
    texts, scores = write(model, params['params'], inputs, **options)
    others, same = write(plain, of_locost()['params'], inputs, **options)
    np.testing.assert_array_equal(texts, others)
    np.testing.assert_allclose(scores, same, 0, 1e-4)


@pytest.mark.parametrize('length', [29, 40])
@pytest.mark.parametrize('selection,bias', [('sample', 1.5), ('argmax', 0.4)])
def test_the_selector_matches_its_loop(selection, bias, length):
  """The loop is over documents and chunks, in float64."""
  model = models.build(OURS | dict(selection=selection), 'float64')
  whole = model.clone(config=models.make_config(OURS | dict(select='none')))
  inputs, kinds = documents(length), set()
  grid = np.pad(inputs, ((0, 0), (0, -length % 8))).reshape(4, -1, 8)
  with jax.enable_x64():
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), small_params())
    judges = params['params']['selector']
    judges['actor']['output']['bias'] += bias, 0
    (memory, rollout), states = jax.jit(
        lambda params: (
            model.apply(params, inputs, method='rollout'),
            whole.apply(params, inputs, method='encode')['states'],
        )
    )(params)
    seeds = selector_lib.document_seeds(jnp.asarray(grid), grid != 0)
    drawn = np.asarray(selector_lib.uniform(seeds, grid.shape[1], 8))
  rollout, states = jax.tree.map(np.asarray, (rollout, states))
  np.testing.assert_array_equal(memory['states'], states)
  for row, count in enumerate(LENGTHS):
    h = states[row, :count]
    read, kept = [h.mean(0)], np.zeros(length, bool)
    for c in range(-(-count // 8)):
      x, g = h[8 * c : 8 * c + 8], np.mean(read, axis=0)
      limit = 0.5 if selection == 'argmax' else drawn[row, c, : len(x)]
      own, *of_actions, is_whole = small.choose(judges, x, g, limit, count <= 8)
      kinds.add('one' if count <= 8 else not is_whole)
      read.extend(x[own])
      kept[8 * c : 8 * c + len(x)] = own
      J = slice(len(x))
      np.testing.assert_array_equal(rollout.actions[row, c, J], own)
      np.testing.assert_allclose(rollout.state[row, c], g, 0, 1e-12)
      np.testing.assert_array_equal(rollout.observations[row, c, J], x)
      found = rollout.log_probs, rollout.entropies, rollout.values
      for array, want in zip(found, of_actions):
        np.testing.assert_allclose(array[row, c, J], want, 0, 1e-9)
    np.testing.assert_array_equal(memory['mask'][row], kept)
    assert rollout.tokens[row].sum() == count
    assert rollout.actions[row].sum() == kept.sum()
  assert {True, False, 'one'} == kinds


@products.few(
    'changes',
    [{}],
    [
        dict(selection='argmax'),
        dict(select='first_k', limit=6),
        dict(select='none'),
    ],
)
def test_a_batch_matches_its_documents_one_by_one(changes):
  """Also with more padding, in any row of the batch."""
  inputs, targets = documents(), tokens(7, 4, 5)
  kept = run(inputs, method='encode', **changes)['mask']
  together = small.check_documents_alone(
      run, inputs, targets, LENGTHS, **changes
  )
  for other in documents(32), documents(45):
    found = run(other, method='encode', **changes)['mask']
    np.testing.assert_array_equal(found[:, :29], kept)
    assert not found[:, 29:].any()
    np.testing.assert_allclose(
        run(other, targets, **changes), together, 0, 1e-5
    )
  back = run(inputs[::-1], targets[::-1], **changes)
  np.testing.assert_allclose(back[::-1], together, 0, 1e-5)


@pytest.mark.parametrize('options', [dict(), dict(num_beams=3)])
def test_decoding_in_steps_matches_one_program(small_buckets, options):
  """The steps read a compact memory, the program reads the whole one."""
  model, params = models.build(OURS), small_params()['params']
  settings = dataclasses.replace(SETTINGS, **options)
  inputs, seen = documents(32), []
  texts, scores = generate.read_and_write(model, params, inputs, None, settings)
  for kernels in None, low_memory_encoder.kernels(model, params, 32):
    steps = generate.Steps(kernels, on_encoded=seen.append)
    found, same = generate.generate(
        model, params, inputs, None, settings, steps=steps
    )
    np.testing.assert_array_equal(found, texts)
    np.testing.assert_allclose(same, scores, 0, 1e-4)
  want = run(inputs, method='encode')
  for memory in seen:
    np.testing.assert_array_equal(memory['mask'], want['mask'])
    np.testing.assert_allclose(memory['states'], want['states'], 0, 1e-4)


def test_attention_is_the_mean_of_the_mass():
  """Per document: over selected tokens and its own targets."""
  inputs, targets = documents(), tokens(7, 4, 5)
  memory = run(inputs, method='encode')
  written = np.arange(5) < np.array([[5], [3], [4], [1]])
  found = np.asarray(run(memory, targets, written, method='attention'))
  assert found.shape == (4, 4, 9) and not found[:, :, 0].any()
  np.testing.assert_allclose(found.sum((1, 2)), 1, 0, 1e-5)
  flat = found[:, :, 1:].reshape(4, -1)[:, :29]
  assert not flat[~np.asarray(memory['mask'])].any()
  segments = np.broadcast_to(np.arange(29), (4, 29))
  apply = functools.partial(models.build(OURS).apply, method='cross_mass')
  mass = jax.jit(apply, static_argnums=4)(
      small_params(), memory, targets, segments, 29
  )
  for row, count in enumerate([5, 3, 4, 1]):
    want = np.asarray(mass)[row, :count].mean(0)
    np.testing.assert_allclose(flat[row], want, 0, 1e-6)


def test_memory_of_decoding_counts_selected_tokens():
  """Keys and values are of the short memory, at any input length."""
  found = {}
  for name, config in ('locost', LOCOST), ('ours', OURS):
    model = models.build(config)
    params = parameters.abstract_params(model)
    for length in 2048, 1 << 19:
      found[name, length] = batch_memory.needed_bytes(
          model, params, 2, (length,), decode_settings.Settings(max_length=9)
      )['decoding']
  assert found['ours', 2048] == found['locost', 2048]
  more = found['ours', 1 << 19] - found['locost', 1 << 19]
  assert more == 2 * 2 * long_attention.ABSORBED * 32 * 4


def test_bounded_memory_of_the_choice():
  """Hidden units of one chunk at a time need less than one input-size array."""
  config = dict(default.simcas_locost()) | dict(
      vocab_size=100, num_layers=1, num_decoder_layers=1
  )
  model, L = models.build(config), 65536
  memory = {
      'states': shape(1, L, 768),
      'mask': shape(1, L, dtype=bool),
  }
  size = temporary_bytes(
      functools.partial(model.apply, method='kept'),
      {'params': parameters.abstract_params(model)},
      memory,
      shape(1, L, dtype=jnp.int32),
  )
  assert size < 0.25 * L * 768 * 4


def test_a_document_on_several_devices_is_refused():
  config = default.simcas_locost()
  mesh = types.SimpleNamespace(shape=dict.fromkeys(mesh_lib.AXES, 1))
  sharding.check_model(config, mesh)
  mesh.shape['sequence'] = 2
  with pytest.raises(InputError, match='mesh.sequence=2: .* simcas_locost'):
    sharding.check_model(config, mesh)


def test_its_config_is_the_default():
  """Runs that are older than a key have its default."""
  config = default.simcas_locost()
  keys = models.default_keys('simcas_locost')
  assert keys.items() <= dict(config).items()
  assert {'select', 'selection', 'limit', 'chunk_length', 'copy'} <= keys.keys()
  assert isinstance(models.build(OURS), simcas_locost.SimCASLocost)
