"""A task that shows whether PageSum learns which page to trust.

A document has P pages of L tokens. Every page has one of P slot marks at a
random position, followed by a payload, and filler elsewhere. The target is the
payloads in the order of the slots, so each target is on one page only: the
right page. PageSum has learned its confidence (`models.pagesum`) when the right
page has a weight above 1 / P.

Training uses `training.step`, with new documents in every step. Measured on 256
held-out documents, given the true tokens before each target:

  accuracy  share of targets that are the most likely token
  weight    mean weight of the right page
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from configs import default
from locost_jax import models
from locost_jax.training import step as step_lib
from tests import learned

P, L = 4, 24
START, PAD = 0, 1
MARKS = np.arange(2, 2 + P)
PAYLOADS = np.arange(2 + P, 18 + P)
FILLER = np.arange(18 + P, 34 + P)
MEASURED = 256  # documents
# The criterion for "learned"; chance is 1 / 16 and 1 / P.
ACCURACY, WEIGHT = 0.95, 0.5


def make_config(steps):
  """Returns the config of a run."""
  config = learned.make_config(
      default.pagesum(),
      vocab_size=int(FILLER[-1]) + 1,
      d_ff=256,
      decoder_d_ff=256,
      max_positions=L,
      pad_id=PAD,
  )
  config.optim.update(learning_rate=2e-3, weight_decay=0.0)
  config.train.update(steps=steps, batch_size=32)
  return config


def make_documents(key, count):
  """Makes B = `count` documents from a key of ints.

  Returns:
    (batch, right): a batch as in `step.train_step`, inputs [B, P, L] and
    targets [B, P]; the right page of each target, int [B, P].
  """
  rng = np.random.default_rng(key)
  inputs = rng.choice(FILLER, (count, P, L))
  targets = rng.choice(PAYLOADS, (count, P))
  right = rng.permuted(np.tile(np.arange(P), (count, 1)), axis=1)
  place = rng.integers(0, L - 1, (count, P))
  document = np.arange(count)[:, None]
  inputs[document, right, place] = MARKS
  inputs[document, right, place + 1] = targets
  return learned.make_batch(inputs, targets, START), right


def page_weights(model, params, batch):
  """Returns the weight of each page for each target, [B, P, T]."""
  apply = functools.partial(model.apply, {'params': params})
  memory = apply(batch['encoder_input_tokens'], method='encode')
  return apply(memory, batch['decoder_input_tokens'], method='page_weights')


def measure(params, batch, right, *, model):
  """Returns accuracy and weight; see the module."""
  _, hits, count = step_lib.token_sums(params, batch, model)
  weights = page_weights(model, params, batch)
  of_right = jnp.take_along_axis(weights, right[:, None], axis=1)
  return {
      'accuracy': hits / count,
      'weight': jnp.mean(of_right),
  }


def train(seed, steps, every):
  """Trains a new model.

  Returns:
    (model, params, rows); rows are dicts of `measure`, with step.
  """
  config = make_config(steps)
  model = models.build(config.model)
  phase = learned.make_phase(config, model)
  measure_now = jax.jit(functools.partial(measure, model=model))
  held_out = make_documents((seed, 1), MEASURED)
  state = phase.init(jax.random.key(seed))
  rows = []
  for step in range(steps + 1):
    if step % every == 0 or step == steps:
      measured = measure_now(state.params, *held_out)
      rows.append({'step': step, **jax.tree.map(float, measured)})
    if step < steps:
      batch, _ = make_documents((seed, 0, step), config.train.batch_size)
      state, _ = phase.step(state, batch)
  return model, state.params, rows


def is_learned(row):
  """Whether a row reaches the criterion."""
  return row['accuracy'] >= ACCURACY and row['weight'] >= WEIGHT
