"""Compares with the LOCOST release: every array of tests/golden/locost_*."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import locost_jax
from locost_jax.generation import decode_settings
from locost_jax.generation import generate
from locost_jax.hugging_face import names as names_lib
from locost_jax.models import attention
from locost_jax.models import decoder
from locost_jax.models import decoder_layers
from locost_jax.models import encoder as encoder_lib
from locost_jax.models.parameters import flatten
from locost_jax.ops import complex_pairs
from locost_jax.ops import ssm
from locost_jax.ops import ssm_kernel
from locost_jax.training import losses

GOLDEN = Path(__file__).parents[1] / 'golden'
FOLDERS = (
    'locost_a_tiny',
    'locost_b_small',
    'locost_c_nogate_uni',
    'locost_d_untied_relu',
)
FLOAT32 = dict(rtol=0, atol=2e-4)
# Tolerances of float64 arrays, and of those stored as float32.
FLOAT64 = {'f64': dict(rtol=0, atol=1e-9), 'f64r': dict(rtol=0, atol=3e-6)}


@functools.lru_cache
def arrays(folder, name='io'):
  return dict(np.load(GOLDEN / folder / f'{name}.npz'))


@pytest.fixture(scope='module', params=FOLDERS)
def folder(request):
  return request.param


@pytest.fixture(scope='module')
def float32(folder):
  return locost_jax.load(GOLDEN / folder)


@pytest.fixture(scope='module')
def float64(folder):
  with jax.enable_x64(True):
    yield locost_jax.load(GOLDEN / folder, dtype=jnp.float64)


def golden(folder, name):
  """Returns the float64 array of a name as [(array, tolerance)], or []."""
  io = arrays(folder)
  return [
      (io[f'{run}/{name}'], tolerance)
      for run, tolerance in FLOAT64.items()
      if f'{run}/{name}' in io
  ]


def encoder_hidden(summarizer, inputs, mask):
  """Returns the input of every encoder layer, then the stack's output."""
  h = summarizer.params['token_embedding']['embedding'][inputs]
  layer = encoder_lib.EncoderLayer(
      summarizer.config, summarizer.model.make_mixer, summarizer.model.dtype
  )
  run = jax.jit(lambda p, h: layer.apply({'params': p}, h, mask, True)[0])
  stack = summarizer.params['encoder']['layers']
  hidden = [h]
  for i in range(summarizer.config.num_layers):
    hidden.append(run(jax.tree.map(lambda p: p[i], stack), hidden[-1]))
  return hidden


def decoder_hidden(summarizer, inputs, mask, targets_in):
  """Returns the input of every decoder layer."""
  c, params = summarizer.config, summarizer.params
  states = summarizer.encode(inputs, mask)
  positions = jnp.arange(targets_in.shape[1])
  bias = attention.RelativeBias(
      c.num_heads,
      c.relative_attention_num_buckets,
      c.relative_attention_max_distance,
      False,
      1.0,
  ).apply({'params': params['decoder']['relative_bias']}, positions, positions)
  layer = decoder_layers.DecoderLayer(c, summarizer.model.dtype, decoder.PARTS)
  run = jax.jit(
      lambda p, h: layer.apply(
          {'params': p},
          h,
          states,
          mask.astype(bool),
          positions <= positions[:, None],
          bias,
          True,
      )[0]
  )
  hidden = [params['token_embedding']['embedding'][targets_in]]
  for i in range(c.num_decoder_layers):
    parameters = jax.tree.map(lambda p: p[i], params['decoder']['layers'])
    hidden.append(run(parameters, hidden[-1]))
  return hidden


def kernels(summarizer, layer, length):
  """Returns the kernels [C, D, length] of one layer."""
  params = summarizer.params['encoder']['layers']['mixer']
  params = jax.tree.map(lambda p: p[layer], params)
  mixer = summarizer.model.make_mixer(summarizer.config, summarizer.model.dtype)
  return jax.jit(
      lambda p: mixer.apply({'params': p}, length, method='kernels')
  )(params)


def golden_layout(K):
  """Converts kernels [C, D, L] to the golden [D, 2L]; one direction: [D, L]."""
  if len(K) == 1:
    return K[0]
  middle = np.zeros((K.shape[1], 1))
  first = K[0].at[:, 0].add(K[1][:, 0])
  return np.concatenate([first, middle, K[1][:, :0:-1]], 1)


def make_loss(summarizer, io):
  """Returns the function params -> mean cross entropy of the labels."""
  labels = jnp.asarray(io['labels'])
  weights = labels != -100

  def loss(params):
    logits = summarizer.model.apply(
        {'params': params},
        io['input_ids'],
        io['decoder_input_ids'],
        io['attention_mask'],
    )
    total, weight = losses.cross_entropy(
        logits, jnp.where(labels == -100, 0, labels), weights
    )
    return total / weight

  return loss


def test_encoder_float32(folder, float32):
  io = arrays(folder)
  got = float32.encode(io['input_ids'], io['attention_mask'])
  ((want, _),) = golden(folder, 'enc_last')
  np.testing.assert_allclose(got, want, **FLOAT32)


def test_encoder_layers_float32(folder, float32):
  io = arrays(folder)
  hidden = encoder_hidden(float32, io['input_ids'], io['attention_mask'])
  assert golden(folder, 'enc_hidden_1')
  for i, got in enumerate(hidden[:-1]):
    for want, _ in golden(folder, f'enc_hidden_{i}'):
      np.testing.assert_allclose(got, want, **FLOAT32)


def test_logits_float32(folder, float32):
  io = arrays(folder)
  got = float32.logits(
      io['input_ids'], io['decoder_input_ids'], io['attention_mask']
  )
  np.testing.assert_allclose(got, io['f64/logits'], **FLOAT32)


def test_kernels_float32(folder, float32):
  for i in range(float32.config.num_layers):
    for want, _ in golden(folder, f'ssm_kernel_{i}'):
      length = want.shape[1] // (2 if float32.config.bidirectional else 1)
      got = golden_layout(kernels(float32, i, length))
      np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


def test_everything_float64(folder, float64):
  """Compares states of every layer, kernels and logits, to 1e-9."""
  io = arrays(folder)
  inputs, mask = io['input_ids'], io['attention_mask']
  got = {
      'enc_last': float64.encode(inputs, mask),
      'logits': float64.logits(inputs, io['decoder_input_ids'], mask),
  }
  enc = encoder_hidden(float64, inputs, mask)[:-1]
  dec = decoder_hidden(float64, inputs, mask, io['decoder_input_ids'])
  got.update({f'enc_hidden_{i}': h for i, h in enumerate(enc)})
  got.update({f'dec_hidden_{i}': h for i, h in enumerate(dec[:-1])})
  compared = set()
  for name, value in got.items():
    for want, tolerance in golden(folder, name):
      np.testing.assert_allclose(value, want, err_msg=name, **tolerance)
      compared.add(name)
  assert {'enc_last', 'logits', 'enc_hidden_1'} <= compared
  for i in range(float64.config.num_layers):
    for want, tolerance in golden(folder, f'ssm_kernel_{i}'):
      length = want.shape[1] // (2 if float64.config.bidirectional else 1)
      np.testing.assert_allclose(
          golden_layout(kernels(float64, i, length)), want, **tolerance
      )


def released_gradients(summarizer, gradients):
  """Returns gradients under the release's names and layouts."""
  named = {}
  flat = flatten(gradients)
  table = names_lib.table(dict(name='locost', **vars(summarizer.config)))
  for path, source in names_lib.sources(table, flat).items():
    layers = flat[path] if source.is_stacked else [flat[path]]
    for name, layer in zip(source.names, layers, strict=True):
      named[name] = source.form[1](layer)
  return named


@pytest.mark.parametrize(
    'precision',
    (pytest.param('float32', marks=pytest.mark.products), 'float64'),
)
def test_loss_and_gradients(folder, precision, request):
  summarizer = request.getfixturevalue(precision)
  io, want = arrays(folder), arrays(folder, 'grads')
  loss, gradients = jax.jit(jax.value_and_grad(make_loss(summarizer, io)))(
      summarizer.params
  )
  atol = 2e-4 if precision == 'float32' else 1e-9
  np.testing.assert_allclose(loss, io['f64/loss'], rtol=0, atol=atol)
  got = released_gradients(summarizer, gradients)
  assert set(want) <= set(got)
  # float64: golden gradients are stored as float32.
  bound = 1e-3 if precision == 'float32' else 1e-6
  for name, array in want.items():
    scale = np.abs(array).max()
    error = np.abs(got[name] - array).max()
    assert error <= bound * scale + 1e-7, name


def test_greedy_tokens(folder, float32):
  io = arrays(folder)
  want = io['greedy_tokens']
  got = float32.generate(io['input_ids'], io['attention_mask'], max_length=20)
  assert not (want == 1).any()  # no row contains eos
  np.testing.assert_array_equal(got, want)
  generated = io['hf_generate_greedy'][:, 1:]  # without the start token
  np.testing.assert_array_equal(got[:, : generated.shape[1]], generated)


def test_beams(folder, float32):
  """Beam search of transformers 4.30.2: tokens and scores."""
  io = arrays(folder)
  inputs, mask = io['input_ids'], io['attention_mask']
  settings = decode_settings.Settings(
      num_beams=4, length_penalty=0.8, no_repeat_ngram_size=3, max_length=16
  )
  tokens, scores = generate.generate(
      float32.model, float32.params, inputs, mask, settings
  )
  np.testing.assert_array_equal(  # the golden tokens include the start token
      tokens, io['hf_generate_beam4_lp0.8_nrng3'][:, 1:]
  )
  np.testing.assert_allclose(
      scores, io['hf_generate_beam4_scores'], rtol=0, atol=2e-5
  )


def test_release_convolution(folder):
  """The defect of the release's CUDA path, reproduced on demand."""
  io = arrays(folder)
  if 'fastpath_emul_f32/enc_last' not in io:  # one direction has no defect
    assert folder == 'locost_c_nogate_uni'
    return
  want = io['fastpath_emul_f32/enc_last']
  valid = io['attention_mask'].astype(bool)
  release = locost_jax.load(GOLDEN / folder, convolution='release')
  got = release.encode(io['input_ids'], io['attention_mask'])
  np.testing.assert_allclose(got[valid], want[valid], **FLOAT32)
  (exact,) = golden(folder, 'enc_last')
  differs = np.abs(want - exact[0])[valid].max() > 1e-2
  assert differs == (
      io['input_ids'].shape[1] & (io['input_ids'].shape[1] - 1) != 0
  )  # lengths that are powers of two have no defect


@pytest.mark.parametrize('weights', ('init', 'pert'))
@pytest.mark.parametrize('precision', ('float32', 'float64'))
def test_kernel_of_paper_size(weights, precision):
  io = arrays('locost_kernel_paperscale')
  with jax.enable_x64(precision == 'float64'):
    log_dt, A_real, A_imag, B = (
        jnp.asarray(io[f'{weights}/{name}'], precision)[None]
        for name in ('log_dt', 'inv_A_real', 'A_imag', 'B')
    )
    C = jnp.asarray(io[f'{weights}/C'], precision)
    b = ssm.input_weights_zoh(log_dt, A_real, A_imag, B)
    w = complex_pairs.multiply((C[..., 0], C[..., 1]), b)
    K = ssm_kernel.kernel(ssm.discretise(log_dt, A_real, A_imag), w, 1100)
    want = io[f'{weights}/f64/kernel']
    atol = 2e-5 if precision == 'float32' else 1e-9
    np.testing.assert_allclose(golden_layout(K), want, rtol=0, atol=atol)
