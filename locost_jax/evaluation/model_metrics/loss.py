"""Mean cross entropy in nats per target token, and accuracy."""

import functools

import jax

from locost_jax.evaluation.metrics import metric
from locost_jax.training import step as step_lib

_eval_step = functools.partial(jax.jit, static_argnames='model')(
    step_lib.eval_step
)


def sums(model, params, batch):
  """Returns {key: (sum, weight)} over the target tokens of a batch."""
  found = _eval_step(params, batch, model=model)
  weight = found['weight']
  return {
      'loss': (found['loss'], weight),
      'accuracy': (found['accuracy'], weight),
  }


LOSS = metric.Metric(
    name='loss',
    keys=('loss', 'accuracy'),
    needs=metric.MODEL,
    sums=sums,
    columns=(metric.Column('loss', 'loss', 3),),
    lower_is_better=('loss',),
)
