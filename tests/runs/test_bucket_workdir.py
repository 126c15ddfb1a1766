"""A run whose WORKDIR is in a bucket equals one on a disk, whatever happens.

Runs are `processes`; the bucket kills them, or answers wrongly.
"""

import json
import os
from pathlib import Path
import re
import resource
import shutil
import signal
import time

import numpy as np
import pytest

from locost_jax import main
from locost_jax import summarize
from tests.bucket_server import Bucket
from tests.bucket_server import ENVIRONMENT
from tests.bucket_server import Fault
from tests.bucket_server import TOKEN
from tests.runs import processes
from tests.runs import test_bucket_runs
from tests.runs.processes import result

texts = test_bucket_runs.texts  # a fixture

URI = 'gs://locost-test/runs/a'
FRONT = 'runs/a/'
GIVEN = dict(checkpoint_every=2, eval_every=6, log_every=1, size=100)
STEP = rf'^{FRONT}checkpoints/\d+/'
STEP_OF = re.compile(STEP)
LEASE = f'^{FRONT}~run.lock'
# Where a process is killed: (method, regex of the object).
COMMIT = [
    ('POST', LEASE),
    ('POST', f'^{FRONT}metrics.jsonl'),
    ('POST', f'{STEP}params/d/'),
    ('POST', f'{STEP}training/'),
    ('POST', f'{STEP}manifest.json'),
    ('POST', f'{STEP}metrics/'),  # the first time, and after an evaluation
    ('POST', f'{STEP}loop/metadata'),
    ('DELETE', f'{STEP}manifest.json'),
    ('DELETE', f'{STEP}(params|training)/'),
]
FIRST = [
    ('POST', LEASE),
    ('POST', f'^{FRONT}config.json'),
    ('POST', f'{STEP}params/'),
    ('POST', f'{STEP}manifest.json'),
]


class Runs(processes.Runs):
  """Starts processes in one bucket."""

  def __init__(self, bucket, tmp_path, programs):
    self.bucket = bucket
    variables = ENVIRONMENT | {'TENSORSTORE_GCS_HTTP_URL': bucket.url}
    home = str(tmp_path / 'home')
    super().__init__(tmp_path, programs, **variables, XDG_CACHE_HOME=home)

  def start(self, workdir=URI, hosts=1, rooms=(0, 0), **given):
    return super().start(workdir, hosts, rooms, **GIVEN | given)

  def end(self, hosts, *status):
    super().end(hosts, *status)
    assert TOKEN not in self.log

  def copy(self, name='copy'):
    """Writes all objects of the run to a directory; returns it."""
    directory = self.path / name
    shutil.rmtree(directory, ignore_errors=True)
    for key, (data, _) in sorted(self.bucket.objects.items()):
      path = directory / key.removeprefix(FRONT)
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(data)
    return directory


@pytest.fixture(scope='module')
def programs(tmp_path_factory):
  return tmp_path_factory.mktemp('programs')


@pytest.fixture
def runs(tmp_path, programs):
  bucket = Bucket()
  found = Runs(bucket, tmp_path, programs)
  yield found
  found.close()
  bucket.close()


def unbroken(runs, **given):
  """Returns the `result` of a run on a disk."""
  runs.end(runs.start(runs.path / 'disk', **given))
  found = result(runs.path / 'disk')
  assert len(found[0]) > 1 and found[2][-1]['step'] == given['steps']
  return found


def endure(runs, faults, **given):
  """Starts the run once for each fault, (method, regex, make a Fault).

  `make` is called with a function that kills a process: the first, or the last.
  """
  # JAX aborts a process whose first host has ended.
  met, ends = 0, (0, 2, 75, -signal.SIGKILL, -signal.SIGABRT)
  for i, (method, regex, make) in enumerate(faults):
    hosts = []
    kill = lambda: os.kill(hosts[-(i % 3 == 2)].pid, signal.SIGKILL)
    runs.bucket.faults = rows = [(method, regex, make(kill))]
    hosts += runs.start(**given)
    runs.end(hosts, *ends)
    met += not rows
    runs.bucket.faults = []
  runs.end(runs.start(**given))
  return met


def before(kill):
  return Fault(503, then=kill)  # and nothing is done


def after(kill):
  return Fault(lost=True, then=kill)


def test_a_run_equals_one_on_a_disk(runs):
  expected = unbroken(runs, steps=12)
  runs.end(runs.start(steps=12))
  assert result(runs.copy()) == expected
  names = set(runs.bucket.objects)
  lock = json.loads(runs.bucket.objects[f'{FRONT}~run.lock'][0])
  assert lock['holder'] == ''  # free, and the name of the object is the last
  assert max(names) == f'{FRONT}~run.lock'
  # The order of a commit, and of a removal.
  writes = [x for method, x, _ in runs.bucket.requests if method == 'POST']
  second = [x for x in writes if x.startswith(f'{FRONT}checkpoints/4/')]
  assert second[-1] == f'{FRONT}checkpoints/4/manifest.json'
  assert second.count(second[-1]) == 1
  i = writes.index(second[-1])
  assert writes[i - 1] == f'{FRONT}~run.lock'  # still the holder
  assert writes.index(f'{FRONT}metrics.jsonl') < i
  gone = [x for method, x, _ in runs.bucket.requests if method == 'DELETE']
  assert re.fullmatch(f'{FRONT}checkpoints/2/manifest.json', gone[0])
  # Another machine goes on.
  shutil.rmtree(runs.path / 'home')
  longer = dict(steps=15, checkpoint_every=2)
  runs.end(runs.start(**longer))
  runs.end(runs.start(runs.path / 'disk', **longer))
  assert result(runs.copy()) == result(runs.path / 'disk')


@pytest.mark.slow
def test_kills_of_a_first_commit(runs):
  expected = unbroken(runs, steps=4)
  for point in FIRST:
    for kill in before, after:
      runs.bucket.objects.clear()
      shutil.rmtree(runs.path / 'home', ignore_errors=True)
      assert endure(runs, [(*point, kill)], steps=4) == 1
      assert result(runs.copy()) == expected


@pytest.mark.slow
def test_kills_of_a_commit_and_a_removal(runs):
  expected = unbroken(runs, steps=60)
  faults = [(*point, kill) for point in COMMIT for kill in (before, after)]
  assert endure(runs, faults, steps=60) == len(faults)
  assert result(runs.copy()) == expected
  steps = {
      match[0] for match in map(STEP_OF.match, runs.bucket.objects) if match
  }
  assert steps == {f'{FRONT}checkpoints/{step}/' for step in expected[0]}


@pytest.mark.parametrize(
    'hosts, count',
    [
        pytest.param(1, 20, marks=pytest.mark.slow),
        pytest.param(2, 5, marks=pytest.mark.slow),
        pytest.param(1, 100, marks=pytest.mark.soak),
        pytest.param(2, 20, marks=pytest.mark.soak),
    ],
)
def test_a_run_survives_faults_at_random_requests(runs, hosts, count):
  seed = int.from_bytes(os.urandom(4), 'big')
  print(f'seed of the faults: {seed}')
  rng = np.random.default_rng(seed)
  given = dict(hosts=hosts, steps=3 * count)
  expected = unbroken(runs, **given)
  make = [before, after] * 3 + [lambda _: Fault(cut=3)]
  make += [lambda _, x=x: Fault(x) for x in (401, 403, 429, 503)]
  methods = ['POST', 'POST', 'GET', 'DELETE']
  objects = [f'{STEP}.*{x}' for x in ('', '', 'manifest.json', 'metrics')]
  objects += [FRONT, 'metrics.jsonl', LEASE]
  choose = lambda rows: rows[rng.integers(len(rows))]
  faults = [
      (choose(methods), choose(objects), choose(make)) for _ in range(count)
  ]
  endure(runs, faults, **given)
  assert result(runs.copy()) == expected


@pytest.mark.slow
def test_two_hosts_equal_two_on_a_disk(runs):
  for number, steps in (2, 12), (1, 14), (2, 18):  # hosts
    for workdir in URI, runs.path / 'disk':
      runs.end(runs.start(workdir, number, steps=steps, patience=2))
    assert result(runs.copy()) == result(runs.path / 'disk')
  assert 'holder": ""' in runs.bucket.objects[f'{FRONT}~run.lock'][0].decode()


@pytest.mark.slow
def test_an_error_of_one_host_ends_both(runs):
  given = dict(hosts=2, size=50_000, steps=8)
  unbroken(runs, **given | dict(steps=4))
  expected = unbroken(runs, **given)

  def end(status, text, **more):
    """Checks that both say the same, in a line each."""
    begin = len(runs.log)
    runs.end(runs.start(**given, **more), status)
    said = runs.log[begin:].replace('/run-1/', '/run-0/')
    lines = [x for x in said.splitlines() if text in x]
    assert len(lines) == 2 and len(set(lines)) == 1, runs.log

  def flip():
    data, generation = objects[name]
    objects[name] = data[:-1] + bytes([data[-1] ^ 1]), generation

  end(2, 'File too large', rooms=(20_000, 0))
  runs.end(runs.start(**given | dict(steps=4)))
  end(2, 'File too large', rooms=(0, 20_000))
  # The second host reads the optimiser after the first.
  objects, step = runs.bucket.objects, f'{FRONT}checkpoints/4/'
  arrays = [x for x in objects if re.match(f'{step}training/d/', x)]
  name = max(arrays, key=lambda x: len(objects[x][0]))

  # It asks for the generation, for a piece that is too long, for the rest.
  thens = None, None, flip
  runs.bucket.faults = [('GET', name, Fault(then=x)) for x in thens]
  end(2, 'other contents than were written on h')
  flip()
  # Both stop after the same step when the lease is lost.
  lock = f'{FRONT}~run.lock'
  steal = lambda: runs.bucket.put(lock, '{"nonce": "", "holder": "b"}')
  runs.bucket.faults = [('POST', f'{STEP}params/', Fault(then=steal))]
  end(75, 'and lost the lease to b')
  runs.end(runs.start(**given))
  assert result(runs.copy()) == expected


@pytest.mark.slow
@pytest.mark.parametrize('hosts', [1, 2])
def test_a_paused_run_commits_nothing(runs, hosts):
  given = dict(hosts=hosts, steps=20, step_seconds=0.2)
  expected = unbroken(runs, **given)
  for point in COMMIT[2:5]:
    runs.bucket.objects.clear()
    paused = []
    signal_all = lambda x: [os.kill(process.pid, x) for process in paused]
    stop = lambda: signal_all(signal.SIGSTOP)
    runs.bucket.faults = [(*point, Fault(then=stop))]
    paused += runs.start(**given)
    runs.wait_for(lambda: not runs.bucket.faults)
    time.sleep(0.1)
    others = runs.start(**given)  # wait, then take the lease
    steps = f'{FRONT}checkpoints/'
    runs.wait_for(lambda: f'{steps}6/manifest.json' in runs.bucket.objects)
    signal_all(signal.SIGCONT)
    runs.end(paused, 75)
    assert 'this process was paused or cut off, and lost the lease' in runs.log
    runs.end(others)
    runs.end(runs.start(**given))  # removes what has no manifest
    assert result(runs.copy()) == expected


def test_of_two_processes_one_is_refused(runs):
  (first,) = runs.start(steps=40, step_seconds=0.1, lease=(0.2, 30, 0.1))
  runs.wait_for(lambda: f'{FRONT}config.json' in runs.bucket.objects)
  runs.end(runs.start(steps=40, lease=(0.2, 30, 0.1)), 2)
  last = runs.log.splitlines()[-1]
  assert f'error: {URI}: process {first.pid} on ' in runs.log, last
  saved = f'{FRONT}checkpoints/4/manifest.json'
  runs.wait_for(lambda: saved in runs.bucket.objects)
  os.kill(first.pid, signal.SIGTERM)
  runs.end([first], 143)
  lock = json.loads(runs.bucket.objects[f'{FRONT}~run.lock'][0])
  assert lock['holder'] == ''  # the next one need not wait
  assert 'which is saved; the same command continues' in runs.log


def test_a_damaged_object_is_set_aside(runs):
  expected = unbroken(runs, steps=8)
  runs.end(runs.start(steps=6))
  name = max(
      (x for x in runs.bucket.objects if f'{FRONT}checkpoints/6/params/' in x),
      key=lambda x: len(runs.bucket.objects[x][0]),
  )
  data = runs.bucket.objects[name][0]
  runs.bucket.put(name, bytes([data[0] ^ 1]) + data[1:])
  runs.end(runs.start(steps=8))
  assert f'{URI}/checkpoints/6: params/' in runs.log
  assert 'damaged, set aside as 6.damaged' in runs.log
  copy = runs.copy()
  aside = copy / 'checkpoints/6.damaged'
  assert (aside / Path(name).relative_to(f'{FRONT}checkpoints/6')).exists()
  shutil.rmtree(aside)
  assert result(copy) == expected


@pytest.mark.parametrize('start', ['listed in part', 'another login'])
def test_a_list_that_is_not_whole_starts_nothing(runs, start):
  runs.end(runs.start(steps=4))
  before = dict(runs.bucket.objects)
  del before[f'{FRONT}~run.lock']
  refused = Fault() if start == 'listed in part' else Fault(403)
  runs.bucket.faults = [('GET', '^$', refused)] + [
      ('GET', '^$', Fault(403))
  ] * 9
  if start == 'listed in part':
    runs.bucket.page = 3
  runs.end(runs.start(steps=6), 2)
  assert f'error: {URI}: cannot be listed' in runs.log
  after = dict(runs.bucket.objects)
  del after[f'{FRONT}~run.lock']
  assert after == before


TRAIN = [*test_bucket_runs.STEPS, *test_bucket_runs.files_of('data')]
WORKDIR = f'--workdir={URI}'


@pytest.mark.slow
def test_commands_on_a_run_in_a_bucket(texts, run_command, tmp_path):
  outputs, data = [], test_bucket_runs.files_of('data')
  longer = '--config.train.steps=5'
  for workdir in 'disk', URI:
    where, model = f'--workdir={workdir}', f'--checkpoint={workdir}'
    metrics = "--config.eval.metrics=('loss','rouge')"
    found = [
        run_command(main, *TRAIN, where),
        run_command(main, *TRAIN, where, longer),
        run_command(main, where, '--evaluate', *data, metrics),
        run_command(summarize, model, 'data/valid.jsonl'),
        run_command(main, *TRAIN, where, longer, '--dry_run'),
        run_command(main, *TRAIN, where, '--config.data.max_input_length=32'),
    ]
    assert [x[0] for x in found] == [0] * 5 + [2], found[-2:]
    for _, out, err in found:
      assert TOKEN not in out + err and str(tmp_path / 'home') not in out + err
    assert 'was started with another config: config.data.max_in' in found[-1][2]
    outputs.append([x[1].replace(workdir, 'W') for x in found[:4]])
  assert outputs[1] == outputs[0]
  names = [x.removeprefix(FRONT) for x in texts.objects if x.startswith(FRONT)]
  assert not [x for x in names if x.startswith(('cache/', 'evaluations/'))]
  assert 'predictions/jsonl-validation-5.jsonl' in names
  copy = tmp_path / 'copy'
  for name in names:
    (copy / name).parent.mkdir(parents=True, exist_ok=True)
    (copy / name).write_bytes(texts.objects[FRONT + name][0])
  outcome = test_bucket_runs.outcome
  assert outcome(copy)[:3] == outcome(tmp_path / 'disk')[:3]
  # What was begun on a disk has no lease.
  texts.put_tree(tmp_path / 'disk', 'runs/b')
  written = dict(texts.objects)
  for more in [], ['--evaluate']:
    status, out, err = run_command(main, f'{WORKDIR[:-1]}b', *TRAIN, *more)
    last = err.splitlines()[-1]
    assert (status, out) == (2, '') and 'was begun on a disk and copied' in last
  assert texts.objects == written


@pytest.mark.parametrize(
    'workdir, fault, more, expected',
    [
        (
            'gs://wrong/a',
            None,
            [],
            'gs://wrong/a/~run.lock: there is no such b',
        ),
        ('gs://wrong/a', None, ['--preflight'], ': there is no such bucket'),
        ('gs://locost-test', None, [], 'expected gs://BUCKET/NAME'),
        (URI, Fault(403), [], 'access is denied (403)'),
        (URI, Fault(403), ['--preflight'], 'access is denied (403)'),
        (URI, Fault(503), [], 'try again later'),
        (URI, None, ['--evaluate'], 'no object is there, or there is no buck'),
        (URI, None, ['--config.optim.b1=2'], 'optim.b1=2'),
    ],
)
def test_a_workdir_that_cannot_be_used(
    texts, run_command, monkeypatch, workdir, fault, more, expected
):
  monkeypatch.setenv('JAX_PLATFORMS', 'cpu')
  config = [] if '--evaluate' in more else TRAIN
  if fault:
    texts.faults = [('POST', '', fault)] * 9
  written = dict(texts.objects)
  status, out, err = run_command(main, *config, f'--workdir={workdir}', *more)
  *notes, last = err.splitlines()
  assert (status, out) == (75 if '503' in last else 2, ''), err
  assert expected in last
  assert not [x for x in notes if not re.search('vocabulary|TESTING$', x)]
  assert TOKEN not in err and texts.objects == written


def test_a_full_disk(runs):
  large = dict(size=50_000, steps=8)
  unbroken(runs, **large | dict(steps=4))
  expected = unbroken(runs, **large)
  runs.end(runs.start(**large | dict(steps=4)))
  (process,) = runs.start(**large, step_seconds=0.5)
  runs.wait_for(lambda: runs.log.count('continues from step 4') == 2)
  limits = 100_000, resource.RLIM_INFINITY  # more than the log has
  resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
  runs.end([process], 2)
  assert 'step 6 could not be saved: File too large' in runs.log
  runs.end(runs.start(**large, rooms=[100_000]), 2)  # already while it copies
  last = runs.log.splitlines()[-1]
  assert last.startswith(f'error: {runs.path}/home/') and 'File too la' in last
  runs.end(runs.start(**large))
  assert result(runs.copy()) == expected
