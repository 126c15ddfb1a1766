"""launch/: what the scripts print, call and run, with stand-ins for the cloud.

fake_launch.py is gcloud, ssh, srun and the others, and the trainer; nothing
here leaves the machine or imports JAX.
"""

import json
import os
from pathlib import Path
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = Path(__file__).parent.parent
LAUNCH = ROOT / 'launch'
SCRIPTS = sorted(LAUNCH.glob('*.sh')) + [LAUNCH / 'slurm.sbatch']
NAMES = ('gcloud', 'ssh', 'srun', 'scontrol', 'sbatch', 'git', 'uv',
         'trainer')
# What a shell must not touch on its way to the run.
ODD = ["--config.data.train_files=texts-*.jsonl.gz", "--odd=a b  c",
       "--odd=it's \"$HOME\" `id` \\ & ; # ~ é", '--odd=', "--odd=&\\'"]
ENV = '''
# A run.
CONFIG=configs/finetune.py
WORKDIR=/mnt/runs/a run
ENVIRONMENT=ADDED=two words
JAX=jax[tpu]
PROJECT=my-project
ZONE=us-west4-a
TPU_NAME=slice
ACCELERATOR_TYPE=v5litepod-16
RUNTIME_VERSION=v2-alpha-tpuv5-lite
CAPACITY=spot
''' + ''.join(f'FLAG={flag}\n' for flag in ODD)
PLACE = ['--project=my-project', '--zone=us-west4-a']
FLAGS = ['-m', 'locost_jax.main', '--config=configs/finetune.py',
         '--workdir=/mnt/runs/a run', *ODD]


class Fakes:
  """The stand-ins of a test, and what they were called with."""

  def __init__(self, path):
    self.path, self.bin = path, path / 'bin'
    self.bin.mkdir(parents=True)
    source = (ROOT / 'tests' / 'fake_launch.py').read_text(encoding='utf-8')
    for name in NAMES:
      (self.bin / name).write_text(f'#!{sys.executable} -IS\n{source}',
                                   encoding='utf-8')
      (self.bin / name).chmod(0o755)
    self.environment = dict(
        os.environ, FAKES=str(path), FAKE_WORKERS='2', LAUNCH_POLL='0.02',
        REAL_GIT=shutil.which('git'),
        PATH=f'{self.bin}:{os.environ["PATH"]}', HOME=str(path))
    for name in list(self.environment):
      if name.startswith('SLURM_'):
        del self.environment[name]
    self.answer()
    self.runs()
    self.write(ENV)

  def write(self, text):
    """Writes the env file."""
    (self.path / 'my.env').write_text(text, encoding='utf-8')

  def answer(self, *rules):
    """What the stand-ins answer: (words, [answer, ...]), ..."""
    (self.path / 'answers').write_text(repr(rules))

  def runs(self, *rules):
    """What the trainer does: (words, [status or 'wait' or 'hang', ...])."""
    (self.path / 'runs').write_text(repr(rules))

  def start(self, script, *arguments, cwd=ROOT, **environment):
    return subprocess.Popen(
        ['bash', str(LAUNCH / script), f'--env={self.path / "my.env"}',
         *arguments], cwd=cwd, env=self.environment | environment, text=True,
        encoding='utf-8', stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
        # Ignored where the tests run in the background, and a shell cannot
        # trap what was ignored when it began.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

  def run(self, script, *arguments, **environment):
    """Runs a script to its end: (status, stdout, stderr)."""
    process = self.start(script, *arguments, **environment)
    try:
      out, err = process.communicate(timeout=20)
    finally:
      process.kill()
    return process.returncode, out, err

  def calls(self, *names):
    """[argv with the name first, ...], in order; () stands for all names."""
    return [[name, *argv] for name, argv, *_ in self.all_calls()
            if not names or name in names]

  def all_calls(self):
    path = self.path / 'calls'
    lines = path.read_text().splitlines() if path.exists() else []
    return list(map(json.loads, lines))

  def forget(self):
    (self.path / 'calls').unlink(missing_ok=True)

  def wait_for(self, pattern, count=1):
    """Waits for files that a stand-in makes."""
    end = time.monotonic() + 10
    while len(list(self.path.glob(pattern))) < count:
      assert time.monotonic() < end, f'no {pattern}: {self.calls()}'
      time.sleep(0.01)


@pytest.fixture
def fakes(tmp_path):
  return Fakes(tmp_path / 'fakes')


def split(out):
  """The commands that a dry run printed."""
  return [shlex.split(line) for line in out.splitlines()]


# --- Lint --------------------------------------------------------------------


def shellcheck(*paths):
  return subprocess.run(
      [Path(sys.executable).parent / 'shellcheck', '-x', *paths], cwd=ROOT,
      capture_output=True, text=True)


def test_shellcheck_finds_nothing():
  assert len(SCRIPTS) == 5
  done = shellcheck(*SCRIPTS)
  assert (done.returncode, done.stdout) == (0, '')


def test_shellcheck_finds_what_is_wrong(tmp_path):
  wrong = tmp_path / 'wrong.sh'
  wrong.write_text(
      (LAUNCH / 'gpu.sh').read_text().replace('"${COMMAND[@]}"',
                                              '${COMMAND[@]}'))
  done = shellcheck(wrong)
  assert done.returncode and 'SC2068' in done.stdout


def test_no_bash_newer_than_that_of_macos():
  """3.2 has none of these; slurm.sbatch and worker.sh run on Linux."""
  newer = re.compile(r'declare -A|mapfile|readarray|@Q|wait -n|\$\{\w+[,^]'
                     r'|&>>|\|&|coproc|local -n|EPOCH')
  for name in ('common.sh', 'tpu_vm.sh', 'gpu.sh'):
    assert not newer.search((LAUNCH / name).read_text())
  assert newer.search('mapfile -t lines')


# --- The env file ------------------------------------------------------------


@pytest.mark.parametrize('change, expected', [
    (('PROJECT=my-project\n', ''),
     'PROJECT is missing: expected PROJECT=value'),
    (('CONFIG=configs/finetune.py', 'CONFIG='), 'CONFIG is missing'),
    (('PROJECT=', 'PROJECKT='), 'line 7: there is no name PROJECKT'),
    (('ZONE=us-west4-a', 'ZONE us-west4-a'),
     'line 8: ZONE us-west4-a: expected NAME=value'),
    (('ZONE=us-west4-a', 'ZONE="us-west4-a"'),
     'line 8: ZONE: values are taken as they stand: expected no quotes'),
    (('ZONE=us-west4-a', "ZONE='us-west4-a'"), 'line 8: ZONE: values are'),
    (('FLAG=--odd=\n', "FLAG=--odd='*'\n"), 'FLAG: values are taken as they'),
    (('FLAG=--odd=\n', 'FLAG=odd\n'), 'FLAG=odd: expected FLAG=--flag=value'),
    (('ADDED=two words', 'two words'), 'expected ENVIRONMENT=NAME=value'),
    (('ZONE=', 'ZONE=a\nZONE='), 'line 9: ZONE: expected once'),
    (('=spot', '=cheap'),
     'CAPACITY=cheap: expected spot, queued or on-demand'),
    (('/mnt/runs/a run', 'gs://bucket/run'),
     'WORKDIR=gs://bucket/run: expected a directory that all hosts see')])
def test_an_env_file_that_cannot_be(fakes, change, expected):
  assert change[0] in ENV
  fakes.write(ENV.replace(*change, 1))
  status, out, err = fakes.run('tpu_vm.sh', 'run')
  assert (status, out, err.count('\n')) == (2, '', 1)
  assert err.startswith(f'error: {fakes.path}/my.env') and expected in err
  assert not fakes.calls()


@pytest.mark.parametrize('script', ['tpu_vm.sh', 'gpu.sh', 'slurm.sbatch'])
def test_no_env_file(fakes, script):
  (fakes.path / 'my.env').unlink()
  status, _, err = fakes.run(script, *['run'] * (script == 'tpu_vm.sh'))
  assert status == 2
  assert f'{fakes.path}/my.env: no such file: copy launch/example.env' in err


@pytest.mark.parametrize('script, arguments, expected', [
    ('tpu_vm.sh', [], 'expected a command'),
    ('tpu_vm.sh', ['fly'], 'fly is not a command'),
    ('tpu_vm.sh', ['run', 'stop'], 'run and stop: expected one command'),
    ('tpu_vm.sh', ['run', '--fast'], '--fast is not an option'),
    ('gpu.sh', ['run'], 'run is not an option'),
    ('gpu.sh', ['--host=0'], '--host=0: expected less than the 0 of HOSTS='),
    ('gpu.sh', ['--host=a'], '--host=a: expected a number'),
    ('slurm.sbatch', ['--fast'], '--fast is not an option')])
def test_a_command_line_that_cannot_be(fakes, script, arguments, expected):
  status, _, err = fakes.run(script, *arguments)
  assert (status, err.count('\n')) == (2, 1) and expected in err, err
  assert not fakes.calls()


def test_the_example_names_everything(fakes):
  """With every name uncommented it is read; and it forgets none."""
  text = re.sub(r'(?m)^#(?=[A-Z_]+=)', '',
                (LAUNCH / 'example.env').read_text(encoding='utf-8'))
  fakes.write(text)
  for script, *arguments in (['tpu_vm.sh', 'continue'], ['gpu.sh'],
                             ['slurm.sbatch']):
    status, out, err = fakes.run(script, *arguments, '--dry_run')
    assert status == 0 and out and not err
  known = (LAUNCH / 'common.sh').read_text()
  known = known[known.index('    case $name in\n      FLAG)'):]
  known = known[:known.index('*) fail "$at: there is no name')]
  assert set(re.findall(r'\b[A-Z][A-Z_]+(?= \||\))', known)) == set(
      re.findall(r'(?m)^([A-Z_]+)=', text))


def test_windows_line_ends_and_no_end_of_line(fakes):
  _, expected, _ = fakes.run('gpu.sh', '--dry_run')
  fakes.write(ENV.replace('\n', ' \r\n').rstrip())
  assert fakes.run('gpu.sh', '--dry_run') == (0, expected, '')


@pytest.mark.parametrize('script', ['tpu_vm.sh', 'gpu.sh', 'slurm.sbatch'])
def test_help(fakes, script):
  status, out, _ = fakes.run(script, '--help')
  assert status == 0 and f'launch/{script}' in out
  assert '#' not in out and 'set -euo' not in out


# --- tpu_vm.sh: dry runs -----------------------------------------------------


def tpus(*words):
  return ['gcloud', 'compute', 'tpus', *words, *PLACE]


def workers(command, worker='all'):
  return tpus('tpu-vm', 'ssh', 'slice', f'--worker={worker}',
              f'--command={command}')


def scp(source, target):
  return tpus('tpu-vm', 'scp', str(source), f'slice:locost/{target}',
              '--worker=all')


LOOK = tpus('queued-resources', 'list', '--filter=name~/slice$',
            '--format=value(state.state)')
CREATE = tpus('queued-resources', 'create', 'slice', '--node-id=slice',
              '--runtime-version=v2-alpha-tpuv5-lite',
              '--accelerator-type=v5litepod-16', '--spot')
DELETE = tpus('queued-resources', 'delete', 'slice', '--force', '--quiet')
TAR = ROOT / 'build/locost_code.tar.gz'
COPY = [workers('mkdir -p locost'), scp(LAUNCH / 'worker.sh', 'worker.sh'),
        ['mkdir', '-p', str(ROOT / 'build')],
        ['git', '-C', str(ROOT), 'archive', '--format=tar.gz',
         f'--output={TAR}', 'HEAD'], scp(TAR, 'code.tar.gz')]
SETUP = COPY + [workers("bash locost/worker.sh install 'jax[tpu]' train '' ''")]
ASK = workers(
    "bash locost/worker.sh status 2>/dev/null || echo 'locost_jax: bare'")
# The run's words, quoted as the scripts do.
WORDS = ' '.join([
    'env', "'ADDED=two words'", '../venv/bin/python', '-m', 'locost_jax.main',
    '--config=configs/finetune.py', "'--workdir=/mnt/runs/a run'",
    "'--config.data.train_files=texts-*.jsonl.gz'", "'--odd=a b  c'",
    "'--odd=it'\\''s \"$HOME\" `id` \\ & ; # ~ é'", '--odd=',
    "'--odd=&\\'\\'''"])
START = workers(f'bash locost/worker.sh start {WORDS}')
STOP = workers('bash locost/worker.sh stop')


def test_the_words_above_are_the_run():
  assert shlex.split(WORDS) == ['env', 'ADDED=two words', '../venv/bin/python',
                                *FLAGS]


@pytest.mark.parametrize('arguments, expected', [
    (['create'], [CREATE, LOOK]),
    (['setup'], SETUP),
    (['preflight'],
     [workers(f'bash locost/worker.sh call {WORDS} --preflight')]),
    (['run'], [START]),
    (['status'], [LOOK, ASK]),
    (['logs'], [workers('tail -n 100 -F locost/log', 0)]),
    (['logs', '--worker=3'], [workers('tail -n 100 -F locost/log', 3)]),
    (['stop'], [STOP]),
    (['continue'], [LOOK, DELETE, LOOK, CREATE, LOOK, ASK, *SETUP, LOOK, ASK,
                    START, LOOK, ASK]),
    (['delete'], [DELETE])])
def test_dry_runs_on_a_tpu(fakes, arguments, expected):
  status, out, err = fakes.run('tpu_vm.sh', *arguments, '--dry_run')
  assert (status, err) == (0, '')
  assert split(out) == expected
  assert not fakes.calls()


def test_dry_runs_of_the_other_capacities(fakes):
  look = tpus('tpu-vm', 'list', '--filter=name~/slice$',
              '--format=value(state)')
  create = tpus('tpu-vm', 'create', 'slice', '--version=v2-alpha-tpuv5-lite',
                '--accelerator-type=v5litepod-16', '--network=a b', '--spot')
  fakes.write(ENV.replace('=spot', '=on-demand') +
              'CREATE=--network=a b\nCREATE=--spot\n')
  _, out, _ = fakes.run('tpu_vm.sh', 'continue', '--dry_run')
  assert split(out) == [look, tpus('tpu-vm', 'delete', 'slice', '--quiet'),
                        look, create, look, ASK, *SETUP, look, ASK, START, look,
                        ASK]
  fakes.write(ENV.replace('=spot', '=queued'))
  _, out, _ = fakes.run('tpu_vm.sh', 'create', '--dry_run')
  assert split(out) == [[w for w in CREATE if w != '--spot'], LOOK]


def test_what_is_printed_is_what_is_done(fakes):
  """The lines of a dry run, pasted, are the calls of the run itself."""
  fakes.answer(['gcloud', [{}] * 9])
  for command in ('run', 'preflight', 'stop', 'logs', 'delete'):
    _, out, _ = fakes.run('tpu_vm.sh', command, '--dry_run')
    assert fakes.run('tpu_vm.sh', command)[0] == 0
    done = fakes.calls()
    fakes.forget()
    fakes.answer(['gcloud', [{}] * 9])
    subprocess.run(['bash', '-c', out], env=fakes.environment, check=True)
    assert fakes.calls() == done != []
    fakes.forget()


# --- tpu_vm.sh: continuing ---------------------------------------------------


def says(*statuses):
  return dict(out='\n'.join(f'locost_jax: {status}' for status in statuses))


GONE = dict(out='ERROR: (gcloud...)', status=1)


def continue_with(fakes, states, reports, **more):
  fakes.answer([' list ', [s if isinstance(s, dict) else dict(out=s)
                           for s in states]],
               ['worker.sh status', reports],
               *more.get('rules', ()), ['gcloud', [{}] * 99],
               ['git', [{}] * 99])
  status, _, err = fakes.run('tpu_vm.sh', 'continue')
  return status, err, [call for call in fakes.calls()
                       if call not in (LOOK, ASK, DIFF)]


# What stands in for no command is not seen.
SEEN = [call for call in SETUP if call[0] != 'mkdir']
DIFF = ['git', '-C', str(ROOT), 'diff', '--quiet', 'HEAD']


def test_after_a_preemption_all_is_done_again(fakes):
  status, err, calls = continue_with(
      fakes,
      ['', 'CREATING', 'WAITING_FOR_RESOURCES', 'PROVISIONING',
       *['ACTIVE'] * 4, 'SUSPENDING', 'SUSPENDED', '', 'ACCEPTED',
       *['ACTIVE'] * 4],
      [says('bare', 'bare'), says('new', 'new'), says('running', 'running'),
       GONE,  # taken away, and nobody says so yet
       says('bare', 'bare'), says('new', 'new'), says('running', 'ended 0'),
       says('ended 0', 'ended 0')])
  once = [CREATE, *SEEN, START]
  assert (status, calls) == (0, [*once, DELETE, *once]), err
  assert 'slice is SUSPENDED' in err and 'still there, and paid' in err


@pytest.mark.parametrize('ended, starts, status', [
    ([('ended 143', 'ended 143'), ('ended 0', 'ended 0')], 1, 0),
    ([('ended 75', 'ended 75'), ('ended 143', 'ended 143'),
      ('ended 0', 'ended 0')], 2, 0),
    # The others abort when one of them is gone.
    ([('ended 134', 'ended 75'), ('ended 0', 'ended 0')], 1, 0),
    ([('ended 0', 'ended 75'), ('ended 0', 'ended 0')], 1, 0),
    ([('new', 'ended 75'), ('ended 0', 'ended 0')], 1, 0),
    ([('running', 'ended 75'), ('ended 75', 'ended 75'),
      ('ended 2', 'ended 2')], 1, 2),
    ([('ended 2', 'ended 2')], 0, 2),
    ([('ended 75', 'ended 2')], 0, 2),
    ([('ended 143', 'ended 2')], 0, 2),
    ([('ended 1', 'ended 134')], 0, 1),
    ([('ended 0', 'ended 137')], 0, 137),
    ([('stopped', 'stopped')], 0, 143),
    ([('stopped', 'ended 143')], 0, 143)])
def test_what_is_tried_again(fakes, ended, starts, status):
  got, err, calls = continue_with(fakes, ['ACTIVE'] * 9,
                                  [says(*line) for line in ended])
  assert (got, calls) == (status, [START] * starts), err


def test_connections_that_drop_and_an_installation_that_fails(fakes):
  status, err, calls = continue_with(
      fakes, [GONE, 'ACTIVE', GONE, *['ACTIVE'] * 5],
      # What some workers say is not what all say.
      [GONE, dict(says('ended 0'), status=255), says('bare'), says('bare'),
       says('new'), says('ended 0')],
      rules=[['worker.sh install', [GONE, {}]]])
  assert status == 0, err
  assert calls == [*SEEN, *SEEN, START]


def test_an_installation_that_fails_every_time(fakes):
  status, err, calls = continue_with(
      fakes, ['ACTIVE'] * 9, [says('bare')] * 9,
      rules=[['worker.sh install', [GONE] * 9]])
  assert (status, calls) == (1, SEEN * 3)
  assert 'setup failed 3 times' in err


def test_a_request_that_is_refused(fakes):
  status, _, calls = continue_with(
      fakes, [''] * 9, [], rules=[['create', [dict(status=7)] * 9]])
  assert (status, calls) == (7, [CREATE])


def test_a_tpu_that_somebody_stopped(fakes):
  status, err, calls = continue_with(fakes, ['STOPPED'] * 9, [])
  assert (status, calls) == (2, []) and 'slice is STOPPED' in err


def test_create_waits(fakes):
  fakes.answer([' list ', [dict(out=s) for s in (
      '', 'WAITING_FOR_RESOURCES', 'ACTIVE')]], ['gcloud', [{}]])
  assert fakes.run('tpu_vm.sh', 'create')[0] == 0
  assert fakes.calls() == [CREATE, LOOK, LOOK, LOOK]
  fakes.answer([' list ', [dict(out='FAILED')]], ['gcloud', [{}]])
  status, _, err = fakes.run('tpu_vm.sh', 'create')
  assert status == 1 and 'slice is FAILED' in err


# --- tpu_vm.sh: workers that are really there --------------------------------


def trainers(fakes):
  return [call for call in fakes.calls('trainer') if 'locost_jax.main' in call]


def report(fakes):
  """What the workers say, sorted."""
  fakes.answer([' list ', [dict(out='ACTIVE')]])
  status, out, err = fakes.run('tpu_vm.sh', 'status')
  assert status == 0, err
  first, *rest = out.splitlines()
  assert first == 'slice: ACTIVE'
  return sorted(line.removeprefix('locost_jax: ') for line in rest)


def test_from_nothing_to_the_end(fakes):
  """Both workers are set up and run three times; words arrive as they are."""
  fakes.answer([' list ', [dict(out=s) for s in ['', *['ACTIVE'] * 99]]],
               ['queued-resources', [{}] * 9])
  fakes.write(ENV + 'SETUP=echo "$HOME" > "set up"\nSETUP=[ -e "set up" ]\n')
  fakes.runs(['worker0', [75, 143, 0]], ['worker1', [134, 143, 0]])
  status, _, err = fakes.run('tpu_vm.sh', 'continue')
  assert status == 0, err
  assert trainers(fakes) == [['trainer', *FLAGS]] * 6
  for number in range(2):
    home = fakes.path / f'worker{number}/locost'
    assert (home / 'set up').read_text() == f'{home.parent}\n'
    assert (home / 'code/launch/worker.sh').is_file()  # of the last commit
    log = (home / 'log').read_text()
    assert log.count('--- started') == log.count('--- ended') == 3
    assert 'ended with status 0' in log
  assert {tuple(more) for _, argv, *more in fakes.all_calls()
          if 'locost_jax.main' in argv} == {
              (f'{fakes.path}/worker{n}/locost/code', 'two words')
              for n in range(2)}
  pip = ['-m', 'pip', 'install', '--quiet', '-e', './code[train]', 'jax[tpu]']
  assert [call[1:] for call in fakes.calls('trainer')
          if 'pip' in call] == [pip] * 2
  assert fakes.calls('uv') == [
      ['uv', 'venv', '--quiet', '--seed', '--python', '3.11', 'venv']] * 2


def test_setup_from_a_git_address(fakes):
  """A branch of another repository; a broken setup leaves no TPU set up."""
  origin = fakes.path / 'origin'
  for line in (f'init -q -b main {origin}',
               f'-C {origin} -c user.name=a -c user.email=a@b.c commit -q '
               '--allow-empty -m first', f'-C {origin} branch other'):
    subprocess.run(['git', *line.split()], check=True)
  fakes.write(ENV + f'REPOSITORY={origin}\nREVISION=other\n')
  status, _, err = fakes.run('tpu_vm.sh', 'setup')
  assert status == 0, err
  head = fakes.path / 'worker1/locost/code/.git/HEAD'
  assert head.read_text() == 'ref: refs/heads/other\n'
  assert not any('archive' in call or 'code.tar.gz' in ' '.join(call)
                 for call in fakes.calls())
  assert report(fakes) == ['new', 'new']
  fakes.answer()
  fakes.write(ENV + f'REPOSITORY={origin}\nREVISION=none\n')
  assert fakes.run('tpu_vm.sh', 'setup')[0] != 0
  assert report(fakes) == ['bare', 'bare']


def test_a_run_is_stopped_and_not_started_again(fakes):
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  fakes.runs(['worker', ['wait', 'wait']])
  assert fakes.run('tpu_vm.sh', 'run')[0] == 0
  fakes.wait_for('waiting*', 2)
  # Started again it is still the one run, and nothing else is let in.
  assert fakes.run('tpu_vm.sh', 'run')[0] == 0
  assert report(fakes) == ['running', 'running']
  fakes.answer()
  status, _, err = fakes.run('tpu_vm.sh', 'preflight')
  assert status == 2 and 'a run is under way on this worker' in err
  status, _, err = fakes.run('tpu_vm.sh', 'setup')
  assert status == 2 and 'a run is under way on this worker' in err
  assert len(trainers(fakes)) == 2
  assert fakes.run('tpu_vm.sh', 'stop')[0] == 0
  fakes.wait_for('worker?/locost/status', 2)
  assert fakes.calls('signal') == [['signal', 'SIGTERM']] * 2
  assert report(fakes) == ['stopped', 'stopped']
  fakes.answer([' list ', [dict(out='ACTIVE')] * 9])
  status, _, err = fakes.run('tpu_vm.sh', 'continue')
  assert status == 143 and 'the run was stopped' in err
  # Asked for, it goes on, and what was known of the one before is forgotten.
  fakes.answer()
  fakes.runs(['worker', ['wait', 'wait']])
  assert fakes.run('tpu_vm.sh', 'run')[0] == 0
  fakes.wait_for('waiting*', 4)
  assert report(fakes) == ['running', 'running']
  for pid in fakes.path.glob('worker?/locost/pid'):
    os.kill(int(pid.read_text()), signal.SIGKILL)
  fakes.wait_for('worker?/locost/status', 2)
  assert report(fakes) == ['ended 137', 'ended 137']


def test_a_worker_that_went_down_with_its_run(fakes):
  """A process that nobody can report about, its number another's by now."""
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  fakes.runs(['worker', ['wait', 'wait']])
  assert fakes.run('tpu_vm.sh', 'run')[0] == 0
  fakes.wait_for('waiting*', 2)
  for number in range(2):
    for name in ('attendant', 'pid'):
      file = fakes.path / f'worker{number}/locost/{name}'
      os.kill(int(file.read_text()), signal.SIGKILL)
      file.write_text(f'{os.getpid()}\n')
  assert report(fakes) == ['ended 75', 'ended 75']


def test_a_preflight_on_all_workers(fakes):
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  fakes.runs(['worker0', [0]], ['worker1', [2]])
  assert fakes.run('tpu_vm.sh', 'preflight')[0] == 2
  assert trainers(fakes) == [['trainer', *FLAGS, '--preflight']] * 2
  assert report(fakes) == ['new', 'new']


# --- gpu.sh ------------------------------------------------------------------

SSH = ['ssh', '-n', '-o', 'BatchMode=yes', '-o', 'ServerAliveInterval=30']


def use_hosts(fakes, more=''):
  """Two hosts, whose checkout and Python are stand-ins with odd names."""
  code = fakes.path / "their code's"
  code.mkdir()
  fakes.write(ENV + f'HOSTS=gpu1  gpu2\nPORT=1234\nDIRECTORY={code}\n'
              f'PYTHON={fakes.bin / "trainer"}\n{more}')
  return code


def on_hosts(host):
  return ['--coordinator=gpu1:1234', '--hosts=2', f'--host={host}']


def test_dry_runs_on_gpus(fakes):
  expected = [['cd', str(ROOT)],
              ['env', 'ADDED=two words', 'python', *FLAGS]]
  assert split(fakes.run('gpu.sh', '--dry_run')[1]) == expected
  expected[1].append('--preflight')
  assert split(
      fakes.run('gpu.sh', '--dry_run', '--preflight')[1]) == expected
  assert split(fakes.run('gpu.sh', '--dry_run', '--setup')[1]) == [
      expected[0], ['python', '-m', 'pip', 'install', '-e', '.[train]',
                    'jax[tpu]']]
  code = use_hosts(fakes)
  python = str(fakes.bin / 'trainer')
  _, out, _ = fakes.run('gpu.sh', '--dry_run')
  lines = split(out)
  assert lines.pop(0) == ['cd', str(ROOT)]
  for host, (*start, name, command) in enumerate(lines):
    assert (start, name) == (SSH, f'gpu{host + 1}')
    assert shlex.split(command) == [
        'echo', '$$', '>', f'.locost_jax-1234-{host}.pid', '&&', 'cd',
        str(code), '&&', 'exec', 'env', 'ADDED=two words', python, *FLAGS,
        *on_hosts(host)]
  assert len(lines) == 2
  _, out, _ = fakes.run('gpu.sh', '--dry_run', '--host=1', '--preflight')
  assert split(out) == [['cd', str(ROOT)], [
      'env', 'ADDED=two words', python, *FLAGS, '--preflight', *on_hosts(1)]]
  _, out, _ = fakes.run('gpu.sh', '--dry_run', '--setup')
  assert [line[:-1] for line in split(out)[1:]] == [[*SSH, 'gpu1'],
                                                   [*SSH, 'gpu2']]
  assert shlex.split(split(out)[1][-1]) == [
      'cd', str(code), '&&', python, '-m', 'pip', 'install', '-e', '.[train]',
      'jax[tpu]']
  assert not fakes.calls()


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_one_machine(fakes, number):
  fakes.write(ENV + f'PYTHON={fakes.bin / "trainer"}\n')
  fakes.runs(['host', [0, 75, 'wait']])
  assert fakes.run('gpu.sh')[0] == 0
  assert fakes.run('gpu.sh')[0] == 75
  run = fakes.start('gpu.sh', cwd=fakes.path)
  fakes.wait_for('waiting*')
  run.send_signal(number)
  assert run.wait(10) == 128 + number
  assert fakes.calls() == [['trainer', *FLAGS]] * 3 + [['signal', number.name]]
  assert fakes.all_calls()[0][2:] == [str(ROOT), 'two words']


@pytest.mark.parametrize('first, second, status', [
    (0, 0, 0), (2, 134, 2), (134, 2, 2), (75, 134, 75), (143, 143, 143),
    (0, 1, 1)])
def test_two_hosts(fakes, first, second, status):
  code = use_hosts(fakes)
  fakes.runs(['host=[0] gpu1', [first]], ['host=[1] gpu2', [second]])
  got, _, err = fakes.run('gpu.sh')
  assert got == status, err
  assert sorted(trainers(fakes)) == [
      ['trainer', *FLAGS, *on_hosts(host)] for host in range(2)]
  assert [call[2] for call in fakes.all_calls()
          if call[0] == 'trainer'] == [str(code)] * 2
  assert ('gpu2: ended with status' in err) == bool(second)


def test_one_host_ends_badly_and_the_other_is_asked_to(fakes):
  use_hosts(fakes)
  fakes.runs(['gpu1', ['wait']], ['gpu2', [1]])
  status, _, err = fakes.run('gpu.sh')
  assert status == 1, err  # what began it, not what this script did
  assert 'gpu2: ended with status 1' in err and 'gpu1: ended with' in err


def test_one_host_ends_badly_and_the_other_hangs(fakes):
  use_hosts(fakes)
  fakes.runs(['gpu1', [75]], ['gpu2', ['hang']])
  start = time.monotonic()
  status, _, err = fakes.run('gpu.sh', LAUNCH_GRACE='1')
  assert (status, 'gpu2: ended with status 137' in err) == (75, True), err
  assert time.monotonic() - start < 10


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_both_hosts(fakes, number):
  use_hosts(fakes)
  fakes.runs(['host', ['wait', 'wait']])
  run = fakes.start('gpu.sh')
  fakes.wait_for('waiting*', 2)
  run.send_signal(number)
  _, err = run.communicate(timeout=10)
  assert run.returncode == 128 + number, err
  assert fakes.calls('signal')[:2] == [['signal', number.name]] * 2


def test_hosts_by_hand(fakes):
  use_hosts(fakes)
  fakes.runs(['host', [0]])
  assert fakes.run('gpu.sh', '--host=1')[0] == 0
  assert fakes.calls() == [['trainer', *FLAGS, *on_hosts(1)]]
  status, _, err = fakes.run('gpu.sh', '--host=2')
  assert status == 2 and '--host=2: expected less than the 2 of HOSTS' in err


# --- slurm.sbatch ------------------------------------------------------------

SLURM = LAUNCH / 'slurm.sbatch'
SRUN = ['srun', '--ntasks-per-node=1', '--cpu-bind=none',
        '--kill-on-bad-exit=0', '--wait=300', 'env', 'ADDED=two words']
JOB = dict(SLURM_JOB_ID='17')


def test_dry_runs_under_slurm(fakes):
  sbatch = ['--nodes=1', f'--chdir={ROOT}', str(SLURM),
            f'--env={fakes.path}/my.env']
  status, out, _ = fakes.run('slurm.sbatch', '--dry_run')
  assert status == 0
  assert split(out) == [['sbatch', *sbatch], [*SRUN, 'python', *FLAGS]]
  fakes.write(ENV + 'NODES=2\nGPUS_PER_NODE=a100:4\nSBATCH=--time=1:00:00\n'
              'SBATCH=--comment=a b\nPYTHON=.venv/bin/python\n')
  sbatch[:1] = ['--nodes=2', '--gpus-per-node=a100:4', '--time=1:00:00',
                '--comment=a b']
  _, out, _ = fakes.run('slurm.sbatch', '--dry_run', '--preflight')
  assert split(out) == [
      ['sbatch', *sbatch, '--preflight'],
      [*SRUN, '.venv/bin/python', *FLAGS, '--preflight']]
  assert not fakes.calls()
  assert fakes.run('slurm.sbatch')[0] == 0
  assert fakes.calls() == [['sbatch', *sbatch]]


def test_what_slurm_is_told_in_the_file():
  """Before the first command, and SIGTERM for steps, not for the script."""
  head = SLURM.read_text(encoding='utf-8').partition('\nset ')[0]
  assert re.findall('(?m)^#SBATCH (.*)', head) == [
      '--job-name=locost_jax', '--ntasks-per-node=1', '--signal=TERM@300',
      '--requeue', '--open-mode=append']


@pytest.mark.parametrize('ended, again', [
    (0, False), (2, False), (1, False), (137, False), (143, True), (75, True)])
def test_a_job_is_queued_again(fakes, ended, again, tmp_path):
  """From the copy that SLURM runs, which lies anywhere."""
  fakes.write(ENV + f'PYTHON={fakes.bin / "trainer"}\n')
  fakes.runs(['host', [ended, ended]])
  copy = tmp_path / 'slurm_script'
  shutil.copy(SLURM, copy)
  command = ['bash', copy, f'--env={fakes.path}/my.env']
  def job(*more):
    return subprocess.run([*command, *more], cwd=ROOT, timeout=20,
                          env=fakes.environment | JOB).returncode
  assert job() == ended
  python = str(fakes.bin / 'trainer')
  calls = [[*SRUN, python, *FLAGS], ['trainer', *FLAGS]]
  assert fakes.calls() == calls + [['scontrol', 'requeue', '17']] * again
  fakes.forget()
  assert job('--preflight') == ended
  assert fakes.calls() == [call + ['--preflight'] for call in calls]


def test_a_job_that_is_cancelled_is_not_queued_again(fakes):
  """SLURM then signals the script too, which must not live on."""
  fakes.write(ENV + f'PYTHON={fakes.bin / "trainer"}\n')
  fakes.runs(['host', ['wait']])
  run = fakes.start('slurm.sbatch', **JOB)
  fakes.wait_for('waiting*')
  os.killpg(run.pid, signal.SIGTERM)
  run.communicate(timeout=10)
  assert run.returncode == -signal.SIGTERM
  assert not fakes.calls('scontrol')


def test_a_job_elsewhere_than_in_a_checkout(fakes):
  run = fakes.start('slurm.sbatch', cwd=fakes.path, **JOB)
  _, err = run.communicate(timeout=10)
  assert run.returncode == 2
  assert f'{fakes.path}: expected a checkout of locost_jax' in err
