"""Errors of convert: one line, status 2, and no target."""

import os
import pickle
import resource
import signal

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from safetensors.numpy import save_file

from locost_jax import convert
from locost_jax import models
from tests import python
from tests.hugging_face.converting import GOLDEN
from tests.hugging_face.converting import rewrite
from tests.hugging_face.converting import save_run
from tests.hugging_face.converting import shard
from tests.hugging_face.converting import WEIGHTS
from tests.models import small


def test_a_copy_head_is_refused(tmp_path, small_model_config, refuse):
  small_model_config.copy = True
  model = models.build(small_model_config)  # it can be trained
  home = tmp_path / 'run'
  save_run(home, small_model_config, small.drawn_params(model, 1.0))
  refuse(home, message='config.model.copy=True cannot be exported')


def test_invalid_flags(release, tmp_path, refuse, run_command):
  refuse(release, '--dtype=bfloat16', message="--dtype=bfloat16: a run's")
  (tmp_path / 'there').mkdir()
  no_where = f'no directory {tmp_path}'
  for target, message in ('there', 'exists already'), ('no/where', no_where):
    places = f'--source={release}', f'--target={tmp_path / target}'
    status, _, err = run_command(convert, *places)
    assert status == 2 and message in err
  assert not list((tmp_path / 'there').iterdir())


def test_other_weights_are_named(release, refuse):
  """The message has a few names and the number of the others."""
  tensors = {f'bert.{i}': np.zeros(3, np.float32) for i in range(9)}
  save_file(tensors, release / WEIGHTS)
  names = 'bert.0, bert.1, bert.2, bert.3, bert.4 and 4 more'
  refuse(release, message=f'does not use: {names}')


@pytest.mark.parametrize(
    'dtype,shown',
    ((np.int8, 'I8'), (jnp.float8_e4m3fn, 'F8_E4M3'), (np.float64, 'F64')),
)
def test_other_dtypes_are_refused(dtype, shown, release, refuse):
  def change(tensors):
    tensors['shared.weight'] = tensors['shared.weight'].astype(dtype)

  rewrite(release, change)
  refuse(release, message=f'shared.weight has the type {shown}: expected F32, ')


def test_damaged_files_are_named(release, refuse):
  shard(release)
  first = release / 'model-00001-of-00002.safetensors'
  part = load_file(first)
  part.pop(sorted(part)[0])
  save_file(part, first)
  refuse(release, message='lists tensors that are in no shard: ')


class Hostile:
  """Makes a directory when it is unpickled."""

  def __init__(self, path):
    self.path = path

  def __reduce__(self):
    return os.mkdir, (self.path,)


def test_a_hostile_pickle_does_nothing(release, tmp_path, refuse):
  """And the line has no advice of PyTorch's, which is to run the code."""
  torch = pytest.importorskip('torch', reason='needs the extra `peers`')
  (release / WEIGHTS).unlink()
  path = tmp_path / 'made by the pickle'
  weights = release / 'pytorch_model.bin'
  line = 'is not a plain state dict: {}; expected tensors by name, or model.sa'
  weights.write_bytes(pickle.dumps({'shared.weight': Hostile(str(path))}))
  refuse(release, message=line.format('it holds other things than tensors'))
  torch.save({'shared.weight': Hostile(str(path))}, weights)
  reason = 'it would run posix.mkdir, and code of a file is never run'
  refuse(release, message=line.format(reason))
  assert not path.exists()
  weights.unlink()
  os.mkfifo(weights)
  refuse(release, message='is a named pipe, expected a regular file')


@pytest.fixture
def small_files():
  """Limits the size of files in this test, like a full disk."""
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
  yield
  resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize('direction', ('run', 'hugging_face'))
def test_a_full_disk_is_one_line(direction, run, refuse, request):
  source = GOLDEN / 'locost_a_tiny' if direction == 'run' else run
  request.getfixturevalue('small_files')
  refuse(source, message='target: cannot be written: File too large')


def test_a_conversion_killed_before_the_rename_leaves_no_target(run, tmp_path):
  program = (
      'import os, pathlib, signal\n'
      'from locost_jax import convert\n'
      'from locost_jax.config import commands\n'
      'pathlib.Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n'
      'commands.run(convert.main, convert.define_flags, "")\n'
  )
  places = f'--source={run}', f'--target={tmp_path / "target"}'
  python.run('-c', program, *places, status=-signal.SIGKILL)
  (left,) = tmp_path.iterdir()
  assert left.name.startswith('target.tmp')
  assert (left / WEIGHTS).exists()
