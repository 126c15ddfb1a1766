"""The kernels of one layer: the two-level product, and term by term."""

import functools

import jax
import numpy as np

from bench import programs
from locost_jax.models import locost
from locost_jax.ops import ssm
from locost_jax.ops import ssm_kernel

# Most bytes of the terms, of a slice of channels.
SLICE_BYTES = 1 << 28


def prepare(spec):
  """Returns the calls, see `programs`: kernels of both directions.

  'term by term' is timed on the channels whose terms fit into SLICE_BYTES, and
  its time is scaled to all channels. difference: of the two, relative to the
  largest value.
  """
  config, L = spec['config']['model'], spec['length']
  one = dict(spec, config=dict(model=dict(config, num_layers=1)))
  model, params = programs.make(one)
  mixer = params['encoder']['layers']['mixer']['ssm']
  layer = jax.tree.map(lambda p: p[0], mixer)
  log_z, w, _ = locost.discretise(model.config, layer)
  D = config['d_model']
  channels = SLICE_BYTES // (16 * config['d_state'] * L)
  channels = max(1, min(D, channels))
  part = [tuple(x[:, :channels] for x in pair) for pair in (log_z, w)]
  two_level = programs.compile_program(
      functools.partial(ssm_kernel.kernel, length=L), log_z, w
  )
  terms = programs.compile_program(
      functools.partial(ssm.kernel, length=L), *part
  )
  ours = np.asarray(two_level(log_z, w))[:, :channels]
  theirs = np.asarray(terms(*part))
  difference = float(abs(ours - theirs).max() / abs(theirs).max())
  return {
      'two-level': programs.case(two_level, log_z, w, difference=difference),
      'term by term': programs.case(
          terms, *part, channels=channels, scale=D / channels
      ),
  }
