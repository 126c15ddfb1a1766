"""LOCOST for PyTorch and transformers 5: a copy lies in each exported LOCOST.

    AutoModelForSeq2SeqLM.from_pretrained(DIRECTORY, trust_remote_code=True)

Part of locost_jax, under the Apache License 2.0. It needs PyTorch and
transformers alone, and adds the encoder to transformers' T5, whose decoder and
output layer are LOCOST's. A layer of the encoder (LOCOST, section 4.2):

  u = mask * (x W_k + b_k)
  y_t = sum_(s <= t) K0[t - s] u_s + sum_(s >= t) K1[s - t] u_s + D u_t
  x += ((y * (x W_q + b_q)) W_output + b_output);  x += ff(x)

where the branches read RMS norms of x, and, with complex states n = 1 .. N,

  K[l] = 2 Re sum_n w_n exp(l dt A_n)      w = C B (exp(dt A) - 1) / A

config.locost_variant='paper': w = C B, lag 0 is in K1 alone, and each
direction has its own parameters, of which else only C differs.

Axes: B batch, L length, C directions, D channels, N complex states.
"""

import math

import torch
from torch import nn
from transformers import initialization
from transformers import T5Config
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.t5.modeling_t5 import T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5LayerFF
from transformers.models.t5.modeling_t5 import T5LayerNorm
from transformers.models.t5.modeling_t5 import T5PreTrainedModel

# Channels whose kernels and transforms are in memory at a time.
GROUP = 64
VARIANTS = 'release', 'paper'


class LocostConfig(T5Config):
  """T5's keys, and those of the state-space layers.

  Attributes:
    d_state: real numbers of a channel's state, 2 N.
    gating: whether the layers have W_q.
    bidirectional: whether they have K1.
    locost_variant: see the top.
  """

  model_type = 'locost'

  d_state: int = 512
  gating: bool = True
  bidirectional: bool = True
  locost_variant: str = 'release'


class LocostKernel(nn.Module):
  """The parameters of the kernels of all channels."""

  def __init__(self, config):
    super().__init__()
    self.is_paper = config.locost_variant == 'paper'
    N, C = config.d_state // 2, 2 if config.bidirectional else 1
    shape = (C,) * self.is_paper + (config.d_model,)
    log_dt = torch.empty(shape).uniform_(math.log(0.001), math.log(0.1))
    frequencies = math.pi * torch.arange(N)
    one = torch.tensor([1.0, 0.0])
    self.log_dt = nn.Parameter(log_dt)
    self.inv_A_real = nn.Parameter(torch.full((*shape, N), math.log(0.5)))
    self.A_imag = nn.Parameter(frequencies.expand(*shape, N).clone())
    self.B = nn.Parameter(one.expand(*shape, N, 2).clone())
    self.C = nn.Parameter(math.sqrt(0.5) * torch.randn(C, config.d_model, N, 2))

  def forward(self):
    """Returns dt A [..., D, N] and w [C, D, N], complex."""
    A = torch.complex(-wide(self.inv_A_real).exp(), wide(self.A_imag))
    log_z = wide(self.log_dt).exp()[..., None] * A
    w = torch.view_as_complex(wide(self.B))
    if not self.is_paper:
      w = w * torch.expm1(log_z) / A
    return log_z, torch.view_as_complex(wide(self.C)) * w


def wide(x):
  """x in float32, or in its own precision where that is higher."""
  return x.to(torch.promote_types(x.dtype, torch.float32))


def kernels(log_z, w, lags):
  """K[l] of channels, [C, D, lags]; arguments: of `LocostKernel`.

  With l = T i + j, T about sqrt(lags), K is the product of two small tables.
  """
  T = math.isqrt(lags - 1) + 1
  steps = torch.arange(T, device=w.device, dtype=w.real.dtype)
  fine = torch.exp(log_z[..., None] * steps)  # [..., D, N, T]
  coarse = torch.exp(log_z[..., None, :] * (T * steps)[:, None])
  products = (w[..., None, :] * coarse) @ fine  # [C, D, T, T]
  return 2 * products.real.flatten(-2)[..., :lags]


class LocostMixer(nn.Module):
  """The branch of a layer that mixes tokens: x, mask -> [B, L, D]."""

  def __init__(self, config):
    super().__init__()
    self.config = config
    self.k_proj = nn.Linear(config.d_model, config.d_model)
    self.q_proj = None
    if config.gating:
      self.q_proj = nn.Linear(config.d_model, config.d_model)
    self.output_linear = nn.Linear(config.d_model, config.d_model)
    self.kernel = LocostKernel(config)
    self.D = nn.Parameter(torch.randn(config.d_model))

  def forward(self, x, mask):
    """x [B, L, D], mask [B, L]."""
    u = self.k_proj(x) * mask[..., None].to(x.dtype)
    y = self.convolve(wide(u).transpose(1, 2)).transpose(1, 2).to(x.dtype)
    if self.q_proj is not None:
      y = y * self.q_proj(x)
    return self.output_linear(y)

  def convolve(self, u):
    """[B, D, L] -> [B, D, L], over groups of channels."""
    L = u.shape[2]
    n = max(16, 1 << (2 * L - 1).bit_length())
    log_z, w = self.kernel()
    parts = []
    for start in range(0, u.shape[1], GROUP):
      part = slice(start, start + GROUP)
      K = kernels(log_z[..., part, :], w[:, part], L)
      k = self.circular_kernel(K, wide(self.D[part]), n)
      spectrum = torch.fft.rfft(u[:, part], n) * torch.fft.rfft(k)
      parts.append(torch.fft.irfft(spectrum, n)[..., :L])
    return torch.cat(parts, 1)

  def circular_kernel(self, K, skip, n):
    """K [C, D, lags] and D [D] -> [D, n]."""
    lags = K.shape[2]
    zero, negative = K[0, :, 0], 0
    if self.config.bidirectional:
      is_paper = self.config.locost_variant == 'paper'
      zero = K[1, :, 0] + (0 if is_paper else zero)
      negative = nn.functional.pad(K[1, :, 1:].flip(1), (n - lags + 1, 0))
    positive = torch.cat([(zero + skip)[:, None], K[0, :, 1:]], 1)
    return nn.functional.pad(positive, (0, n - lags)) + negative


class LocostLayer(nn.Module):
  """The mixer with its norm, dropout and residual."""

  def __init__(self, config):
    super().__init__()
    self.layer_prenorm = T5LayerNorm(config.d_model, config.layer_norm_epsilon)
    self.ssm_layer = LocostMixer(config)
    self.dropout = nn.Dropout(config.dropout_rate)

  def forward(self, x, mask):
    """x [B, L, D], mask [B, L] -> x."""
    return x + self.dropout(self.ssm_layer(self.layer_prenorm(x), mask))


class LocostBlock(GradientCheckpointingLayer):
  """One layer of the encoder."""

  def __init__(self, config):
    super().__init__()
    self.layer = nn.ModuleList([LocostLayer(config), T5LayerFF(config)])

  def forward(self, x, mask):
    """x [B, L, D], mask [B, L] -> x."""
    return self.layer[1](self.layer[0](x, mask))


class LocostEncoder(T5PreTrainedModel):
  """The encoder; its arguments are those of T5's."""

  config_class = LocostConfig

  def __init__(self, config):
    super().__init__(config)
    self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model)
    layers = [LocostBlock(config) for _ in range(config.num_layers)]
    self.block = nn.ModuleList(layers)
    self.final_layer_norm = T5LayerNorm(
        config.d_model, config.layer_norm_epsilon
    )
    self.dropout = nn.Dropout(config.dropout_rate)
    self.gradient_checkpointing = False
    self.post_init()

  def _init_weights(self, module):
    super()._init_weights(module)
    if isinstance(module, LocostMixer):
      bound = self.config.d_model**-0.5
      for layer in module.children():
        if isinstance(layer, nn.Linear):
          initialization.uniform_(layer.weight, -bound, bound)
          initialization.uniform_(layer.bias, -bound, bound)

  def set_input_embeddings(self, new_embeddings):
    """Replaces the embedding."""
    self.embed_tokens = new_embeddings

  def forward(
      self,
      input_ids=None,
      attention_mask=None,
      inputs_embeds=None,
      output_hidden_states=None,
      **kwargs,
  ):
    """input_ids [B, L] or their vectors -> states [B, L, D].

    attention_mask [B, L] is 1 at tokens; None: everywhere. hidden_states of
    the result are the inputs of the layers, and the last one's output, normed.
    """
    del kwargs  # of attention
    if (input_ids is None) == (inputs_embeds is None):
      raise ValueError('expected either input_ids or inputs_embeds')
    if inputs_embeds is None:
      inputs_embeds = self.embed_tokens(input_ids)
    if attention_mask is None:
      attention_mask = inputs_embeds.new_ones(inputs_embeds.shape[:2])
    if output_hidden_states is None:
      output_hidden_states = self.config.output_hidden_states
    x, states = self.dropout(inputs_embeds), ()
    for block in self.block:
      states += (x,)
      x = block(x, attention_mask)
    x = self.dropout(self.final_layer_norm(x))
    states = (*states, x) if output_hidden_states else None
    return BaseModelOutput(last_hidden_state=x, hidden_states=states)


class LocostForConditionalGeneration(T5ForConditionalGeneration):
  """T5ForConditionalGeneration with LOCOST's encoder."""

  config_class = LocostConfig
  _no_split_modules = ['LocostBlock', 'T5Block']
  # Of the state-space layers; half precision is too coarse for angles.
  _keep_in_fp32_modules_strict = ['kernel']

  def __init__(self, config):
    if config.locost_variant not in VARIANTS:
      raise ValueError(
          f'locost_variant={config.locost_variant!r}: expected one of {VARIANTS}'
      )
    super().__init__(config)
    self.encoder = LocostEncoder(self.encoder.config)
    self.post_init()
