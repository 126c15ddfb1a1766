"""A task that shows whether SimCAS's selector learns what to read.

  python -m tests.learned_selection --output=runs/learned_selection

A document has C chunks of L tokens: a start mark, filler and an end mark.
Among the C (L - 1) tokens that can be selected are 4 payloads. They are the
target, in order and followed by the end mark, like every summary. A decoder can
write it from the payloads alone.

Training has two phases, each a `training.objectives`, with new documents in
every step. The first keeps every token (select='none') until the decoder reads:
until R, the mean over documents of exp(mean log p), reaches READS. Rewards are
only informative from then on. In the second phase the selector has a turn after
every step (select='ppo'). Measured on 64 held-out documents:

  marked      share of the payloads that are selected; chance is 1/2
  others      share of all other tokens that are selected; chance is 1/2
  selected    selected tokens per document
  reward      R with the selected tokens
  everything  R with every token

both sampled from the selector's probabilities and with argmax. The command
trains --seeds models with a critic and as many with the chunk's mean reward
instead, prints a table, and writes curves.json.
"""

import functools
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from configs import default
from locost_jax import models
from locost_jax.command_line import commands
from locost_jax.training import losses
from tests import learned

C, L, PAYLOADS = 8, 32, 4
START, PAD, END = 0, 1, 2
FILLER, PAYLOAD = np.arange(8, 48), np.arange(48, 96)
MEASURED = 64  # documents
READS, MOST = 0.08, 900  # R that ends the first phase, and its most steps
# The criterion for "learned".
MARKED, OTHERS, SELECTED, KEPT_REWARD = 0.95, 0.25, (20, 60), 0.95


def make_config(select, steps, baseline='critic'):
  """Returns the config of a phase: select is 'none' or 'ppo'."""
  config = learned.make_config(
      default.simcas(),
      vocab_size=96,
      d_ff=128,
      decoder_d_ff=128,
      max_positions=L,
      pad_id=PAD,
      align='mean',
      select=select,
  )
  config.optim.update(
      learning_rate=1e-3, warmup_steps=200.0 if select == 'none' else 0.0
  )
  config.train.update(
      steps=steps,
      batch_size=16,
      objective='simcas' if select == 'ppo' else 'likelihood',
  )
  config.selector.update(every=1, limit=32, baseline=baseline)
  return config


def make_documents(key, count):
  """Makes B = `count` documents from a key of ints.

  Returns:
    (batch, marked): a batch as in `step.train_step`, inputs [B, C, L] and
    targets [B, 5]; where the payloads are, bool [B, C, L - 1].
  """
  rng = np.random.default_rng(key)
  inputs = rng.choice(FILLER, (count, C, L))
  inputs[:, :, 0], inputs[:, :, -1] = START, END
  inner = C * (L - 2)
  places = np.sort(
      np.argsort(rng.random((count, inner)), axis=1)[:, :PAYLOADS], axis=1
  )
  payloads = rng.choice(PAYLOAD, (count, PAYLOADS))
  text = inputs[:, :, 1:-1].reshape(count, inner)
  np.put_along_axis(text, places, payloads, axis=1)
  inputs[:, :, 1:-1] = text.reshape(count, C, L - 2)
  targets = np.pad(payloads, ((0, 0), (0, 1)), constant_values=END)
  batch = learned.make_batch(inputs, targets, START)
  return batch, np.isin(inputs[:, :, 1:], PAYLOAD)


@functools.cache
def build(select, selection='sample'):
  """Returns the model with a kind of selection."""
  config = make_config(select, 1).model
  config.selection = selection
  return models.build(config)


@functools.partial(jax.jit, static_argnums=2)
def measure_one(params, batch, model):
  """Returns (selected, bool [B, C, J]; R, a scalar)."""
  apply = functools.partial(model.apply, {'params': params})
  memory = apply(batch['encoder_input_tokens'], method='encode')
  targets_in = batch['decoder_input_tokens']
  states, _ = apply(memory, targets_in, method='decoder_states')
  loss, count = losses.of_documents(
      lambda states: apply(states, method='head'),
      states,
      batch['decoder_target_tokens'],
      batch['decoder_loss_weights'],
  )
  return memory['mask'][:, :, 1:], jnp.mean(jnp.exp(-loss / count))


def measure(params, batch, marked):
  """Returns the measurements named in the module; argmax's have a prefix."""
  everything = float(measure_one(params, batch, build('none'))[1])
  measured = {'everything': everything}
  for selection, prefix in (('sample', ''), ('argmax', 'argmax_')):
    selected, reward = measure_one(params, batch, build('ppo', selection))
    selected = np.asarray(selected)
    measured |= {
        f'{prefix}marked': float(selected[marked].mean()),
        f'{prefix}others': float(selected[~marked].mean()),
        f'{prefix}selected': float(selected.sum((1, 2)).mean()),
        f'{prefix}reward': float(reward),
    }
  return measured


def make_phase(select, steps, baseline='critic'):
  config = make_config(select, steps, baseline)
  return learned.make_phase(config, models.build(config.model))


def read(seed, report=lambda row: None, most=MOST, every=20):
  """Runs the first phase: trains a new model until it reads, or `most` steps.

  Args:
    seed: of the parameters and the documents.
    report: called with a dict of step and everything.
    most: maximum of steps.
    every: steps between measurements.

  Returns:
    (params, steps taken).
  """
  phase = make_phase('none', most)
  state = phase.init(jax.random.key(seed))
  held_out, _ = make_documents((seed, 1), MEASURED)
  for step in range(1, most + 1):
    batch, _ = make_documents((seed, 0, step), 16)
    state, _ = phase.step(state, batch)
    if step % every == 0:
      reward = float(measure_one(state.params, held_out, build('none'))[1])
      report({'step': step, 'everything': reward})
      if reward >= READS:
        break
  return state.params, step


def select(
    seed, params, steps=200, every=20, baseline='critic', report=lambda r: None
):
  """Runs the second phase: selector and other parameters learn alternately.

  Args:
    seed: of the documents.
    params: of `read`.
    steps: updates of both.
    every: steps between measurements.
    baseline: config.selector.baseline.
    report: called with each of the rows.

  Returns:
    (params, rows); rows are dicts of `measure`, with step.
  """
  phase = make_phase('ppo', steps, baseline)
  state = phase.init(jax.random.key(seed))._replace(
      params=jax.tree.map(jnp.copy, params)
  )
  held_out = make_documents((seed, 1), MEASURED)
  rows = []
  for step in range(steps + 1):
    if step % every == 0 or step == steps:
      rows.append({'step': step, **measure(state.params, *held_out)})
      report(rows[-1])
    if step < steps:
      batch, _ = make_documents((seed, 2, step), 16)
      state, _ = phase.step(state, batch)
  return state.params, rows


def is_learned(row):
  """Whether a row reaches the criterion."""
  return (
      row['marked'] >= MARKED
      and row['others'] <= OTHERS
      and SELECTED[0] <= row['selected'] <= SELECTED[1]
      and row['reward'] >= KEPT_REWARD * row['everything']
  )


def define_flags(values, argv):
  """Defines the flags in `values`."""
  del argv
  learned.define_flags(
      values,
      'runs/learned_selection',
      seeds=(3, 'runs with each baseline, of seeds 0, 1, ...'),
      steps=(200, 'of the second phase'),
      most=(MOST, 'steps of the first phase'),
  )


def main(values, arguments):
  """Runs the command; see `commands.run`."""
  commands.expect_flags_only(arguments)
  curves = {}
  for seed in range(values.seeds):
    say = lambda row: print(seed, row, file=sys.stderr, flush=True)
    params, reads_at = read(seed, say, values.most)
    for baseline in ('critic', 'mean'):
      start = time.monotonic()
      report = lambda row: print(baseline, seed, row, file=sys.stderr)
      _, rows = select(
          seed, params, values.steps, baseline=baseline, report=report
      )
      curves[baseline, seed] = [row | {'reads_at': reads_at} for row in rows]
      seconds = time.monotonic() - start
      print(baseline, seed, f'took {seconds:.0f} s', file=sys.stderr)
  formats = dict(reads_at='', marked='.2f', others='.2f', selected='.1f')
  formats |= dict(reward='.3f', everything='.3f')
  learned.report(values.output, curves, is_learned, 'baseline', **formats)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
