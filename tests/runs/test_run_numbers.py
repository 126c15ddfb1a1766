"""A run's numbers: totals, traces and W&B; all options in a real process."""

import collections
import gzip
import importlib.util
import io
import json
from pathlib import Path
import re
import sys

import jax
import jax.numpy as jnp
import pytest

from locost_jax import main
from locost_jax.config import progress
from locost_jax.errors import InputError
from locost_jax.telemetry import metrics_log
from locost_jax.telemetry import step_times
from locost_jax.telemetry import telemetry as telemetry_lib
from tests import python
from tests import tiny_run
from tests.runs import test_main
from tests.telemetry.test_telemetry import Clock

ROOT = Path(__file__).parents[2]


def _rows(workdir):
  return test_main.read_rows(workdir / 'metrics.jsonl')


def _run(workdir, start, steps, clock, **options):
  """Logs steps of 2 seconds, 100 tokens, 4 documents and 3 TFLOP."""
  out = telemetry_lib.Telemetry(
      workdir,
      9,
      telemetry_lib.Start(start, devices=2),
      telemetry_lib.Options(**options),
      progress.Progress(io.StringIO(), clock=clock),
      clock,
  )
  try:
    yield
    for step in range(start + 1, start + steps + 1):
      clock.now += 2
      counts = dict(tokens=20_000_001, samples=4, flops=3e12)
      out.progress(step, counts | {'loss': 3.0})
      row = out.machine_metrics(20_000_001)
      out.log(step, {f'train/{name}': row[name] for name in row})
      yield
  finally:
    out.close()


def test_unknown_numbers_are_absent(tmp_path):
  list(_run(tmp_path / 'a', 0, 1, Clock()))
  list(_run(tmp_path / 'b', 0, 1, Clock(), peak_tflops=1.5))
  (plain,), (peak,) = _rows(tmp_path / 'a'), _rows(tmp_path / 'b')
  names = (
      'tokens_per_second samples_per_second step_seconds data_wait peak_bytes '
      'total_tokens goodput run_seconds'
  )
  assert plain.keys() == {'step', *(f'train/{n}' for n in names.split())}
  # 3 TFLOP in 2 seconds, on 2 devices of 1.5 TFLOP/s.
  assert peak.pop('train/mfu') == 0.5
  assert peak.keys() == plain.keys()
  assert plain['train/peak_bytes'] > 1 << 20
  # Older versions wrote no totals, so the tokens of their steps are unknown.
  (tmp_path / 'a' / 'metrics.jsonl').write_text('{"step": 1}\n')
  list(_run(tmp_path / 'a', 1, 1, Clock()))
  assert 'train/total_tokens' not in _rows(tmp_path / 'a')[-1]


def _trace(workdir, calls, steps, stream):
  """Traces `steps` of some calls; returns the results and the telemetry."""
  function = jax.jit(
      lambda state, batch: (
          state._replace(step=state.step + 1),
          jnp.sum(batch['x']),
      )
  )
  state = collections.namedtuple('State', 'step')(jnp.int32(10))
  out = telemetry_lib.Telemetry(workdir, 99, progress=progress.Progress(stream))
  results = []
  with step_times.trace_steps(
      function, workdir / 'profile', steps, out
  ) as step:
    for rows in calls:
      state, metrics = step(state, dict(x=jnp.ones((rows, 2))))
      results.append(float(metrics))
  out.close()
  assert int(state.step) == 10 + len(calls)
  return step is function, results


def _steps_of_traces(workdir):
  """The numbers of the steps of each trace in a directory."""
  found = []
  for path in sorted((workdir / 'profile').rglob('*.trace.json.gz')):
    events = json.loads(gzip.decompress(path.read_bytes()))['traceEvents']
    found.append(
        sorted(
            int(event['args']['step_num'])
            for event in events
            if event.get('name') == 'train'
        )
    )
  return found


def test_a_trace_has_n_compiled_steps(tmp_path):
  """Calls 1 and 3 compile, 2 and 4 warm up, 5 to 7 are in the trace."""
  stream = io.StringIO()
  _, results = _trace(tmp_path, [1, 1, 2, 1, 2, 1, 1, 1, 1], 3, stream)
  assert results == [2, 2, 4, 2, 4, 2, 2, 2, 2]
  assert _steps_of_traces(tmp_path) == [[15, 16, 17]]
  assert list((tmp_path / 'profile').rglob('*.xplane.pb'))
  assert f'{tmp_path}/profile: a trace of 3 steps; see it with `xprof' in (
      stream.getvalue()
  )


def test_a_trace_ends_with_the_run(tmp_path):
  stream = io.StringIO()
  _trace(tmp_path, [1] * 5, 9, stream)
  assert _steps_of_traces(tmp_path) == [[14, 15]]
  assert 'a trace of 2 steps' in stream.getvalue()


def test_no_trace_of_a_short_run_or_without_the_flag(tmp_path):
  stream = io.StringIO()
  _trace(tmp_path / 'short', [1, 1, 2], 3, stream)
  assert 'no trace: the run ended' in stream.getvalue()
  is_function_itself, _ = _trace(tmp_path / 'off', [1] * 5, 0, stream)
  assert is_function_itself
  assert not list(tmp_path.rglob('profile'))


WANDB = """
import json, os

class Settings:
  def __init__(self, console):
    self.console = console

def _write(**row):
  with open(os.environ['FAKE_WANDB'], 'a') as file:
    file.write(json.dumps(row) + '\\n')

class Run:
  def log(self, numbers, step):
    if step == int(os.environ.get('FAKE_WANDB_FAILS', -1)):
      raise RuntimeError('the network is down')
    _write(step=step, **numbers)
  def finish(self):
    _write(finished=True)

def init(settings, **arguments):
  if arguments['project'] == 'refused':
    raise RuntimeError('not logged in')
  _write(console=settings.console, **arguments)
  return Run()
"""


@pytest.fixture
def fake_wandb(tmp_path, monkeypatch):
  """A fake package `wandb` that logs its calls to a file; returns the path."""
  (tmp_path / 'fake' / 'wandb').mkdir(parents=True)
  (tmp_path / 'fake' / 'wandb' / '__init__.py').write_text(WANDB)
  monkeypatch.setenv('FAKE_WANDB', str(tmp_path / 'sent.jsonl'))
  monkeypatch.syspath_prepend(tmp_path / 'fake')
  monkeypatch.delitem(sys.modules, 'wandb', raising=False)
  yield tmp_path / 'sent.jsonl'
  sys.modules.pop('wandb', None)


def _track(workdir, project, start, steps):
  stream = io.StringIO()
  out = telemetry_lib.Telemetry(
      workdir,
      9,
      telemetry_lib.Start(start),
      telemetry_lib.Options(wandb=project),
      progress.Progress(stream),
  )
  for step in range(start + 1, start + steps + 1):
    out.log(step, {'train/loss': 1 / step, 'train/grad_norm': float('nan')})
  out.close()
  return stream.getvalue()


def test_wandb_gets_the_lines_and_continues_a_run(tmp_path, fake_wandb):
  run = tmp_path / 'run'
  _track(run, 'demo', 0, 2)
  _track(run, 'demo', 2, 1)
  _track(run, 'other', 3, 1)
  begun, *rows, ended, again, row, _, other, _, _ = test_main.read_rows(
      fake_wandb
  )
  assert rows == [
      {'step': 1, 'train/loss': 1.0},
      {'step': 2, 'train/loss': 0.5},
  ]
  assert ended == {'finished': True} and row['step'] == 3
  assert begun['project'] == 'demo'
  assert begun['dir'] == begun['name'] == str(run)
  assert begun == again and begun['resume'] == 'allow'
  assert other['project'] == 'other' and other['id'] != begun['id']


def test_a_run_survives_errors_of_wandb(tmp_path, fake_wandb, monkeypatch):
  monkeypatch.setenv('FAKE_WANDB_FAILS', '2')
  said = _track(tmp_path / 'run', 'demo', 0, 4)
  failure = 'RuntimeError: the network is down'
  assert said == f'W&B failed, nothing more is sent: {failure}\n'
  assert [row['step'] for row in _rows(tmp_path / 'run')] == [1, 2, 3, 4]
  sent = test_main.read_rows(fake_wandb)
  assert [row.get('step') for row in sent] == [None, 1]
  with pytest.raises(InputError, match='=refused: RuntimeError: not logged in'):
    _track(tmp_path / 'new', 'refused', 0, 1)


def test_wandb_must_be_installed(tmp_path, monkeypatch):
  monkeypatch.delitem(sys.modules, 'wandb', raising=False)
  monkeypatch.setattr(
      sys,
      'path',
      [str(tmp_path), *(p for p in sys.path if 'site-packages' not in p)],
  )
  (tmp_path / 'wandb').mkdir()  # the directory wandb/ is not the package
  metrics_log.check_wandb('')
  with pytest.raises(InputError, match='^--wandb=x: wandb is not installed'):
    metrics_log.check_wandb('x')


@pytest.mark.parametrize(
    'argument, expected',
    [
        ('--wandb=refused', 'wandb is not installed: pip install wandb'),
        ('--profile=-1', '--profile=-1: expected an integer, 0 <= profile'),
        ('--peak_tflops=much', 'expected a number'),
    ],
)
def test_invalid_options(
    run_command, monkeypatch, tmp_path, argument, expected
):
  monkeypatch.setitem(sys.modules, 'wandb', None)
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  status, out, err = run_command(
      main,
      test_main.CONFIG,
      argument,
      f'--workdir={tmp_path / "run"}',
  )
  assert status == 2 and out == '' and len(err.splitlines()) == 1, err
  assert expected in err
  assert not list(tmp_path.iterdir())


def test_a_real_run_with_all_options(tmp_path, fake_wandb):
  """Runs `python -m locost_jax.main` with every option."""
  run = tmp_path / 'run'
  test_main.write_rows(tmp_path / 'texts.jsonl', test_main.pairs(0, 24))
  command = [
      '-m',
      'locost_jax.main',
      test_main.CONFIG,
      f'--workdir={run}',
      *tiny_run.flags(
          f'data.train_files={tmp_path}/texts.jsonl data.vocabulary=byte '
          'data.input_buckets=64 data.target_buckets=16 train.batch_size=4 '
          'train.steps=6 train.log_every=2 eval.metrics=loss '
          'eval.baselines=False checkpoint.metric=loss'
      ),
      '--wandb=demo',
      '--profile=2',
      '--peak_tflops=0.001',
      *test_main.TINY,
  ]
  fake = tmp_path / 'fake'
  done = python.run(*command, cwd=tmp_path, paths=[fake], JAX_PLATFORMS='cpu')
  for words in 'jsonl, validation, ', 'after training, step 6', 'loss: nats':
    assert done.stdout.count(words) == 1, done.stdout  # one table, once
  assert 'after training, step 6' not in done.stderr
  assert f'{run}/profile: a trace of 2 steps' in done.stderr
  assert _steps_of_traces(run) == [[4, 5]]

  rows = [row for row in _rows(run) if 'train/loss' in row]
  assert [row['step'] for row in rows] == [2, 4, 6]
  names = (
      'loss accuracy grad_norm learning_rate weight tokens samples flops '
      'nonfinite tokens_per_second samples_per_second step_seconds data_wait '
      'mfu peak_bytes total_tokens goodput run_seconds'
  ).split()
  names += [
      f'grad_norm/{name}'
      for name in (
          'token_embedding encoder/layers/mixer encoder/norm '
          'encoder/layers/feed_forward decoder/layers/self_attention '
          'decoder/layers/cross_attention decoder/layers/feed_forward '
          'decoder/relative_bias decoder/norm'
      ).split()
  ]
  expected = {'step', *(f'train/{name}' for name in names)}
  total = 0
  for row in rows:
    assert row.keys() >= expected
    total += 2 * row['train/tokens']
    assert row['train/total_tokens'] == total
    assert row['train/samples'] == 4
    # Norms are means of two steps, so their squares add up only approximately.
    squares = [row[key] ** 2 for key in row if '/grad_norm/' in key]
    assert sum(squares) == pytest.approx(row['train/grad_norm'] ** 2, rel=0.2)
    # --peak_tflops sets a device of 1 GFLOP/s.
    assert row['train/mfu'] == pytest.approx(
        row['train/flops'] / row['train/step_seconds'] / 1e9, rel=1e-3
    )

  # docs/training.md names each number.
  page = (ROOT / 'docs' / 'training.md').read_text()
  named = set(re.findall(r'`(train/\w+)`', page))
  assert named >= {
      re.match(r'train/\w+', key)[0] for key in expected - {'step'}
  }
  # W&B got the same numbers, and the config.
  sent = test_main.read_rows(fake_wandb)
  (begun,) = [row for row in sent if 'project' in row]
  assert begun['config']['model']['d_model'] == 16
  rows = _rows(run)
  shown = {row.pop('eval/jsonl/test_set', '') for row in rows} - {''}
  assert [row for row in sent if 'step' in row] == rows
  assert [re.sub('[0-9a-f]{16}$', '', text) for text in shown] == [
      '1 document, '
  ]
