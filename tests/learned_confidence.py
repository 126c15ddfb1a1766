"""A task that shows whether PageSum learns which page to trust.

  python -m tests.learned_confidence --output=runs/learned_confidence

A document has P pages of L tokens. Every page has one of P slot marks at a
random position, followed by a payload, and filler elsewhere. The target is the
payloads in the order of the slots, so each target is on one page only: the
right page. PageSum has learned its confidence (`models.pagesum`) when the right
page has a weight above 1 / P.

Training uses `training.step`, with new documents in every step. Measured on 256
held-out documents, given the true tokens before each target:

  accuracy  share of targets that are the most likely token
  weight    mean weight of the right page; global decoding has none

The command trains --seeds models with pages and one with global decoding. It
prints a table and writes curves.json.
"""

import functools
import json
from pathlib import Path
import sys
import time

from absl import flags
import jax
import jax.numpy as jnp
import numpy as np

from configs import default
from locost_jax import files
from locost_jax import models
from locost_jax.command_line import commands
from locost_jax.training import optim
from locost_jax.training import step as step_lib
from tests import batches

P, L = 4, 24
START, PAD = 0, 1
MARKS = np.arange(2, 2 + P)
PAYLOADS = np.arange(2 + P, 18 + P)
FILLER = np.arange(18 + P, 34 + P)
MEASURED = 256  # documents
# The criterion for "learned"; chance is 1 / 16 and 1 / P.
ACCURACY, WEIGHT = 0.95, 0.5


def make_config(decoding, steps):
  """Returns the config of a run: 'pages' or 'global' decoding."""
  config = default.get_config()
  config.model = default.pagesum()
  config.model.update(
      vocab_size=int(FILLER[-1]) + 1,
      d_model=64,
      d_ff=256,
      decoder_d_ff=256,
      num_heads=4,
      num_layers=2,
      num_decoder_layers=2,
      dropout_rate=0.0,
      max_positions=L,
      scale_embedding=True,
      pad_id=PAD,
      decoding=decoding,
  )
  config.optim.update(
      name='adamw',
      learning_rate=2e-3,
      weight_decay=0.0,
      clip=0.0,
      label_smoothing=0.1,
  )
  config.train.update(steps=steps, batch_size=32)
  return config


def make_documents(key, count):
  """Makes documents.

  Args:
    key: ints that determine the documents.
    count: B.

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
  every = np.ones((count, P))
  return batches.as_batch(inputs, targets, every, START), right


def page_weights(model, params, batch):
  """Returns the weight of each page for each target, [B, P, T]."""
  apply = functools.partial(model.apply, {'params': params})
  memory = apply(batch['encoder_input_tokens'], method='encode')
  return apply(memory, batch['decoder_input_tokens'], method='page_weights')


def measure(params, batch, right, *, model):
  """Returns accuracy and, unless decoding is global, weight; see the module."""
  sums = step_lib.eval_step(params, batch, model=model)
  measured = {'accuracy': sums['accuracy'] / sums['weight']}
  if model.config.decoding == 'pages':
    weights = page_weights(model, params, batch)
    of_right = jnp.take_along_axis(weights, right[:, None], axis=1)
    measured['weight'] = jnp.mean(of_right)
  return measured


def train(decoding, seed, steps=900, every=50, report=lambda row: None):
  """Trains a new model.

  Args:
    decoding: 'pages' or 'global'.
    seed: of the parameters and the documents.
    steps: updates.
    every: steps between measurements.
    report: called with each of the rows.

  Returns:
    (model, params, rows); rows are dicts of `measure`, with step.
  """
  config = make_config(decoding, steps)
  model = models.build(config.model)
  key = jax.random.key(seed)
  init = functools.partial(step_lib.init_params, model=model)
  optimizer = optim.make_optimizer(
      config.optim, steps, jax.eval_shape(init, key)
  )
  train_step = jax.jit(
      functools.partial(
          step_lib.train_step,
          model=model,
          optimizer=optimizer,
          schedule=optim.make_schedule(config.optim, steps),
          config=config.optim,
      ),
      donate_argnums=0,
  )
  measure_now = jax.jit(functools.partial(measure, model=model))
  held_out = make_documents((seed, 1), MEASURED)
  state = step_lib.init_state(key, model, optimizer)
  rows = []
  for step in range(steps + 1):
    if step % every == 0 or step == steps:
      measured = measure_now(state.params, *held_out)
      rows.append({'step': step, **jax.tree.map(float, measured)})
      report(rows[-1])
    if step < steps:
      batch, _ = make_documents((seed, 0, step), config.train.batch_size)
      state, _ = train_step(state, batch)
  return model, state.params, rows


def is_learned(row):
  """Whether a row reaches the criterion; global decoding has no weight."""
  return row['accuracy'] >= ACCURACY and row.get('weight', 1.0) >= WEIGHT


def format_table(curves):
  """Returns a line per run; curves: {(decoding, seed): rows}."""
  lines = [
      f'{"decoding":10}{"seed":>4}{"learned at":>12}{"accuracy":>10}'
      f'{"weight":>8}'
  ]
  for (decoding, seed), rows in curves.items():
    learned = [row['step'] for row in rows if is_learned(row)]
    last = rows[-1]
    weight = f'{last["weight"]:.2f}' if 'weight' in last else '-'
    lines.append(
        f'{decoding:10}{seed:4}{learned[0] if learned else "-":>12}'
        f'{last["accuracy"]:10.3f}{weight:>8}'
    )
  return '\n'.join(lines)


def define_flags(values, argv):
  """Defines the flags in `values`."""
  del argv
  number = functools.partial(
      flags.DEFINE_integer, lower_bound=1, flag_values=values
  )
  number('seeds', 3, 'runs with pages, of seeds 0, 1, ...')
  number('steps', 900, 'of each run')
  default_output = 'runs/learned_confidence'
  flags.DEFINE_string(
      'output', default_output, 'DIR for curves.json', flag_values=values
  )


def main(values, arguments):
  """Runs the command; see `commands.run`."""
  commands.expect_flags_only(arguments)
  runs = [('pages', seed) for seed in range(values.seeds)] + [('global', 0)]
  curves = {}
  for run in runs:
    start = time.monotonic()
    report = lambda row: print(*run, row, file=sys.stderr, flush=True)
    _, _, curves[run] = train(*run, values.steps, report=report)
    seconds = time.monotonic() - start
    print(*run, f'took {seconds:.0f} s', file=sys.stderr)
  print(format_table(curves))
  output = Path(values.output)
  rows = [
      dict(decoding=decoding, seed=seed, rows=rows)
      for (decoding, seed), rows in curves.items()
  ]
  files.write(output / 'curves.json', json.dumps(rows, indent=1) + '\n')


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
