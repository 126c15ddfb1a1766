"""PageSum matches golden arrays: the authors' release, and the masked mode."""

import functools
import itertools

import jax
import numpy as np

from locost_jax.generation import generate
from tests import products
from tests.models import golden

PAD = golden.PAD
arrays = functools.partial(golden.arrays, 'pagesum')


@functools.cache
def golden_model(dtype='float32', padding='release'):
  return golden.changed('pagesum', dtype, padding=padding)


def found_of(model, params, inputs, targets):
  """Returns our values of the golden arrays, by name."""
  apply = functools.partial(model.apply, {'params': params})
  memory = apply(inputs, method='encode')
  h, _ = apply(memory, targets, method='read')
  logits = apply(memory, targets, method='decode')
  weights = apply(memory, targets, method='page_weights')
  return {
      'enc_last': memory['states'].reshape(2, 36, -1),
      'dec_last_per_page': h,
      'page_weights': weights.transpose(0, 2, 1),
      'logits': logits,
      'log_probs': jax.nn.log_softmax(logits),
  }


def of_tokens(name, array):
  """Selects targets that are not padding; the release masks padding keys."""
  keep = arrays()['tgt_input_ids'] != PAD
  if name == 'dec_last_per_page':
    keep = np.broadcast_to(keep[:, None], (2, 3, 10))
  return array if name == 'enc_last' else array[keep]


@products.parametrize(
    'padding,precision',
    itertools.product(('release', 'tokens'), (golden.FLOAT32, golden.FLOAT64)),
    (('release', golden.FLOAT64), ('tokens', golden.FLOAT32)),
)
def test_golden_states_weights_and_logits(padding, precision):
  """In the masked mode, `tokens`, a page without tokens has weight 0."""
  dtype, atol, _ = precision
  io, corrected = arrays(), arrays('corrected')
  with jax.enable_x64(dtype == 'float64'):
    model, params = golden_model(dtype, padding)
    found = jax.jit(functools.partial(found_of, model))(
        params, io['input_ids'], io['tgt_input_ids']
    )
  found = jax.tree.map(np.asarray, found)
  if padding == 'release':
    compared = golden.compare('pagesum', found, atol, of_tokens)
    assert compared == found.keys()
    return
  for name in 'page_weights', 'logits':
    got, want = (of_tokens(name, x[name]) for x in (found, corrected))
    np.testing.assert_allclose(got, want, rtol=0, atol=atol, err_msg=name)
  assert (found['page_weights'][1, :, 2] == 0).all()


@products.parametrize('padding', ('release', 'tokens'), ('release',))
@golden.MOSTLY_FLOAT64
def test_golden_losses_and_gradients(dtype, atol, bound, padding):
  io, corrected = arrays(), arrays('corrected')
  targets = io['tgt_input_ids']
  with jax.enable_x64(dtype == 'float64'):
    model, params = golden_model(dtype, padding)

    def loss_of(params, smoothing=0.1):
      logits = model.apply({'params': params}, io['input_ids'], targets)
      return golden.release_loss(logits, targets, smoothing)

    loss, gradients = jax.jit(jax.value_and_grad(loss_of))(params)
    plain = jax.jit(functools.partial(loss_of, smoothing=0.0))(params)
    gradients = golden.released('pagesum', gradients)
  if padding == 'release':
    np.testing.assert_allclose(loss, io['f64/loss_ls'], 0, atol)
    np.testing.assert_allclose(plain, io['f64/loss_ce'], 0, atol)
    np.testing.assert_allclose(plain, io['f64/loss_ls_eps0'], 0, atol)
    want = arrays('grads_where')
  else:
    np.testing.assert_allclose(loss, corrected['loss_ls'], 0, atol)
    want = {
        name.removeprefix('grad/'): array
        for name, array in corrected.items()
        if name.startswith('grad/')
    }
  want = {name: array for name, array in want.items() if array.ndim}
  # A buffer in torch.
  assert gradients.keys() - want.keys() == {'final_logits_bias'}
  assert len(want) == len(gradients) - 1
  golden.compare_gradients(gradients, want, bound, PAD)


def test_golden_greedy_tokens():
  io = arrays()
  tokens, _ = generate.generate(
      *golden_model(), io['input_ids'].astype(np.int32), None, golden.GREEDY
  )
  np.testing.assert_array_equal(tokens, io['greedy_tokens'])
