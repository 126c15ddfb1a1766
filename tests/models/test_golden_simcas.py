"""The SimCAS model matches golden arrays of the authors' release."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as safetensors

import locost_jax
from locost_jax import models
from locost_jax.generation import decode_settings
from locost_jax.generation import generate
from locost_jax.hugging_face import bart_configs
from locost_jax.hugging_face import names as names_lib
from locost_jax.models import chunk_memory
from locost_jax.models import simcas
from locost_jax.ops import chunks
from locost_jax.training import losses
from tests.models import test_golden_bart as golden_bart

GOLDEN = Path(__file__).parents[1] / 'golden' / 'simcas'
TABLE = names_lib.table({'name': 'simcas'})
PAD = 1


@functools.lru_cache
def arrays(name='io'):
  return dict(np.load(GOLDEN / f'{name}.npz'))


@functools.lru_cache
def golden_model(dtype, **changes):
  tensors = safetensors.load_file(GOLDEN / 'state_dict.safetensors')
  config = bart_configs.model_config(
      json.loads((GOLDEN / 'config.json').read_text()), tensors
  )
  assert config['name'] == 'simcas' and config['dropout_rate'] == 0
  params = golden_bart.ours(tensors, config, TABLE)
  precise = jnp.promote_types(dtype, jnp.float32)
  return models.build(config | changes, dtype), jax.tree.map(
      lambda x: jnp.asarray(x, precise), params
  )


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


@pytest.mark.parametrize('dtype,atol', (('float32', 2e-4), ('float64', 1e-9)))
def test_golden_states_selector_and_logits(dtype, atol):
  io = arrays()
  with jax.enable_x64(dtype == 'float64'):
    model, params = golden_model(dtype)
    found, memory, rollout = jax.jit(functools.partial(found_of, model))(
        params, io['input_ids'], io['output_ids'], io['actions'].astype(bool)
    )
    small = chunk_memory.compact(memory, 20)
    found['selected_states'] = small['states'][:, 0]
    assert (
        small['mask'].all()
        and int(chunk_memory.selected_counts(memory)[0]) == 20
    )
    found['logits of few'] = model.apply(
        {'params': params}, small, io['output_ids'], method='decode'
    )
  np.testing.assert_array_equal(rollout.actions, io['actions_used'])
  want = {
      name.removeprefix('f64/')
      for name in io
      if name.startswith(('f64/agent', 'f64/enc', 'f64/last', 'f64/selected'))
  }
  assert want == set(found) - {'logits', 'logits of few'}
  for name, value in found.items():
    expected = io[f'f64/{name.split()[0]}']
    np.testing.assert_allclose(value, expected, 0, atol, err_msg=name)


def test_golden_states_match_the_encoder():
  """Scans over the layers; the exchange comes before all but the first."""
  io = arrays()
  model, params = golden_model('float32')
  states, _, _ = model.apply(
      {'params': params}, io['input_ids'], method='chunk_states'
  )
  expected = io['f64/last_layer_tokens']
  np.testing.assert_allclose(
      states[:, :, 1:].reshape(expected.shape), expected, 0, 2e-4
  )


@pytest.mark.parametrize('align', ['mean', 'none'])
def test_another_exchange_is_not_the_golden_one(align):
  io = arrays()
  model, params = golden_model('float32', align=align)
  states, _, _ = model.apply(
      {'params': params}, io['input_ids'], method='chunk_states'
  )
  expected = io['f64/last_layer_tokens']
  assert abs(states[:, :, 1:].reshape(expected.shape) - expected).max() > 0.1


def loss_of(model, params):
  """The release's loss: its decoder reads <s> and never predicts it."""
  io = arrays()
  targets = io['output_ids']
  memory, _ = model.apply(
      {'params': params},
      io['input_ids'],
      actions=io['actions'].astype(bool),
      method='rollout',
  )
  logits = model.apply({'params': params}, memory, targets, method='decode')
  total, weight = losses.cross_entropy(
      logits[:, :-1], targets[:, 1:], targets[:, 1:] != PAD, 0.1
  )
  return total / weight


@pytest.mark.parametrize(
    'dtype,atol,bound', (('float32', 2e-4, 1e-3), ('float64', 1e-9, 1e-6))
)
def test_golden_loss_and_gradients(dtype, atol, bound):
  """The selector has no gradient, nor, in torch, look-ups of the pad token."""
  want = arrays('grads')
  with jax.enable_x64(dtype == 'float64'):
    model, params = golden_model(dtype)
    loss, grads = jax.jit(
        jax.value_and_grad(functools.partial(loss_of, model))
    )(params)
    grads = golden_bart.theirs(grads, TABLE)
  np.testing.assert_allclose(loss, arrays()['f64/loss_ls'], 0, atol)
  added = set(grads) - set(want)
  agent = {name for name in grads if 'encoder.agent.' in name}
  assert len(agent) == 16 and added == agent | {'final_logits_bias'}
  assert not any(grads[name].any() for name in agent)
  assert set(want) <= set(grads)
  for key, array in want.items():
    got = grads[key]
    if key == 'model.shared.weight':
      got, array = np.delete(got, PAD, 0), np.delete(array, PAD, 0)
    error = np.abs(got - array).max()
    assert error <= bound * np.abs(array).max() + 1e-7, key


def test_golden_greedy_tokens():
  """With the golden actions, from all states and from the selected ones."""
  io = arrays()
  model, params = golden_model('float32')
  memory, _ = model.apply(
      {'params': params},
      io['input_ids'],
      actions=io['actions'].astype(bool),
      method='rollout',
  )
  settings = decode_settings.Settings(
      max_length=20, eos_id=95, pad_id=PAD, start_id=2
  )
  for read in memory, chunk_memory.compact(memory, 32):
    shared, state = generate.begin(model, params, read, settings)
    state = generate.advance(model, params, settings, shared, state, 20)
    tokens, _ = generate.finish(settings, state)
    np.testing.assert_array_equal(tokens, io['greedy_tokens'])


def test_the_golden_directory_loads():
  summarizer = locost_jax.load(GOLDEN)
  assert summarizer.config == golden_model('float32')[0].config
  assert summarizer.config.padding == 'release'
  logits = summarizer.logits(arrays()['input_ids'], arrays()['output_ids'])
  assert logits.shape == (1, 10, 96)
