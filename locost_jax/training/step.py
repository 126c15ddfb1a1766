"""One step of training: a pure function of the state and a batch.

The batch and the randomness of step s depend only on (seed, s), and the whole
state is saved: a run that was killed and continued gives bit for bit the same
losses and parameters as an uninterrupted one.

Axes: B documents, L input tokens, T target tokens.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax.devices import sharding
from locost_jax.models import flops
from locost_jax.models import lora
from locost_jax.training import losses
from locost_jax.training import optim

# Batch key of the sampling seeds, uint32 [B]; only for models that sample
# which tokens they read.
SEEDS = 'sampling_seeds'


class TrainState(NamedTuple):
  """Everything that a run needs to continue."""

  step: Any  # int32, steps done; also the position in the data
  params: Any  # nested dict of parameters, including any adapters
  opt_state: Any
  rng: Any  # uint32 key data; step s draws from fold_in(rng, s)
  nonfinite: Any  # int32, steps skipped so far


def init_params(rng, model):
  """Initialises the parameters."""
  # No parameter depends on these shapes, but the mesh must divide them.
  reads_pages = bool(model.config.page_forms)
  inputs = jnp.ones(sharding.smallest_batch(reads_pages), jnp.int32)
  targets = jnp.ones((inputs.shape[0], 8), jnp.int32)
  return model.init(rng, inputs, targets)['params']


def init_state(rng, model, optimizer, groups=(), adapters=None):
  """Returns the state before the first step.

  Args:
    adapters: config.train.lora; None: no adapters.
  """
  params = init_params(rng, model)
  if adapters is not None:
    params = lora.add(params, adapters, jax.random.fold_in(rng, 2))
  trained, _ = optim.split(params, groups)
  return TrainState(
      step=jnp.int32(0),
      params=params,
      opt_state=optimizer.init(trained),
      rng=jax.random.key_data(jax.random.fold_in(rng, 1)),
      nonfinite=jnp.int32(0),
  )


def train_step(state, batch, *, model, optimizer, schedule, config):
  """One update of the parameters. Pure; `objectives.make_programs` compiles it.

  Gradients are computed only for the trained part of `optim.split`; frozen
  parameters have neither gradients nor optimiser state.

  Args:
    batch: encoder_input_tokens int [B, L], decoder_input_tokens and
      decoder_target_tokens int [B, T], decoder_loss_weights float [B, T]; also
      SEEDS, uint32 [B], for a model that samples which tokens it reads.

  Returns:
    The next TrainState, and a dict of scalars. Each is logged as train/NAME,
    except `culprit` (see `_gradient_metrics`).
  """
  rng = jax.random.fold_in(jax.random.wrap_key_data(state.rng), state.step)
  rules, settings = lora.optim_config(config), config.train
  trained, frozen = optim.split(state.params, rules.groups)

  def sums_of(trained, batch, rng):
    params = lora.merge(optim.combine(trained, frozen), settings.lora.alpha)
    return token_sums(
        params, batch, model, rng, rules.label_smoothing, rules.z_loss
    )

  (loss, accuracy), gradients = loss_and_gradients(
      sums_of, trained, batch, rng, settings.accumulate
  )
  squares = jnp.stack([jnp.sum(g**2) for g in jax.tree.leaves(gradients)])
  grad_norm = jnp.sqrt(jnp.sum(squares))
  is_finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
  changed, opt_state = guarded_update(
      state, trained, gradients, is_finite, optimizer
  )
  nonfinite = 1 - is_finite.astype(jnp.int32)
  metrics = {
      'loss': loss,
      'accuracy': accuracy,
      'grad_norm': grad_norm,
      'learning_rate': schedule(state.step),
      'nonfinite': nonfinite,
      **_gradient_metrics(gradients, squares, state.params, rules.groups),
      **_batch_metrics(batch, model),
  }
  state = TrainState(
      step=state.step + 1,
      params=optim.combine(changed, frozen),
      opt_state=opt_state,
      rng=state.rng,
      nonfinite=state.nonfinite + nonfinite,
  )
  return state, metrics


def loss_and_gradients(sums_of, trained, batch, rng, accumulate=1):
  """Computes the mean loss over the target tokens of a batch, and its gradients.

  A batch can be split into pieces to save memory: only one piece's activations
  exist at a time. Loss and gradients are still means over the whole batch.

  Args:
    sums_of: (trained, batch, rng) -> (loss, hits, weight), sums over tokens.
    trained: the parameters to differentiate with respect to.
    rng: the step's key; piece i draws from fold_in(rng, i).
    accumulate: number of pieces, a divisor of B; row b is in piece
      b % accumulate, so that no row moves to another device.

  Returns:
    ((loss, accuracy), gradients like `trained`).
  """
  weight = jnp.maximum(jnp.sum(batch['decoder_loss_weights']), 1.0)

  def part_of_mean(trained, piece, rng):
    loss, hits, _ = sums_of(trained, piece, rng)
    return loss / weight, hits / weight

  gradient_of = jax.value_and_grad(part_of_mean, has_aux=True)
  if accumulate == 1:
    return gradient_of(trained, batch, rng)

  def add(total, piece):
    index, piece = piece
    part = gradient_of(trained, piece, jax.random.fold_in(rng, index))
    return jax.tree.map(jnp.add, total, part), None

  pieces = split_batch(batch, accumulate)
  zero = jnp.zeros_like(weight)
  zeros = (zero, zero), jax.tree.map(jnp.zeros_like, trained)
  total, _ = jax.lax.scan(add, zeros, (jnp.arange(accumulate), pieces))
  return total


def split_batch(batch, pieces):
  """[B, ...] -> [pieces, B / pieces, ...]; row b is in piece b % pieces."""
  return jax.tree.map(
      lambda x: x.reshape(-1, pieces, *x.shape[1:]).swapaxes(0, 1), batch
  )


def guarded_update(state, trained, gradients, is_finite, optimizer):
  """Updates the parameters, or changes nothing unless `is_finite`, a scalar."""
  updates, opt_state = optimizer.update(
      gradients, state.opt_state, trained, step=state.step
  )
  changed = jax.tree.map(jnp.add, trained, updates)
  return jax.tree.map(
      functools.partial(jnp.where, is_finite),
      (changed, opt_state),
      (trained, state.opt_state),
  )


def _gradient_metrics(gradients, squares, params, groups):
  """Returns gradient norms by group of parameters, and `culprit`.

  `culprit` is the index in jax.tree.leaves(params) of the first parameter with
  a non-finite gradient; -1 if all are finite.
  """
  factors = list(optim.group_factors(groups, params).values())
  places = jnp.asarray(np.flatnonzero(factors))  # of the trained ones
  is_bad = ~jnp.isfinite(squares)
  culprit = jnp.where(jnp.any(is_bad), places[jnp.argmax(is_bad)], -1)
  norms = optim.norms_by_group(gradients, squares)
  return {
      'culprit': culprit,
      **{f'grad_norm/{name}': norms[name] for name in norms},
  }


def _batch_metrics(batch, model):
  """Returns the batch's tokens, documents and FLOPs."""
  inputs, weights = batch['encoder_input_tokens'], batch['decoder_loss_weights']
  operations = flops.of_step(model, inputs.shape, weights.shape)
  tokens = jnp.sum(weights > 0) + jnp.sum(inputs != model.config.pad_id)
  return {
      'weight': jnp.sum(weights),
      'tokens': tokens,
      'samples': jnp.sum(jnp.any(weights > 0, axis=1)),
      'flops': jnp.float32(operations),
  }


def token_sums(params, batch, model, rng=None, label_smoothing=0.0, z_loss=0.0):
  """Returns loss, hits and weight summed over the target tokens of a batch.

  Args:
    batch: as in `train_step`; padding rows have zero weights. Weights
      [B, T, W] give W sums.
    rng: of dropout; None: an evaluation, without dropout.
  """
  inputs = batch['encoder_input_tokens']
  sampling = {'seeds': batch[SEEDS]} if SEEDS in batch else {}
  states, source = model.apply(
      {'params': params},
      inputs,
      batch['decoder_input_tokens'],
      input_mask=inputs != model.config.pad_id,
      deterministic=rng is None,
      rngs=None if rng is None else {'dropout': rng},
      method='states',
      **sampling,
  )
  head, copied = heads(model, params, source)
  return losses.of_states(
      head,
      states,
      batch['decoder_target_tokens'],
      batch['decoder_loss_weights'],
      label_smoothing,
      z_loss,
      copied=copied,
  )


def heads(model, params, source):
  """Returns a model's functions for `losses.of_states`."""
  apply = functools.partial(model.apply, {'params': params})
  head = functools.partial(apply, method='head')
  if source is None:
    return head, None

  def copied(written, targets):
    return apply(written, source, targets, method='copied')

  return lambda written: head(written.h), copied
