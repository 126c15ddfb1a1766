"""The LOCOST token mixer: a gated bidirectional state-space layer.

  u = mask * (x W_key + b_key)
  y = two-sided convolution of u with the channels' kernels + skip * u
  out = (y * (x W_gate + b_gate)) W_output + b_output

(LOCOST, section 4.2, figure 2a, equation 3.) The mask multiplies after the
bias, so that padding contributes exactly nothing. Kernels, discretisation and
transforms are at least float32.

variant: where the paper and its release differ
                    'release' (weights exist)           'paper'
  lag 0             in both kernels                     in the second only
  parameters        directions share all but C          each its own
  kernel            c (exp(dt lambda) - 1) / lambda b   c b, no input step
  initialisation    log dt uniform, b = 1               dt uniform, b normal
"""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from locost_jax.errors import check_choice
from locost_jax.errors import InputError
from locost_jax.models import layers
from locost_jax.models import model_config
from locost_jax.models import stack
from locost_jax.ops import complex_pairs
from locost_jax.ops import long_conv
from locost_jax.ops import matrix_transform
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import split_conv
from locost_jax.ops import ssm
from locost_jax.ops import ssm_kernel

# Limit for the spectra of a layer, per device, that the backward pass keeps if
# layers run in pieces: about as much as the parameters, gradients and AdamW
# state of a layer of base size.
KEPT_BYTES = 128 << 20
# model.transform -> the transform of the convolution.
TRANSFORMS = {'fft': long_conv.FFT, 'matmul': matrix_transform.MatrixTransform}


@model_config.with_keys('locost')
class LocostConfig(stack.T5StyleConfig):
  """The config of a LOCOST."""

  comes_in_parts = True
  LEAST_BUCKETS = 2  # only the decoder has attention

  def __post_init__(self):
    super().__post_init__()
    check_choice(
        'model.initialisation', self.initialisation, ssm.INITIALISATIONS
    )
    if self.convolution == 'release' and self.variant == 'paper':
      raise InputError(
          "model.convolution='release' is a defect of the release "
          "and does not exist with model.variant='paper'"
      )
    if self.dt_min > self.dt_max:
      raise InputError(
          f'model.dt_min={self.dt_min}: expected 0 < dt_min <= '
          f'model.dt_max={self.dt_max}'
      )
    if self.variant == 'paper' and (self.dt_min, self.dt_max) != (
        ssm.DT_MIN,
        ssm.DT_MAX,
    ):
      raise InputError(
          f'model.dt_min={self.dt_min}, model.dt_max={self.dt_max}: with '
          "model.variant='paper' dt is uniform in (0, 1]"
      )

  @property
  def padding_unit(self):
    """See `ModelConfig`: the release's convolution depends on the length."""
    return int(self.convolution == 'release')

  def keys_seen(self, length):
    """Returns 0: the encoder has no attention."""
    del length
    return 0

  def mixer_flops(self, batch, length):
    """Projections, kernels and transforms of a layer; see `flops`."""
    B, L, D = batch, length, self.d_model
    directions = 2 if self.bidirectional else 1
    transform = transform_of(self, length)
    return {
        'dense': 6.0 * B * L * (3 if self.gating else 2) * D**2,
        'kernels': 12.0 * directions * D * self.d_state * L,
        'transforms': D * transform.flops(B, directions),
    }

  def mixer_bytes(self, batch, length):
    """Four arrays of one group's transforms, and its kernels' tables."""
    n = transform_of(self, length).numbers
    group = long_conv.group_size(batch, self.d_model, n)
    return 16 * batch * n * group + ssm_kernel.table_bytes()

  def kernel_bytes(self, length):
    """Bytes of `LocostMixer.spectra` for inputs of this length."""
    return spectra_bytes(self, self.d_model, length, jnp.float32)


def transform_of(config, length):
  """The transform for inputs of this length."""
  return TRANSFORMS[config.transform].of_length(length)


def spectra_bytes(config, channels, length, dtype):
  """Bytes of `spectrum` for a number of channels, made in this dtype."""
  bins = transform_of(config, length).bins
  return channels * bins * 2 * jnp.dtype(dtype).itemsize


def discretise(config, p):
  """The parameters of `BiSSM` as (log z, w, skip), channels on axis 1, 1, 0."""
  rates = p['log_dt'], p['log_A_real'], p['A_imag']
  if config.variant == 'paper':
    b = p['B'][..., 0], p['B'][..., 1]
  else:
    b = ssm.input_weights_zoh(*rates, p['B'])
  w = complex_pairs.multiply((p['C'][..., 0], p['C'][..., 1]), b)
  return ssm.discretise(*rates), w, p['D']


def spectrum(config, log_z, w, skip, length, start, count):
  """The spectrum of the kernels and the skip of channels start .. start + count.

  log_z, w and skip are those of `discretise`, length is that of the inputs.
  """

  def take(x, axis):
    return jax.lax.dynamic_slice_in_dim(x, start, count, axis)

  log_z, w = jax.tree.map(lambda x: take(x, 1), (log_z, w))
  K = ssm_kernel.kernel(log_z, w, length)
  K0, K1 = K if config.bidirectional else (K[0], None)
  if config.bidirectional and config.variant == 'paper':
    K0 = K0.at[:, 0].set(0)
  if config.bidirectional and config.convolution == 'release':
    K1 = long_conv.release_reverse(K1)
  return transform_of(config, length).kernel_spectrum(K0, K1, take(skip, 0))


def convolve(config, u, log_z, w, skip, lean=False):
  """The two-sided convolution of all channels, where each device has a part.

  A device has its documents, its channels and, under a `sequence` axis, its
  part of each document; it makes the kernels of its channels only.

  Args:
    u: [D, B, L], like the result.
    log_z, w, skip: of `discretise`.
    lean: whether the backward pass keeps no more than u and KEPT_BYTES.
  """
  split = mesh_lib.axis_size(mesh_lib.SEQUENCE)
  split_conv.check(config.convolution, split)

  def of_part(u, log_z, w, skip):
    D, _, L = u.shape
    size = spectra_bytes(config, D, L, log_z[0].dtype)
    little = 'spectra' if size <= KEPT_BYTES else 'nothing'

    def spectrum_of(parameters, start, count):
      return spectrum(config, *parameters, L, start, count)

    y = long_conv.learned_conv(
        u,
        (log_z, w, skip),
        spectrum_of,
        transform_of(config, L),
        keep=little if lean else 'all',
    )
    if split == 1:
      return y
    return split_conv.add_other_parts(y, u, log_z, w, mesh_lib.SEQUENCE)

  inputs = P(mesh_lib.TENSOR, mesh_lib.ROWS, mesh_lib.SEQUENCE)
  channels = P(None, mesh_lib.TENSOR)
  return mesh_lib.on_mesh(
      of_part,
      (inputs, channels, channels, P(mesh_lib.TENSOR)),
      inputs,
      u,
      log_z,
      w,
      skip,
  )


class BiSSM(nn.Module):
  """The parameters of all channels' two-sided convolutions."""

  config: LocostConfig

  def setup(self):
    c = self.config
    D, N, C = c.d_model, c.d_state, 2 if c.bidirectional else 1
    G, init_log_dt, init_B = (
        1,
        ssm.init_log_dt(c.dt_min, c.dt_max),
        ssm.init_ones,
    )
    if c.variant == 'paper':
      G, init_log_dt, init_B = C, ssm.init_log_dt_paper, ssm.init_complex_normal
    self.all = {
        name: self.param(name, init, shape)
        for name, init, shape in (
            ('log_dt', init_log_dt, (G, D)),
            ('log_A_real', ssm.init_A(c.initialisation, 0), (G, D, N)),
            ('A_imag', ssm.init_A(c.initialisation, 1), (G, D, N)),
            ('B', init_B, (G, D, N, 2)),
            ('C', ssm.init_complex_normal, (C, D, N, 2)),
            ('D', nn.initializers.normal(1.0), (D,)),
        )
    }

  def discretised(self):
    """(log z, w, skip) of `discretise`.

    Call it before any loop over groups of channels: inside, XLA fuses it into
    the tables of powers and recomputes its exponentials for each of them.
    """
    return discretise(self.config, self.all)


class LocostMixer(nn.Module):
  """x [B, L, D], mask [B, L] -> [B, L, D]; 1/sqrt(D) uniform projections."""

  config: LocostConfig
  dtype: jnp.dtype

  def setup(self):
    D = self.config.d_model

    def init(*args):
      return nn.initializers.uniform(2 * D**-0.5)(*args) - D**-0.5

    project = functools.partial(layers.Projection, (D, D), self.dtype, init)
    self.key = project()
    self.ssm = BiSSM(self.config)
    if self.config.gating:
      self.gate = project()
    self.output = project()

  def inward(self, x, mask):
    """x [B, L, D] and mask [B, L] -> u [D, B, L], token by token."""
    return self.key.to_channels(x) * mask

  def mix(self, u, spectrum=None, lean=False):
    """The convolution, which alone looks at other tokens: u -> y [D, B, L].

    Args:
      spectrum: (start, count) -> the kernels' spectrum of these channels, if
        made before; None: made here.
      lean: see `convolve`.
    """
    if spectrum is None:
      parameters = self.ssm.discretised()
      if self.is_initializing():  # only the parameters count
        return u
      return convolve(self.config, u, *parameters, lean)
    transform = transform_of(self.config, u.shape[2])
    return long_conv.conv_in_groups(u, spectrum, transform)

  def outward(self, x, y):
    """x [B, L, D] and y [D, B, L] -> [B, L, D], token by token."""
    if self.config.gating:
      y = y * self.gate.to_channels(x)
    return self.output.of_channels(y)

  def kernels(self, length):
    """[C, D, length]: K[l] of each direction, in time."""
    log_z, w, _ = self.ssm.discretised()
    return ssm_kernel.kernel(log_z, w, length)

  def spectra(self, length):
    """The kernels' spectra for inputs of a length: [D, ...]."""
    n, D = transform_of(self.config, length).numbers, self.config.d_model
    of_channels = functools.partial(
        spectrum, self.config, *self.ssm.discretised(), length
    )
    return long_conv.spectra_in_groups(
        of_channels, D, long_conv.group_size(1, D, n)
    )

  def __call__(self, x, mask, common=None, deterministic=True):
    del common, deterministic
    return self.outward(x, self.mix(self.inward(x, mask)))
