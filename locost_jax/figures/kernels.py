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

from locost_jax.errors import InputError
from locost_jax.figures import style
from locost_jax.models import locost
from locost_jax.ops import ssm
from locost_jax.ops import ssm_kernel

DIRECTIONS = ('tokens before', 'tokens after')
SHARE = 0.95  # of a kernel's weight is in its effective context
_COLORS = style.BEFORE, style.AFTER


@functools.partial(jax.jit, static_argnums=(0, 2))
def _layer_kernels(config, parameters, length):
  log_z, w, _ = locost.discretise(config, parameters)
  kernels = ssm_kernel.kernel(log_z, w, length)
  if config.variant == 'paper' and config.bidirectional:
    kernels = kernels.at[0, :, 0].set(0)  # lag 0 is the second direction's
  return kernels, log_z[0]


def of_layers(summarizer, length):
  """Yields the kernels of each layer of a LOCOST.

  Args:
    summarizer: the result of `locost_jax.load`.
    length: L.

  Yields:
    (kernels float32 [C, D, L], bound float [C, D]): the bound in tokens, see
    the top of this module.

  Raises:
    InputError: the model is not a LOCOST.
  """
  config = summarizer.config
  if not isinstance(config, locost.LocostConfig):
    raise InputError(
        'this model has no kernels: expected a LOCOST, got '
        f'{type(config).__name__.removesuffix("Config")}'
    )
  stacked = summarizer.params['encoder']['layers']['mixer']['ssm']
  for layer in range(config.num_layers):
    own = jax.tree.map(lambda x, i=layer: x[i], stacked)
    kernels, log_radius = _layer_kernels(config, own, length)
    slowest = np.asarray(log_radius, float).max(-1)  # [G, D], below 0
    bound = math.log(1 - SHARE) / np.minimum(slowest, -1e-12)
    kernels = np.asarray(kernels)
    yield kernels, np.broadcast_to(bound, kernels.shape[:2])


def context_range(kernels):
  """Returns the effective contexts of kernels: [..., L] -> int [...]."""
  return np.asarray(ssm.context_range(kernels, SHARE))


def contexts(summarizer, length):
  """Returns the effective context of every channel and its bound, in tokens.

  Args:
    summarizer, length: see `of_layers`; lags beyond `length` do not count.

  Returns:
    (effective contexts int [layers, C, D], bounds float of the same shape).
  """
  found = [
      (context_range(kernels), bound)
      for kernels, bound in of_layers(summarizer, length)
  ]
  ranges, bounds = zip(*found)
  return np.stack(ranges), np.stack(bounds)


def decay(kernel):
  """Returns the mean of |K| in bins of distances [1, 2), [2, 4), [4, 8) ...

  Args:
    kernel: [L].

  Returns:
    (edges int [bins + 1], means [bins]).
  """
  L = len(kernel)
  edges = np.unique(np.append(2 ** np.arange(L.bit_length()), L))
  edges = edges[edges <= L]
  weights = np.abs(kernel)
  means = [weights[a:b].mean() for a, b in zip(edges, edges[1:])]
  return edges, np.array(means)


def draw_kernels(summarizer, length=2048, channel=0):
  """Draws the kernels of one channel in every layer (figures 3 and 6).

  The line is the weight |K|, scaled so that its largest value is 1. The bars
  show its decay: the mean in bins of distances.

  Args:
    summarizer: the result of `locost_jax.load`.
    length: L.
    channel: index of the channel; the paper shows the first.

  Returns:
    The matplotlib Figure.

  Raises:
    InputError: the model is not a LOCOST, or has no such channel.
  """
  if channel >= summarizer.config.d_model:
    raise InputError(
        f'--channel={channel}: expected a channel from 0 to '
        f'{summarizer.config.d_model - 1}'
    )
  found = [kernels[:, channel] for kernels, _ in of_layers(summarizer, length)]
  columns = min(4, len(found))
  figure, axes = style.make_figure(
      -(-len(found) // columns), columns, 2.9, 2.1, sharex=True, sharey=True
  )
  for number, (axis, kernels) in enumerate(zip(axes.flat, found), start=1):
    scale = np.abs(kernels).max() or 1
    for kernel, color, name, sign in zip(kernels, _COLORS, DIRECTIONS, (-1, 1)):
      _draw_kernel(axis, kernel / scale, sign, color, name)
    axis.axvline(0, color='black', linewidth=0.4)
    axis.set_title(f'layer {number}')
    axis.set_xscale('symlog', linthresh=1, linscale=0.5)
    axis.xaxis.set_major_formatter(lambda x, _: f'{abs(x):,.0f}')
    axis.set(xlim=(-length, length), ylim=(0, 1.05))
  for axis in axes.flat[len(found) :]:
    axis.remove()
  for axis in axes[:, 0]:
    axis.set_ylabel(f'|K| of channel {channel}')
  for axis in axes.flat[max(0, len(found) - columns) : len(found)]:
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
  axis.bar(
      np.minimum(left, right),
      means,
      np.abs(right - left),
      align='edge',
      color=color,
      alpha=0.3,
      linewidth=0,
      label=f'{name}: mean',
  )


def draw_map(summarizer, length=2048):
  """Draws |K| of all channels, layers and directions (figure 7).

  Channels are sorted by effective context, which shows a layer's time scales.

  Args:
    summarizer, length: see `of_layers`.

  Returns:
    The matplotlib Figure.
  """
  layers = [kernels for kernels, _ in of_layers(summarizer, length)]
  C, D, _ = layers[0].shape
  groups = min(3, len(layers))  # layers side by side
  figure, axes = style.make_figure(
      -(-len(layers) // groups), C * groups, 2.0, 1.9
  )
  from matplotlib.colors import LogNorm

  norm = LogNorm(1e-3, 1)
  edges = np.unique(np.geomspace(1, length + 1, 200).astype(int))
  for number, kernels in enumerate(layers):
    order = np.argsort(context_range(kernels).mean(0))
    for c in range(C):
      axis = axes[number // groups, number % groups * C + c]
      weights = binned(kernels[c][order], edges)
      image = axis.pcolormesh(
          edges,
          np.arange(D + 1),
          np.clip(weights / (np.abs(kernels).max() or 1), 1e-3, 1),
          norm=norm,
          cmap='viridis',
          rasterized=True,
      )
      axis.set_xscale('log', base=10)
      axis.set_xlim((edges[-1], 1) if c == 0 and C > 1 else (1, edges[-1]))
      axis.xaxis.set_major_formatter(lambda x, _: f'{x:,.0f}')
      axis.set_yticks([])
      axis.set_title(
          f'layer {number + 1}, {DIRECTIONS[c]}', fontsize=8, color=_COLORS[c]
      )
  for axis in axes.flat[C * len(layers) :]:
    axis.remove()
  for axis in axes[:, 0]:
    axis.set_ylabel(f'{D} channels')
  figure.supxlabel('distance in tokens (1: the token itself)', fontsize=9)
  figure.colorbar(
      image,
      ax=list(axes.flat[: C * len(layers)]),
      label='|K|, largest of a layer 1',
      shrink=0.9,
  )
  return figure


def binned(kernels, edges):
  """Returns the largest |K| between edges: [D, L] -> [D, len(edges) - 1].

  Args:
    kernels: [D, L].
    edges: ascending distances, counted from 1; the last is L + 1.
  """
  return np.maximum.reduceat(np.abs(kernels), edges[:-1] - 1, axis=1)


def draw_contexts(runs, length=2048):
  """Draws how far the channels of each layer look (section 4.1).

  A point is the effective context of a channel, a bar the median of the points,
  a diamond the median of the bound.

  Args:
    runs: list of (name, summarizer).
    length: L.

  Returns:
    The matplotlib Figure.
  """
  figure, axes = style.make_figure(
      len(runs), 1, 5.6, 2.7, sharex=False, sharey=True
  )
  for axis, (name, summarizer) in zip(axes[:, 0], runs):
    ranges, bounds = contexts(summarizer, length)
    layers, C, D = ranges.shape
    # Spread points by the golden ratio: even, and the same in every call.
    spread = (np.arange(D) * 0.618034) % 1 - 0.5
    for c in range(C):
      for layer in range(layers):
        x = layer + 1 + (0.42 * c - 0.21 if C > 1 else 0)
        axis.plot(
            x + 0.28 * spread,
            ranges[layer, c],
            '.',
            color=_COLORS[c],
            markersize=3 if D > 64 else 6,
            alpha=0.45,
            markeredgewidth=0,
            rasterized=True,
        )
        middle = np.median(ranges[layer, c])
        axis.plot(
            (x - 0.17, x + 0.17),
            (middle, middle),
            color=_COLORS[c],
            linewidth=2.2,
            label=f'{DIRECTIONS[c]}, median',
        )
        axis.plot(
            x,
            np.median(bounds[layer, c]),
            'D',
            color='white',
            markersize=4,
            markeredgecolor=_COLORS[c],
            label=f'{DIRECTIONS[c]}, bound',
        )
    axis.axhline(length, color='gray', linewidth=0.6, linestyle=':')
    style.count_on(axis.yaxis)
    axis.set(title=name, ylabel='effective context\nin tokens', xlabel='layer')
    axis.xaxis.set_major_locator(style.integers(12))
  style.add_legend(figure, axes[:, 0])
  return figure
