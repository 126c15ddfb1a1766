"""Cycles of an encoder layer on a TPU v5e that is not here: computed.

  python -m bench.layer_cycles 4096x16 16384x8

For each LENGTHxDOCUMENTS and model.transform: libtpu's estimate (extra
`tpu-aot`) and temporary memory of configs/default.py in bfloat16, forward and
backward. JAX_EXEC_TIME_OPTIMIZATION_EFFORT=-1 compiles a slower program faster.
"""

import re
import sys

import jax

from bench import programs
from configs import default
from locost_jax import models
from locost_jax.devices import sharding
from locost_jax.devices import topology
from locost_jax.models import locost
from locost_jax.models import low_memory_encoder


def compile_layer(length, documents, transform):
  """Returns the compiled program of a layer and its gradients."""
  config = default.get_config()
  config.model.update(vocab_size=8, transform=transform)
  model = models.build(config.model, dtype='bfloat16')
  layer = low_memory_encoder.make_layer(model)
  shape = documents, length, model.config.d_model
  h = jax.ShapeDtypeStruct(shape, model.dtype)
  mask = jax.ShapeDtypeStruct(shape[:2], bool)

  def run(params, h, mask):
    apply = lambda *args: layer.apply(*args, mask, True)[0]
    out, pull = jax.vjp(apply, params, h)
    return out, pull(h)

  init = lambda *args: layer.init(jax.random.key(0), *args, True)
  params = jax.eval_shape(init, h, mask)
  mesh = sharding.make_mesh(config.mesh, topology.find('v5e:1x1').devices)
  with jax.set_mesh(mesh):
    step = jax.jit(run, in_shardings=sharding.replicated(mesh))
    return step.lower(params, h, mask).compile()


def cycles(text):
  """Returns the estimated cycles of a program, with all turns of its loops."""
  bodies = dict(re.findall(r'(?ms)^(?:ENTRY )?%(\S+) \(.*?{$(.*?)^}', text))

  def add_up(body):
    total = sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', body)))
    for condition, name in re.findall(r'condition=%(\S+), body=%(\S+),', body):
      turns = re.search(r' s32\[\]\S* constant\((\d+)\)', bodies[condition])
      total += int(turns[1]) * add_up(bodies[name])
    for names in re.findall(r'branch_computations=\{(.*?)\}', body):
      total += max(add_up(bodies[n]) for n in re.findall('%([^,]+)', names))
    return total

  return add_up(bodies[re.search(r'(?m)^ENTRY %(\S+)', text)[1]])


if __name__ == '__main__':
  for words in (argument.split('x') for argument in sys.argv[1:]):
    for kind in locost.TRANSFORMS:
      program = compile_layer(*map(int, words), kind)
      count, size = cycles(program.as_text()), programs.temp_bytes(program)
      print(*words, kind, f'{count / 1e6:,.1f} Mcycles, {size / 1e6:,.0f} MB')
