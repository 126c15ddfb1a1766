"""Checkpoints: keeping, restoring, damage and errors."""

import os
from pathlib import Path
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from locost_jax.errors import InputError
from locost_jax.workdir import checkpoint
from locost_jax.workdir import checkpointer as checkpointer_lib
from locost_jax.workdir import manifest
from tests import small_training
from tests.workdir import states
from tests.workdir import test_metrics


def _optimizer():
  # Masks give the state nodes without arrays.
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
  return states.State(jnp.int32(seed), params, opt_state, jnp.uint32([1, 2]))


def _abstract(state):
  return jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
      state,
  )


def _equal(one, other):
  assert jax.tree.structure(one) == jax.tree.structure(other)
  jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A workdir with steps 0 to 6 saved; scores at 1, 2, 4: best is 2."""
  workdir = tmp_path_factory.mktemp('run')
  with states.open_run(workdir) as checkpointer:
    rouge = {1: 10.0, 2: 30.0, 4: 20.0, 5: float('nan')}
    for step in range(7):
      metrics = None
      if step in rouge:
        metrics = {'eval/x/rouge_mean': rouge[step], 'eval/x/loss': 2.5}
      checkpointer.save(step, _state(step), metrics)
  return workdir


def test_a_file_in_place_of_the_directory(tmp_path):
  (tmp_path / 'checkpoints').touch()
  with pytest.raises(InputError, match='checkpoints is not a directory'):
    with states.open_run(tmp_path):
      pass


def test_files_are_small_enough_to_be_copied(tmp_path, monkeypatch):
  """Many arrays share a file, up to a size; they are restored."""
  monkeypatch.setattr(checkpointer_lib, '_FILE_BYTES', 1 << 18)
  array = lambda i: jax.random.normal(jax.random.key(i), (1 << 14,))
  state = _state()._replace(params={f'a{i}': array(i) for i in range(32)})
  with states.open_run(tmp_path) as checkpointer:
    checkpointer.save(1, state)
    checkpointer.wait()
    _equal(checkpointer.restore(1, _abstract(state)), state)
  sizes = [x.stat().st_size for x in tmp_path.rglob('params/*/d/*')]
  assert sum(sizes) > 1 << 20 and max(sizes) < 1 << 19


def test_latest_and_best_are_kept(run):
  assert states.steps(run / 'checkpoints') == ['2', '5', '6']
  with states.open_run(run) as checkpointer:
    assert checkpointer.latest_step() == 6
    assert checkpointer.best_step() == 2
    expected = {'eval/x/rouge_mean': 30.0, 'eval/x/loss': 2.5}
    assert small_training.metrics_of(run / 'checkpoints', 2) == expected
    assert small_training.metrics_of(run / 'checkpoints', 6) == {}


def test_other_names_are_no_steps(tmp_path):
  for name in '12', '3', '\u00b2', '4x', '-1':
    (tmp_path / name / 'params').mkdir(parents=True)
  assert checkpoint.list_steps(tmp_path) == [3, 12]
  (tmp_path / 'file').touch()
  with pytest.raises(InputError, match='file: is a file; expected a directory'):
    checkpoint.list_steps(tmp_path / 'file')


def test_restore_is_exact_and_refuses_another_state(run):
  with states.open_run(run) as checkpointer:
    good = _abstract(_state())
    restored = checkpointer.restore(6, good)
    _equal(restored, _state(6))
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(restored))
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


def test_parameters_load_as_numpy_without_the_optimiser(run):
  for directory, expected in [
      (run, 2),
      (run / 'checkpoints', 2),
      (run / 'checkpoints' / '5', 5),
  ]:
    params = checkpoint.load_params(directory)
    assert all(type(x) is np.ndarray for x in jax.tree.leaves(params))
    _equal(params, jax.tree.map(np.asarray, _state(expected).params))


def test_without_a_score_the_latest_is_loaded(tmp_path):
  directory = states.save(tmp_path, [None, None, {'eval/x/loss': 1.0}])
  assert checkpoint.best_step(directory) is None
  assert checkpoint.find(tmp_path).name == '3'
  settings = dict(steps=9, eval_every=1, patience=3)
  assert checkpoint.is_finished(directory, settings)


def test_a_save_is_a_snapshot(tmp_path):
  """Later steps that reuse the state's memory do not change the save."""
  spoil = jax.jit(lambda x: jax.tree.map(jnp.zeros_like, x), donate_argnums=0)
  big = jnp.arange(4_000_000, dtype=jnp.float32)
  state = _state(1)._replace(params={'a': big})
  expected = np.array(big)
  with states.open_run(tmp_path) as checkpointer:
    checkpointer.save(1, state)
    for _ in range(3):
      state = spoil(state)
  np.testing.assert_array_equal(checkpoint.load_params(tmp_path)['a'], expected)


def test_a_partial_step_is_not_a_checkpoint(tmp_path):
  directory = states.save(tmp_path, [None])
  # The files of a run that was killed during a save.
  half = directory / '2.orbax-checkpoint-tmp' / 'params'
  half.mkdir(parents=True)
  assert checkpoint.find(tmp_path).name == '1'
  with states.open_run(tmp_path) as checkpointer:
    assert checkpointer.latest_step() == 1
    checkpointer.save(2, states.make(2))
  assert not half.exists()
  assert checkpoint.find(tmp_path).name == '2'


def test_directories_without_a_checkpoint(tmp_path):
  empty = tmp_path / 'empty'
  (empty / 'checkpoints').mkdir(parents=True)
  for directory, words in [
      (tmp_path / 'nowhere', 'no such directory'),
      (tmp_path, 'holds no checkpoint'),
      (empty, 'holds no checkpoint'),
  ]:
    with pytest.raises(InputError) as error:
      checkpoint.load_params(directory)
    assert words in str(error.value) and '\n' not in str(error.value)


def test_a_checkpoint_that_cannot_be_restored_is_one_line(tmp_path):
  step = states.save(tmp_path, [None]) / '1'
  (step / 'params' / 'manifest.ocdbt').unlink()
  (step / 'params' / '_METADATA').write_text('{')
  manifest.write(step)
  with pytest.raises(InputError, match='cannot be restored') as error:
    checkpoint.load_params(tmp_path)
  assert '\n' not in str(error.value)


def _flip(path):
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)


def _truncate(path):
  os.truncate(path, path.stat().st_size - 1)


def _largest(directory):
  files = [path for path in directory.rglob('*') if path.is_file()]
  return max(files, key=lambda path: path.stat().st_size)


@pytest.mark.parametrize(
    'spoil, words',
    [
        (_flip, 'has other contents than were written'),
        (_truncate, ' bytes, expected '),
        (os.unlink, 'is missing'),
    ],
)
def test_a_damaged_step_is_set_aside(spoil, words, tmp_path, capfd):
  directory = states.save(tmp_path, test_metrics.SCORED)
  spoiled = _largest(directory / '4' / 'training')
  spoil(spoiled)
  # A reader checks only what it reads, and renames nothing.
  assert states.step_of(checkpoint.load_params(directory / '4')) == 4
  with states.open_run(tmp_path) as checkpointer:
    assert checkpointer.set_damaged_aside() == 3
    (line,) = capfd.readouterr().err.splitlines()
    name = spoiled.relative_to(directory / '4').as_posix()
    assert f'checkpoints/4: {name} ' in line and words in line
    assert line.endswith('damaged, set aside as 4.damaged')
    _equal(checkpointer.restore(3, _abstract(states.make(0))), states.make(3))
    # The step is saved again, and damaged again.
    checkpointer.save(4, states.make(4))
  _flip(_largest(directory / '4' / 'params'))
  with states.open_run(tmp_path) as checkpointer:
    assert checkpointer.set_damaged_aside() == 3
  assert states.steps(directory) == ['2', '3', '4.damaged', '4.damaged2']


def test_a_kill_while_removing_is_no_damage(tmp_path, monkeypatch, capfd):
  """Simulated: each removal stops after one file, as if killed."""

  def remove_one_file(path, *_, **__):
    next(path for path in Path(path).rglob('*') if path.is_file()).unlink()

  with monkeypatch.context() as patch:
    patch.setattr(shutil, 'rmtree', remove_one_file)
    directory = states.save(tmp_path, [None] * 2, keep_latest=1, keep_best=0)
  assert len(list(directory.iterdir())) == 2
  assert checkpoint.list_steps(directory) == [2]
  with states.open_run(tmp_path) as checkpointer:
    assert checkpointer.set_damaged_aside() == 2
    checkpointer.save(3, states.make(3))
  assert capfd.readouterr().err == ''
  assert states.steps(directory) == ['2', '3']


def test_an_interrupted_first_save_starts_anew(tmp_path, capfd):
  (tmp_path / 'checkpoints' / '4.orbax-checkpoint-tmp').mkdir(parents=True)
  with states.open_run(tmp_path) as checkpointer:
    assert checkpointer.set_damaged_aside() is None
  assert capfd.readouterr().err == (
      'checkpoint 4 was not finished (the run was stopped while it was saved): '
      'starting anew\n'
  )


def test_a_damaged_best_is_not_the_best(tmp_path, capfd):
  directory = states.save(tmp_path, test_metrics.SCORED)
  _flip(_largest(directory / '2' / 'params'))
  with pytest.raises(InputError) as error:
    checkpoint.load_params(tmp_path)
  assert 'checkpoints/2: params/' in str(error.value)
  assert str(error.value).endswith('the other checkpoints are of steps [3, 4]')
  assert (directory / '2').is_dir()
  with states.open_run(tmp_path) as checkpointer:
    assert checkpointer.set_damaged_aside() == 4
    assert 'set aside as 2.damaged' in capfd.readouterr().err
    assert checkpointer.best_step() == 3
    # Later saves keep the best of the remaining steps, 3.
    for step in (5, 6, 7):
      checkpointer.save(step, _state(step), {'eval/x/rouge_mean': 1.0})
  assert checkpoint.find(tmp_path).name == '3'
  assert states.steps(directory) == ['2.damaged', '3', '6', '7']


def test_a_run_with_only_damaged_steps_does_not_start_again(tmp_path):
  directory = states.save(tmp_path, test_metrics.SCORED)
  for step in directory.iterdir():
    (step / 'manifest.json').unlink()
  for _ in range(2):  # the second time no step is left
    with states.open_run(tmp_path) as checkpointer:
      with pytest.raises(InputError, match='all checkpoints are damaged'):
        checkpointer.set_damaged_aside()
  assert len(list(directory.glob('*.damaged'))) == 3


def test_metrics_added_later(tmp_path):
  with states.open_run(tmp_path, keep_latest=1) as checkpointer:
    checkpointer.save(1, _state(1), {'eval/x/rouge_mean': 10.0})
    checkpointer.save(2, _state(2), None, {'window': [1], 'measured': False})
    checkpointer.wait()
    assert checkpointer.best_step() == 1
    checkpointer.measure(2, {'eval/x/rouge_mean': 20.0})
    assert checkpointer.best_step() == 2
    assert checkpointer.loop(2) == {'window': [1], 'measured': True}
    # 1 is neither the best nor the latest.
    assert states.steps(tmp_path / 'checkpoints') == ['2']
    for step in (3, 4):
      checkpointer.save(step, _state(step))
  # The best and the latest.
  assert states.steps(tmp_path / 'checkpoints') == ['2', '4']
  assert not manifest.find_damage(tmp_path / 'checkpoints' / '2')


def test_a_file_and_its_manifest_agree_while_it_is_replaced(
    tmp_path, monkeypatch
):
  """A kill between any two renames leaves an intact directory."""
  (tmp_path / 'metrics').mkdir()
  (tmp_path / 'metrics' / 'metrics').write_text('old')
  manifest.write(tmp_path)
  rename, found = os.replace, []

  def look_and_rename(source, target):
    found.append(manifest.find_damage(tmp_path))
    rename(source, target)
    found.append(manifest.find_damage(tmp_path))

  monkeypatch.setattr(os, 'replace', look_and_rename)
  manifest.replace(tmp_path, 'metrics/metrics', 'new')
  assert found == [''] * 6
  (tmp_path / 'metrics' / 'metrics').write_text('old')
  assert manifest.find_damage(tmp_path) == (
      'metrics/metrics has other contents than were written'
  )


def test_score():
  metrics = {
      'eval/a/loss': 2.0,
      'eval/a/rouge_mean': 10.0,
      'eval/b/rouge_mean': 20.0,
      'eval/c/xrouge_mean': 99.0,
  }
  assert checkpoint.score(metrics, 'rouge_mean') == 15.0
  assert checkpoint.score(metrics, 'eval/b/rouge_mean') == 20.0
  assert checkpoint.score(metrics, 'loss') == -2.0
  assert checkpoint.score(metrics, 'rouge1') is None
  assert checkpoint.score({'loss': float('inf')}, 'loss') is None
