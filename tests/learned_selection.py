"""A task that shows whether SimCAS's selector learns what to read.

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

sampled from the selector's probabilities.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from configs import default
from locost_jax import models
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
def build(select):
  """Returns the model with a kind of selection."""
  return models.build(make_config(select, 1).model)


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
  """Returns the measurements named in the module."""
  everything = float(measure_one(params, batch, build('none'))[1])
  selected, reward = measure_one(params, batch, build('ppo'))
  selected = np.asarray(selected)
  return {
      'everything': everything,
      'marked': float(selected[marked].mean()),
      'others': float(selected[~marked].mean()),
      'selected': float(selected.sum((1, 2)).mean()),
      'reward': float(reward),
  }


def make_phase(select, steps):
  config = make_config(select, steps)
  return learned.make_phase(config, models.build(config.model))


def read(seed):
  """Runs the first phase: trains a new model until it reads, or MOST steps.

  Returns:
    (params, steps taken).
  """
  phase = make_phase('none', MOST)
  state = phase.init(jax.random.key(seed))
  held_out, _ = make_documents((seed, 1), MEASURED)
  for step in range(1, MOST + 1):
    batch, _ = make_documents((seed, 0, step), 16)
    state, _ = phase.step(state, batch)
    if step % 20 == 0:
      if float(measure_one(state.params, held_out, build('none'))[1]) >= READS:
        break
  return state.params, step


def select(seed, params, steps):
  """Runs the second phase: selector and other parameters learn alternately.

  Returns:
    `measure` of params, which are those of `read`, and after the phase.
  """
  phase = make_phase('ppo', steps)
  state = phase.init(jax.random.key(seed))._replace(
      params=jax.tree.map(jnp.copy, params)
  )
  held_out = make_documents((seed, 1), MEASURED)
  before = measure(state.params, *held_out)
  for step in range(steps):
    batch, _ = make_documents((seed, 2, step), 16)
    state, _ = phase.step(state, batch)
  return before, measure(state.params, *held_out)


def is_learned(row):
  """Whether a row reaches the criterion."""
  return (
      row['marked'] >= MARKED
      and row['others'] <= OTHERS
      and SELECTED[0] <= row['selected'] <= SELECTED[1]
      and row['reward'] >= KEPT_REWARD * row['everything']
  )
