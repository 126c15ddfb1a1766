"""A run's numbers: traces; all options in a real process."""

import collections
import gzip
import io
import json
import re

import jax
import jax.numpy as jnp
import pytest

from locost_jax.config import progress
from locost_jax.telemetry import step_times
from locost_jax.telemetry import telemetry as telemetry_lib
from tests import python
from tests import tiny_run
from tests.python import ROOT
from tests.runs import test_main


def _rows(workdir):
  return test_main.read_rows(workdir / 'metrics.jsonl')


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
