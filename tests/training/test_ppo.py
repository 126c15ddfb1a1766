"""Rewards, advantages and PPO's losses equal golden arrays and loops."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.hugging_face import names as names_lib
from locost_jax.models import parameters
from locost_jax.training import losses
from locost_jax.training import ppo
from tests.models import test_golden_simcas as golden
from tests.models.golden import IN_BOTH
from tests.models.golden import released


@functools.lru_cache
def rolled_out(dtype):
  """Returns (model, params, rollout, rewards' inputs) of the golden arrays."""
  io = golden.arrays()
  targets = io['output_ids']

  @jax.jit
  def roll(params):
    apply = functools.partial(model.apply, {'params': params})
    memory, rollout = apply(
        io['input_ids'], actions=io['actions'].astype(bool), method='rollout'
    )
    attention = apply(
        memory, targets, np.ones((1, 10), bool), method='attention'
    )
    logits = apply(memory, targets, method='decode')
    R = likelihood(logits[:, :-1], targets[:, 1:], targets[:, 1:] != golden.PAD)
    given = ppo.rewards(
        R,
        attention[:, :, 1:],
        attention[:, 0, 0],
        rollout.actions,
        rollout.tokens,
    )
    gains, returns = ppo.advantages(given, rollout.values, rollout.tokens)
    return rollout, (memory, attention, given, gains, returns)

  with jax.enable_x64(dtype == 'float64'):
    model, params = golden.golden_model(dtype)
    return model, params, *roll(params)


@IN_BOTH
def test_golden_attention_rewards_and_advantages(dtype, atol, bound):
  del bound
  io = golden.arrays()
  *_, rollout, (memory, attention, given, gains, returns) = rolled_out(dtype)
  mask, actions = np.asarray(memory['mask']), np.asarray(rollout.actions)
  found = {
      'attention': np.asarray(attention)[mask],
      'select_rewards': np.asarray(given)[actions],
      'rewards': given[0],
      'advantages': gains[0],
      'returns': returns[0],
      'values': rollout.values[0],
      'logprobs': rollout.log_probs[0],
  }
  for name, value in found.items():
    expected = io[f'f64/rl_{name}']
    assert_near(value, expected, atol, name)
  skipped = np.asarray(given)[~actions]
  np.testing.assert_allclose(skipped, io['f64/rl_skip_rewards'][0], atol, atol)
  np.testing.assert_array_equal(actions[0], io['rl_actions'])
  assert (io['rl_all_len'], io['rl_real_len']) == (36, actions.sum())
  made = {f'f64/rl_{name}' for name in found} | {'f64/rl_skip_rewards'}
  assert made == {name for name in io if name.startswith('f64/rl_')}


def assert_near(value, expected, bound, name):
  bound *= max(1, abs(expected).max())
  np.testing.assert_allclose(value, expected, 0, bound, err_msg=name)


def golden_losses(agent, model, params, rollout, gains, returns):
  """Returns losses of minibatches of 4 tokens at the rollout's states."""
  io = golden.arrays()
  new = model.apply(
      {'params': params | {'selector': agent}},
      rollout.observations,
      rollout.state,
      rollout.actions,
      method='judge',
  )
  old = rollout.log_probs, rollout.values, gains, returns

  def cut(x):  # [..., J] -> [..., minibatches, size], padded with 0
    size = int(io['mini_batch'])
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % size)])
    return x.reshape(*x.shape[:-1], -1, size)

  return ppo.losses(*jax.tree.map(cut, (new, old, rollout.tokens)))


@IN_BOTH
def test_golden_losses_and_gradients_of_ppo(dtype, atol, bound):
  io = golden.arrays()
  model, params, rollout, (*_, gains, returns) = rolled_out(dtype)
  with jax.enable_x64(dtype == 'float64'):
    sources = names_lib.sources(
        names_lib.table({'name': 'simcas'}),
        parameters.flatten({'selector': params['selector']}),
    )
    noise = {}
    for path, source in sources.items():
      _, judge, layer, part = path.split('/')
      (name,) = source.names
      key = name.replace('model.encoder.agent.', 'agent_noise/')
      noise.setdefault(judge, {}).setdefault(layer, {})[part] = source.form[0](
          io[key]
      )
    agent = jax.tree.map(lambda x, y: x + y, params['selector'], noise)

    def total(agent):
      found = golden_losses(agent, model, params, rollout, gains, returns)
      return found.total.sum(), found

    (_, found), grads = jax.jit(jax.value_and_grad(total, has_aux=True))(agent)
    grads = released('simcas', {'selector': grads})
    found = jax.tree.map(np.asarray, found)
  assert found.total.size == io['ppo_count'] == 12
  for name, value in (
      ('policy_loss', found.policy.mean()),
      ('value_loss', found.value.mean()),
      ('entropy', found.entropy.mean()),
      ('agent_loss_sum', found.total.sum()),
  ):
    expected = io[f'f64/ppo_{name}']
    assert_near(value, expected, atol, name)
  want = {
      name.replace('ppo_grad/', 'model.encoder.agent.'): array
      for name, array in io.items()
      if name.startswith('ppo_grad/')
  }
  assert set(want) == set(grads) and len(want) == 16
  for name, array in want.items():
    error = abs(grads[name] - array).max()
    assert error <= bound * abs(array).max() + 1e-7, name


def documents(seed=0, B=3, C=5, J=6):
  """Returns (generator, mask) with an empty chunk and short last chunks."""
  rng = np.random.default_rng(seed)
  tokens = np.ones((B, C, J), bool)
  tokens[0, 3:] = False
  tokens[1, 4, 2:] = False
  tokens[2, 1] = tokens[2, 4, 3:] = False
  return rng, tokens


def advantages_by_loop(rewards, values, tokens, gamma, decay):
  """Advantages [C, J] of one document, from its last chunk to the first."""
  gains, after, value_after = np.zeros(rewards.shape), 0.0, 0.0
  for c in reversed(range(len(tokens))):
    if tokens[c].any():
      own = rewards[c] + gamma * value_after - values[c] + gamma * decay * after
      gains[c] = after = np.where(tokens[c], own, 0)
      value_after = values[c][tokens[c]].mean()
  return gains


def test_advantages_equal_a_loop():
  rng, tokens = documents()
  rewards, values = (rng.normal(size=tokens.shape) for _ in range(2))
  with jax.enable_x64():
    gains, returns = jax.device_get(
        jax.jit(ppo.advantages)(rewards, values, tokens, 0.9, 0.8)
    )
  for row, own in enumerate(tokens):
    expected = advantages_by_loop(rewards[row], values[row], own, 0.9, 0.8)
    np.testing.assert_allclose(gains[row], expected, 0, 1e-12)
    expected = np.where(own, expected + values[row], 0)
    np.testing.assert_allclose(returns[row], expected, 0, 1e-12)


jitted_rewards = jax.jit(ppo.rewards, static_argnames='skip')


def rewards_by_loop(
    reward, attention, first, actions, tokens, limit, skip='release'
):
  """Equations 9 and 10 of one document, token by token: [C, J]."""
  places = list(zip(*np.nonzero(tokens)))
  share = sum(actions[place] for place in places)
  if share < limit or (skip == 'release' and share == limit):
    share = len(places) if skip == 'paper' else max(len(places), limit)
  found = np.zeros(tokens.shape)
  for place in places:
    found[place] = reward / share
    if actions[place]:
      found[place] = reward * attention[place] / (1 - first)
  return found


@pytest.mark.parametrize('skip', ppo.SKIP)
@pytest.mark.parametrize('limit', [3, 12, 1000])
def test_rewards_equal_a_loop(skip, limit):
  """Documents select fewer tokens than the limit, as many, and more."""
  rng, tokens = documents()
  actions = tokens & (rng.random(tokens.shape) < 0.5)
  actions[0] = False
  actions[0, 0, :3] = True  # 3 of 18 tokens
  attention, first = rng.random(tokens.shape), rng.random(3)
  reward = np.array([2.0, 3.0, 5.0])
  with jax.enable_x64():
    found = jax.device_get(
        jitted_rewards(reward, attention, first, actions, tokens, limit, skip)
    )
  for own, *given in zip(found, reward, attention, first, actions, tokens):
    expected = rewards_by_loop(*given, limit, skip)
    np.testing.assert_allclose(own, expected, 1e-12)


def likelihood(logits, targets, written, scale=1e4):
  """Returns the rewards that `selector_turn.collect` gives for logits."""
  loss, count = losses.of_documents(lambda x: x, logits, targets, written)
  return scale * jnp.exp(-loss / jnp.maximum(count, 1))


def plain_losses(new, old, clip, factor):
  """Computes PPO's losses over a list of tokens."""
  gains = [token[2] for token in old]
  if len(gains) > 1:
    center = sum(gains) / len(gains)
    squares = sum((gain - center) ** 2 for gain in gains)
    spread = math.sqrt(squares / (len(gains) - 1)) + 1e-8
    gains = [(gain - center) / spread for gain in gains]
  policy = value = entropy = kl = 0.0
  for (log_p, spread, v), (old_log_p, old_v, _, target), gain in zip(
      new, old, gains
  ):
    ratio = math.exp(log_p - old_log_p)
    inside = min(max(ratio, 1 - clip), 1 + clip)
    policy -= min(ratio * gain, inside * gain) / len(new)
    near = min(max(v, old_v - clip), old_v + clip)
    worst = max((v - target) ** 2, (near - target) ** 2)
    value += 0.5 * worst / len(new)
    entropy += spread / len(new)
    kl += (ratio - 1 - math.log(ratio)) / len(new)
  return policy - factor * entropy + value, policy, value, entropy, kl


def test_losses_equal_a_loop():
  """Minibatches have many tokens, one or none."""
  rng, tokens = documents(2)
  tokens[1, 4, 1:] = False  # a single token
  new, old = (
      tuple(rng.normal(size=tokens.shape) for _ in range(n)) for n in (3, 4)
  )
  with jax.enable_x64():
    found = jax.device_get(jax.jit(ppo.losses)(new, old, tokens, 0.3, 0.05))
  for row, own in enumerate(tokens):
    for c, kept in enumerate(own):
      lists = [
          list(zip(*(x[row, c][kept].tolist() for x in arrays)))
          for arrays in (new, old)
      ]
      expected = (0.0,) * 5
      if kept.any():
        expected = plain_losses(*lists, 0.3, 0.05)
      np.testing.assert_allclose([x[row, c] for x in found], expected, 0, 1e-12)


def test_padding_has_no_gradient():
  """There are no NaNs either: padding may have an infinite ratio."""
  rng, tokens = documents(3)
  new, old = (
      tuple(rng.normal(size=tokens.shape) for _ in range(n)) for n in (3, 4)
  )
  bad = tuple(np.where(tokens, x, 1e5) for x in new)
  total = jax.jit(lambda new: ppo.losses(new, old, tokens).total.sum())
  grads = jax.jit(jax.grad(total))(bad)
  for grad in grads:
    assert np.isfinite(grad).all()
    assert not np.asarray(grad)[~tokens].any()
  np.testing.assert_allclose(total(bad), total(new), 1e-5)
