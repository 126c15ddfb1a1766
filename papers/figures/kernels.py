"""LOCOST's kernels and their context (figures 3, 6 and 7; section 4.1).

A channel weighs a token at distance l by |K[l]|, with K of `ops.ssm.kernel`.
Two measures say how far a channel looks:

- the effective context: the number of first lags with 95% of sum_l |K[l]|
  (`ops.ssm.context_range`);
- the bound of section 4.1, |dy_j / du_(j-l)| <= rho(A)^l |c^T b|: the distance
  at which rho(A)^l falls to 5%, with the spectral radius rho(A) = max_n |z_n|.
  The slowest state alone decides it, even if its weight is small.

Axes: C directions (0: the tokens before, 1: those after), D channels, L lags.
"""

import functools
import math

import jax
import numpy as np

import locost_jax
from locost_jax.errors import InputError
from locost_jax.models import locost
from locost_jax.ops import ssm
from locost_jax.ops import ssm_kernel
from papers.figures import points
from papers.figures import style

DIRECTIONS = ('tokens before', 'tokens after')
SHARE = 0.95  # of a kernel's weight is in its effective context
_COLORS = style.COLORS[:2]


@functools.partial(jax.jit, static_argnums=(0, 2))
def _layer_kernels(config, parameters, length):
  log_z, w, _ = locost.discretise(config, parameters)
  kernels = ssm_kernel.kernel(log_z, w, length)
  if config.variant == 'paper' and config.bidirectional:
    kernels = kernels.at[0, :, 0].set(0)  # lag 0 is the second direction's
  return kernels, log_z[0]


def of_layers(workdir, length):
  """Returns (kernels [C, D, L], bound [C, D] in tokens) of each layer."""
  summarizer = locost_jax.load(workdir)
  config = summarizer.config
  if not isinstance(config, locost.LocostConfig):
    raise InputError(
        f'{workdir}: this model has no kernels: expected a LOCOST, got '
        f'{type(config).__name__.removesuffix("Config")}'
    )
  stacked = summarizer.params['encoder']['layers']['mixer']['ssm']
  found = []
  for layer in range(config.num_layers):
    own = jax.tree.map(lambda x, i=layer: x[i], stacked)
    kernels, log_radius = _layer_kernels(config, own, length)
    slowest = np.asarray(log_radius, float).max(-1)  # [G, D], below 0
    bound = math.log(1 - SHARE) / np.minimum(slowest, -1e-12)
    kernels = np.asarray(kernels)
    found.append((kernels, np.broadcast_to(bound, kernels.shape[:2])))
  return found


def context_range(kernels):
  """Returns the effective contexts of kernels: [..., L] -> int [...]."""
  return np.asarray(ssm.context_range(kernels, SHARE))


def decay(kernel):
  """Returns the mean of |K| in bins of distances [1, 2), [2, 4), [4, 8) ...

  Args:
    kernel: [L].

  Returns:
    (edges int [bins + 1], means [bins]).
  """
  L, weights = len(kernel), np.abs(kernel)
  edges = np.unique(np.append(2 ** np.arange(L.bit_length()), L))
  edges = edges[edges <= L]
  return edges, [weights[a:b].mean() for a, b in zip(edges, edges[1:])]


def draw_kernels(workdir, *, channel=0, length=2048):
  """Kernels of one channel in every layer, and their decay (LOCOST 3 and 6).

  The line is the weight |K|, scaled so that its largest value is 1. The bars
  show its decay: the mean in bins of distances. The paper shows channel 0.
  """
  layers = [kernels for kernels, _ in of_layers(workdir, length)]
  if not 0 <= channel < layers[0].shape[1]:
    raise InputError(
        f'--channel={channel}: expected a channel from 0 to '
        f'{layers[0].shape[1] - 1}'
    )
  columns = min(4, len(layers))
  figure, axes = style.make_figure(
      -(-len(layers) // columns), columns, 2.9, 2.1, sharex=True, sharey=True
  )
  for number, (axis, kernels) in enumerate(zip(axes.flat, layers), start=1):
    own = kernels[:, channel] / (np.abs(kernels[:, channel]).max() or 1)
    for kernel, color, name, sign in zip(own, _COLORS, DIRECTIONS, (-1, 1)):
      _draw_kernel(axis, kernel, sign, color, name)
    axis.axvline(0, color='black', linewidth=0.4)
    axis.set_title(f'layer {number}')
    axis.set_xscale('symlog', linthresh=1, linscale=0.5)
    axis.xaxis.set_major_formatter(lambda x, _: f'{abs(x):,.0f}')
    axis.set(xlim=(-length, length), ylim=(0, 1.05))
  for axis in axes.flat[len(layers) :]:
    axis.remove()
  for axis in axes[:, 0]:
    axis.set_ylabel(f'|K| of channel {channel}')
  for axis in axes.flat[max(0, len(layers) - columns) : len(layers)]:
    axis.set_xlabel('distance in tokens')
    axis.tick_params(labelbottom=True)
  style.add_legend(figure, axes.flat[:1])
  return figure


def _draw_kernel(axis, kernel, sign, color, name):
  """Draws the weights of one direction and their decay on one side of 0."""
  lags = sign * np.arange(len(kernel))
  axis.plot(lags, np.abs(kernel), color=color, linewidth=0.9, label=name)
  edges, means = decay(kernel)
  left, right = sign * edges[:-1], sign * edges[1:]
  look = dict(color=color, alpha=0.3, linewidth=0, label=f'{name}: mean')
  place = np.minimum(left, right)
  axis.bar(place, means, np.abs(right - left), align='edge', **look)


def draw_map(workdir, *, length=2048):
  """Kernels of all channels and layers (LOCOST 7).

  Channels are sorted by effective context, which shows a layer's time scales.
  """
  layers = [kernels for kernels, _ in of_layers(workdir, length)]
  C, D, _ = layers[0].shape
  groups = min(3, len(layers))  # layers side by side
  rows = -(-len(layers) // groups)
  figure, axes = style.make_figure(rows, C * groups, 2.0, 1.9)
  edges = np.unique(np.geomspace(1, length + 1, 200).astype(int))
  look = dict(norm='log', vmin=1e-3, vmax=1, cmap='viridis', rasterized=True)
  for number, kernels in enumerate(layers):
    order = np.argsort(context_range(kernels).mean(0))
    for c in range(C):
      axis = axes[number // groups, number % groups * C + c]
      weights = binned(kernels[c][order], edges) / (np.abs(kernels).max() or 1)
      image = axis.pcolormesh(
          edges, np.arange(D + 1), np.clip(weights, 1e-3, 1), **look
      )
      axis.set_xscale('log', base=10)
      axis.set_xlim((edges[-1], 1) if c == 0 and C > 1 else (1, edges[-1]))
      axis.xaxis.set_major_formatter(lambda x, _: f'{x:,.0f}')
      axis.set_yticks([])
      title = f'layer {number + 1}, {DIRECTIONS[c]}'
      axis.set_title(title, fontsize=8, color=_COLORS[c])
  for axis in axes.flat[C * len(layers) :]:
    axis.remove()
  for axis in axes[:, 0]:
    axis.set_ylabel(f'{D} channels')
  figure.supxlabel('distance in tokens (1: the token itself)', fontsize=9)
  drawn, label = list(axes.flat[: C * len(layers)]), '|K|, largest of a layer 1'
  figure.colorbar(image, ax=drawn, label=label, shrink=0.9)
  return figure


def binned(kernels, edges):
  """Returns the largest |K| between edges: [D, L] -> [D, len(edges) - 1].

  The edges are ascending distances, counted from 1; the last is L + 1.
  """
  return np.maximum.reduceat(np.abs(kernels), edges[:-1] - 1, axis=1)


def draw_contexts(workdir, *workdirs, length=2048):
  """Effective context of each channel (LOCOST, section 4.1).

  A point is the effective context of a channel, a bar the median of the points,
  a diamond the median of the bound.
  """
  paths = [workdir, *workdirs]
  figure, axes = style.make_figure(
      len(paths), 1, 5.6, 2.7, sharex=False, sharey=True
  )
  for axis, name, path in zip(axes[:, 0], points.short_names(paths), paths):
    found = of_layers(path, length)
    for c, color in enumerate(_COLORS[: len(found[0][0])]):
      for layer, (kernels, bound) in enumerate(found, start=1):
        x = layer + (0.42 * c - 0.21 if len(kernels) > 1 else 0)
        _draw_context(axis, x, kernels[c], bound[c], color, DIRECTIONS[c])
    axis.axhline(length, color='gray', linewidth=0.6, linestyle=':')
    style.count_on(axis.yaxis)
    axis.set(title=name, ylabel='effective context\nin tokens', xlabel='layer')
    style.integers_on(axis.xaxis, 12)
  style.add_legend(figure, axes[:, 0])
  return figure


def _draw_context(axis, x, kernels, bound, color, direction):
  """Draws the channels of one direction of a layer around x."""
  ranges = context_range(kernels)
  # Spread points by the golden ratio: even, and the same in every call.
  spread = (np.arange(len(ranges)) * 0.618034) % 1 - 0.5
  size = 3 if len(ranges) > 64 else 6
  look = dict(alpha=0.45, markeredgewidth=0, rasterized=True)
  axis.plot(
      x + 0.28 * spread, ranges, '.', color=color, markersize=size, **look
  )
  middle, look = [np.median(ranges)] * 2, dict(color=color, linewidth=2.2)
  label = f'{direction}, median'
  axis.plot((x - 0.17, x + 0.17), middle, label=label, **look)
  look = dict(color='white', markersize=4, markeredgecolor=color)
  label = f'{direction}, bound'
  axis.plot(x, np.median(bound), 'D', label=label, **look)
