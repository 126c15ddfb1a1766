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
from locost_jax.models import parameters
from locost_jax.models import selector as selector_lib
from locost_jax.models import simcas_locost
from locost_jax.ops import long_attention
from locost_jax.ops import mesh as mesh_lib
from locost_jax.summarizing import batch_memory
from tests import products
from tests.models import small
from tests.models import test_simcas
from tests.ops.compiled import shape
from tests.ops.compiled import temporary_bytes

ONE = dict(num_layers=1, num_decoder_layers=1)
LOCOST = small.FAMILIES['locost'] | ONE
OURS = small.FAMILIES['simcas_locost'] | ONE
LENGTHS = [5, 8, 9, 29]  # 1, 1, 2 and 4 chunks
SETTINGS = decode_settings.Settings(max_length=6, eos_id=1, start_id=0)


def tokens(seed, *shape):
  return np.random.default_rng(seed).integers(2, 60, shape).astype(np.int32)


def documents(length=29):
  """Pads to `length`, which need not be a multiple of the chunk length."""
  inputs = tokens(1, len(LENGTHS), 29)
  inputs = np.where(np.arange(29) < np.array(LENGTHS)[:, None], inputs, 0)
  return np.pad(inputs, ((0, 0), (0, length - 29))).astype(np.int32)


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


def choose(judges, x, g, limit, is_whole, is_token):
  """SimCAS's choice in one chunk: x [J, D], g [D], limit [J].

  Args:
    judges: parameters of the selector.
    x: states of the chunk's tokens.
    g: the selector's state.
    limit: a token is kept if its probability is higher.
    is_whole: all tokens are kept anyway.
    is_token: where not, nothing is kept.

  Returns:
    (kept, log p of that, entropies, values), each [J]; whether the whole chunk
    is kept.
  """

  def judge(name):
    own = judges[name]
    dense = lambda name, x: x @ own[name]['kernel'] + own[name]['bias']
    hidden = np.tanh(dense('token', x) + dense('state', g))
    return dense('output', np.tanh(dense('hidden', hidden)))

  logits = judge('actor')
  p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  kept = (p[:, 1] > limit) & is_token
  is_whole = is_whole or not kept.any()
  if is_whole:
    kept = is_token
  log_p = np.log(p[range(len(x)), kept * 1])
  return kept, log_p, -(p * np.log(p)).sum(-1), judge('critic')[:, 0], is_whole


SIMCAS = test_simcas.SIMCAS
# (config, scale of the parameters, documents, bias: some chunks select nothing).
LOOPS = {
    'locost sample': (OURS, 0.1, documents(), 1.5),
    'locost argmax': (OURS, 0.1, documents(40), 0.4),
    'tokens sample': (SIMCAS, 0.2, test_simcas.documents(), 0.9),
    'tokens argmax': (SIMCAS, 0.2, test_simcas.documents(), 0.9),
    'release sample': (SIMCAS, 0.2, test_simcas.documents(), 0.9),
    'release argmax': (SIMCAS, 0.2, test_simcas.documents(), 0.9),
}


@pytest.mark.parametrize('case', LOOPS)
def test_the_selector_matches_its_loop(case):
  """The loop is over documents and chunks, in float64."""
  kind, selection = case.split()
  config, scale, inputs, bias = LOOPS[case]
  config = config | dict(selection=selection)
  if config['name'] == 'simcas':
    config |= dict(padding=kind)
  model = models.build(config, 'float64')
  with jax.enable_x64():
    params = small.moved_params(config, scale, config['name'] == 'simcas')
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    judges = params['params']['selector']
    judges['actor']['output']['bias'] += bias, 0
    (memory, rollout), (states, mask, seeds) = jax.jit(
        lambda params: tuple(
            model.apply(params, inputs, method=method)
            for method in ('rollout', 'chunk_states')
        )
    )(params)
    drawn = selector_lib.uniform(seeds, *mask[0, :, model.MARKS :].shape)
    counts = selector_lib.selected_counts(memory)
    short = selector_lib._compact(memory, int(counts.max()))['states']
  arrays = (rollout, states, mask, drawn, short)
  rollout, states, mask, drawn, short = jax.tree.map(np.asarray, arrays)
  if not model.MARKS:
    assert states.shape[2] == OURS['chunk_length']
    whole = states.reshape(4, -1, 32)[:, : inputs.shape[1]]
    np.testing.assert_array_equal(memory['states'], whole)
  kinds = set()
  for row in range(len(inputs)):
    count = mask[row].any(-1).sum()
    read = [states[row, :count, 0] if model.MARKS else states[row][mask[row]]]
    read = [read[0].mean(0)]
    for c in range(count):
      x, is_token = states[row, c, model.MARKS :], mask[row, c, model.MARKS :]
      limit = 0.5 if selection == 'argmax' else drawn[row, c]
      g = np.mean(read, axis=0)
      kept, *of_actions, is_whole = choose(
          judges, x, g, limit, count == 1, is_token
      )
      kinds.add('one' if count == 1 else is_whole)
      read.extend(x[kept])
      np.testing.assert_array_equal(rollout.actions[row, c], kept)
      np.testing.assert_array_equal(rollout.observations[row, c], x)
      np.testing.assert_allclose(rollout.state[row, c], g, 0, 1e-12)
      found = rollout.log_probs, rollout.entropies, rollout.values
      for array, want in zip(found, of_actions):
        np.testing.assert_allclose(array[row, c], want, 0, 1e-9)
    assert not rollout.actions[row, count:].any()
    read = np.stack(read[1 - model.MARKS :])  # LOCOST's decoder reads no g_0
    short_row = short[row].reshape(-1, 32)[: len(read)]
    np.testing.assert_allclose(short_row, read, 0, 1e-12)
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
