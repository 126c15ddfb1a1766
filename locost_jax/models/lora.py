"""LoRA (Hu et al. 2021): small matrices that learn in place of large ones.

  W' = W + (alpha / r) A B    W [..., in, out], A [..., in, r], B [..., r, out]

W is frozen. A is drawn, B begins at zero, so that the first step sees W itself.
The adapters A and B of `PATH/kernel` lie next to it, at `PATH/lora_a` and
`PATH/lora_b`; leading axes are stacked layers, each with its own.

The model only sees W', which `merge` returns. So the backward pass makes the
gradient of W' briefly, on the way to those of A and B; LoRA saves the state of
the optimiser, and W where it is shared.
"""

import copy
import re

import jax
import jax.numpy as jnp

from locost_jax.errors import InputError
from locost_jax.models import parameters

A, B, KERNEL = 'lora_a', 'lora_b', 'kernel'
# The last row of optim.groups: what no earlier row matches, except adapters.
_FROZEN = ((rf'(?!(.*/)?({A}|{B})$).*', 0.0),)


def optim_config(config):
  """Returns config.optim; with adapters, all other parameters are frozen."""
  changed = copy.deepcopy(config.optim)
  if config.train.lora.rank:
    changed.groups = (*changed.groups, *_FROZEN)
  return changed


def add(params, config, rng):
  """Returns the parameters with adapters next to the named kernels.

  A is normal with variance 1 / in, so that its product with a normed input has
  variance 1. config is config.train.lora; rank 0: no adapters.

  Raises:
    InputError: train.lora.paths matches no parameter, or one that is not a
      kernel, or a kernel whose smaller side is not above the rank.
  """
  if not config.rank:
    return params
  paths = _select(params, config)
  flat = parameters.flatten(params)
  for path, key in zip(paths, jax.random.split(rng, len(paths))):
    *layers, rows, columns = flat[path].shape
    dtype, above = flat[path].dtype, path.removesuffix(KERNEL)
    a = jax.random.normal(key, (*layers, rows, config.rank), dtype)
    flat[above + A] = a * rows**-0.5
    flat[above + B] = jnp.zeros((*layers, config.rank, columns), dtype)
  return parameters.unflatten(flat)


def merge(params, alpha):
  """Returns the parameters of the model: W' in place of W, A and B of `add`."""
  merged = {
      key: merge(node, alpha) if isinstance(node, dict) else node
      for key, node in params.items()
  }
  if A in merged:
    a, b = merged.pop(A), merged.pop(B)
    # 'highest': a TPU would round both to bfloat16, and W' with them.
    update = jnp.matmul(a, b, precision='highest')
    merged[KERNEL] = merged[KERNEL] + alpha / a.shape[-1] * update
  return merged


def _select(params, config):
  """The paths of the kernels that get adapters, in order."""
  flat = {path: leaf.shape for path, leaf in parameters.flatten(params).items()}
  given = f'train.lora.paths={config.paths!r}'
  kernels = [path for path in flat if path.split('/')[-1] == KERNEL]
  chosen = [path for path in flat if re.fullmatch(config.paths, path)]
  if not chosen:
    raise InputError(
        f'{given} matches no parameter; kernels are {", ".join(kernels)}'
    )
  for path in chosen:
    shape = flat[path]
    if path not in kernels or len(shape) < 2:
      raise InputError(
          f'{given} matches {path} {list(shape)}: expected kernels only'
      )
    if config.rank >= min(shape[-2:]):
      raise InputError(
          f'train.lora.rank={config.rank}: expected less than '
          f'{min(shape[-2:])}, the smaller side of {path} {list(shape)}'
      )
  return chosen
