"""launch/: lint, the env file and the command lines of all scripts."""

from pathlib import Path
import re
import subprocess
import sys

import pytest

from tests.launch.launching import ENV
from tests.launch.launching import LAUNCH
from tests.launch.launching import ROOT
from tests.launch.launching import SCRIPTS

# --- Lint --------------------------------------------------------------------


def shellcheck(*paths):
  return subprocess.run(
      [Path(sys.executable).parent / 'shellcheck', '-x', *paths],
      cwd=ROOT,
      capture_output=True,
      text=True,
  )


def test_shellcheck_finds_nothing():
  assert len(SCRIPTS) == 4
  done = shellcheck(*SCRIPTS, '.ci/run')
  assert (done.returncode, done.stdout) == (0, '')


def test_shellcheck_finds_an_error(tmp_path):
  wrong = tmp_path / 'wrong.sh'
  right = (LAUNCH / 'slurm.sbatch').read_text()
  wrong.write_text(right.replace('"${COMMAND[@]}"', '${COMMAND[@]}'))
  done = shellcheck(wrong)
  assert done.returncode and 'SC2068' in done.stdout


def test_scripts_use_no_features_missing_in_bash_of_macos():
  """Bash 3.2 has none of these; slurm.sbatch and worker.sh run on Linux."""
  newer = re.compile(
      r'declare -A|mapfile|readarray|@Q|wait -n|\$\{\w+[,^]'
      r'|&>>|\|&|coproc|local -n|EPOCH'
  )
  for name in ('common.sh', 'tpu_vm.sh'):
    assert not newer.search((LAUNCH / name).read_text())
  assert newer.search('mapfile -t lines')


@pytest.mark.parametrize(
    'old, new, expected',
    [
        ('PROJECT=my-project\n', '', 'PROJECT is missing: expected PROJECT=va'),
        ('CONFIG=configs/finetune.py', 'CONFIG=', 'CONFIG is missing'),
        ('PROJECT=', 'PROJECKT=', 'line 7: unknown name PROJECKT'),
        ('ZONE=', 'ZONE TPU_NAME=', 'unknown name ZONE TPU_NAME; launch/exa'),
        ('ZONE=us', 'ZONE us', 'line 8: ZONE us-west4-a: expected NAME=value'),
        ('ZONE=us-west4-a', "ZONE='us'", 'line 8: ZONE: values are used liter'),
        ('FLAG=--odd=\n', 'FLAG=--odd="*"\n', 'FLAG: values are used lite'),
        ('FLAG=--odd=\n', 'FLAG=odd\n', 'FLAG=odd: expected FLAG=--flag=value'),
        ('FLAG=--odd=\n', 'RESTARTS=no\n', 'RESTARTS=no: expected a number'),
        ('FLAG=--odd=\n', 'EXPECT=many\n', 'expected EXPECT=vocabulary=32100'),
        ('ADDED=two words', 'two words', 'expected ENVIRONMENT=NAME=value'),
        ('ZONE=', 'ZONE=a\nZONE=', 'line 9: ZONE: expected once'),
        ('=spot', '=cheap', 'CAPACITY=cheap: expected spot or queued'),
        (
            '/mnt/runs',
            's3://b',
            'WORKDIR=s3://b/a run: expected gs:// or a dir',
        ),
    ],
)
def test_bad_env_files(fakes, old, new, expected):
  assert old in ENV
  fakes.write(ENV.replace(old, new, 1))
  status, out, err = fakes.run('tpu_vm.sh', 'run')
  assert (status, out, err.count('\n')) == (2, '', 1)
  assert err.startswith(f'error: {fakes.path}/my.env') and expected in err
  assert not fakes.calls()


@pytest.mark.parametrize('script', ['tpu_vm.sh', 'slurm.sbatch'])
def test_help_and_no_env_file(fakes, script):
  status, out, _ = fakes.run(script, '--help')
  assert status == 0 and f'launch/{script}' in out
  assert '#' not in out and 'set -euo' not in out
  (fakes.path / 'my.env').unlink()
  status, _, err = fakes.run(script, *['run'] * (script == 'tpu_vm.sh'))
  assert status == 2
  assert f'{fakes.path}/my.env: no such file: copy launch/example.env' in err


@pytest.mark.parametrize(
    'command, expected',
    [
        ('tpu_vm.sh', 'expected a command'),
        ('tpu_vm.sh fly', 'fly is not a command'),
        ('tpu_vm.sh run stop', 'run and stop: expected one command'),
        ('tpu_vm.sh run --fast', '--fast is not an option'),
        ('slurm.sbatch --fast', '--fast is not an option'),
    ],
)
def test_bad_command_lines(fakes, command, expected):
  status, _, err = fakes.run(*command.split())
  assert (status, err.count('\n')) == (2, 1) and expected in err, err
  assert not fakes.calls()


def test_the_example_lists_all_names(fakes):
  """The scripts read it with every name uncommented."""
  text = (LAUNCH / 'example.env').read_text(encoding='utf-8')
  text = re.sub(r'(?m)^#(?=[A-Z_]+=)', '', text)
  fakes.write(text.replace('.venv/bin/python', 'python'))
  for command in 'tpu_vm.sh continue', 'slurm.sbatch':
    status, out, err = fakes.run(*command.split(), '--dry_run')
    assert status == 0 and out and not err
  known = (LAUNCH / 'common.sh').read_text()
  known = ' '.join(re.findall('(?m)^(?:NAMES|FLAG)=.*', known))
  assert set(re.findall('[A-Z_]+', known)) - {'NAMES'} == set(
      re.findall(r'(?m)^([A-Z_]+)=', text)
  )


def test_windows_line_ends_and_a_missing_newline_at_the_end(fakes):
  _, expected, _ = fakes.run('slurm.sbatch', '--dry_run')
  fakes.write(ENV.replace('\n', ' \r\n').rstrip())
  assert fakes.run('slurm.sbatch', '--dry_run') == (0, expected, '')
