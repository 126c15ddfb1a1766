"""The LOCOST token mixer: a gated bidirectional state-space layer.

  u = mask * (x W_key + b_key)
  y = two-sided convolution of u with the channels' kernels + skip * u
  out = (y * (x W_gate + b_gate)) W_output + b_output

(LOCOST, section 4.2, figure 2a, equation 3.) The mask multiplies after the
bias, so that padding contributes exactly nothing. Kernels, discretisation and
FFT are at least float32.

variant: where the paper and its release differ
                    'release' (weights exist)           'paper'
  lag 0             in both kernels                     in the second only
  parameters        directions share all but C          each its own
  kernel            c (exp(dt lambda) - 1) / lambda b   c b, no input step
  initialisation    log dt uniform, b = 1               dt uniform, b normal
"""

import dataclasses
import functools

from flax import linen as nn
import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.models import layers
from locost_jax.models import long_conv
from locost_jax.models import ssm
from locost_jax.models import t5


@dataclasses.dataclass(frozen=True)
class LocostConfig(t5.ShellConfig):
  """The shell's keys and those of the state-space layers."""
  d_state: int
  gating: bool
  bidirectional: bool
  variant: str
  convolution: str

  def __post_init__(self):
    for key, choices in (('variant', ('release', 'paper')),
                         ('convolution', ('exact', 'release'))):
      if getattr(self, key) not in choices:
        raise InputError(f'model.{key}={getattr(self, key)!r} must be one of '
                         f'{", ".join(map(repr, choices))}')
    if self.convolution == 'release' and self.variant == 'paper':
      raise InputError("model.convolution='release' is a defect of the release "
                       "and does not exist with model.variant='paper'")


class BiSSM(nn.Module):
  """u [B, L, D] -> y [B, L, D]: all channels' two-sided convolutions."""
  config: LocostConfig

  def setup(self):
    c = self.config
    paper = c.variant == 'paper'
    D, N = c.d_model, c.d_state
    C = 2 if c.bidirectional else 1
    G = C if paper else 1
    self.log_dt = self.param(
        'log_dt', ssm.init_log_dt_paper if paper else ssm.init_log_dt, (G, D))
    self.log_A_real = self.param('log_A_real', ssm.init_log_A_real, (G, D, N))
    self.A_imag = self.param('A_imag', ssm.init_A_imag, (G, D, N))
    self.B = self.param(
        'B', ssm.init_complex_normal if paper else ssm.init_ones, (G, D, N, 2))
    self.C = self.param('C', ssm.init_complex_normal, (C, D, N, 2))
    self.D = self.param('D', layers.normal(1.0), (D,))

  def kernels(self, length):
    """[C, D, length]: K[l] of each direction."""
    log_z = ssm.discretise(self.log_dt, self.log_A_real, self.A_imag)
    if self.config.variant == 'paper':
      b = self.B[..., 0], self.B[..., 1]
    else:
      b = ssm.input_weights_zoh(
          self.log_dt, self.log_A_real, self.A_imag, self.B)
    w = ssm.complex_multiply((self.C[..., 0], self.C[..., 1]), b)
    return ssm.kernel(log_z, w, length)

  def __call__(self, u):
    c, L = self.config, u.shape[1]
    u = layers.at_least_float32(u)
    if not c.bidirectional:
      y = long_conv.causal_conv(u, self.kernels(L)[0])
    elif c.convolution == 'release':
      y = long_conv.release_conv(
          u, *self.kernels(long_conv.release_length(L)))
    else:
      K0, K1 = self.kernels(L)
      if c.variant == 'paper':
        K0 = K0.at[:, 0].set(0)
      y = long_conv.two_sided_conv(u, K0, K1)
    return y + self.D * u


class LocostMixer(nn.Module):
  """x [B, L, D], mask [B, L] -> [B, L, D]; 1/sqrt(D) uniform projections."""
  config: LocostConfig
  dtype: jnp.dtype

  def setup(self):
    D = self.config.d_model
    def init(*args):
      return nn.initializers.uniform(2 * D**-0.5)(*args) - D**-0.5
    project = functools.partial(nn.Dense, D, dtype=self.dtype,
                                kernel_init=init, bias_init=init)
    self.key = project()
    self.ssm = BiSSM(self.config)
    if self.config.gating:
      self.gate = project()
    self.output = project()

  def __call__(self, x, mask):
    u = self.key(x) * mask[..., None]
    y = self.ssm(u).astype(self.dtype)
    if self.config.gating:
      y = y * self.gate(x)
    return self.output(y)

  def kernels(self, length):
    """The convolution kernels [C, D, length] of this layer."""
    return self.ssm.kernels(length)
