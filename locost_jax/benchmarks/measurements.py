"""All measurements that need JAX, by name.

A row has all numbers of one length. It is computed by a function of a spec (see
`spec.make_spec`) and of `report`, a function (line) that shows progress. It is
a dict with times {name: seconds of each round}, seconds {name: median}, and the
other numbers of its command.
"""

from locost_jax.benchmarks import decoding
from locost_jax.benchmarks import document_cost
from locost_jax.benchmarks import jax_programs
from locost_jax.benchmarks import one_layer
from locost_jax.benchmarks import page_models
from locost_jax.benchmarks import selector_cost
from locost_jax.benchmarks import train_steps
from locost_jax.benchmarks import whole_encoder
from locost_jax.benchmarks import whole_model

# spec['what'] -> function (spec, report) -> row.
ROWS = dict(
    kernel=one_layer.measure_kernels,
    layer=one_layer.measure_layer,
    decode=decoding.measure_decoding,
    pages=page_models.measure_pages,
    select=selector_cost.measure_selecting,
    train=train_steps.measure_training,
    turn=selector_cost.measure_turn,
    cost=document_cost.measure_cost,
    generate=whole_model.measure_generating,
)
# spec['what'] -> function (spec, report) -> (known, run), see
# `processes.serve`; for compared models, which run many times.
COMPARED = dict(
    encoder=whole_encoder.prepare,
    learner=train_steps.prepare,
    writer=whole_model.prepare,
)


def prepare(spec, report):
  """Prepares a measurement: returns (known, run), see `processes.serve`."""
  if spec['what'] in COMPARED:
    return COMPARED[spec['what']](spec, report)
  measure = ROWS[spec['what']]
  return jax_programs.describe_device(), (
      lambda: dict(measure(spec, report), **jax_programs.describe_device())
  )
