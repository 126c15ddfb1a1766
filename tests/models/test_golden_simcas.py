"""The SimCAS model matches golden arrays of the authors' release."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.generation import generate
from locost_jax.models import selector as selector_lib
from locost_jax.models import simcas
from locost_jax.ops import chunks
from tests.models import golden

PAD = golden.PAD
arrays = functools.partial(golden.arrays, 'simcas')
golden_model = functools.cache(functools.partial(golden.changed, 'simcas'))


def layer_inputs(model, params, inputs):
  """Returns the input of each encoder layer, by golden name."""
  own, mask = params['encoder'], jnp.ones(inputs.shape, bool)
  h = model.apply(
      {'params': params},
      inputs,
      method=lambda self, x: self.encoder.embed(self.vectors(x)),
  )
  layer = simcas.EncoderLayer(model.config, model.dtype)
  found = {}
  for i in range(3):
    if i:
      h = chunks.exchange(h, mask, 'shift')
    found[f'enc_hidden_{i}'] = h
    weights = jax.tree.map(lambda x: x[i], own['layers'])
    (h, _), _ = layer.apply(
        {'params': weights}, (h, jnp.bool_(True)), mask, True
    )
  return found, h


def found_of(model, params, inputs, targets, actions):
  """Returns our values of the golden arrays, by name."""
  apply = functools.partial(model.apply, {'params': params})
  found, last = layer_inputs(model, params, inputs)
  memory, rollout = apply(inputs, actions=actions, method='rollout')
  selector = apply(
      rollout.observations,
      rollout.state,
      method=lambda self, *x: self.selector.judge(*x),
  )
  found['last_layer_tokens'] = last[:, :, 1:].reshape(1, 36, -1)
  found['agent_obs_0'] = rollout.observations[:, 0]
  for c in range(4):
    found[f'agent_logits_{c}'] = selector[0][:, c]
    found[f'agent_value_{c}'] = rollout.values[:, c]
    found[f'agent_logprob_{c}'] = rollout.log_probs[:, c]
    found[f'agent_entropy_{c}'] = rollout.entropies[:, c]
    found[f'agent_bg_{c}'] = rollout.state[:, c]
  found['logits'] = apply(memory, targets, method='decode')
  return found, memory, rollout


@golden.MOSTLY_FLOAT64
def test_golden_states_selector_and_logits(monkeypatch, dtype, atol, bound):
  del bound
  monkeypatch.setattr(selector_lib, 'SMALLEST', 2)
  io = arrays()
  with jax.enable_x64(dtype == 'float64'):
    model, params = golden_model(dtype)
    found, memory, rollout = jax.jit(functools.partial(found_of, model))(
        params, io['input_ids'], io['output_ids'], io['actions'].astype(bool)
    )
    small = selector_lib.compact(memory)
    found['selected_states'] = small['states'][:, 0, :20]
    assert (
        small['mask'].sum() == 20
        and int(selector_lib.selected_counts(memory)[0]) == 20
    )
    decode = jax.jit(functools.partial(model.apply, method='decode'))
    few = decode({'params': params}, small, io['output_ids'])
  np.testing.assert_array_equal(rollout.actions, io['actions_used'])
  want = {
      name.removeprefix('f64/')
      for name in io
      if name.startswith(('f64/agent', 'f64/enc', 'f64/last', 'f64/selected'))
  }
  compared = golden.compare('simcas', found, atol)
  assert compared == found.keys() == want | {'logits'}
  golden.compare('simcas', {'logits': few}, atol)


@pytest.mark.parametrize('align', ['shift', 'mean', 'none'])
def test_only_the_shift_gives_the_golden_states(align):
  """Scans over the layers; the exchange comes before all but the first."""
  io = arrays()
  model, params = golden_model(align=align)
  run = jax.jit(functools.partial(model.apply, method='chunk_states'))
  states, _, _ = run({'params': params}, io['input_ids'])
  expected = io['f64/last_layer_tokens']
  error = abs(states[:, :, 1:].reshape(expected.shape) - expected)
  assert error.max() <= 2e-4 if align == 'shift' else error.max() > 0.1


def loss_of(model, params):
  io = arrays()
  memory, _ = model.apply(
      {'params': params},
      io['input_ids'],
      actions=io['actions'].astype(bool),
      method='rollout',
  )
  logits = model.apply(
      {'params': params}, memory, io['output_ids'], method='decode'
  )
  return golden.release_loss(logits, io['output_ids'])


@golden.MOSTLY_FLOAT64
def test_golden_loss_and_gradients(dtype, atol, bound):
  """The selector has no gradient."""
  want = arrays('grads')
  with jax.enable_x64(dtype == 'float64'):
    model, params = golden_model(dtype)
    loss, grads = jax.jit(
        jax.value_and_grad(functools.partial(loss_of, model))
    )(params)
    grads = golden.released('simcas', grads)
  np.testing.assert_allclose(loss, arrays()['f64/loss_ls'], 0, atol)
  added = set(grads) - set(want)
  agent = {name for name in grads if 'encoder.agent.' in name}
  assert len(agent) == 16 and added == agent | {'final_logits_bias'}
  assert not any(grads[name].any() for name in agent)
  assert set(want) <= set(grads)
  golden.compare_gradients(grads, want, bound, PAD)


def test_golden_greedy_tokens(monkeypatch):
  """With the golden actions, from all states and from the selected ones."""
  io = arrays()
  model, params = golden_model()
  roll_out = jax.jit(functools.partial(model.apply, method='rollout'))
  memory, _ = roll_out(
      {'params': params}, io['input_ids'], actions=io['actions'].astype(bool)
  )
  settings = golden.GREEDY
  monkeypatch.setattr(selector_lib, 'SMALLEST', 2)
  for read in memory, selector_lib.compact(memory):
    shared, state = generate.begin(model, params, read, settings)
    state = generate.advance(model, params, settings, shared, state, 20)
    tokens, _ = generate.finish(settings, state)
    np.testing.assert_array_equal(tokens, io['greedy_tokens'])
