"""SimCAS's objective equals a loop over documents, chunks and tokens."""

import copy
import functools
import itertools

import jax
import numpy as np
import optax
import pytest

from configs import default
from locost_jax import models
from locost_jax.models import parameters
from locost_jax.training import objectives
from locost_jax.training import optim
from locost_jax.training import ppo
from locost_jax.training import selector_turn
from locost_jax.training import step as step_lib
from locost_jax.workdir import checkpoint
from tests import batches
from tests import small_training
from tests.models import small
from tests.training import test_ppo

B, C, L, T = 4, 3, 12, 6
START, PAD, END = 0, 1, 2
METRICS = {
    f'train/{name}' for name in ('loss', 'turns', *selector_turn.METRICS)
}
IS_OF_SELECTOR = ((r'selector/.*', 1.0), (r'.*', 0.0))


def make_config(**selector):
  """Returns a tiny SimCAS with dropout; a turn changes its selector a lot."""
  config = default.get_config()
  config.model = default.simcas()
  config.model.update(d_model=16, d_ff=16, decoder_d_ff=16, num_layers=1)
  config.model.update(num_decoder_layers=1, num_heads=2, dropout_rate=0.1)
  config.model.update(vocab_size=96, max_positions=L, pad_id=PAD)
  config.model.update(scale_embedding=True, align='mean', select='ppo')
  config.optim.update(name='adamw', clip=0.0, label_smoothing=0.1)
  config.optim.learning_rate = 1e-2
  config.train.update(steps=10, batch_size=B, objective='simcas')
  config.selector.update(
      every=1, limit=8, learning_rate=1e-2, kl=1e9, minibatch=512
  )
  config.selector.update(selector)
  return config


def make_batch(seed=0, scale=1):
  """Makes documents of 3, 1, 2 and 3 chunks; targets differ in length."""
  rng = np.random.default_rng(seed)
  inputs = rng.integers(8, 96, (B, C, L))
  inputs[:, :, 0], inputs[:, :, -1] = START, END
  inputs[1, 1:], inputs[2, 2] = PAD, PAD
  inputs[0, 2, 5:-1] = PAD
  targets = rng.integers(8, 96, (B, T))
  weights = np.arange(T) < np.array([T, 4, 2, T])[:, None]
  targets = np.where(weights, targets, PAD)
  return batches.as_batch(inputs, targets, scale * weights, START)


@functools.cache
def build(select='ppo', dropout_rate=0.1):
  config = make_config().model
  config.update(select=select, dropout_rate=dropout_rate)
  return models.build(config)


def make_objective(config):
  model = models.build(config.model)
  return objectives.simcas(config, model, parameters.abstract_params(model))


def first_state(objective):
  """Returns a state whose selector prefers some tokens."""
  return small.drawn_state(objective.init, 0.3)[0]


@functools.cache
def compile_step(**selector):
  """Returns (state before, jitted step)."""
  objective = make_objective(make_config(**selector))
  return first_state(objective), jax.jit(objective.step)


@functools.cache
def one_step(**selector):
  """Returns (state before, state after, metrics) of a step."""
  before, step = compile_step(**selector)
  return before, *step(before, make_batch())


def split(params):
  """Returns (selector's parameters, all others), as numpy."""
  return optim.split(jax.tree.map(np.asarray, params), IS_OF_SELECTOR)


def differs(one, other):
  return any(
      np.any(a != b)
      for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other))
  )


@pytest.mark.simcas
def test_steps_between_turns_freeze_the_selector():
  config, batch = make_config(every=2), make_batch()
  before, step = compile_step(every=2)
  after, metrics = step(before, batch)
  assert not differs(split(after.params)[0], split(before.params)[0])
  assert differs(split(after.params)[1], split(before.params)[1])
  assert metrics['turns'] == 0 and metrics['reward'] == 0
  # A turn changes only the selector.
  _, turned, metrics = one_step()
  assert not differs(split(turned.params)[1], split(after.params)[1])
  assert differs(split(turned.params)[0], split(before.params)[0])
  assert metrics['turns'] == 1
  assert 1 <= metrics['selected'] <= C * (L - 1)
  assert 0 < metrics['selected_share'] < 1
  assert 0 < metrics['selected_attention'] < 1
  # The first equals a plain train step with the same selected tokens.
  frozen = copy.deepcopy(config)
  frozen.optim.groups = (selector_turn.FROZEN,)
  model = models.build(config.model)
  optimizer = objectives.make_optimizer(
      frozen, parameters.abstract_params(model)
  )
  _, plain_step = small_training.make_step(frozen, model, optimizer)
  key = jax.random.fold_in(jax.random.wrap_key_data(before.rng), 0)
  seeds = objectives.sampling_seeds(
      batch, jax.random.fold_in(key, objectives.SAMPLING), model
  )
  expected, _ = plain_step(
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


@functools.cache
def experience_of_batch():
  """Returns (parameters, experience, metrics) of a batch, without dropout."""
  params = first_state(make_objective(make_config())).params
  collect = functools.partial(
      selector_turn.collect,
      model=build(dropout_rate=0.0),
      settings=make_config().selector,
  )
  seeds = np.arange(B, dtype=np.uint32)
  batch = make_batch() | {step_lib.SEEDS: seeds}
  found = jax.jit(collect)(params, batch, jax.random.key(3))
  return params, *jax.tree.map(np.asarray, found)


@pytest.mark.simcas
def test_experience_equals_a_loop_over_documents():
  """The loop runs each document alone and sums rewards over its tokens."""
  model, settings = build(dropout_rate=0.0), make_config().selector
  params, found, metrics = experience_of_batch()
  batch = make_batch()

  @jax.jit
  def read_alone(inputs, read, seed):
    apply = functools.partial(model.apply, {'params': params})
    memory, rollout = apply(inputs, seeds=seed, method='rollout')
    logits = apply(memory, read[:, :-1], method='decode')
    every = np.ones(read.shape, bool)
    return rollout, logits, apply(memory, read, every, method='attention')

  rewards, selected, attended = [], [], []
  for b in range(B):
    chunks = (batch['encoder_input_tokens'][b] != PAD).any(-1).sum()
    count = int(batch['decoder_loss_weights'][b].sum())
    targets = batch['decoder_target_tokens'][b, :count]
    rollout, logits, attention = jax.tree.map(
        np.asarray,
        read_alone(
            batch['encoder_input_tokens'][b : b + 1, :chunks],
            np.r_[START, targets][None],
            np.uint32([b]),
        ),
    )
    log_p = logits[0] - np.log(np.exp(logits[0]).sum(-1, keepdims=True))
    reward = 1e4 * np.exp(np.mean(log_p[np.arange(count), targets]))
    is_token, actions = rollout.tokens[0], rollout.actions[0]
    attended.append(1 - attention[0, 0, 0])
    given = test_ppo.rewards_by_loop(
        *(reward, attention[0, :, 1:], attention[0, 0, 0]),
        *(actions, is_token, settings.limit),
    )
    gains = test_ppo.advantages_by_loop(
        given, rollout.values[0], is_token, 0.998, 0.95
    )
    for name, own in (
        ('advantages', gains),
        ('returns', gains + rollout.values[0]),
        ('actions', actions),
        ('log_probs', rollout.log_probs[0]),
        ('values', rollout.values[0]),
        ('tokens', is_token),
    ):
      np.testing.assert_allclose(
          getattr(found, name)[b, :chunks][is_token],
          own[is_token],
          rtol=2e-4,
          atol=2e-3,
          err_msg=name,
      )
    assert not found.tokens[b, chunks:].any()
    rewards.append(reward)
    selected.append(int(np.sum(actions & is_token)))
  np.testing.assert_allclose(metrics['reward'], np.mean(rewards), rtol=1e-5)
  assert metrics['selected'] == np.mean(selected)
  np.testing.assert_allclose(
      metrics['selected_attention'], np.mean(attended), rtol=1e-5
  )


def judge(trained, others, *seen):
  model = build(dropout_rate=0.0)
  params = optim.combine(trained, others)
  return model.apply({'params': params}, *seen, method='judge')


@jax.jit
def loss_of_row(trained, others, seen, old):
  """Returns (loss, how far log p moved), of a document's tokens; gradients."""

  def loss(trained):
    new = judge(trained, others, *seen)
    every = np.ones(new[0].shape, bool)
    entropy = make_config().selector.entropy
    found = ppo.losses(new, old, every, entropy=entropy)
    return found.total, new[0] - old[0]

  return jax.value_and_grad(loss, has_aux=True)(trained)


def loss_of_places(trained, others, given, c, places):
  """Returns (gradients of the mean loss, KL) over documents with tokens."""
  gradients, found_kl = [], []
  for b in range(B):
    is_token = np.flatnonzero(given.tokens[b, c, places])
    if not is_token.size:
      continue
    pick = lambda x: x[b, c, places][is_token]
    seen = pick(given.observations), given.state[b, c], pick(given.actions)
    old = given.log_probs, given.values, given.advantages, given.returns
    (_, moved), own = loss_of_row(trained, others, seen, tuple(map(pick, old)))
    moved = np.asarray(moved, np.float64)
    found_kl.append(np.mean(np.exp(moved) - 1 - moved))
    gradients.append(jax.tree.map(np.asarray, own))
  mean = jax.tree.map(lambda *own: sum(own) / len(own), *gradients)
  return mean, np.mean(found_kl)


@pytest.mark.parametrize(
    'size, kl',
    [
        (512, 0.0),
        (4, 1e9),
        pytest.param(512, 1e9, marks=pytest.mark.simcas),
        pytest.param(4, 0.0, marks=pytest.mark.simcas),
    ],
)
def test_learning_equals_a_loop(size, kl):
  """The loop has the same epochs, order and minibatches, and Adam."""
  config = make_config(minibatch=size, kl=kl)
  params, given, _ = experience_of_batch()
  trained, others = optim.split(params, IS_OF_SELECTOR)
  adam = optax.adam(1e-2)
  rng = jax.random.key(8)
  ours, _, metrics = jax.jit(
      functools.partial(
          selector_turn.learn,
          judge=lambda trained, *seen: judge(trained, others, *seen),
          update=adam.update,
          settings=config.selector,
      )
  )(trained, jax.jit(adam.init)(trained), given, rng)

  @jax.jit
  def move(trained, opt_state, gradients):
    updates, opt_state = adam.update(gradients, opt_state)
    return optax.apply_updates(trained, updates), opt_state

  pieces = [
      (c, slice(start, start + size))
      for c in range(C)
      for start in range(0, L - 1, size)
  ]
  opt_state = jax.jit(adam.init)(trained)
  for key in jax.random.split(rng, config.selector.epochs):
    for number in np.asarray(jax.random.permutation(key, len(pieces))):
      c, places = pieces[number]
      if not given.tokens[:, c, places].any():
        continue
      gradients, moved = loss_of_places(trained, others, given, c, places)
      trained, opt_state = move(trained, opt_state, gradients)
    if moved > kl:
      break
  assert moved > 0
  jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=2e-3, atol=2e-5),
      ours,
      trained,
  )
  assert np.isfinite(metrics['policy_loss']) and metrics['entropy'] > 0


@pytest.mark.simcas
def test_non_finite_values_change_nothing():
  before, step = compile_step()
  after, metrics = step(before, make_batch(scale=np.nan))
  assert metrics['nonfinite'] == 1 and after.nonfinite == 1
  assert not differs(after.params, before.params)
  assert not differs(after.opt_state['selector'], before.opt_state['selector'])
  assert after.step == 1 and metrics['turns'] == 0


@pytest.mark.simcas
def test_a_turn_that_is_not_finite_changes_no_selector():
  """The critic's loss overflows."""
  before, step = compile_step()
  params = jax.tree.map(lambda x: x, before.params)
  params['selector']['critic']['output']['bias'] += 1e38
  after, metrics = step(before._replace(params=params), make_batch())
  assert metrics['nonfinite'] == 1 and after.nonfinite == 1
  assert not differs(split(after.params)[0], split(params)[0])
  assert differs(split(after.params)[1], split(params)[1])
  paths = list(parameters.flatten(after.params))
  assert paths[int(metrics['culprit'])].startswith('selector/')


def test_sampling_depends_only_on_the_document_and_the_step():
  """It does not depend on the row or the pieces."""
  model, batch = build(), make_batch()
  seeds = lambda batch, key: np.asarray(
      objectives.sampling_seeds(batch, jax.random.key(key), model)
  )
  first = seeds(batch, 0)
  order = [2, 0, 3, 1]
  shuffled = jax.tree.map(lambda x: x[np.array(order)], batch)
  np.testing.assert_array_equal(seeds(shuffled, 0), first[order])
  assert (seeds(batch, 1) != first).all() and len(set(first)) == B


def test_the_last_target_is_read_if_positions_suffice():
  full = batches.as_batch(*np.full((3, 1, L), 9))
  for batch, T_read in (make_batch(), T + 1), (full, L):
    for read in selector_turn.targets_read(batch, build()):
      assert read.shape[1] == T_read


@pytest.mark.simcas
def test_a_stopped_run_continues_bit_for_bit(tmp_path, monkeypatch):
  """Both optimisers, the number of turns and the last metrics are saved."""
  config = make_config(every=2)
  config.train.update(steps=6, checkpoint_every=1, log_every=1)
  config.checkpoint.metric = 'x'
  first, make = first_state(make_objective(config)), objectives.make_programs
  programs = functools.cache(
      lambda mesh: make(config, build(), mesh)._replace(init=lambda _: first)
  )
  monkeypatch.setattr(
      objectives, 'make_programs', lambda *given: programs(given[2])
  )
  made = lambda start: map(make_batch, itertools.count(start))
  measure = lambda params, step: {'eval/x': 1.0}

  def run(steps, directory):
    config.train.steps = steps
    small_training.train(config, tmp_path / directory, build(), made, measure)

  for steps in (3, 6):
    run(steps, 'stopped')
  run(6, 'whole')
  one, other = (
      checkpoint.load_params(tmp_path / name / 'checkpoints' / '6')
      for name in ('stopped', 'whole')
  )
  jax.tree.map(np.testing.assert_array_equal, one, other)
  rows = [
      [
          {key: row[key] for key in METRICS}
          for row in small_training.rows(tmp_path / name)
          if 'train/reward' in row
      ]
      for name in ('stopped', 'whole')
  ]
  assert rows[0] == rows[1] and len(rows[0]) == 6
  assert [row['train/turns'] for row in rows[0]] == [0, 1, 1, 2, 2, 3]


@pytest.mark.simcas
def test_adapters_and_the_selector_learn_together():
  """Others are frozen; pieces of a batch take consecutive turns."""
  config = make_config()
  config.train.accumulate = 2
  config.train.lora.update(rank=2, paths=r'.*attention/(query|value)/kernel')
  objective = make_objective(config)
  before = first_state(objective)
  after, metrics = jax.jit(objective.step)(before, make_batch())
  _, whole, _ = one_step()
  steps = after.opt_state['selector'][0].count
  # Chunks of rows 0 and 2 (3 and 2 of them), then of rows 1 and 3 (1 and 3).
  assert steps == 2 * (3 + 3) and metrics['turns'] == 1
  assert whole.opt_state['selector'][0].count == 2 * 3
  moved = {
      path
      for path, one in parameters.flatten(before.params).items()
      if np.any(one != parameters.flatten(after.params)[path])
  }
  of_selector = {path for path in moved if path.startswith('selector/')}
  adapters = {path for path in moved if path.endswith(('lora_a', 'lora_b'))}
  assert of_selector and adapters and moved == of_selector | adapters
