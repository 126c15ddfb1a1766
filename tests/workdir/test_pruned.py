"""A run that trains prunes a checkpoint between its choice and its reading."""

import json
import shutil

import jax
import numpy as np
import pytest

import locost_jax
from locost_jax import convert
from locost_jax import summarize
from locost_jax.errors import InputError
from locost_jax.models import parameters
from locost_jax.training import warm_start
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find
from locost_jax.workdir import manifest
from tests import tiny_run


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A run with five checkpoints."""
  workdir = tmp_path_factory.mktemp('pruned') / 'run'
  tiny_run.make(workdir, 1)
  for step in range(2, 6):
    shutil.copytree(
        workdir / 'checkpoints' / '1', workdir / 'checkpoints' / str(step)
    )
  return workdir


@pytest.fixture
def workdir(run, tmp_path):
  return shutil.copytree(run, tmp_path / 'run')


# Called while a checkpoint is read, from its first to its last file.
PLACES = (
    (find, 'load_run_params'),
    (manifest, 'find_damage'),
    (checkpoint, 'metadata'),
)


def prune(monkeypatch, place, times):
  """Prunes the chosen checkpoint when its reading gets here."""
  module, name = place
  original, pruned = getattr(module, name), []

  def remove_first(path, *args):
    if len(pruned) < times:
      pruned.append(str(path).removesuffix('/params'))
      shutil.rmtree(pruned[-1])
    return original(path, *args)

  monkeypatch.setattr(module, name, remove_first)
  return pruned


@pytest.mark.parametrize('place', PLACES, ids=lambda place: place[1])
def test_another_checkpoint_is_chosen(
    workdir, tmp_path, monkeypatch, succeed, place
):
  pruned = prune(monkeypatch, place, 1)
  assert locost_jax.load(workdir).source.endswith('/4')
  assert pruned == [str(workdir / 'checkpoints' / '5')]
  prune(monkeypatch, place, 1)
  succeed(convert, f'--source={workdir}', f'--target={tmp_path / "out"}')
  if place[0] is not find:  # also called by others
    assert warm_start.read(workdir).where == str(workdir)


def test_a_summary_names_the_checkpoint_that_was_read(
    workdir, tmp_path, monkeypatch, succeed
):
  """Not a better one that was saved after it was read."""
  (tmp_path / 'text.txt').write_text('A text.')
  original, read = find.load_run_params, []

  def prune_afterwards(path, config):
    params = original(path, config)
    if not read:
      shutil.rmtree(path)
    read.append(path)
    return params

  monkeypatch.setattr(find, 'load_run_params', prune_afterwards)
  page = tmp_path / 'page.html'
  out, _ = succeed(
      summarize,
      f'--checkpoint={workdir}',
      '--format=json',
      f'--report={page}',
      tmp_path / 'text.txt',
  )
  row = json.loads(out)
  assert row['checkpoint']['step'] == 5
  assert row['checkpoint']['path'] == str(workdir / 'checkpoints' / '5')
  assert 'run/checkpoints/5' in page.read_text()


def test_it_ends_after_some_tries(workdir, monkeypatch):
  prune(monkeypatch, PLACES[1], 99)
  with pytest.raises(InputError, match='holds no checkpoint'):
    locost_jax.load(workdir)
  with pytest.raises(InputError, match='checkpoints/7: no such directory'):
    locost_jax.load(workdir / 'checkpoints' / '7')


def test_equal_weights_have_equal_hashes(run):
  """Unlike the files, which have the time in them; each change counts."""
  params = checkpoint.load_params(run / 'checkpoints' / '5')
  expected = parameters.fingerprint(params)
  turned = jax.tree.map(lambda x: np.asfortranarray(x), params)
  assert parameters.fingerprint(turned) == expected
  path, array = next(iter(parameters.flatten(params).items()))
  for change in (
      {path: array + 1},
      {path: array.astype(np.float16)},
      {path: array.reshape(-1)},
      {path + '2': array},
  ):
    changed = {**parameters.flatten(params), **change}
    if path + '2' in change:
      del changed[path]
    assert parameters.fingerprint(changed) != expected
