"""launch/tpu_vm.sh: its output, calls and runs, with a fake gcloud."""

import os
import signal

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
TAR = ROOT / 'build/locost_code.tar'
SETUP = [
    workers('mkdir -p locost'),
    scp(LAUNCH / 'worker.sh', 'worker.sh'),
    ['mkdir', '-p', str(ROOT / 'build')],
    ['git', '-C', str(ROOT), 'archive', f'--output={TAR}', 'HEAD'],
    scp(TAR, 'code.tar'),
    workers("bash locost/worker.sh install 'jax[tpu]' train"),
]
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
# Of another capacity, with further flags.
CREATE_QUEUED = [*CREATE[:-3], '--network=a b', '--tags=c', *PLACE]


@pytest.mark.parametrize(
    'old, new, command, expected',
    [
        ('', '', 'setup', SETUP),
        ('', '', 'preflight', [PREFLIGHT]),
        ('', '', 'run', [START]),
        ('', '', 'status', [LOOK, ASK]),
        ('', '', 'logs', [workers('tail -n 100 -F locost/log', 0)]),
        ('', '', 'logs --worker=3', [workers('tail -n 100 -F locost/log', 3)]),
        ('', '', 'stop', [STOP]),
        ('', '', 'logs --worker=all', [workers(NAMED)]),
        ('', '', 'continue', [LOOK, CREATE, *STARTED]),
        ('', '', 'delete', [DELETE]),
        # The name that GKE gives to an accelerator type.
        ('v5litepod-16', 'v5e-16', 'continue', [LOOK, CREATE, *STARTED]),
        (
            '=spot',
            '=queued\nCREATE=--network=a b\nCREATE=--tags=c',
            'continue',
            [LOOK, CREATE_QUEUED, *STARTED],
        ),
    ],
)
def test_dry_runs_on_a_tpu(fakes, old, new, command, expected):
  fakes.write(ENV.replace(old, new))
  status, out, err = fakes.run('tpu_vm.sh', *command.split(), '--dry_run')
  assert (status, err) == (0, '')
  assert split(out) == expected
  assert not fakes.calls()


def test_comments_of_dry_runs(fakes):
  """That of delete is in the line before it, as a warning before pasting."""
  comment, line = fakes.run('tpu_vm.sh', 'delete', '--dry_run')[1].splitlines()
  assert comment.startswith('# ') and ' delete slice ' in line
  assert 'deletes slice and its disks' in comment
  lines = fakes.run('tpu_vm.sh', 'continue', '--dry_run')[1].splitlines()
  assert [line for line in lines if line.startswith('# ')] == [
      '# the run is right for 16 chips on 4 hosts',
      '# request slice',
      '# install code and packages on all workers',
      '# check the run on all workers',
      '# start the run on all workers',
      '# after a preemption: delete slice and begin again; WORKDIR stays',
  ]


def needs(fakes, *paths, status=0):
  """Sets what launch/check_run.py prints."""
  lines = [f'needs data.vocabulary={path}' for path in paths]
  out = '\n'.join([*lines, 'slice v5e:4x4 16 4'])
  fakes.answer(['check_run.py', [dict(out=out, status=status)] * 3])


@pytest.mark.parametrize(
    'change, path, status, expected',
    [
        (('', ''), 'missing.model', 0, '--config.data.vocabulary=missing.'),
        (('', ''), '../missing', 0, '--config.data.vocabulary=../missing: no'),
        (('', ''), 'README.md', 1, 'PYTHON=python could not check the run'),
        (('configs/', '/etc/'), 'README.md', 0, '--config=/etc/finetune.py'),
        (('=/mnt/', '='), 'README.md', 0, 'WORKDIR=runs/a run: expected gs'),
    ],
)
@pytest.mark.parametrize('arguments', [['continue'], ['setup', '--dry_run']])
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
    large = fakes.run('tpu_vm.sh', 'setup', LAUNCH_MOST_SENT='3')
  finally:
    (ROOT / name).unlink()
  assert f'# the workers get the last commit and {name}' in out
  assert ['tar', '-rhf', str(TAR), '-C', str(ROOT), '--', name] in split(out)
  assert status == 0, err
  for number in range(2):
    code = fakes.path / f'worker{number}/locost/code'
    assert (code / name).read_text() == 'pieces'
  assert large[0] == 2 and f'{name}: 0 MiB to send to each' in large[2]
  # The next set-up does not find it again.
  needs(fakes)
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  assert not (code / name).exists()


GONE = dict(out='ERROR: (gcloud...)', status=1)
SAVED = '/mnt/runs/a run/checkpoints/{}/manifest.json'
SAYS = dict(e='ended {}', r='refused {}', s=f'saved {SAVED}')
DIFF = ['git', '-C', str(ROOT), 'diff', '--quiet', 'HEAD']
STEPS = dict(
    create=[CREATE],
    # Without mkdir, which has no fake command.
    setup=[call for call in SETUP if call[0] != 'mkdir'],
    check=[PREFLIGHT],
    start=[START],
    delete=[DELETE],
)


def says(words):
  """Returns the workers' answer; SAYS has that of a letter and a number.

  'gone' is a connection that fails, 'lost' one that fails after the answer.
  """
  if words == 'gone':
    return GONE
  lines = [
      SAYS[word[0]].format(word[1:]) if word[1:].isdigit() else word
      for word in words.removeprefix('lost ').split()
  ]
  out = '\n'.join(f'locost_jax: {line}' for line in lines)
  return dict(out=out, status=255 * words.startswith('lost '))


@pytest.mark.parametrize(
    # States of the TPU [ACTIVE] and of the workers at each question, the steps
    # that are taken (!: it fails), the status, and what is said.
    'states, answers, steps, status, said',
    [
        (
            'none CREATING WAITING_FOR_RESOURCES PROVISIONING'
            + 5 * ' ACTIVE'
            + ' SUSPENDING SUSPENDED none ACCEPTED'
            + 5 * ' ACTIVE',
            # gone: preempted, but not yet reported as such.
            'bare bare, unchecked unchecked, new new, running running, gone, '
            'bare bare, new unchecked, new new, running e0, e0 e0',
            'create setup check start delete create setup check start',
            0,
            'slice is SUSPENDED; still exists and costs money',
        ),
        ('', 'e75 e75, e143 e143, e0 e0', 'start start', 0, ''),
        # The other hosts abort when one of them has gone.
        ('', 'e134 e75, e0 e0', 'start', 0, ''),
        ('', 'e0 e75, e0 e0', 'start', 0, ''),
        ('', 'new e75, e0 e0', 'start', 0, ''),
        ('', 'running e75, e75 e75, e2 e2', 'start', 2, ''),
        ('', 'e2 e2', '', 2, ''),
        ('', 'e75 e2', '', 2, ''),
        ('', 'e1 e134', '', 1, ''),
        ('', 'e0 e137', '', 137, ''),
        ('', 'stopped e143', '', 143, ''),
        ('', 'r2 r75', '', 2, 'check ended with status 2'),
        ('', 'r75 r75, r75 new, r75 r75', 'check check', 75, 'with status 75'),
        ('', 'r1 r75, new new, e0 e0', 'check start', 0, ''),
        (
            '',
            # The first and the third checkpoint are new.
            'e75 s10, e75 s10, e75 s20, e75 s20, e75 s20',
            'start start start start',
            75,
            'error: the run ended with status 75, after 2 restarts without; '
            f'(newest: {SAVED.format(20)})',
        ),
        (
            'SUSPENDED none SUSPENDED none SUSPENDED',
            '',
            'delete create delete create',
            143,
            'slice is SUSPENDED, after 2 restarts; (newest: none)',
        ),
        (
            'gone ACTIVE gone ACTIVE ACTIVE ACTIVE ACTIVE ACTIVE',
            # If a connection fails, the other workers' states are not used.
            'gone, lost e0, bare, bare, new, e0',
            'setup! setup start',
            0,
            '',
        ),
        ('', 'bare, bare, bare', 'setup! setup! setup!', 1, '3 times'),
        ('none', '', 'create!', 1, ''),
    ],
)
def test_continue(fakes, states, answers, steps, status, said):
  states, steps = (states or 9 * 'ACTIVE ').split(), steps.split()
  known = dict(none=dict(out=''), gone=GONE)
  outcomes = lambda step: [
      GONE if x[-1] == '!' else {} for x in steps if x.rstrip('!') == step
  ]
  fakes.write(ENV + 'RESTARTS=2\n')
  fakes.answer(
      [' list ', [known.get(state, dict(out=state)) for state in states]],
      ['worker.sh status', [says(words) for words in answers.split(', ')]],
      ['worker.sh install', outcomes('setup')],
      [' create ', outcomes('create')],
      ['gcloud', [{}] * 99],
      ['git', [{}] * 99],
  )
  found, _, err = fakes.run('tpu_vm.sh', 'continue')
  calls = [call for call in fakes.calls() if call not in (LOOK, ASK, DIFF)]
  assert found == status, err
  assert calls == sum([STEPS[step.rstrip('!')] for step in steps], [])
  assert all(part in err for part in said.split('; '))


@pytest.fixture
def ready(fakes):
  """Fakes whose two workers are set up."""
  assert fakes.run('tpu_vm.sh', 'setup')[0] == 0
  return fakes


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


def test_a_stopped_run_is_not_started_again(ready):
  run_and_wait(ready, 2)
  # A second start does nothing, and preflight and setup are refused.
  assert ready.run('tpu_vm.sh', 'run')[0] == 0
  assert report(ready) == ['running', 'running']
  status, _, err = ready.run('tpu_vm.sh', 'preflight')
  assert status == 2 and 'a run is active on this worker' in err
  status, _, err = ready.run('tpu_vm.sh', 'setup')
  assert status == 2 and 'a run is active on this worker' in err
  assert len(trainers(ready)) == 2
  assert ready.run('tpu_vm.sh', 'stop')[0] == 0
  ready.wait_for('worker?/locost/status', 2)
  assert ready.calls('signal') == [['signal', 'SIGTERM']] * 2
  assert report(ready) == ['stopped', 'stopped']
  ready.answer([' list ', [dict(out='ACTIVE')] * 9])
  status, _, err = ready.run('tpu_vm.sh', 'continue')
  assert status == 143 and 'the run was stopped' in err
  # `run` starts it again and removes the state of the stopped run.
  run_and_wait(ready, 4)
  assert report(ready) == ['running', 'running']
  for pid in ready.path.glob('worker?/locost/pid'):
    os.kill(int(pid.read_text()), signal.SIGKILL)
  ready.wait_for('worker?/locost/status', 2)
  assert report(ready) == ['ended 137', 'ended 137']


def test_a_worker_that_went_down_during_its_run(ready):
  """No status was written, and another process has the same id by now."""
  run_and_wait(ready, 2)
  for file in ready.path.glob('worker?/locost/pid'):
    os.killpg(os.getpgid(int(file.read_text())), signal.SIGKILL)
    file.write_text(f'{os.getpid()}\n')
  assert report(ready) == ['ended 75', 'ended 75']


def test_a_preflight_on_all_workers(ready):
  ready.runs(['worker0', [0]], ['worker1', [2]])
  assert ready.run('tpu_vm.sh', 'preflight')[0] == 2
  assert trainers(ready) == [['trainer', *FLAGS, '--preflight', *SLICE]] * 2
  assert report(ready) == ['new', 'refused 2']
  # Another set-up needs another check.
  assert ready.run('tpu_vm.sh', 'setup')[0] == 0
  assert report(ready) == ['unchecked', 'unchecked']
  # A failed one is none.
  ready.write(ENV + 'SETUP=false\n')
  assert ready.run('tpu_vm.sh', 'setup')[0] != 0
  assert report(ready) == ['bare', 'bare']


def test_the_newest_checkpoint_of_a_run(ready, tmp_path):
  """Of all phases, by time; without one, no line."""
  ready.write(ENV.replace('/mnt/runs/a run', str(tmp_path / 'a run')))
  assert report(ready) == ['unchecked', 'unchecked']
  for age, name in enumerate(('checkpoints/9', 'long/checkpoints/2', 'checkp')):
    directory = tmp_path / 'a run' / name
    directory.mkdir(parents=True)
    (directory / 'manifest.json').touch()
    os.utime(directory / 'manifest.json', (age, age))
  newest = tmp_path / 'a run/long/checkpoints/2/manifest.json'
  assert report(ready) == [f'saved {newest}'] * 2 + ['unchecked'] * 2


def test_the_newest_checkpoint_of_a_run_in_a_bucket(ready):
  """By the time that gcloud shows; its last line is the sum."""
  ready.write(ENV.replace('/mnt/runs/a run', 'gs://b/run'))
  files = 'gs://b/run/long/checkpoints/2', 'gs://b/run/checkpoints/9'
  lines = [f'  9  2026-0{9 - i}-01T00:00:00Z  {x}' for i, x in enumerate(files)]
  out = '\n'.join(f'{line}/manifest.json' for line in lines) + '\nTOTAL: 2\n'
  found = report(ready, ['storage ls', [dict(out=out)] * 2])
  assert found == [f'saved {files[0]}/manifest.json'] * 2 + ['unchecked'] * 2
