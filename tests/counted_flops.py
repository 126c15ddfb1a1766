"""Counts the FLOPs of a traced function: matrix products and transforms.

XLA's own `cost_analysis` counts the body of a loop only once; this module
counts every iteration. A product of M x K and K x N has 2 M N K operations, a
complex Fourier transform of size n has 5 n log2 n and a real one half of that
(Frigo and Johnson's convention). Other operations are few and not counted.
"""

import math

import jax


def count(jaxpr, kinds=('dot_general', 'fft')):
  """Returns the number of operations of a jaxpr, on all devices together.

  A loop of unknown length (`while`) counts as one iteration, a condition as its
  most expensive branch.

  Args:
    jaxpr: a ClosedJaxpr, from `jax.jit(function).trace(...)`.
    kinds: the primitives that count.
  """
  return _count(jaxpr.jaxpr, kinds)


def _count(jaxpr, kinds):
  return sum(_equation(eqn, kinds) for eqn in jaxpr.eqns)


def _equation(eqn, kinds):
  name, params = eqn.primitive.name, eqn.params
  if name in ('dot_general', 'fft') and name not in kinds:
    return 0
  if name == 'dot_general':
    (contracted, _), _ = params['dimension_numbers']
    left = eqn.invars[0].aval.shape
    return (
        2
        * math.prod(eqn.outvars[0].aval.shape)
        * math.prod(left[axis] for axis in contracted)
    )
  if name == 'fft':
    sizes = params['fft_lengths']
    n, real = math.prod(sizes), params['fft_type'] != jax.lax.FftType.FFT and (
        params['fft_type'] != jax.lax.FftType.IFFT
    )
    # One side of a real transform has about half as many numbers.
    rows = max(
        math.prod(var.aval.shape[: -len(sizes)])
        for var in (eqn.invars[0], eqn.outvars[0])
    )
    return rows * (2.5 if real else 5) * n * math.log2(max(n, 2))
  if name == 'cond':
    return max(_count(branch.jaxpr, kinds) for branch in params['branches'])
  inner = sum(_count(part, kinds) for part in _jaxprs(params))
  if name == 'scan':
    return params['length'] * inner
  if name == 'shard_map':  # shapes inside are those of one device
    return params['mesh'].size * inner
  return inner


def _jaxprs(params):
  """Yields the jaxprs that an equation calls."""
  for value in params.values():
    if hasattr(value, 'eqns'):
      yield value
    elif hasattr(value, 'jaxpr') and hasattr(value.jaxpr, 'eqns'):
      yield value.jaxpr
