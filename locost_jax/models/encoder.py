"""The encoder of the T5 family around any token mixer.

Layer:  h += mixer(rms(h));  h += ff(rms(h)).
RMS norm at the end; dropout on every branch, on the embeddings and after the
final norm; no absolute positions (Raffel et al. 2020, section 2.1).

The mixer's contract:

- A module of (config, dtype): x [B, L, D], mask [B, L], common,
  `deterministic` -> [B, L, D].
- If its layers share arrays, `common`, its `Common` makes them once: a module
  of (config): mask -> a tree of arrays, and its config has shares_arrays. Else
  common is None.
- Its config extends `stack.T5StyleConfig` and overrides keys_seen, mixer_flops
  and mixer_bytes if it is no self-attention over the whole input.
- One entry in `models.MODELS`.
- A mixer with the parts inward, mix, outward and spectra (see `locost`) runs
  over pieces of long inputs; its config has comes_in_parts and kernel_bytes.
  With any other mixer only the feed-forward runs over pieces.

Axes: B batch, L input length, D d_model.
"""

import functools
from typing import Callable

from flax import linen as nn
import jax.numpy as jnp

from locost_jax.models import stack
from locost_jax.ops import mesh as mesh_lib
from locost_jax.ops import tokenwise


class EncoderLayer(stack.Layer):
  """One layer of the encoder; a step of `nn.scan`."""

  make_mixer: Callable[..., nn.Module]

  def setup(self):
    super().setup()
    self.mixer_norm = self.config.make_norm(self.dtype)
    self.mixer = self.make_mixer(self.config, self.dtype)

  def __call__(self, h, mask, deterministic, in_pieces=False, common=None):
    """h [B, L, D], mask [B, L], common to the layers -> h [B, L, D], None.

    in_pieces: runs all but the mixer's `mix` over pieces of the length. The
    backward pass keeps h, the mixer's input and output, and what a lean `mix`
    keeps. Dropout masks differ. Not for initialisation.
    """
    if in_pieces:
      return self.in_pieces(h, mask, deterministic, common), None
    x = self.mixer(self.mixer_norm(h), mask, common, deterministic)
    return self.after(h, x, deterministic), None

  def in_pieces(self, h, mask, deterministic, common):
    """`__call__` over pieces of the length."""
    run = functools.partial(tokenwise.method, self, along=mesh_lib.SEQUENCE)
    draws = self.config.has_dropout and not deterministic
    if not self.config.comes_in_parts:
      x = self.mixer(self.mixer_norm(h), mask, common, deterministic)
      return run('after', h, x, draws=draws)
    u = run('inward', h, mask, axes=(1, 1, 2))
    y = self.mixer.mix(u, lean=True)
    return run('outward', h, y, axes=(1, 2, 1), draws=draws)

  def after(self, h, x, deterministic=True):
    """h + the mixer's output x + the feed-forward, [B, L, D]."""
    h = stack.lay_read(h + self.dropout(x, deterministic))
    return self.add(h, deterministic)

  def inward(self, h, mask):
    """The layer up to its mixer's `mix`: h, mask [B, L] -> u [D, B, L]."""
    return self.mixer.inward(self.mixer_norm(h), mask)

  def outward(self, h, y, deterministic=True):
    """The layer after `mix`: h [B, L, D], y [D, B, L] -> h."""
    x = self.mixer.outward(self.mixer_norm(h), y)
    return self.after(h, x, deterministic)


class Encoder(nn.Module):
  """Embedded tokens h [B, L, D], mask [B, L] -> states [B, L, D]."""

  config: stack.T5StyleConfig
  make_mixer: Callable[..., nn.Module]
  dtype: jnp.dtype
  remat: str

  def setup(self):
    self.layers = stack.make_encoder_layers(
        EncoderLayer, self.config, self.remat, self.dtype, self.make_mixer
    )
    self.common = None
    if self.config.shares_arrays:
      self.common = self.make_mixer.Common(self.config)
      nn.share_scope(self, self.common)  # encoder/relative_bias/embedding
    self.norm = self.config.make_norm(self.dtype)
    self.dropout = nn.Dropout(self.config.dropout_rate)

  def embed(self, h):
    """Vectors of tokens [B, L, D] -> h: there are no positions."""
    return stack.lay_read(h)

  def __call__(self, h, mask, deterministic):
    h = self.dropout(h, deterministic)
    common = self.common and self.common(mask)
    in_pieces = not self.is_initializing() and stack.reads_in_pieces(
        self.config, self.remat, *h.shape[:2]
    )
    h, _ = self.layers(h, mask, deterministic, in_pieces, common)
    return self.dropout(self.norm(h), deterministic)
