"""The FLOP formula of a step matches the counts of XLA and of a trace."""

import jax
import jax.numpy as jnp
import pytest

from configs import default
from locost_jax import models
from locost_jax.models import flops
from locost_jax.models import parameters
from locost_jax.ops import long_conv
from locost_jax.ops import matrix_transform
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import ssm_kernel
from locost_jax.telemetry import step_times
from locost_jax.training import step as step_lib
from tests import counted_flops

# Large enough that layers, kernels and convolutions use no loops (XLA counts a
# loop's body once) and recompute nothing.
WIDE = 1 << 40


def _step(monkeypatch, name='locost', **changes):
  """Returns (model, value_and_grad of a loss, abstract parameters)."""
  monkeypatch.setattr(mesh_lib, 'platform', lambda: 'gpu')
  monkeypatch.setattr(ssm_kernel, 'TABLE_BYTES', WIDE)
  monkeypatch.setattr(long_conv, 'GROUP_BYTES', WIDE)
  config = getattr(default, name)()
  config.update(dict(vocab_size=1000, num_layers=2, num_decoder_layers=2))
  config.update({key: changes[key] for key in changes if key in config})
  model = models.build(config)

  def loss(params, inputs, targets):
    return jnp.sum(model.apply({'params': params}, inputs, targets))

  return model, jax.value_and_grad(loss), parameters.abstract_params(model)


def _tokens(*shape):
  return jax.ShapeDtypeStruct(shape, jnp.int32)


@pytest.mark.parametrize(
    'changes',
    [
        dict(),
        dict(bidirectional=False),
        dict(gating=False, num_layers=3),
        dict(feed_forward='relu', variant='paper'),
        dict(convolution='release'),
        dict(name='bart', decoder_d_ff=56),
    ],
)
def test_the_formula_matches_the_trace(monkeypatch, changes):
  """Counts every matrix product and every transform."""
  B, L, T = 3, 384, 16
  sizes = dict(
      d_model=32, d_state=8, d_ff=48, d_kv=8, num_heads=2, num_decoder_layers=3
  )
  model, step, params = _step(monkeypatch, **(sizes | changes))
  traced = jax.make_jaxpr(step)(params, _tokens(B, L), _tokens(B, T))
  parts = flops.train_step(model.config, B, L, T)
  transforms = parts.pop('transforms', 0)
  products = counted_flops.count(traced, ['dot_general'])
  assert sum(parts.values()) == products
  if not transforms:
    return
  n = long_conv.fft_size(2 * L)
  products = 9 * B * n * model.config.d_model * model.config.num_layers
  found = counted_flops.count(traced, ['fft'])
  assert transforms - products == pytest.approx(found)


@pytest.mark.parametrize('directions', [1, 2])
@pytest.mark.parametrize('length', [384, 70_000])
def test_the_matrix_transform(length, directions):
  """Counts its products, with as many more elementwise as documented."""
  transform = matrix_transform.MatrixTransform.of_length(length)
  D, B = 2, 3

  def loss(u, K, skip):
    K0, K1 = K if directions == 2 else (*K, None)
    return transform.convolve(u, transform.kernel_spectrum(K0, K1, skip)).sum()

  array = lambda *sizes: jax.ShapeDtypeStruct(sizes, jnp.float32)
  given = array(D, B, length), [array(D, length)] * directions, array(D)
  traced = jax.make_jaxpr(jax.value_and_grad(loss, (0, 1, 2)))(*given)
  elementwise = 18 * B * transform.bins
  found = counted_flops.count(traced, ['dot_general'])
  assert D * (transform.flops(B, directions) - elementwise) == found
  config = models.build(
      dict(default.locost(), vocab_size=60, d_model=D, transform='matmul')
      | dict(bidirectional=directions == 2)
  ).config
  parts = config.mixer_flops(B, length)
  assert parts['transforms'] == D * transform.flops(B, directions)


def test_the_copy_head(monkeypatch):
  """Matches a traced step, which computes the scores twice."""
  B, L, T, C = 3, 384, 16, 4
  sizes = dict(d_model=32, d_ff=48, d_kv=8, num_heads=2, copy_dim=C)
  counted, expected = [], []
  for copy in True, False:
    model, _, params = _step(monkeypatch, **sizes, copy=copy)

    def loss(params, inputs, targets):
      batch = dict(
          encoder_input_tokens=inputs,
          decoder_input_tokens=targets,
          decoder_target_tokens=targets,
          decoder_loss_weights=jnp.ones(targets.shape),
      )
      return step_lib.token_sums(params, batch, model)[0]

    traced = jax.make_jaxpr(jax.value_and_grad(loss))(
        params, _tokens(B, L), _tokens(B, T)
    )
    parts = flops.train_step(model.config, B, L, T)
    counted.append(counted_flops.count(traced, ['dot_general']))
    expected.append(parts['dense'] + parts['attention'])
  gate = 6 * B * T * 32
  twice = 2 * B * T * L * C
  assert counted[0] - counted[1] == expected[0] - expected[1] + gate + twice


@pytest.mark.parametrize(
    'kind, tflops',
    [
        ('NVIDIA H100 PCIe', 756),
        ('NVIDIA GH200 480GB', 989),
        ('NVIDIA A100-SXM4-40GB', 312),
        ('NVIDIA GB200', 2500),
        ('Tesla V100-SXM2-16GB', 125),
        ('NVIDIA L40S', 362),
        ('TPU v5 lite', 197),
        ('TPU v5p', 459),
        ('TPU v4', 275),
        ('TPU v6 lite', 918),
        *((kind, None) for kind in ('cpu', 'NVIDIA RTX A1000', 'TPU')),
        ('NVIDIA H20', None),
    ],
)
def test_the_peak_of_a_device_by_its_name(kind, tflops):
  """None is guessed; test_topology.py has those of its data sheets."""
  assert step_times.peak_flops(kind) == (tflops and tflops * 1e12)


@pytest.mark.parametrize(
    'sizes, changes',
    [
        ((8, 512, 128), {}),
        ((2, 2048, 64), dict(d_state=1024)),  # a sixth of the FLOPs are kernels
        ((4, 512, 512), dict(gating=False, feed_forward='relu', d_kv=256)),
    ],
)
def test_the_formula_matches_xla(monkeypatch, sizes, changes):
  """At the paper's width, elementwise work is small. Only compiles."""
  B, L, T = sizes
  model, step, params = _step(monkeypatch, **changes)
  lowered = jax.jit(step).lower(params, _tokens(B, L), _tokens(B, T))
  expected = lowered.cost_analysis()['flops']
  assert flops.of_step(model, (B, L), (B, T)) == pytest.approx(
      expected, rel=0.03
  )
