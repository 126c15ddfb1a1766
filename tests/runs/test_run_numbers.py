"""A run's numbers: totals and traces; all options in a real process."""

import collections
import gzip
import io
import json
from pathlib import Path
import re

import jax
import jax.numpy as jnp
import pytest

from locost_jax.config import progress
from locost_jax.telemetry import step_times
from locost_jax.telemetry import telemetry as telemetry_lib
from tests import python
from tests import tiny_run
from tests.runs import test_main
from tests.telemetry.test_telemetry import Clock

ROOT = Path(__file__).parents[2]


def _rows(workdir):
  return test_main.read_rows(workdir / 'metrics.jsonl')


def _run(workdir, start=0, **options):
  """Logs a step of 2 seconds, 4 documents and 3 TFLOP; returns its line."""
  clock = Clock()
  out = telemetry_lib.Telemetry(
      workdir,
      9,
      telemetry_lib.Start(start, devices=2),
      telemetry_lib.Options(**options),
      progress.Progress(io.StringIO(), clock=clock),
      clock,
  )
  clock.now += 2
  counts = dict(tokens=20_000_001, samples=4, flops=3e12)
  out.progress(start + 1, counts | {'loss': 3.0})
  row = out.machine_metrics(20_000_001)
  out.log(start + 1, {f'train/{name}': row[name] for name in row})
  out.close()
  return _rows(workdir)[-1]


def test_unknown_numbers_are_absent(tmp_path):
  plain, peak = _run(tmp_path / 'a'), _run(tmp_path / 'b', peak_tflops=1.5)
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
  assert 'train/total_tokens' not in _run(tmp_path / 'a', 1)


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


@pytest.mark.parametrize(
    'calls, steps, traces, said',
    [
        # Calls 1 and 3 compile, 2 and 4 warm up, 5 to 7 are in the trace.
        (
            [1, 1, 2, 1, 2, 1, 1, 1, 1],
            3,
            [[15, 16, 17]],
            '/profile: a trace of 3 steps; see it with `xprof',
        ),
        ([1] * 5, 9, [[14, 15]], 'a trace of 2 steps'),  # all that are left
        ([1, 1, 2], 3, [], 'no trace: the run ended'),
        ([1] * 5, 0, [], ''),
    ],
)
def test_a_trace_has_n_compiled_steps(tmp_path, calls, steps, traces, said):
  """calls: rows of the batch of each call."""
  function = jax.jit(
      lambda state, batch: (
          state._replace(step=state.step + 1),
          jnp.sum(batch['x']),
      )
  )
  state = collections.namedtuple('State', 'step')(jnp.int32(10))
  shown, stream = tmp_path / 'profile', io.StringIO()
  out = telemetry_lib.Telemetry(
      tmp_path, 99, progress=progress.Progress(stream)
  )
  with step_times.trace_steps(function, shown, steps, out) as step:
    for rows in calls:
      state, metrics = step(state, dict(x=jnp.ones((rows, 2))))
      assert metrics == 2 * rows
  out.close()
  assert int(state.step) == 10 + len(calls)
  assert (step is function) == (steps == 0)
  assert _steps_of_traces(tmp_path) == traces
  assert len(list(tmp_path.rglob('*.xplane.pb'))) == len(traces)
  assert shown.exists() == bool(traces) and said in stream.getvalue()


def test_a_real_run_with_all_options(tmp_path):
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
      '--profile=2',
      '--peak_tflops=0.001',
      *test_main.TINY,
  ]
  done = python.run(*command, cwd=tmp_path, JAX_PLATFORMS='cpu')
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
  texts = [row.get('eval/jsonl/test_set', '') for row in _rows(run)]
  assert [re.sub('[0-9a-f]{16}$', '', text) for text in {*texts} - {''}] == [
      '1 document, '
  ]
