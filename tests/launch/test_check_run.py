"""launch/check_run.py: a run is checked without its devices and its files."""

import functools
import re
import shlex

import pytest
import yaml

from launch import check_run
from locost_jax import main
from tests.launch.launching import LAUNCH
from tests.launch.launching import ROOT

MNT = '--config.data.vocabulary=/mnt/spiece.model'


check_run.define_flags = main.define_flags


@pytest.fixture
def check(run_command):
  """check(*flags) -> (status, stdout, stderr), of a run of pretrain_c4.py."""
  config = f'--config={ROOT}/configs/pretrain_c4.py'
  return functools.partial(run_command, check_run, config, '--workdir=/mnt/run')


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
def test_devices_and_hosts(check, accelerator, found):
  status, out, err = check(f'--topology={accelerator}', '--preflight')
  assert status == 0, err
  assert out.splitlines() == [
      'needs data.vocabulary=spiece.model',
      'needs data.corpora_dir=corpora/c4_gsg',
      f'slice {found}',
  ]


def test_files(check, tmp_path, monkeypatch):
  """Patterns are expanded here; what is on another disk stays a pattern."""
  monkeypatch.chdir(tmp_path)
  for name in 'a1.jsonl', 'a2.jsonl':
    (tmp_path / name).touch()
  status, out, err = check(
      '--topology=v5e-4',
      '--config.data.train_files=a*.jsonl, /mnt/c-*.gz',
      '--config.data.validation_files=gs://b/v-*.gz',
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
  _, out, _ = check(*flags)
  assert out.splitlines()[0] == f'needs {MNT[9:]}' and len(out.split()) == 6


MACHINES = 'gpu-8', 'v4-32', 'v5e-16', 'v6e-16'


@pytest.mark.parametrize('machine', MACHINES)
def test_settings_of_pretraining_for_each_machine(check, fakes, machine):
  """The scripts read them, and the config fits 16 chips or 8 GPUs."""
  text = (LAUNCH / f'pretrain_c4.{machine}.env').read_text(encoding='utf-8')
  fakes.write(text)
  script = 'tpu_vm.sh run' if 'TPU_NAME' in text else 'slurm.sbatch --preflight'
  status, out, err = fakes.run(*script.split(), '--dry_run')
  is_gpus = machine == 'gpu-8'
  home = '/mnt' if is_gpus else 'gs://my-bucket'
  assert status == 0 and f'--workdir={home}/runs/pretrain_c4' in out, err
  names = dict(
      line.split('=', 1) for line in text.splitlines() if line[0] != '#'
  )
  chips = names.get('ACCELERATOR_TYPE', 'v5e-8')
  assert is_gpus == ('--expect_devices=8' in out)
  assert is_gpus or chips.replace('litepod', 'e') == machine
  flags = re.findall('(?m)^FLAG=(.*)', text)
  flags += [f'--expect_{x}' for x in re.findall('(?m)^EXPECT=(.*)', text)]
  status, out, err = check(f'--topology={chips}', *flags)
  assert status == 0, err
  *paths, found = out.splitlines()
  on_the_disk = [
      'needs data.corpora_dir=/mnt/corpora/c4_gsg',
      'needs data.vocabulary=/mnt/corpora/spiece.model',
  ]
  assert sorted(paths) == (on_the_disk if is_gpus else [])
  assert found.split()[2] == ('8' if chips == 'v5e-8' else '16')


def test_the_example_fits_its_machine(run_command):
  text = (LAUNCH / 'example.env').read_text(encoding='utf-8')
  status, out, err = run_command(
      check_run,
      f'--config={ROOT}/configs/finetune.py',
      '--topology=v5litepod-16',
      '--workdir=/mnt/runs/mine',
      *re.findall('(?m)^FLAG=(.*)', text),
  )
  assert status == 0 and out.endswith('slice v5e:4x4 16 4\n'), err


def test_the_jobset(run_command):
  """As many hosts and chips as its slice; status 2 ends it; the flags."""
  text = (LAUNCH / 'jobset.yaml').read_text(encoding='utf-8')
  spec = yaml.safe_load(text)['spec']
  (job,) = spec['replicatedJobs']
  job = job['template']['spec']
  pod = job['template']['spec']
  (container,) = pod['containers']
  sides = pod['nodeSelector']['cloud.google.com/gke-tpu-topology']
  _, devices, hosts = check_run.find_slice(f'v5e:{sides}')
  assert job['parallelism'] == job['completions'] == hosts
  assert container['resources']['limits']['google.com/tpu'] * hosts == devices
  (rule,) = job['podFailurePolicy']['rules']
  assert rule['onExitCodes']['values'] == [2]
  assert rule['onExitCodes']['containerName'] == container['name']
  (rule,) = spec['failurePolicy']['rules']
  assert rule['action'] == 'FailJobSet'
  assert rule['onJobFailureReasons'] == ['PodFailurePolicy']
  (home,) = [x['value'] for x in container['env'] if x['name'] == 'BUCKET']
  words = shlex.split(container['command'][-1].replace('$BUCKET', home))
  flags = [word for word in words if word.startswith('--') and word != '--']
  assert '--expect_devices=16' in flags and '--expect_hosts=4' in flags
  status, out, err = run_command(check_run, *flags, '--topology=v5e-16')
  assert status == 0, err
  assert out == 'slice v5e:4x4 16 4\n'  # the workers fetch the rest


BUILT_IN = ROOT / 'locost_jax/builtin/documentation/vocabulary'


@pytest.mark.parametrize(
    'arguments, expected',
    [
        (['--topology=v5e-17'], '--topology=v5e-17: expected an accelerator'),
        (['--config.data.trian_files=/x'], 'no key config.data.trian_files'),
        (['--config.data.train_files=s3://b/x'], 's3:// cannot be used here'),
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
def test_what_the_run_would_refuse(check, arguments, expected):
  if not arguments[0].startswith('--topology'):
    arguments = ['--topology=v5e-16', *arguments]
  status, out, err = check(*arguments)
  assert (status, out, err.count('\n')) == (2, '', 1)
  assert err.startswith('error: ') and expected in err
