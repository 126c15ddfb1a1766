"""models/copy_head.py: the mixture matches its equation in every model."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.config.decode_settings import Settings
from locost_jax.generation import generate
from locost_jax.models import parameters
from locost_jax.training import losses
from locost_jax.training import selector_turn
from locost_jax.training import step as step_lib
from tests import products
from tests.models import small

V, T, N = 40, 6, 2
SMALL = dict(
    vocab_size=V,
    d_model=16,
    d_ff=32,
    decoder_d_ff=32,
    d_kv=8,
    d_state=4,
    num_heads=2,
    num_layers=1,
    num_decoder_layers=1,
    dropout_rate=0.0,
    max_positions=64,
    copy=True,
    copy_dim=4,
    copy_ngram=N,
)
PAGED = 'pagesum', 'simcas'
NAMES = 'locost', 't5', 'longt5', 'bart', *PAGED
WITHOUT = 'locost without n-grams'
# The other models use LOCOST's head.
DIFFERENT = 'locost', WITHOUT, 'bart', *PAGED


some = functools.partial(products.parametrize, 'name')


@functools.cache
def make(name, **changes):
  config = getattr(default, name.split()[0])()
  values = SMALL | ({'copy_ngram': 0} if name == WITHOUT else {}) | changes
  config.update({key: values[key] for key in values if key in config})
  return models.build(config)


@functools.cache
def drawn(name):
  """Returns params, inputs, targets; the second document is shorter."""
  model = make(name)
  rng = np.random.default_rng(0)
  shape = (2, 3, 8) if name in PAGED else (2, 24)
  pad = model.config.pad_id
  # Few different tokens, so that n-grams match.
  inputs = rng.integers(3, 7, shape).astype(np.int32)
  if name in PAGED:
    inputs[1, 2] = inputs[1, 1, 5:] = pad
    inputs[1, 0, 2:6] = pad  # inside: SimCAS reads it, like the release
  else:
    inputs[1, 17:] = pad
  targets = rng.integers(3, 7, (2, T)).astype(np.int32)
  params = small.drawn_params(model, 0.25)
  # Larger weights, so that attention is far from uniform.
  for kernel in ('query', 'key'):
    params['copy_head'][kernel]['kernel'] *= 2
  return params, inputs, targets


@functools.cache
def compiled(name, method):
  return jax.jit(functools.partial(make(name).apply, method=method))


def apply(name, *arguments, method='__call__'):
  return compiled(name, method)({'params': drawn(name)[0]}, *arguments)


@functools.cache
def outputs(name):
  """Returns the memory, the decoder's states, their logits, and log p."""
  params, inputs, targets = drawn(name)

  def run(params):
    apply = functools.partial(make(name).apply, {'params': params})
    memory = apply(inputs, method='encode')
    h = apply(memory, targets, method='decoder_states')[0].h
    return memory, h, apply(h, method='head'), apply(inputs, targets)

  return jax.device_get(jax.jit(run)(params))


def equation(name):
  """Returns log p [B, T, V], looping over the tokens that can be copied."""
  params, inputs, targets = drawn(name)
  memory, h, logits, _ = outputs(name)
  own = jax.tree.map(lambda x: np.asarray(x, float), params['copy_head'])
  logits = np.asarray(logits, float)
  p = np.exp(logits - logits.max(-1, keepdims=True))
  p /= p.sum(-1, keepdims=True)
  gate = np.asarray(h, float) @ own['gate']['kernel'] + own['gate']['bias']
  gate = 1 / (1 + np.exp(-gate))
  p *= gate
  pad = make(name).config.pad_id
  for b in range(2):
    states = np.asarray(memory['states'][b], float).reshape(-1, h.shape[-1])
    tokens = inputs[b].ravel()
    read = np.asarray(memory['mask'][b]).ravel() & (tokens != pad)
    scores = (np.asarray(h[b], float) @ own['query']['kernel']) @ (
        states[read] @ own['key']['kernel']
    ).T
    if name == WITHOUT:
      weights = np.zeros((T, N))
    else:
      weights = np.asarray(h[b], float) @ own['ngrams']['kernel']
      weights += own['ngrams']['bias']
    for place, s in enumerate(np.flatnonzero(read)):
      for t in range(T):
        for n in range(1, N + 1):
          # N-grams do not begin before the page of s or the start token.
          first = s // inputs.shape[-1] * inputs.shape[-1]
          if s - n < first or t + 1 - n < 0:
            continue
          if list(tokens[s - n : s]) == list(targets[b, t + 1 - n : t + 1]):
            scores[t, place] += weights[t, n - 1]
    a = np.exp(scores - scores.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    for place, token in enumerate(tokens[read]):
      p[b, :, token] += (1 - gate[b, :, 0]) * a[:, place]
  return np.log(p)


@some([*NAMES, WITHOUT], DIFFERENT)
def test_the_mixture(name):
  expected = equation(name)
  assert np.ptp(expected) > 2  # log p is not uniform
  *_, found = outputs(name)
  np.testing.assert_allclose(found, expected, 0, 2e-5)
  np.testing.assert_allclose(np.exp(found).sum(-1), 1, 0, 1e-5)


@some([*NAMES, WITHOUT], DIFFERENT)
def test_step_by_step(name):
  """Also with two rows per document, like beams."""
  params, _, targets = drawn(name)
  memory, *_, expected = outputs(name)
  _, found = small.in_steps(
      make(name), {'params': params}, memory, np.repeat(targets, 2, 0), 2
  )
  np.testing.assert_allclose(found, np.repeat(expected, 2, 0), 0, 5e-5)


def make_batch(name):
  _, inputs, targets = drawn(name)
  return dict(
      encoder_input_tokens=inputs,
      decoder_input_tokens=targets,
      decoder_target_tokens=np.roll(targets, -1, axis=1),
      decoder_loss_weights=np.array([[1] * T, [1] * 4 + [0] * 2], np.float32),
  )


@functools.cache
def sums_of(name):
  """Returns ((loss, hits, weight), gradients of the loss)."""
  batch = make_batch(name)

  def loss(params):
    sums = step_lib.token_sums(params, batch, make(name))
    return sums[0], sums

  compute = jax.jit(jax.value_and_grad(loss, has_aux=True))
  (_, sums), gradients = compute(drawn(name)[0])
  return sums, gradients


@some(DIFFERENT, ('bart',))
def test_the_loss_and_its_gradients(name):
  """Those of the equation, and finite differences."""
  sums, found = sums_of(name)
  batch = make_batch(name)
  targets, weights = (
      batch[f'decoder_{key}'] for key in ('target_tokens', 'loss_weights')
  )
  log_p = equation(name)
  at = np.take_along_axis(log_p, targets[..., None], 2)[..., 0]
  np.testing.assert_allclose(sums[0], -(at * weights).sum(), 1e-5)
  exact = ((log_p.argmax(-1) == targets) * weights).sum()
  assert exact <= sums[1] <= weights.sum()
  with jax.enable_x64():
    params = jax.tree.map(np.float64, drawn(name)[0])
    model = make(name).clone(dtype=jnp.dtype('float64'))
    loss = lambda params: step_lib.token_sums(params, batch, model)[0]
    run = jax.jit(jax.value_and_grad(loss))
    small.check_gradients(run, params)
    found, expected = map(parameters.flatten, (found, run(params)[1]))
  largest = max(abs(gradient).max() for gradient in expected.values())
  for path, gradient in expected.items():
    least = 1e-4 * abs(gradient).max() + 1e-6 * largest
    np.testing.assert_allclose(found[path], gradient, 0, least, err_msg=path)
    if path.startswith('copy_head/') and path.endswith('kernel'):
      assert abs(gradient).max() > 1e-3, path


@products.few(
    'name', ('bart', WITHOUT), ('locost', *PAGED), pytest.mark.products
)
def test_the_loss_over_pieces_of_the_targets(name, monkeypatch):
  """Compares loss, accuracy and gradients; the second piece is padded."""
  expected, gradients = sums_of(name)
  monkeypatch.setattr(losses, 'PIECE_BYTES', 4 * 2 * V * 4)
  sizes, spy = [], losses.hits

  def hits(logits, *arguments):
    sizes.append(logits.shape[1])
    return spy(logits, *arguments)

  monkeypatch.setattr(losses, 'hits', hits)
  found, found_gradients = sums_of.__wrapped__(name)
  assert set(sizes) == {3}
  np.testing.assert_allclose(found, expected, 1e-6)
  jax.tree.map(
      lambda x, y: np.testing.assert_allclose(
          x, y, 0, 1e-6 + 1e-5 * abs(y).max()
      ),
      found_gradients,
      gradients,
  )


@products.few(
    'name',
    ('bart', 'simcas'),
    ('locost', WITHOUT, 'pagesum'),
    pytest.mark.products,
)
def test_beams(name):
  """Scores of beams equal log p of their texts, alone and in a batch."""
  params, inputs, _ = drawn(name)
  settings = Settings(
      start_id=0,
      eos_id=V - 1,
      pad_id=make(name).config.pad_id,
      max_length=T,
      num_beams=3,
      length_penalty=0.0,
  )
  mask = inputs != settings.pad_id
  write = functools.partial(generate.generate, make(name), params)
  tokens, scores = write(inputs, mask, settings)
  log_p = apply(name, inputs, np.pad(tokens, ((0, 0), (1, 0)))[:, :-1], mask)
  at = np.take_along_axis(np.asarray(log_p), tokens[..., None], 2)[..., 0]
  is_written = np.cumsum(tokens == V - 1, axis=1) - (tokens == V - 1) == 0
  np.testing.assert_allclose((at * is_written).sum(1), scores, 1e-5)
  for b in range(2):
    alone, _ = write(inputs[b : b + 1], mask[b : b + 1], settings)
    np.testing.assert_array_equal(alone[0], tokens[b])
  in_steps, _ = write(inputs, mask, settings, steps=generate.Steps())
  np.testing.assert_array_equal(in_steps, tokens)


def test_an_empty_document_has_nothing_to_copy():
  _, inputs, targets = drawn('t5')
  empty = np.zeros_like(inputs)
  log_p = apply('t5', empty, targets)
  memory = apply('t5', empty, method='encode')
  written, _ = apply('t5', memory, targets, method='decoder_states')
  logits = apply('t5', written.h, method='head')
  np.testing.assert_allclose(log_p, jax.nn.log_softmax(logits), 0, 1e-5)


def test_bfloat16_keeps_the_mixture_in_float32():
  params, inputs, targets = drawn('bart')
  model = models.build({'name': 'bart'} | vars(make('bart').config), 'bfloat16')
  log_p = jax.jit(model.apply)({'params': params}, inputs, targets)
  assert log_p.dtype == jnp.float32
  np.testing.assert_allclose(np.exp(log_p).sum(-1), 1, 0, 1e-5)


@pytest.mark.simcas
def test_rewards_of_the_selector_use_the_mixture():
  batch, params = make_batch('simcas'), drawn('simcas')[0]
  batch[step_lib.SEEDS] = np.arange(2, dtype=np.uint32)
  collect = functools.partial(
      selector_turn.collect,
      model=make('simcas'),
      settings=default.get_config().selector,
  )
  _, numbers = jax.jit(collect)(params, batch, jax.random.key(0))
  states, source = compiled('simcas', 'states')(
      {'params': params},
      batch['encoder_input_tokens'],
      batch['decoder_input_tokens'],
      seeds=batch[step_lib.SEEDS],
  )
  log_p = apply('simcas', states, source, method='predict')
  targets, weights = (
      batch[f'decoder_{key}'] for key in ('target_tokens', 'loss_weights')
  )
  at = np.take_along_axis(np.asarray(log_p), targets[..., None], 2)[..., 0]
  mean = (at * weights).sum(1) / weights.sum(1)
  reward = 1e4 * np.exp(mean).mean()
  np.testing.assert_allclose(numbers['reward'], reward, 1e-4)
