"""LOCOST's kernels (figures 3, 6 and 7).

A channel weighs a token at distance l by |K[l]|, with K of `ops.ssm.kernel`.

Axes: C directions (0: the tokens before, 1: those after), D channels, L lags.
"""

import functools

import jax
import numpy as np

import locost_jax
from locost_jax.errors import InputError
from locost_jax.models import locost
from locost_jax.ops import ssm
from locost_jax.ops import ssm_kernel
from papers.figures import style

DIRECTIONS = ('tokens before', 'tokens after')
_COLORS = style.COLORS[:2]


@functools.partial(jax.jit, static_argnums=(0, 2))
def _layer_kernels(config, parameters, length):
  log_z, w, _ = locost.discretise(config, parameters)
  kernels = ssm_kernel.kernel(log_z, w, length)
  if config.variant == 'paper' and config.bidirectional:
    kernels = kernels.at[0, :, 0].set(0)  # lag 0 is the second direction's
  return kernels


def of_layers(workdir, length):
  """Returns the kernels of each layer, float [C, D, L]."""
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
    found.append(np.asarray(_layer_kernels(config, own, length)))
  return found


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
  layers = of_layers(workdir, length)
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

  Channels are sorted by effective context: the number of first lags that have
  95% of the weight. This shows a layer's time scales.
  """
  layers = of_layers(workdir, length)
  C, D, _ = layers[0].shape
  groups = min(3, len(layers))  # layers side by side
  rows = -(-len(layers) // groups)
  figure, axes = style.make_figure(rows, C * groups, 2.0, 1.9)
  edges = np.unique(np.geomspace(1, length + 1, 200).astype(int))
  look = dict(norm='log', vmin=1e-3, vmax=1, cmap='viridis', rasterized=True)
  for number, kernels in enumerate(layers):
    contexts = np.asarray(ssm.context_range(kernels))
    order = np.argsort(contexts.mean(0))
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
