"""SimCAS's objective equals a loop over documents, chunks and tokens."""

import copy
import functools
import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from locost_jax import models
from locost_jax.models import parameters
from locost_jax.models import selector as selector_lib
from locost_jax.training import experience
from locost_jax.training import objectives
from locost_jax.training import optim
from locost_jax.training import ppo
from locost_jax.training import selector_turn
from locost_jax.training import step as step_lib
from locost_jax.workdir import checkpoint
from tests import learned_selection as task
from tests import small_training

B, C, L, T = 4, 3, 12, 6
METRICS = {
    f'train/{name}' for name in ('loss', 'turns', *selector_turn.METRICS)
}
IS_OF_SELECTOR = ((r'selector/.*', 1.0), (r'.*', 0.0))


def make_config(**selector):
  """Returns a tiny SimCAS with dropout; a turn changes its selector a lot."""
  config = task.make_config('ppo', 10)
  config.model.update(d_model=16, d_ff=16, decoder_d_ff=16, num_layers=1)
  config.model.update(num_decoder_layers=1, num_heads=2, dropout_rate=0.1)
  config.model.max_positions = L
  config.optim.learning_rate = 1e-2
  config.selector.update(
      every=1, limit=8, learning_rate=1e-2, kl=1e9, minibatch=512
  )
  config.selector.update(selector)
  config.train.batch_size = B
  return config


def make_batch(seed=0, scale=1):
  """Makes documents of 3, 1, 2 and 3 chunks; targets differ in length."""
  rng = np.random.default_rng(seed)
  inputs = rng.integers(8, 96, (B, C, L))
  inputs[:, :, 0], inputs[:, :, -1] = task.START, task.END
  inputs[1, 1:], inputs[2, 2] = task.PAD, task.PAD
  inputs[0, 2, 5:-1] = task.PAD
  targets = rng.integers(8, 96, (B, T))
  weights = np.arange(T) < np.array([T, 4, 2, 5])[:, None]
  targets = np.where(weights, targets, task.PAD)
  before = np.pad(targets, ((0, 0), (1, 0)), constant_values=task.START)
  return dict(
      encoder_input_tokens=inputs.astype(np.int32),
      decoder_input_tokens=before[:, :-1].astype(np.int32),
      decoder_target_tokens=targets.astype(np.int32),
      decoder_loss_weights=scale * weights.astype(np.float32),
  )


@functools.cache
def build(select='ppo', dropout_rate=0.1):
  config = make_config().model
  config.update(select=select, dropout_rate=dropout_rate)
  return models.build(config)


def make_objective(config):
  model = models.build(config.model)
  return objectives.make(config, model, parameters.abstract_params(model))


def noisy(params):
  """Adds noise to parameters, so that the selector prefers some tokens."""
  rng = np.random.default_rng(5)
  return jax.tree.map(
      lambda x: x + 0.3 * rng.normal(size=x.shape).astype(x.dtype), params
  )


def first_state(objective):
  state = objective.init(jax.random.key(0))
  return state._replace(params=noisy(state.params))


@functools.cache
def one_step(**selector):
  """Returns (state before, state after, metrics) of a step."""
  objective = make_objective(make_config(**selector))
  before = first_state(objective)
  return before, *jax.jit(objective.step)(before, make_batch())


def split(params):
  """Returns (selector's parameters, all others), as numpy."""
  return optim.split(jax.tree.map(np.asarray, params), IS_OF_SELECTOR)


def differs(one, other):
  return any(
      np.any(a != b)
      for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other))
  )


def test_steps_between_turns_freeze_the_selector():
  config = make_config(every=2)
  objective = make_objective(config)
  before, batch = first_state(objective), make_batch()
  step = jax.jit(objective.step)
  after, metrics = step(before, batch)
  assert not differs(split(after.params)[0], split(before.params)[0])
  assert differs(split(after.params)[1], split(before.params)[1])
  assert metrics['turns'] == 0 and metrics['reward'] == 0
  # It equals a plain train step with the same selected tokens.
  frozen = copy.deepcopy(config)
  frozen.optim.groups = (selector_turn.FROZEN,)
  model = models.build(config.model)
  optimizer = objectives.make_optimizer(
      frozen, parameters.abstract_params(model)
  )
  key = jax.random.fold_in(jax.random.wrap_key_data(before.rng), 0)
  seeds = objectives.sampling_seeds(
      batch, jax.random.fold_in(key, objectives.SAMPLING), model
  )
  expected, _ = jax.jit(
      functools.partial(
          step_lib.train_step,
          model=model,
          optimizer=optimizer,
          schedule=optim.make_schedule(frozen.optim, 10),
          config=frozen.optim,
      )
  )(
      before._replace(opt_state=before.opt_state['generator']),
      batch | {step_lib.SEEDS: seeds},
  )
  jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-7),
      expected.params,
      after.params,
  )
  # The second step has a turn; its metrics are repeated until the next turn.
  second, metrics = step(after, batch)
  assert differs(split(second.params)[0], split(after.params)[0])
  assert metrics['turns'] == 1 and metrics['reward'] > 0
  third, again = step(second, batch)
  assert not differs(split(third.params)[0], split(second.params)[0])
  assert again['reward'] == metrics['reward'] and again['turns'] == 1


def test_a_turn_changes_only_the_selector():
  before, after, metrics = one_step()
  _, without, _ = one_step(every=3)
  assert not differs(split(after.params)[1], split(without.params)[1])
  assert differs(split(after.params)[0], split(before.params)[0])
  assert metrics['turns'] == 1
  assert 1 <= metrics['selected'] <= C * (L - 1)
  assert 0 < metrics['selected_share'] < 1
  assert 0 < metrics['selected_attention'] < 1


def test_the_mean_baseline_trains_no_critic():
  before, after, metrics = one_step(baseline='mean')
  one, other = (x.params['selector'] for x in (before, after))
  assert differs(one['actor'], other['actor'])
  assert not differs(one['critic'], other['critic'])
  assert metrics['value_loss'] == 0
  paths = parameters.flatten(after.opt_state['selector'][0].mu)
  assert paths and not any('critic' in path for path in paths)


def experience_of(params, batch, settings, model):
  seeds = np.arange(B, dtype=np.uint32)
  return experience.collect(
      params,
      batch | {step_lib.SEEDS: seeds},
      jax.random.key(3),
      model=model,
      settings=settings,
  )


def test_experience_equals_a_loop_over_documents():
  """The loop runs each document alone and sums rewards over its tokens."""
  model, settings = build(dropout_rate=0.0), make_config().selector
  params = first_state(make_objective(make_config())).params
  batch = make_batch()
  found, metrics = experience_of(params, batch, settings, model)
  apply = functools.partial(model.apply, {'params': params})
  rewards, selected, attended = [], [], []
  for b in range(B):
    chunks = (batch['encoder_input_tokens'][b] != task.PAD).any(-1).sum()
    count = int(batch['decoder_loss_weights'][b].sum())
    inputs = batch['encoder_input_tokens'][b : b + 1, :chunks]
    targets = batch['decoder_target_tokens'][b, :count]
    read = np.r_[task.START, targets][None]
    memory, rollout = apply(inputs, seeds=np.uint32([b]), method='rollout')
    log_p = jax.nn.log_softmax(apply(memory, read[:, :-1], method='decode'))
    reward = 1e4 * np.exp(np.mean(log_p[0, np.arange(count), targets]))
    attention = apply(
        memory, read, np.ones(read.shape, bool), method='attention'
    )
    given = ppo.rewards(
        reward[None],
        attention[:, :, 1:],
        attention[:, 0, 0],
        rollout.actions,
        rollout.tokens,
        settings.limit,
    )
    gains, returns = ppo.advantages(given, rollout.values, rollout.tokens)
    for name, own in (
        ('advantages', gains),
        ('returns', returns),
        ('actions', rollout.actions),
        ('log_probs', rollout.log_probs),
        ('values', rollout.values),
        ('tokens', rollout.tokens),
    ):
      ours = getattr(found, name)[b : b + 1, :chunks]
      is_token = np.asarray(rollout.tokens)
      np.testing.assert_allclose(
          ours[is_token], own[is_token], rtol=2e-4, atol=2e-3, err_msg=name
      )
    assert not found.tokens[b, chunks:].any()
    rewards.append(reward)
    selected.append(int(np.sum(rollout.actions & rollout.tokens)))
    attended.append(1 - attention[0, 0, 0])
  np.testing.assert_allclose(metrics['reward'], np.mean(rewards), rtol=1e-5)
  assert metrics['selected'] == np.mean(selected)
  np.testing.assert_allclose(
      metrics['selected_attention'], np.mean(attended), rtol=1e-5
  )


@pytest.mark.parametrize('kl', [1e9, 0.0])
@pytest.mark.parametrize('size', [512, 4])
def test_learning_equals_a_loop(size, kl):
  """The loop has the same epochs, order and minibatches, and Adam."""
  model = build(dropout_rate=0.0)
  config = make_config(minibatch=size, kl=kl)
  params = first_state(make_objective(config)).params
  given, _ = experience_of(params, make_batch(), config.selector, model)
  trained, others = optim.split(params, IS_OF_SELECTOR)
  judge = lambda trained, *seen: model.apply(
      {'params': optim.combine(trained, others)}, *seen, method='judge'
  )
  adam = optax.adam(1e-2)
  rng = jax.random.key(8)
  ours, _, metrics = jax.jit(
      functools.partial(
          selector_turn.learn,
          judge=judge,
          update=adam.update,
          settings=config.selector,
      )
  )(trained, adam.init(trained), given, rng)

  def mean_loss(trained, c, places):
    total = 0
    rows = [b for b in range(B) if given.tokens[b, c, places].any()]
    for b in rows:
      is_token = np.flatnonzero(np.asarray(given.tokens[b, c, places]))
      pick = lambda x: x[b, c, places][is_token]
      new = judge(
          trained,
          pick(given.observations),
          given.state[b, c],
          pick(given.actions),
      )
      old = map(
          pick,
          (given.log_probs, given.values, given.advantages, given.returns),
      )
      every = np.ones(is_token.size, bool)
      found = ppo.losses(
          new, tuple(old), every, entropy=config.selector.entropy
      )
      total += found.total / len(rows)
    return total

  def last_kl(trained, c, places):
    found = []
    for b in range(B):
      is_token = np.flatnonzero(np.asarray(given.tokens[b, c, places]))
      if is_token.size:
        pick = lambda x: x[b, c, places][is_token]
        log_probs, _, _ = judge(
            trained,
            pick(given.observations),
            given.state[b, c],
            pick(given.actions),
        )
        moved = np.asarray(log_probs - pick(given.log_probs), np.float64)
        found.append(np.mean(np.exp(moved) - 1 - moved))
    return np.mean(found)

  J = L - 1
  pieces = [
      (c, slice(start, start + size))
      for c in range(C)
      for start in range(0, J, size)
  ]
  opt_state = adam.init(trained)
  with jax.disable_jit(False):
    for key in jax.random.split(rng, config.selector.epochs):
      for number in np.asarray(jax.random.permutation(key, len(pieces))):
        c, places = pieces[number]
        if not np.asarray(given.tokens[:, c, places]).any():
          continue
        moved = last_kl(trained, c, places)
        gradients = jax.grad(mean_loss)(trained, c, places)
        updates, opt_state = adam.update(gradients, opt_state)
        trained = optax.apply_updates(trained, updates)
      if moved > kl:
        break
  assert moved > 0
  jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-5),
      ours,
      trained,
  )
  assert np.isfinite(metrics['policy_loss']) and metrics['entropy'] > 0


def test_non_finite_values_change_nothing():
  objective = make_objective(make_config())
  before = first_state(objective)
  after, metrics = jax.jit(objective.step)(before, make_batch(scale=np.nan))
  assert metrics['nonfinite'] == 1 and after.nonfinite == 1
  assert not differs(after.params, before.params)
  assert not differs(after.opt_state['selector'], before.opt_state['selector'])
  assert after.step == 1 and metrics['turns'] == 0
  # Only the turn is non-finite: the rewards overflow.
  objective = make_objective(make_config(reward_scale=1e38, gamma=1.0))
  after, metrics = jax.jit(objective.step)(before, make_batch())
  assert metrics['nonfinite'] == 1 and after.nonfinite == 1
  assert not differs(split(after.params)[0], split(before.params)[0])
  paths = list(parameters.flatten(after.params))
  assert paths[int(metrics['culprit'])].startswith('selector/')


def test_sampling_depends_only_on_the_document_and_the_step():
  """It does not depend on the row, the padding or the pieces."""
  model, batch = build(), make_batch()
  seeds = lambda batch, key: np.asarray(
      objectives.sampling_seeds(batch, jax.random.key(key), model)
  )
  first = seeds(batch, 0)
  order = [2, 0, 3, 1]
  shuffled = jax.tree.map(lambda x: x[np.array(order)], batch)
  np.testing.assert_array_equal(seeds(shuffled, 0), first[order])
  wide = np.pad(
      batch['encoder_input_tokens'],
      ((0, 0), (0, 2), (0, 0)),
      constant_values=task.PAD,
  )
  np.testing.assert_array_equal(seeds({'encoder_input_tokens': wide}, 0), first)
  assert (seeds(batch, 1) != first).all() and len(set(first)) == B
  drawn = selector_lib.uniform(jnp.asarray(first), C, L)
  assert len(np.unique(drawn)) == drawn.size


def test_pieces_of_a_batch_take_consecutive_turns():
  config = make_config()
  config.train.accumulate = 2
  objective = make_objective(config)
  before = first_state(objective)
  after, metrics = jax.jit(objective.step)(before, make_batch())
  _, whole, _ = one_step()
  assert differs(split(after.params)[0], split(whole.params)[0])
  steps = after.opt_state['selector'][0].count
  # Chunks of rows 0 and 2 (3 and 2 of them), then of rows 1 and 3 (1 and 3).
  assert steps == 2 * (3 + 3) and metrics['turns'] == 1
  assert whole.opt_state['selector'][0].count == 2 * 3


def test_the_last_target_is_read_if_positions_suffice():
  model, batch = build(), make_batch()
  tokens, counts = experience.targets_read(batch, model)
  np.testing.assert_array_equal(tokens[:, 1:], batch['decoder_target_tokens'])
  assert (tokens[:, 0] == task.START).all()
  np.testing.assert_array_equal(
      counts.sum(1), 1 + batch['decoder_loss_weights'].sum(1)
  )
  full = dict(
      decoder_input_tokens=np.full((1, L), 9),
      decoder_target_tokens=np.full((1, L), 9),
      decoder_loss_weights=np.ones((1, L)),
  )
  tokens, counts = experience.targets_read(full, model)
  assert tokens.shape == counts.shape == (1, L)


def test_a_stopped_run_continues_bit_for_bit(tmp_path):
  """Both optimisers, the number of turns and the last metrics are saved."""
  batches = lambda start: map(make_batch, itertools.count(start))
  measure = lambda params, step: {'eval/x': 1.0}

  def run(steps, directory):
    config = make_config(every=2)
    config.train.update(steps=steps, checkpoint_every=1, log_every=1)
    config.checkpoint.metric = 'x'
    small_training.train(
        config, tmp_path / directory, build(), batches, measure
    )

  for steps in (3, 6):
    run(steps, 'stopped')
  run(6, 'whole')
  one, other = (
      checkpoint.load_params(tmp_path / name, 6)
      for name in ('stopped', 'whole')
  )
  jax.tree.map(np.testing.assert_array_equal, one, other)
  rows = [
      [
          {key: row[key] for key in row if key in METRICS}
          for row in map(
              json.loads,
              (tmp_path / name / 'metrics.jsonl').read_text().splitlines(),
          )
          if 'train/reward' in row
      ]
      for name in ('stopped', 'whole')
  ]
  assert rows[0] == rows[1] and len(rows[0]) == 6
  assert [row['train/turns'] for row in rows[0]] == [0, 1, 1, 2, 2, 3]


def test_adapters_and_the_selector_learn_together():
  """With LoRA the whole selector is trained; other parameters are frozen."""
  config = make_config()
  config.train.lora.update(rank=2, paths=r'.*attention/(query|value)/kernel')
  objective = make_objective(config)
  before = first_state(objective)
  after, metrics = jax.jit(objective.step)(before, make_batch())
  assert metrics['turns'] == 1
  moved = {
      path
      for path, one in parameters.flatten(before.params).items()
      if np.any(one != parameters.flatten(after.params)[path])
  }
  of_selector = {path for path in moved if path.startswith('selector/')}
  adapters = {path for path in moved if path.endswith(('lora_a', 'lora_b'))}
  assert of_selector and adapters and moved == of_selector | adapters
