"""Compares with the releases of LOCOST, BART, LED, T5, LongT5: tests/golden.

PageSum and SimCAS, which read pages, are in test_golden_pagesum.py and
test_golden_simcas.py.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.config import decode_settings
from locost_jax.generation import generate
from locost_jax.models import attention
from locost_jax.models import bart
from locost_jax.models import decoder_layers
from locost_jax.models import encoder as encoder_lib
from locost_jax.models import locost
from locost_jax.ops import complex_pairs
from locost_jax.ops import ssm
from locost_jax.ops import ssm_kernel
from locost_jax.summarizing import summarizer as summarizer_lib
from locost_jax.training import losses
from tests import products
from tests.models import golden

LOCOST = (
    'locost_a_tiny',
    'locost_b_small',
    'locost_c_nogate_uni',
    'locost_d_untied_relu',
)
PARTIAL = LOCOST[1:3]  # golden gradients of some parameters only
T5 = 't5v11', 'longt5_local', 'longt5_tglobal'
FOLDERS = *LOCOST, *T5, 'bart'
EVERY = *FOLDERS, 'led'
PLAIN = *T5, 'led'  # only what encoder and decoder return is compared
# Keys that config.json lacks: one document of LED's has one global token, the
# other two.
KEYS = {'led': dict(global_tokens=2)}
# One of each family; of the others, the core has less.
FEW = 'locost_a_tiny', 'longt5_tglobal', 'bart', 'led'
SOME = products.parametrize('folder', EVERY, FEW)
TRANSFORMERS = dict(
    num_beams=4,
    length_penalty=2.0,
    no_repeat_ngram_size=3,
    max_length=14,
    early_stopping=True,
)
# {a part of the folder's name: (name of the array, settings)}
BEAMS = {
    'locost': (
        'hf_generate_beam4_lp0.8_nrng3',
        dict(
            num_beams=4,
            length_penalty=0.8,
            no_repeat_ngram_size=3,
            max_length=16,
        ),
    ),
    't5': ('hf_generate_beam4', TRANSFORMERS | dict(min_length=4)),
    # The minimum of transformers, 5, counts the start and not eos.
    'bart': (
        'hf_generate_beam4',
        TRANSFORMERS
        | dict(min_length=5, forced_last_token=2)
        | dict(eos_id=2, pad_id=1, start_id=2),
    ),
    'led': (
        'hf_generate_beam4',
        TRANSFORMERS | dict(min_length=4, eos_id=2, pad_id=1, start_id=2),
    ),
}


def changed(folder, dtype='float32', **changes):
  return golden.changed(folder, dtype, **KEYS.get(folder, {}) | changes)


def layer_inputs(layer, stack, h, *rest):
  """Returns the input of each layer of a stack, then the last one's output."""
  run = jax.jit(lambda p, h: layer.apply({'params': p}, h, *rest, True)[0])
  stack, found = jax.tree.map(np.asarray, stack), [h]
  for i in range(len(jax.tree.leaves(stack)[0])):
    found.append(run(jax.tree.map(lambda p: p[i], stack), found[-1]))
  return found


def states(folder, model, params):
  """Returns our values of the golden states and logits, by name."""
  io, c = golden.arrays(folder), model.config
  inputs, mask = io['input_ids'], golden.mask_of(folder)
  targets = io['decoder_input_ids']
  if folder == 'led':  # with global tokens
    memory = generate.encode(model, params, inputs, mask)
    assert memory['mask'].dtype == bool
    logits = generate.logits(model, params, inputs, targets, mask)
    return {'enc_last': memory['states'], 'logits': logits}
  summarizer = summarizer_lib.Summarizer(model, params)
  found = {
      'enc_last': summarizer.encode(inputs, mask),
      'logits': summarizer.logits(inputs, targets, mask),
  }
  if folder in PLAIN:
    return found
  apply = functools.partial(model.apply, {'params': params})
  positions, bias = np.arange(targets.shape[1]), None
  if folder == 'bart':
    layer = bart.EncoderLayer(c, model.dtype)
    read = lambda self, x: self.decoder.embed(self.vectors(x), positions)
    h = apply(targets, method=read)
  else:
    layer = encoder_lib.EncoderLayer(c, model.dtype, model.make_mixer)
    h = params['token_embedding']['embedding'][targets]
    bias = attention.RelativeBias(c, False).apply(
        {'params': params['decoder']['relative_bias']}, positions, positions
    )
  decoded = layer_inputs(
      decoder_layers.DecoderLayer(c, model.dtype),
      params['decoder']['layers'],
      h,
      found['enc_last'],
      mask.astype(bool),
      positions <= positions[:, None],
      bias,
  )
  encoded = layer_inputs(
      layer, params['encoder']['layers'], *apply(inputs, mask, method='embed')
  )
  if folder != 'bart':  # theirs are after the stack's norm
    decoded = decoded[:-1]
  found |= {f'enc_hidden_{i}': h for i, h in enumerate(encoded[:-1])}
  return found | {f'dec_hidden_{i}': h for i, h in enumerate(decoded)}


def kernels(folder, model, params):
  """Returns the golden kernels [D, 2L] of all layers; one direction: [D, L]."""
  if folder not in LOCOST:
    return {}
  params = params['encoder']['layers']['mixer']
  mixer = model.make_mixer(model.config, model.dtype)
  length = golden.arrays(folder)['input_ids'].shape[1]
  run = jax.jit(lambda p: mixer.apply({'params': p}, length, method='kernels'))
  return {
      f'ssm_kernel_{i}': golden_layout(
          run(jax.tree.map(lambda p: p[i], params))
      )
      for i in range(model.config.num_layers)
  }


def golden_layout(K):
  """Converts kernels [C, D, L] to the golden [D, 2L]; one direction: [D, L]."""
  K = np.array(K)
  if len(K) == 1:
    return K[0]
  K[0, :, 0] += K[1, :, 0]
  return np.concatenate([K[0], 0 * K[1, :, :1], K[1, :, :0:-1]], 1)


@products.parametrize(
    'folder,precision',
    itertools.product(EVERY, (golden.FLOAT32, golden.FLOAT64)),
    {(folder, golden.FLOAT32) for folder in FEW}
    | {(folder, golden.FLOAT64) for folder in EVERY},
)
def test_states_kernels_and_logits(folder, precision):
  (dtype, atol, _), io = precision, golden.arrays(folder)
  with jax.enable_x64(dtype == 'float64'):
    model, params = changed(folder, dtype)
    found = states(folder, model, params)
    convolved = kernels(folder, model, params)
  assert found['enc_last'].dtype == dtype

  def select(name, array):
    # States of a local block that is only padding are undefined.
    is_undefined = folder in PLAIN and name == 'enc_last'
    return array[io['attention_mask'] == 1] if is_undefined else array

  compared = golden.compare(folder, found, atol, select)
  compared |= golden.compare(folder, convolved, min(atol, 2e-5))
  wanted = {name.split('/')[1] for name in io if name.startswith('f64')}
  if folder in PLAIN:
    wanted = {'enc_last', 'logits'}
  if folder in LOCOST:  # after the stack's norm
    wanted -= {f'dec_hidden_{model.config.num_decoder_layers}'}
  assert compared == wanted - {'loss'}


@SOME
@golden.MOSTLY_FLOAT64
def test_loss_and_gradients(folder, dtype, atol, bound):
  _check_gradients(folder, dtype, atol, bound)


def _check_gradients(folder, dtype, atol, bound, **changes):
  """Changes are other keys of the model."""
  io = golden.arrays(folder)
  labels = io['labels']
  with jax.enable_x64(dtype == 'float64'):
    model, params = changed(folder, dtype, **changes)

    def loss(params):
      logits = model.apply(
          {'params': params},
          io['input_ids'],
          io['decoder_input_ids'],
          golden.mask_of(folder),
      )
      total, weight = losses.cross_entropy(
          logits, np.maximum(labels, 0), labels != -100
      )
      return total / weight

    got, gradients = jax.jit(jax.value_and_grad(loss))(params)
    gradients = golden.released(folder, gradients)
  np.testing.assert_allclose(got, io['f64/loss'], 0, atol, err_msg='loss')
  if folder == 'longt5_local':  # padding makes transformers' gradients NaN
    assert not (golden.DIRECTORY / folder / 'grads.npz').exists()
    return
  want = golden.arrays(folder, 'grads')
  if folder not in PARTIAL:
    # In torch it is a buffer.
    more = {'final_logits_bias'} if folder in ('bart', 'led') else set()
    assert gradients.keys() - want.keys() == more
  for name in want.keys() - gradients.keys():  # other names of the embedding
    np.testing.assert_array_equal(want[name], want['shared.weight'])
  golden.compare_gradients(gradients, want, bound)


@pytest.mark.parametrize('folder', FOLDERS)
def test_greedy_tokens(folder):
  """Ours stop at eos, the golden ones do not."""
  io, summarizer = golden.arrays(folder), golden.load(folder)
  write = functools.partial(summarizer.generate, io['input_ids'])
  want, eos = io['greedy_tokens'], summarizer.settings.eos_id
  assert (want == eos).any() == (folder == 'longt5_local')
  for mask in (io['attention_mask'], None)[: 1 + (folder == 'bart')]:
    got = write(mask, max_length=20)
    for one, other in zip(got, want, strict=True):
      end = [*other, eos].index(eos) + 1
      np.testing.assert_array_equal(one[:end], other[:end])
  if folder == 'bart':
    got = write(max_length=14, forced_last_token=2)
  generated = io['hf_generate_greedy'][:, 1:]  # without the start token
  np.testing.assert_array_equal(got[:, : generated.shape[1]], generated)


@SOME
def test_beams(folder):
  """Beam search of transformers 4.30.2: tokens and scores."""
  io = golden.arrays(folder)
  ((name, settings),) = (BEAMS[key] for key in BEAMS if key in folder)
  tokens, scores = generate.generate(
      *changed(folder),
      io['input_ids'],
      golden.mask_of(folder),
      decode_settings.Settings(**settings),
  )
  want = io[name][:, 1:]  # without the start token
  np.testing.assert_array_equal(tokens[:, : want.shape[1]], want)
  np.testing.assert_allclose(
      scores, io['hf_generate_beam4_scores'], 0, 2e-5, err_msg='scores'
  )


@products.parametrize('folder', LOCOST, LOCOST[::2])
@golden.MOSTLY_FLOAT64
def test_the_matrix_transform(folder, dtype, atol, bound):
  """States, logits, loss and gradients, to the tolerance of the FFT."""
  with jax.enable_x64(dtype == 'float64'):
    found = states(folder, *changed(folder, dtype, transform='matmul'))
  assert golden.compare(folder, found, atol) > {'enc_last', 'logits'}
  _check_gradients(folder, dtype, atol, bound, transform='matmul')


@pytest.mark.parametrize('transform', locost.TRANSFORMS)
@pytest.mark.parametrize('folder', LOCOST)
def test_release_convolution(folder, transform):
  """The defect of the release's CUDA path, reproduced on demand."""
  io = golden.arrays(folder)
  if 'fastpath_emul_f32/enc_last' not in io:  # one direction has no defect
    assert folder == 'locost_c_nogate_uni'
    return
  want = io['fastpath_emul_f32/enc_last']
  valid = io['attention_mask'].astype(bool)
  release = summarizer_lib.Summarizer(
      *golden.changed(folder, convolution='release', transform=transform)
  )
  got = release.encode(io['input_ids'], io['attention_mask'])
  np.testing.assert_allclose(got[valid], want[valid], rtol=0, atol=2e-4)
  exact = io['f64r/enc_last' if 'f64r/enc_last' in io else 'f64/enc_last']
  differs = np.abs(want - exact)[valid].max() > 1e-2
  length = io['input_ids'].shape[1]
  assert differs == (length & (length - 1) != 0)  # powers of two have no defect


@pytest.mark.parametrize('weights', ('init', 'pert'))
@golden.IN_BOTH
def test_kernel_of_paper_size(weights, dtype, atol, bound):
  del bound
  io = golden.arrays('locost_kernel_paperscale')
  with jax.enable_x64(dtype == 'float64'):
    log_dt, A_real, A_imag, B = (
        jnp.asarray(io[f'{weights}/{name}'], dtype)[None]
        for name in ('log_dt', 'inv_A_real', 'A_imag', 'B')
    )
    C = jnp.asarray(io[f'{weights}/C'], dtype)
    b = ssm.input_weights_zoh(log_dt, A_real, A_imag, B)
    w = complex_pairs.multiply((C[..., 0], C[..., 1]), b)
    K = ssm_kernel.kernel(ssm.discretise(log_dt, A_real, A_imag), w, 1100)
  want = io[f'{weights}/f64/kernel']
  np.testing.assert_allclose(
      golden_layout(K), want, 0, min(atol, 2e-5), err_msg='kernel'
  )
