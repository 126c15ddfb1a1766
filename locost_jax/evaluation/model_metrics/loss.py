"""Mean cross entropy in nats per target token, accuracy and perplexity.

The perplexity of a split (SimCAS, table 9) is exp(loss). content_loss is the
loss over content tokens only, see `evaluation.content`.
"""

import functools
import math

import jax
import jax.numpy as jnp

from locost_jax.evaluation import content
from locost_jax.evaluation.metrics import metric
from locost_jax.training import step as step_lib

_eval_step = functools.partial(jax.jit, static_argnames='model')(
    step_lib.eval_step
)


def sums(model, params, batch):
  """Returns {key: (sum, weight)} over the target tokens of a batch."""
  batch = dict(batch)
  every, of_content = batch['decoder_loss_weights'], batch.pop(
      content.WEIGHTS, None
  )
  if of_content is None:
    of_content = jnp.zeros_like(every)
  batch['decoder_loss_weights'] = jnp.stack([every, of_content], axis=-1)
  found = _eval_step(params, batch, model=model)
  loss, accuracy, weight = (
      found[key] for key in ('loss', 'accuracy', 'weight')
  )
  return {
      'loss': (loss[0], weight[0]),
      'accuracy': (accuracy[0], weight[0]),
      'content_loss': (loss[1], weight[1]),
  }


def derive(means):
  """Returns {'perplexity': exp(loss)} from {'loss': ...}."""
  if 'loss' not in means:
    return {}
  # exp(710) is infinite in float64, and JSON has no infinity.
  return {'perplexity': math.exp(min(means['loss'], 700.0))}


LOSS = metric.Metric(
    name='loss',
    keys=('loss', 'accuracy', 'content_loss', 'perplexity'),
    needs=metric.MODEL,
    sums=sums,
    columns=(
        metric.Column('loss', 'loss', 3),
        metric.Column('content_loss', 'content', 3),
    ),
    lower_is_better=('loss', 'content_loss', 'perplexity'),
    derive=derive,
)
