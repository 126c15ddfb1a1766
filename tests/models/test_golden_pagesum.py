"""PageSum matches golden arrays: the authors' release, and the masked mode."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as safetensors

from locost_jax import models
from locost_jax.generation import decode_settings
from locost_jax.generation import generate
from locost_jax.hugging_face import bart_configs
from locost_jax.hugging_face import names as names_lib
from locost_jax.training import losses
from tests.models import test_golden_bart as golden_bart

GOLDEN = Path(__file__).parents[1] / 'golden' / 'pagesum'
TABLE = names_lib.table({'name': 'pagesum'})
PAD = 1


@functools.lru_cache
def arrays(name='io'):
  return dict(np.load(GOLDEN / f'{name}.npz'))


@functools.lru_cache
def golden_model(dtype, padding='release'):
  config = bart_configs.model_config(
      json.loads((GOLDEN / 'config.json').read_text())
  )
  config.update(name='pagesum', padding=padding, dropout_rate=0.0)
  params = golden_bart.ours(
      safetensors.load_file(GOLDEN / 'state_dict.safetensors'), config, TABLE
  )
  precise = jnp.promote_types(dtype, jnp.float32)
  return models.build(config, dtype), jax.tree.map(
      lambda x: jnp.asarray(x, precise), params
  )


def found_of(model, params, inputs, targets):
  """Returns our values of the golden arrays, by name."""
  apply = functools.partial(model.apply, {'params': params})
  memory = apply(inputs, method='encode')
  h, _ = apply(memory, targets, method='read')
  logits = apply(memory, targets, method='decode')
  return {
      'enc_last': memory['states'].reshape(2, 36, -1),
      'dec_last_per_page': h,
      'page_weights': apply(memory, targets, method='page_weights').transpose(
          0, 2, 1
      ),
      'logits': logits,
      'log_probs': jax.nn.log_softmax(logits),
  }


def check(name, value, expected, atol):
  """Compares targets that are not padding; the release masks padding keys."""
  if name != 'enc_last':
    keep = arrays()['tgt_input_ids'] != PAD
    if name == 'dec_last_per_page':
      keep = np.broadcast_to(keep[:, None], (2, 3, 10))
    value, expected = np.asarray(value)[keep], expected[keep]
  np.testing.assert_allclose(value, expected, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize('dtype,atol', (('float32', 2e-4), ('float64', 1e-9)))
def test_golden_states_weights_and_logits(dtype, atol):
  io = arrays()
  with jax.enable_x64(dtype == 'float64'):
    model, params = golden_model(dtype)
    found = jax.jit(functools.partial(found_of, model))(
        params, io['input_ids'], io['tgt_input_ids']
    )
  for name, value in found.items():
    rounded = f'f64r/{name}' in io  # stored as float32
    expected = io[f'f64r/{name}' if rounded else f'f64/{name}']
    check(name, value, expected, max(atol, 3e-6) if rounded else atol)


@pytest.mark.parametrize('dtype,atol', (('float32', 2e-4), ('float64', 1e-9)))
def test_golden_weights_and_logits_of_the_masked_mode(dtype, atol):
  """A page without tokens has weight 0."""
  io, expected = arrays(), arrays('corrected')
  with jax.enable_x64(dtype == 'float64'):
    model, params = golden_model(dtype, 'tokens')
    found = jax.jit(functools.partial(found_of, model))(
        params, io['input_ids'], io['tgt_input_ids']
    )
  for name in 'page_weights', 'logits':
    check(name, found[name], expected[name], atol)
  assert (np.asarray(found['page_weights'])[1, :, 2] == 0).all()


def loss_of(model, params, smoothing):
  """The release's loss: its decoder reads <s> and never predicts it."""
  io = arrays()
  targets = io['tgt_input_ids']
  logits = model.apply({'params': params}, io['input_ids'], targets)
  total, weight = losses.cross_entropy(
      logits[:, :-1], targets[:, 1:], targets[:, 1:] != PAD, smoothing
  )
  return total / weight


@pytest.mark.parametrize(
    'padding,name,gradients',
    (('release', 'io', 'grads_where'), ('tokens', 'corrected', 'corrected')),
)
@pytest.mark.parametrize(
    'dtype,atol,bound', (('float32', 2e-4, 1e-3), ('float64', 1e-9, 1e-6))
)
def test_golden_losses_and_gradients(
    dtype, atol, bound, padding, name, gradients
):
  """In torch, look-ups give the pad token's row no gradient."""
  expected, want = arrays(name), arrays(gradients)
  with jax.enable_x64(dtype == 'float64'):
    model, params = golden_model(dtype, padding)
    loss, grads = jax.jit(
        jax.value_and_grad(lambda params: loss_of(model, params, 0.1))
    )(params)
    plain = loss_of(model, params, 0.0)
    grads = golden_bart.theirs(grads, TABLE)
  if name == 'io':
    np.testing.assert_allclose(loss, expected['f64/loss_ls'], 0, atol)
    np.testing.assert_allclose(plain, expected['f64/loss_ce'], 0, atol)
    np.testing.assert_allclose(plain, expected['f64/loss_ls_eps0'], 0, atol)
  else:
    np.testing.assert_allclose(loss, expected['loss_ls'], 0, atol)
  want = {
      key.removeprefix('grad/'): array
      for key, array in want.items()
      if array.ndim and key not in ('page_weights', 'logits')
  }
  assert set(grads) - set(want) == {'final_logits_bias'}  # a buffer in torch
  assert len(want) == len(grads) - 1
  for key, array in want.items():
    got = grads[key]
    if key == 'model.shared.weight':
      got, array = np.delete(got, PAD, 0), np.delete(array, PAD, 0)
    error = np.abs(got - array).max()
    assert error <= bound * np.abs(array).max() + 1e-7, key


def test_golden_greedy_tokens():
  io = arrays()
  model, params = golden_model('float32')
  settings = decode_settings.Settings(
      max_length=20, eos_id=95, pad_id=PAD, start_id=2
  )
  tokens, _ = generate.generate(
      model, params, io['input_ids'].astype(np.int32), None, settings
  )
  np.testing.assert_array_equal(tokens, io['greedy_tokens'])
