"""launch/tpu_vm.sh: its output, calls and runs, with a fake gcloud."""

import os
import shlex
import signal
import subprocess

import pytest

from tests.launch.launching import ENV
from tests.launch.launching import FLAGS
from tests.launch.launching import LAUNCH
from tests.launch.launching import PLACE
from tests.launch.launching import ROOT
from tests.launch.launching import split
from tests.launch.launching import trainers

# --- Dry runs ----------------------------------------------------------------


def tpus(words, *more):
  return ['gcloud', 'compute', 'tpus', *words.split(), *more, *PLACE]


def workers(command, worker='all'):
  return tpus(f'tpu-vm ssh slice --worker={worker}', f'--command={command}')


def scp(source, target):
  return tpus(f'tpu-vm scp {source} slice:locost/{target} --worker=all')


LOOK = tpus(
    'queued-resources list --filter=name~/slice$ --format=value(state.state)'
)
CREATE = tpus(
    'queued-resources create slice --node-id=slice '
    '--runtime-version=v2-alpha-tpuv5-lite --accelerator-type=v5litepod-16 '
    '--spot'
)
DELETE = tpus('queued-resources delete slice --force --quiet')
TAR = ROOT / 'build/locost_code.tar.gz'
SENT = ROOT / 'build/locost_sent.tar.gz'
ARCHIVE = f'archive --format=tar.gz --output={TAR} HEAD'.split()
COPY = [
    workers('mkdir -p locost && rm -f locost/sent.tar.gz'),
    scp(LAUNCH / 'worker.sh', 'worker.sh'),
    ['mkdir', '-p', str(ROOT / 'build')],
    ['git', '-C', str(ROOT), *ARCHIVE],
    scp(TAR, 'code.tar.gz'),
]
SETUP = COPY + [workers("bash locost/worker.sh install 'jax[tpu]' train '' ''")]
ASK = workers(
    "bash locost/worker.sh status '/mnt/runs/a run' 2>/dev/null"
    " || echo 'locost_jax: bare'"
)
# The words of the run's command, quoted as the scripts do.
WORDS = ' '.join(
    [
        'env',
        "'ADDED=two words'",
        '../venv/bin/python',
        '-m',
        'locost_jax.main',
        '--config=configs/finetune.py',
        "'--workdir=/mnt/runs/a run'",
        "'--config.data.train_files=texts-*.jsonl.gz'",
        "'--odd=a b  c'",
        "'--odd=it'\\''s \"$HOME\" `id` \\ & ; # ~ é'",
        '--odd=',
        "'--odd=&\\'\\'''",
    ]
)
SLICE = ['--expect_devices=16', '--expect_hosts=4']
PREFLIGHT = workers(
    f'bash locost/worker.sh check {WORDS} --preflight {" ".join(SLICE)}'
)
START = workers(f'bash locost/worker.sh start {WORDS}')
STOP = workers('bash locost/worker.sh stop')
STARTED = [LOOK, ASK, *SETUP, LOOK, ASK, PREFLIGHT, LOOK, ASK, START]
STARTED += [LOOK, ASK]
NAMED = 'tail -n 100 -F locost/log | sed -u "s/^/$(hostname): /"'


def test_the_quoted_words_are_the_run():
  command = ['env', 'ADDED=two words', '../venv/bin/python']
  assert shlex.split(WORDS) == command + FLAGS


@pytest.mark.parametrize(
    'arguments, expected',
    [
        (['create'], [CREATE, LOOK]),
        (['setup'], SETUP),
        (['preflight'], [PREFLIGHT]),
        (['run'], [START]),
        (['status'], [LOOK, ASK]),
        (['logs'], [workers('tail -n 100 -F locost/log', 0)]),
        (['logs', '--worker=3'], [workers('tail -n 100 -F locost/log', 3)]),
        (['stop'], [STOP]),
        (['logs', '--worker=all'], [workers(NAMED)]),
        (['continue'], [LOOK, CREATE, *STARTED]),
        (['delete'], [DELETE]),
    ],
)
def test_dry_runs_on_a_tpu(fakes, arguments, expected):
  status, out, err = fakes.run('tpu_vm.sh', *arguments, '--dry_run')
  assert (status, err) == (0, '')
  assert split(out) == expected
  assert not fakes.calls()


@pytest.mark.parametrize('capacity', ['spot', 'on-demand'])
def test_a_dry_run_comments_on_delete(fakes, capacity):
  """In the line before it, as a warning before pasting."""
  fakes.write(ENV.replace('=spot', f'={capacity}'))
  lines = fakes.run('tpu_vm.sh', 'delete', '--dry_run')[1].splitlines()
  deletes = [i for i, line in enumerate(lines) if ' delete slice ' in line]
  comments = [i for i, line in enumerate(lines) if line.startswith('# ')]
  assert len(deletes) == 1 and comments == [deletes[0] - 1]
  assert 'deletes slice and its disks' in lines[comments[0]]


def test_a_dry_run_of_continue_names_its_steps(fakes):
  lines = fakes.run('tpu_vm.sh', 'continue', '--dry_run')[1].splitlines()
  assert [line for line in lines if line.startswith('# ')] == [
      '# the run is right for 16 chips on 4 hosts',
      '# request slice',
      '# install code and packages on all workers',
      '# check the run on all workers',
      '# start the run on all workers',
      '# after a preemption: delete slice and begin again; WORKDIR stays',
  ]


def test_jax_for_tpus_is_the_default(fakes):
  fakes.write(ENV.replace('JAX=jax[tpu]', ''))
  _, out, _ = fakes.run('tpu_vm.sh', 'setup', '--dry_run')
  assert split(out) == SETUP


def test_dry_runs_of_the_other_capacities(fakes):
  look = tpus('tpu-vm list --filter=name~/slice$ --format=value(state)')
  create = tpus(
      'tpu-vm create slice --version=v2-alpha-tpuv5-lite '
      '--accelerator-type=v5litepod-16',
      '--network=a b',
      '--spot',
  )
  fakes.write(
      ENV.replace('=spot', '=on-demand')
      + 'CREATE=--network=a b\nCREATE=--spot\n'
  )
  _, out, _ = fakes.run('tpu_vm.sh', 'continue', '--dry_run')
  started = [look if call == LOOK else call for call in STARTED]
  assert split(out) == [look, create, *started]
  fakes.write(ENV.replace('=spot', '=queued'))
  _, out, _ = fakes.run('tpu_vm.sh', 'create', '--dry_run')
  assert split(out) == [[w for w in CREATE if w != '--spot'], LOOK]


def needs(fakes, *paths, status=0):
  """Sets what launch/check_run.py prints."""
  lines = [f'needs data.vocabulary={path}' for path in paths]
  out = '\n'.join([*lines, 'slice v5e:4x4 16 4'])
  fakes.answer(['check_run.py', [dict(out=out, status=status)] * 3])


@pytest.mark.parametrize(
    'change, path, status, expected',
    [
        (
            ('', ''),
            'missing.model',
            0,
            '--config.data.vocabulary=missing.model',
        ),
        (('', ''), '../missing', 0, '--config.data.vocabulary=../missing: no'),
        (('', ''), 'README.md', 1, 'PYTHON=python could not check the run'),
        (('configs/', '/etc/'), 'README.md', 0, '--config=/etc/finetune.py'),
        (
            ('=/mnt/', '='),
            'README.md',
            0,
            'WORKDIR=runs/a run: expected gs://, or',
        ),
    ],
)
@pytest.mark.parametrize('arguments', [['continue'], ['create', '--dry_run']])
def test_refused_before_a_tpu_is_requested(
    fakes, change, path, status, expected, arguments
):
  fakes.write(ENV.replace(*change, 1))
  needs(fakes, path, status=status)
  status, out, err = fakes.run('tpu_vm.sh', *arguments)
  assert status == 2 and expected in err and err.count('\n') == 1
  assert not fakes.calls('gcloud')


def test_a_refusal_of_the_check_ends_the_script(fakes):
  needs(fakes, status=2)
  assert fakes.run('tpu_vm.sh', 'continue') == (2, '', '')
  assert not fakes.calls('gcloud')
  (call,) = fakes.calls('check')
  flags = ['--preflight', '--topology=v5litepod-16']
  assert call == ['check', 'launch/check_run.py', *FLAGS[2:], *flags]


def test_files_that_only_this_checkout_has_are_sent(fakes):
  """A tracked file that has not changed is in the archive already."""
  name = 'build/sent to the workers.model'
  (ROOT / 'build').mkdir(exist_ok=True)
  (ROOT / name).write_text('pieces')
  try:
    needs(fakes, '/mnt/a.model', 'README.md', name)
    _, out, _ = fakes.run('tpu_vm.sh', 'setup', '--dry_run')
    status, _, err = fakes.run('tpu_vm.sh', 'setup')
    needs(fakes, name)
    large = fakes.run('tpu_vm.sh', 'create', LAUNCH_MOST_SENT='3')
  finally:
    (ROOT / name).unlink()
  assert f'# the workers get the last commit and {name}' in out
  assert ['tar', '-chzf', str(SENT), '-C', str(ROOT), '--', name] in split(out)
  assert status == 0, err
  for number in range(2):
    code = fakes.path / f'worker{number}/locost/code'
    assert (code / name).read_text() == 'pieces'
  assert large[0] == 2 and f'{name}: 0 MiB to send to each' in large[2]
  # The next set-up does not find it again.
  needs(fakes)
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  assert not (code / name).exists()


def test_the_name_that_gke_gives_to_an_accelerator_type(fakes):
  fakes.write(ENV.replace('v5litepod-16', 'v5e-16'))
  assert split(fakes.run('tpu_vm.sh', 'create', '--dry_run')[1])[0] == CREATE


def says(*statuses):
  return dict(out='\n'.join(f'locost_jax: {status}' for status in statuses))


GONE = dict(out='ERROR: (gcloud...)', status=1)


def continue_with(fakes, states, reports, **more):
  fakes.answer(
      [' list ', [s if isinstance(s, dict) else dict(out=s) for s in states]],
      ['worker.sh status', reports],
      *more.get('rules', ()),
      ['gcloud', [{}] * 99],
      ['git', [{}] * 99],
  )
  status, _, err = fakes.run('tpu_vm.sh', 'continue')
  return (
      status,
      err,
      [call for call in fakes.calls() if call not in (LOOK, ASK, DIFF)],
  )


# Without mkdir, which has no fake command.
SEEN = [call for call in SETUP if call[0] != 'mkdir']
DIFF = ['git', '-C', str(ROOT), 'diff', '--quiet', 'HEAD']


def test_continue_repeats_everything_after_a_preemption(fakes):
  begun = 'CREATING WAITING_FOR_RESOURCES PROVISIONING'.split()
  ended = 'SUSPENDING', 'SUSPENDED', '', 'ACCEPTED'
  active = ['ACTIVE'] * 5
  status, err, calls = continue_with(
      fakes,
      ['', *begun, *active, *ended, *active],
      # GONE: preempted, but not yet reported as such.
      [says(x, x) for x in ('bare', 'unchecked', 'new', 'running')]
      + [GONE, says('bare', 'bare'), says('new', 'unchecked')]
      + [says('new', 'new')]
      + [says('running', 'ended 0'), says('ended 0', 'ended 0')],
  )
  once = [CREATE, *SEEN, PREFLIGHT, START]
  assert (status, calls) == (0, [*once, DELETE, *once]), err
  assert 'slice is SUSPENDED' in err and 'still exists and costs money' in err


@pytest.mark.parametrize(
    'ended, starts, status',
    [
        # The states of both workers, at each question; a number: ended N.
        ('143 143, 0 0', 1, 0),
        ('75 75, 143 143, 0 0', 2, 0),
        # The other hosts abort when one of them has gone.
        ('134 75, 0 0', 1, 0),
        ('0 75, 0 0', 1, 0),
        ('new 75, 0 0', 1, 0),
        ('running 75, 75 75, 2 2', 1, 2),
        ('2 2', 0, 2),
        ('75 2', 0, 2),
        ('143 2', 0, 2),
        ('1 134', 0, 1),
        ('0 137', 0, 137),
        ('stopped stopped', 0, 143),
        ('stopped 143', 0, 143),
    ],
)
def test_statuses_that_are_retried(fakes, ended, starts, status):
  reports = [
      says(*(f'ended {w}' if w.isdigit() else w for w in line.split()))
      for line in ended.split(', ')
  ]
  got, err, calls = continue_with(fakes, ['ACTIVE'] * 9, reports)
  assert (got, calls) == (status, [START] * starts), err


@pytest.mark.parametrize(
    'answers, checks, starts, status',
    [
        ('2 75', 0, 0, 2),
        ('75 75, 75 0, 75 75', 2, 0, 75),
        ('1 75, new new, 0 0', 1, 1, 0),
    ],
)
def test_refusals_of_the_pre_flight_check(
    fakes, answers, checks, starts, status
):
  reports = []
  for line in answers.split(', '):
    word = 'ended' if line == '0 0' else 'refused'
    reports.append(
        says(*(w if w == 'new' else f'{word} {w}' for w in line.split()))
    )
  got, err, calls = continue_with(fakes, ['ACTIVE'] * 9, reports)
  assert (got, calls) == (status, [PREFLIGHT] * checks + [START] * starts), err
  if status:
    assert f'check ended with status {status}' in err


def saved(step):
  return f'saved /mnt/runs/a run/checkpoints/{step}/manifest.json'


def test_an_end_to_restarts_without_a_new_checkpoint(fakes):
  fakes.write(ENV + 'RESTARTS=2\n')
  steps = 10, 10, 20, 20, 20  # the first and the third are new
  reports = [says('ended 75', saved(step)) for step in steps]
  status, err, calls = continue_with(fakes, ['ACTIVE'] * 9, reports)
  assert (status, calls) == (75, [START] * 4)
  assert 'error: the run ended with status 75, after 2 restarts without' in err
  assert '(newest: /mnt/runs/a run/checkpoints/20/manifest.json)' in err


def test_an_end_to_preemptions_without_a_checkpoint(fakes):
  fakes.write(ENV + 'RESTARTS=2\n')
  states = ['SUSPENDED', ''] * 3
  status, err, calls = continue_with(fakes, states, [])
  assert (status, calls) == (143, [DELETE, CREATE] * 2)
  assert (
      'slice is SUSPENDED, after 2 restarts' in err and '(newest: none)' in err
  )


def test_dropped_connections_and_a_failed_installation(fakes):
  status, err, calls = continue_with(
      fakes,
      [GONE, 'ACTIVE', GONE, *['ACTIVE'] * 5],
      # If a connection fails, the other workers' states are not used.
      [GONE, dict(says('ended 0'), status=255)]
      + [says(state) for state in ('bare', 'bare', 'new', 'ended 0')],
      rules=[['worker.sh install', [GONE, {}]]],
  )
  assert status == 0, err
  assert calls == [*SEEN, *SEEN, START]


@pytest.mark.parametrize(
    'state, rule, expected, line',
    [
        ('ACTIVE', ['worker.sh install', [GONE] * 9], (1, SEEN * 3), '3 times'),
        ('', ['create', [dict(status=7)] * 9], (7, [CREATE]), ''),
        ('STOPPED', ['create', []], (2, []), 'slice is STOPPED'),
    ],
)
def test_an_end_without_a_run(fakes, state, rule, expected, line):
  status, err, calls = continue_with(
      fakes, [state] * 9, [says('bare')] * 9, rules=[rule]
  )
  assert (status, calls) == expected and line in err


def test_create_waits(fakes):
  states = '', 'WAITING_FOR_RESOURCES', 'ACTIVE'
  fakes.answer([' list ', [dict(out=s) for s in states]], ['gcloud', [{}]])
  assert fakes.run('tpu_vm.sh', 'create')[0] == 0
  assert fakes.calls() == [CREATE, LOOK, LOOK, LOOK]
  fakes.answer([' list ', [dict(out='FAILED')]], ['gcloud', [{}]])
  status, _, err = fakes.run('tpu_vm.sh', 'create')
  assert status == 1 and 'slice is FAILED' in err


def report(fakes, *rules):
  """Returns the workers' states, sorted; rules: further answers."""
  fakes.answer([' list ', [dict(out='ACTIVE')]], *rules)
  status, out, err = fakes.run('tpu_vm.sh', 'status')
  assert status == 0, err
  first, *rest = out.splitlines()
  assert first == 'slice: ACTIVE'
  return sorted(line.removeprefix('locost_jax: ') for line in rest)


def run_and_wait(fakes, waiting):
  """Starts a run on both workers; waits for `waiting` trainers in total."""
  fakes.runs(['worker', ['wait', 'wait']])
  assert fakes.run('tpu_vm.sh', 'run')[0] == 0
  fakes.wait_for('waiting*', waiting)


def test_continue_from_the_beginning_to_the_end(fakes):
  """Sets up both workers and runs three times; arguments arrive unchanged."""
  fakes.answer(
      [' list ', [dict(out=s) for s in ['', *['ACTIVE'] * 99]]],
      ['queued-resources', [{}] * 9],
  )
  fakes.write(ENV + 'SETUP=echo "$HOME" > "set up"\nSETUP=[ -e "set up" ]\n')
  fakes.runs(['worker0', [0, 75, 143, 0]], ['worker1', [0, 134, 143, 0]])
  status, _, err = fakes.run('tpu_vm.sh', 'continue')
  assert status == 0, err
  found = trainers(fakes)
  assert found[:2] == [['trainer', *FLAGS, '--preflight', *SLICE]] * 2
  assert found[2:] == [['trainer', *FLAGS]] * 6
  for number in range(2):
    home = fakes.path / f'worker{number}/locost'
    assert (home / 'set up').read_text() == f'{home.parent}\n'
    assert (home / 'code/launch/worker.sh').is_file()  # from the last commit
    log = (home / 'log').read_text()
    assert log.count('--- started') == log.count('--- ended') == 3
    assert 'ended with status 0' in log
  assert {
      tuple(more)
      for _, argv, *more in fakes.all_calls()
      if 'locost_jax.main' in argv
  } == {(f'{fakes.path}/worker{n}/locost/code', 'two words') for n in range(2)}
  pip = ['-m', 'pip', 'install', '--quiet', '-e', './code[train]', 'jax[tpu]']
  installed = [call[1:] for call in fakes.calls('trainer') if 'pip' in call]
  assert installed == [pip] * 2
  uv = 'uv venv --quiet --seed --python 3.11 venv'.split()
  assert fakes.calls('uv') == [uv] * 2


def test_setup_from_a_git_address(fakes):
  """Installs a branch of another repository; after an error, not set up."""
  origin = fakes.path / 'origin'
  author = '-c user.name=a -c user.email=a@b.c'
  for line in (
      f'init -q -b main {origin}',
      f'-C {origin} {author} commit -q --allow-empty -m first',
      f'-C {origin} branch other',
  ):
    subprocess.run(['git', *line.split()], check=True)
  fakes.write(ENV + f'REPOSITORY={origin}\nREVISION=other\n')
  status, _, err = fakes.run('tpu_vm.sh', 'setup')
  assert status == 0, err
  head = fakes.path / 'worker1/locost/code/.git/HEAD'
  assert head.read_text() == 'ref: refs/heads/other\n'
  words = ' '.join(map(' '.join, fakes.calls()))
  assert 'archive' not in words and 'code.tar.gz' not in words
  assert report(fakes) == ['unchecked', 'unchecked']
  fakes.answer()
  fakes.write(ENV + f'REPOSITORY={origin}\nREVISION=none\n')
  assert fakes.run('tpu_vm.sh', 'setup')[0] != 0
  assert report(fakes) == ['bare', 'bare']


def test_a_stopped_run_is_not_started_again(fakes):
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  run_and_wait(fakes, 2)
  # A second start does nothing, and preflight and setup are refused.
  assert fakes.run('tpu_vm.sh', 'run')[0] == 0
  assert report(fakes) == ['running', 'running']
  fakes.answer()
  status, _, err = fakes.run('tpu_vm.sh', 'preflight')
  assert status == 2 and 'a run is active on this worker' in err
  status, _, err = fakes.run('tpu_vm.sh', 'setup')
  assert status == 2 and 'a run is active on this worker' in err
  assert len(trainers(fakes)) == 2
  assert fakes.run('tpu_vm.sh', 'stop')[0] == 0
  fakes.wait_for('worker?/locost/status', 2)
  assert fakes.calls('signal') == [['signal', 'SIGTERM']] * 2
  assert report(fakes) == ['stopped', 'stopped']
  fakes.answer([' list ', [dict(out='ACTIVE')] * 9])
  status, _, err = fakes.run('tpu_vm.sh', 'continue')
  assert status == 143 and 'the run was stopped' in err
  # `run` starts it again and removes the state of the stopped run.
  fakes.answer()
  run_and_wait(fakes, 4)
  assert report(fakes) == ['running', 'running']
  for pid in fakes.path.glob('worker?/locost/pid'):
    os.kill(int(pid.read_text()), signal.SIGKILL)
  fakes.wait_for('worker?/locost/status', 2)
  assert report(fakes) == ['ended 137', 'ended 137']


def test_a_worker_that_went_down_during_its_run(fakes):
  """No status was written, and another process has the same id by now."""
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  run_and_wait(fakes, 2)
  for number in range(2):
    for name in ('supervisor', 'pid'):
      file = fakes.path / f'worker{number}/locost/{name}'
      os.kill(int(file.read_text()), signal.SIGKILL)
      file.write_text(f'{os.getpid()}\n')
  assert report(fakes) == ['ended 75', 'ended 75']


def test_a_preflight_on_all_workers(fakes):
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  fakes.runs(['worker0', [0]], ['worker1', [2]])
  assert fakes.run('tpu_vm.sh', 'preflight')[0] == 2
  assert trainers(fakes) == [['trainer', *FLAGS, '--preflight', *SLICE]] * 2
  assert report(fakes) == ['new', 'refused 2']
  # Another set-up needs another check.
  fakes.answer()
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  assert report(fakes) == ['unchecked', 'unchecked']


def test_the_newest_checkpoint_of_a_run(fakes, tmp_path):
  """Of all phases, by time; without one, no line."""
  fakes.write(ENV.replace('/mnt/runs/a run', str(tmp_path / 'a run')))
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  assert report(fakes) == ['unchecked', 'unchecked']
  for age, name in enumerate(('checkpoints/9', 'long/checkpoints/2', 'checkp')):
    directory = tmp_path / 'a run' / name
    directory.mkdir(parents=True)
    (directory / 'manifest.json').touch()
    os.utime(directory / 'manifest.json', (age, age))
  newest = tmp_path / 'a run/long/checkpoints/2/manifest.json'
  assert report(fakes) == [f'saved {newest}'] * 2 + ['unchecked'] * 2


def test_the_newest_checkpoint_of_a_run_in_a_bucket(fakes):
  """By the time that gcloud shows; its last line is the sum."""
  fakes.write(ENV.replace('/mnt/runs/a run', 'gs://b/run'))
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  files = 'gs://b/run/long/checkpoints/2', 'gs://b/run/checkpoints/9'
  lines = [f'  9  2026-0{9 - i}-01T00:00:00Z  {x}' for i, x in enumerate(files)]
  out = '\n'.join(f'{line}/manifest.json' for line in lines) + '\nTOTAL: 2\n'
  found = report(fakes, ['storage ls', [dict(out=out)] * 2])
  assert found == [f'saved {files[0]}/manifest.json'] * 2 + ['unchecked'] * 2
