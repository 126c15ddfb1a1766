"""Checkpoints: what is kept, what comes back, what is refused."""

from typing import Any, NamedTuple

from configs import default
import jax
import jax.numpy as jnp
from locost_jax import checkpoint
from locost_jax.errors import InputError
import numpy as np
import optax
import pytest


class State(NamedTuple):
  step: Any
  params: Any
  opt_state: Any
  rng: Any


def _optimizer():
  # Masks leave holes in the state: nodes without arrays.
  return optax.chain(
      optax.masked(optax.adam(1e-2), {'a': True, 'b': False}),
      optax.masked(optax.set_to_zero(), {'a': False, 'b': True}),
  )


def _state(seed=0, dtype=jnp.float32):
  a, b = jax.random.split(jax.random.key(seed))
  params = {
      'a': {'kernel': jax.random.normal(a, (16, 8), dtype)},
      'b': {'scale': jax.random.normal(b, (8,), dtype)},
  }
  opt_state = _optimizer().init(params)
  opt_state = jax.tree.map(lambda x: x + seed, opt_state)
  return State(jnp.int32(seed), params, opt_state, jnp.uint32([1, 2]))


def _abstract(state):
  return jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
      state,
  )


def _open(workdir, **changes):
  config = default.get_config().checkpoint
  config.update(changes)
  return checkpoint.Checkpointer(workdir / 'checkpoints', config)


def _equal(one, other):
  assert jax.tree.structure(one) == jax.tree.structure(other)
  jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A workdir with steps 0 to 6 saved; scores at 1, 2, 4: best is 2."""
  workdir = tmp_path_factory.mktemp('run')
  checkpointer = _open(workdir)
  rouge = {1: 10.0, 2: 30.0, 4: 20.0, 5: float('nan')}
  for step in range(7):
    metrics = None
    if step in rouge:
      metrics = {'eval/x/rouge_mean': rouge[step], 'eval/x/loss': 2.5}
    checkpointer.save(step, _state(step), metrics)
  checkpointer.close()
  return workdir


def test_latest_and_best_are_kept(run):
  kept = sorted(path.name for path in (run / 'checkpoints').iterdir())
  assert kept == ['2', '5', '6']
  checkpointer = _open(run)
  assert checkpointer.latest_step() == 6
  assert checkpointer.best_step() == 2
  assert checkpointer.metrics(2) == {
      'eval/x/rouge_mean': 30.0,
      'eval/x/loss': 2.5,
  }
  assert checkpointer.metrics(6) == {}
  checkpointer.close()


def test_restore_gives_back_every_bit(run):
  checkpointer = _open(run)
  restored = checkpointer.restore(6, _abstract(_state()))
  checkpointer.close()
  _equal(restored, _state(6))
  assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(restored))


def test_restore_refuses_another_state(run):
  checkpointer = _open(run)
  good = _abstract(_state())
  half = _abstract(_state(dtype=jnp.bfloat16))
  wide = good._replace(
      params=good.params
      | {'b': {'scale': jax.ShapeDtypeStruct((9,), jnp.float32)}}
  )
  more = good._replace(params=good.params | {'c': good.params['b']})
  fewer = good._replace(params={'a': good.params['a']})
  other = good._replace(opt_state=good.opt_state[0].inner_state[0].mu)
  for state, words in [
      (half, 'a/kernel is float32[16, 8]; expected bfloat16[16, 8]'),
      (wide, 'b/scale is float32[8]; expected float32[9]'),
      (more, 'lacks c/scale'),
      (fewer, 'has b/scale'),
      (other, 'opt_state/'),
  ]:
    with pytest.raises(InputError) as error:
      checkpointer.restore(6, state)
    assert words in str(error.value)
  checkpointer.close()


def test_parameters_load_as_numpy_without_the_optimiser(run):
  for directory, step, expected in [
      (run, None, 2),
      (run, 6, 6),
      (run / 'checkpoints', None, 2),
      (run / 'checkpoints' / '5', None, 5),
  ]:
    params = checkpoint.load_params(directory, step)
    assert all(type(x) is np.ndarray for x in jax.tree.leaves(params))
    _equal(params, jax.tree.map(np.asarray, _state(expected).params))


def test_without_a_score_the_latest_is_loaded(tmp_path):
  checkpointer = _open(tmp_path)
  checkpointer.save(0, _state(0))
  checkpointer.save(3, _state(3), {'eval/x/loss': 1.0})
  assert checkpointer.best_step() is None
  checkpointer.close()
  assert checkpoint.find(tmp_path).name == '3'


def test_the_best_by_loss_is_the_smallest(tmp_path):
  checkpointer = _open(tmp_path, metric='loss', keep_latest=1)
  for step, loss in enumerate([3.0, 1.0, 2.0, 2.5]):
    checkpointer.save(step, _state(step), {'eval/x/loss': loss})
  assert checkpointer.best_step() == 1
  checkpointer.close()
  assert checkpoint.find(tmp_path).name == '1'


def test_a_save_is_a_snapshot(tmp_path):
  """Steps that reuse the memory while it is being written change nothing."""
  spoil = jax.jit(lambda x: jax.tree.map(jnp.zeros_like, x), donate_argnums=0)
  big = jnp.arange(4_000_000, dtype=jnp.float32)
  state = _state(1)._replace(params={'a': big})
  expected = np.array(big)
  checkpointer = _open(tmp_path)
  checkpointer.save(1, state)
  for _ in range(3):
    state = spoil(state)
  checkpointer.close()
  np.testing.assert_array_equal(checkpoint.load_params(tmp_path)['a'], expected)


def test_a_half_written_step_is_no_checkpoint(run, tmp_path):
  checkpointer = _open(tmp_path)
  checkpointer.save(1, _state(1))
  checkpointer.close()
  # What a run killed while it saves leaves behind.
  half = tmp_path / 'checkpoints' / '2.orbax-checkpoint-tmp' / 'params'
  half.mkdir(parents=True)
  assert checkpoint.find(tmp_path).name == '1'
  checkpointer = _open(tmp_path)
  assert checkpointer.latest_step() == 1
  checkpointer.save(2, _state(2))
  checkpointer.close()
  assert not half.exists()
  assert checkpoint.find(tmp_path).name == '2'


def test_directories_without_a_checkpoint(run, tmp_path):
  empty = tmp_path / 'empty'
  (empty / 'checkpoints').mkdir(parents=True)
  for directory, step, words in [
      (tmp_path / 'nowhere', None, 'no such directory'),
      (tmp_path, None, 'holds no checkpoint'),
      (empty, None, 'holds no checkpoint'),
      (run, 17, 'no step 17; there are [2, 5, 6]'),
  ]:
    with pytest.raises(InputError) as error:
      checkpoint.load_params(directory, step)
    assert words in str(error.value) and '\n' not in str(error.value)


def test_a_damaged_checkpoint_is_one_line(tmp_path):
  checkpointer = _open(tmp_path)
  checkpointer.save(1, _state(1))
  checkpointer.close()
  (tmp_path / 'checkpoints' / '1' / 'params' / 'manifest.ocdbt').unlink()
  (tmp_path / 'checkpoints' / '1' / 'params' / '_METADATA').write_text('{')
  with pytest.raises(InputError, match='cannot be restored') as error:
    checkpoint.load_params(tmp_path)
  assert '\n' not in str(error.value)


def test_score():
  metrics = {'eval/a/loss': 2.0, 'eval/a/rouge_mean': 10.0,
             'eval/b/rouge_mean': 20.0, 'eval/c/xrouge_mean': 99.0}
  assert checkpoint.score(metrics, 'rouge_mean') == 15.0
  assert checkpoint.score(metrics, 'eval/b/rouge_mean') == 20.0
  assert checkpoint.score(metrics, 'loss') == -2.0
  assert checkpoint.score(metrics, 'rouge1') is None
  assert checkpoint.score({'loss': float('inf')}, 'loss') is None
