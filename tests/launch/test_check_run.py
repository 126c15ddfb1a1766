"""launch/check_run.py: a run is checked without its devices and its files."""

import importlib.util

import pytest

from tests.launch.launching import LAUNCH
from tests.launch.launching import ROOT

MNT = '--config.data.vocabulary=/mnt/spiece.model'


@pytest.fixture(scope='module')
def check_run():
  spec = importlib.util.spec_from_file_location(
      'check_run', LAUNCH / 'check_run.py'
  )
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  module.define_flags = module.main_lib.define_flags
  return module


def check(run_command, check_run, *arguments, config='pretrain_c4'):
  return run_command(
      check_run,
      f'--config={ROOT}/configs/{config}.py',
      '--workdir=/mnt/run',
      *arguments,
  )


@pytest.mark.parametrize(
    'accelerator, found',
    [
        ('v5litepod-16', 'v5e:4x4 16 4'),
        ('v5litepod-8', 'v5e:2x4 8 1'),
        ('v6e-64', 'v6e:8x8 64 16'),
        ('v4-8', 'v4:2x2x1 4 1'),
        ('v4-32', 'v4:2x2x4 16 4'),
        ('v5p-16', 'v5p:2x2x2 8 2'),
    ],
)
def test_devices_and_hosts(run_command, check_run, accelerator, found):
  status, out, err = check(
      run_command, check_run, f'--topology={accelerator}', '--preflight'
  )
  assert status == 0, err
  assert out.splitlines() == [
      'needs data.vocabulary=spiece.model',
      'needs data.corpora_dir=corpora/c4_gsg',
      f'slice {found}',
  ]


def test_files(run_command, check_run, tmp_path, monkeypatch):
  """Patterns are expanded here; what is on another disk stays a pattern."""
  monkeypatch.chdir(tmp_path)
  for name in 'a1.jsonl', 'a2.jsonl':
    (tmp_path / name).touch()
  status, out, err = check(
      run_command,
      check_run,
      '--topology=v5e-4',
      '--config.data.train_files=a*.jsonl, /mnt/c-*.gz',
      '--config.data.test_files=b.jsonl',
      '--config.data.vocabulary=train',
      '--config.train.init_from=runs/first',
  )
  assert status == 0, err
  assert out.splitlines() == [
      'needs data.train_files=a1.jsonl',
      'needs data.train_files=a2.jsonl',
      'needs data.train_files=/mnt/c-*.gz',
      'needs data.test_files=b.jsonl',
      'needs train.init_from=runs/first',
      'slice v5e:2x2 4 1',
  ]
  flags = [MNT, '--config.data.tfds_dir=gs://b', '--topology=v5e-4']
  _, out, _ = check(run_command, check_run, *flags)
  assert out.splitlines()[0] == f'needs {MNT[9:]}' and len(out.split()) == 6


BUILT_IN = ROOT / 'locost_jax/builtin/documentation/vocabulary'


@pytest.mark.parametrize(
    'arguments, expected',
    [
        (['--topology=v5e-17'], '--topology=v5e-17: expected an accelerator'),
        (['--config.data.trian_files=/x'], 'no key config.data.trian_files'),
        (['--config.data.train_files=gs://b/x'], 'gs:// cannot be used here'),
        (['--config.mesh.fsdp=3'], 'at most the 16 devices'),
        (['--config.train.batch_size=24'], 'expected a multiple of 16'),
        (['--config.data.task=c5'], "data.task='c5' is none of"),
        (['--config.data.task='], 'nothing to train on'),
        (['--expect_devices=32'], '--expect_devices=32: v5e-16 has 16'),
        (
            [f'--config.data.vocabulary={BUILT_IN}', '--expect_vocabulary=9'],
            f'--expect_vocabulary=9: {BUILT_IN} has 4,000',
        ),
    ],
)
def test_what_the_run_would_refuse(run_command, check_run, arguments, expected):
  if not arguments[0].startswith('--topology'):
    arguments = ['--topology=v5e-16', *arguments]
  status, out, err = check(run_command, check_run, *arguments)
  assert (status, out, err.count('\n')) == (2, '', 1)
  assert err.startswith('error: ') and expected in err
