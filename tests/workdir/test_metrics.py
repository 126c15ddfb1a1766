"""Metrics of checkpoints: damage, and the choice of the best checkpoint."""

import json
import os
import shutil

import pytest

from locost_jax import files
from locost_jax.workdir import checkpoint
from locost_jax.workdir import manifest
from tests.deadline import within
from tests.workdir import states

ROUGE = 'eval/x/rouge_mean'
LOSS = 'eval/x/loss'
# Step 2 is the best, 4 the latest; with keep_latest=2, 3 is kept too.
SCORED = [{ROUGE: 10.0}, {ROUGE: 30.0}, {ROUGE: 20.0}, {ROUGE: 15.0}]
METRICS = 'metrics/metrics'
# Contents that are no JSON object: tests/test_files.py.
NOT_METRICS = {
    'cut': b'{"eval/x/rouge_mean": 3',
    'a text': b'{"eval/x/rouge_mean": "best", "score": "best"}',
    'nested': b'{"score": {"score": 3}}',
    'true': b'{"score": true}',
}


@pytest.fixture(scope='module')
def scored(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('scored')
  states.save(workdir, SCORED)
  return workdir


# Damage to the best, a kept and the latest step; `known`: the manifest matches
# the damaged file.
@pytest.mark.parametrize(
    'name, step, known',
    [('cut', step, known) for step in (2, 3, 4) for known in (False, True)]
    + [(name, 4, True) for name in NOT_METRICS if name != 'cut'],
)
def test_damaged_metrics_stop_no_command(
    scored, tmp_path, capfd, name, step, known
):
  tmp_path = shutil.copytree(scored, tmp_path / 'run')
  directory = tmp_path / 'checkpoints'
  (directory / str(step) / METRICS).write_bytes(NOT_METRICS[name])
  if known:
    manifest.write(directory / str(step))
  with within():
    # A reader ignores them and warns once.
    params = checkpoint.load_params(tmp_path)
    assert states.step_of(params) == (3 if step == 2 else 2)
    checkpoint.find(tmp_path)
    (line,) = capfd.readouterr().err.splitlines()
    assert f'checkpoints/{step}: metrics/metrics' in line
    assert 'not among the best' in line
    assert states.steps(directory) == ['2', '3', '4']
    # The run continues.
    with states.open_run(tmp_path) as checkpointer:
      assert checkpointer.set_damaged_aside() == (3 if step == 4 else 4)
      (line,) = capfd.readouterr().err.splitlines()
      assert f'checkpoints/{step}: metrics/metrics' in line
      assert line.endswith(f': damaged, set aside as {step}.damaged')
      checkpointer.save(5, states.make(5), {ROUGE: 1.0}, {'measured': True})
  assert capfd.readouterr().err == ''
  assert checkpoint.find(tmp_path).name == ('3' if step == 2 else '2')


def test_changed_metrics_are_not_trusted(tmp_path, capfd):
  """A flipped digit does not change the best step."""
  directory = states.save(tmp_path, SCORED)
  path = directory / '3' / METRICS
  path.write_text(path.read_text().replace('20.0', '90.0'))
  assert states.step_of(checkpoint.load_params(tmp_path)) == 2
  assert 'has other contents than were written' in capfd.readouterr().err


def test_metrics_missing_in_the_manifest_are_read(tmp_path, capfd):
  """Checkpoints of an older version."""
  directory = states.save(tmp_path, SCORED)
  for step in directory.iterdir():
    path = step / 'manifest.json'
    entries = json.loads(path.read_text())
    del entries[METRICS]
    path.write_text(json.dumps(entries))
  assert checkpoint.find(tmp_path).name == '2'
  with states.open_run(tmp_path) as checkpointer:
    assert checkpointer.set_damaged_aside() == 4
    assert checkpointer.best_step() == 2
    checkpointer.measure(4, {ROUGE: 99.0})
    assert checkpointer.best_step() == 4
  assert capfd.readouterr().err == ''


def test_the_best_is_by_the_current_metric(tmp_path):
  """Scores of two metrics are never compared; both metrics are stored."""
  metrics = [
      {ROUGE: 10.0, LOSS: 0.5},  # the best by loss
      {ROUGE: 30.0, LOSS: 3.0},
      {ROUGE: 20.0, LOSS: 2.0},
      {ROUGE: 15.0, LOSS: 2.5},
  ]
  directory = states.save(tmp_path, metrics, keep_best=2)
  assert states.steps(directory) == ['2', '3', '4']
  with states.open_run(tmp_path, metric='loss', keep_latest=1) as checkpointer:
    assert checkpointer.set_damaged_aside() == 4
    assert checkpointer.best_step() == 3
    assert checkpoint.find(tmp_path).name == '3'
    # If metrics were mixed, a ROUGE of 25 would beat a loss score of -2.
    for step, loss in ((5, 2.7), (6, 2.8), (7, 2.9)):
      checkpointer.save(step, states.make(step), {ROUGE: 25.0, LOSS: loss})
  assert checkpoint.find(tmp_path).name == '3'
  assert states.steps(directory) == ['3', '7']
  # Back to the first metric.
  with states.open_run(tmp_path) as checkpointer:
    checkpointer.set_damaged_aside()
    assert checkpointer.best_step() == 7
  assert not manifest.find_damage(directory / '3')


def test_scores_of_two_metrics_are_not_compared(tmp_path):
  """A run killed while rewriting scores uses the metric of the latest step."""
  directory = states.save(
      tmp_path, [{ROUGE: 1.0, LOSS: 9.0}, {ROUGE: 30.0, LOSS: 3.0}]
  )
  manifest.replace(
      directory / '1',
      METRICS,
      json.dumps({ROUGE: 1.0, LOSS: -99.0, 'score': 99.0, 'score_of': 'loss'}),
  )
  assert checkpoint.find(tmp_path).name == '2'


def test_scores_of_an_older_version_without_a_metric(tmp_path):
  directory = states.save(tmp_path, SCORED)
  for step in directory.iterdir():
    metrics = json.loads((step / METRICS).read_text())
    del metrics['score_of']
    manifest.replace(step, METRICS, json.dumps(metrics))
  assert checkpoint.find(tmp_path).name == '2'
  with states.open_run(tmp_path) as checkpointer:
    checkpointer.set_damaged_aside()
    checkpointer.save(5, states.make(5), {ROUGE: 25.0})
  assert states.steps(directory) == ['2', '4', '5']
  assert checkpoint.find(tmp_path).name == '2'


@pytest.mark.parametrize('keep_latest', [1, 4])
def test_of_equal_steps_the_later_is_best(tmp_path, keep_latest):
  directory = states.save(
      tmp_path,
      [{ROUGE: 30.0}, {ROUGE: 30.0}, {ROUGE: 1.0}, {ROUGE: 1.0}],
      keep_latest=keep_latest,
  )
  assert checkpoint.best_step(directory) == 2
  assert checkpoint.best_first(directory)[:1] == [2]
  with states.open_run(tmp_path, keep_latest=1) as checkpointer:
    checkpointer.set_damaged_aside()
    assert checkpointer.best_step() == 2
    checkpointer.measure(4, {ROUGE: 2.0})  # prunes
  assert states.steps(directory) == ['2', '4']


def test_a_latest_step_without_parameters_is_saved_again(tmp_path, capfd):
  directory = states.save(tmp_path, SCORED)
  shutil.rmtree(directory / '4' / 'params')
  assert checkpoint.latest_step(directory) == 3
  with states.open_run(tmp_path) as checkpointer:
    assert checkpointer.set_damaged_aside() == 3
    (line,) = capfd.readouterr().err.splitlines()
    assert 'params/' in line and 'set aside as 4.damaged' in line
    checkpointer.save(4, states.make(4), {ROUGE: 15.0})
  assert states.steps(directory) == ['2', '3', '4', '4.damaged']
  assert (
      states.step_of(checkpoint.load_params(tmp_path / 'checkpoints' / '4'))
      == 4
  )


@pytest.fixture
def synced(monkeypatch):
  """The paths synced to disk, under the names they had then."""
  paths, flush = [], os.fsync

  def spy(descriptor):
    paths.append(os.path.realpath(f'/proc/self/fd/{descriptor}'))
    flush(descriptor)

  monkeypatch.setattr(os, 'fsync', spy)
  return paths


def test_replaced_metrics_are_synced(tmp_path, synced):
  """A power cut leaves the old or the new metrics, never an empty file."""
  directory = states.save(tmp_path, [{ROUGE: 10.0}]) / '1'
  synced.clear()
  manifest.replace(directory, METRICS, '{}')
  assert synced.index(f'{directory}/replacement.tmp') < synced.index(
      f'{directory}/metrics'
  )
  manifests = [i for i, p in enumerate(synced) if 'manifest.json.tmp' in p]
  # Before the first rename, and after the file is renamed.
  assert manifests[0] < synced.index(f'{directory}/metrics') < manifests[-1]
  assert str(directory) in synced[manifests[-1] :]


def test_a_checkpoint_is_synced_before_it_is_renamed(tmp_path, synced):
  directory = states.save(tmp_path, [{ROUGE: 10.0}]) / '1'
  names = {
      path.partition('checkpoint-tmp')[2].partition('/')[2] for path in synced
  }
  entries = json.loads((directory / 'manifest.json').read_text())
  assert METRICS in entries and entries.keys() <= names
  assert any(name.startswith('manifest.json.tmp') for name in names)


def test_a_written_file_is_synced(tmp_path, synced):
  files.write(tmp_path / 'file', 'text')
  assert [path.rpartition('.tmp')[0] for path in synced[:1]] == [
      f'{tmp_path}/file'
  ]
  assert synced[1:] == [str(tmp_path)]
