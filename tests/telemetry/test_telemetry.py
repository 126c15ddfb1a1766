"""metrics.jsonl, event files and the progress line."""

import io
import os
import struct
import time
from unittest import mock

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from locost_jax.config import progress
from locost_jax.devices import compiling
from locost_jax.errors import InputError
from locost_jax.telemetry import metrics_log
from locost_jax.telemetry import telemetry as telemetry_lib
from tests import small_training
from tests.data.rows import read_jsonl


class Clock:
  """A clock that the test advances."""

  def __init__(self):
    self.now = 100.0

  def __call__(self):
    return self.now


class Terminal(io.StringIO):

  def isatty(self):
    return True


@pytest.fixture
def make(tmp_path):
  """Makes a Telemetry of a number of steps in tmp_path."""

  def make(
      steps, stream=None, seconds=30.0, clock=time.monotonic, peak=None, **start
  ):
    stream = stream or io.StringIO()
    return telemetry_lib.Telemetry(
        tmp_path,
        steps,
        telemetry_lib.Start(**start),
        telemetry_lib.Options(peak_tflops=peak),
        progress.Progress(stream, seconds, clock, at_once=True),
        clock,
    )

  return make


@pytest.fixture
def terminal(monkeypatch):
  monkeypatch.setenv('COLUMNS', '80')
  monkeypatch.setenv('TERM', 'xterm')


def test_lines_are_exact_and_strict_json(tmp_path, make):
  value = np.float32(np.pi)
  out = make(10)
  out.log(1, {'train/loss': value, 'train/learning_rate': np.float32(0.003)})
  out.log(2, {'train/loss': float('nan')})
  out.close()
  first, second = read_jsonl(tmp_path / 'metrics.jsonl')
  assert np.float32(first['train/loss']) == value
  assert first['train/learning_rate'] == 0.003
  assert second == {'step': 2, 'train/loss': None}


def test_a_resumed_run_logs_each_step_once(tmp_path, make):
  out = make(10)
  for step in range(1, 6):
    out.log(step, {'train/loss': step})
  out.log(3, {'eval/loss': 0.5})
  out.close()
  with open(tmp_path / 'metrics.jsonl', 'a') as file:
    file.write('{"step": 3, "trai')  # killed while writing
  out = make(10, step=3)
  for step in range(4, 7):
    out.log(step, {'train/loss': -step})
  out.close()
  rows = read_jsonl(tmp_path / 'metrics.jsonl')
  assert [row['step'] for row in rows] == [1, 2, 3, 3, 4, 5, 6]
  assert rows[-1]['train/loss'] == -6
  assert {'step': 3, 'eval/loss': 0.5} in rows


@pytest.mark.parametrize(
    'make, expected',
    [
        (os.mkfifo, 'jsonl: is a named pipe, expected a regular file'),
        (
            lambda path: path.write_text('{"step": 1}\n["step"]\n'),
            'jsonl:2: ex',
        ),
        (lambda path: path.write_text('{}\n'), 'jsonl:1: expected an object w'),
    ],
)
def test_other_metrics_are_not_replaced(tmp_path, make, expected):
  make(tmp_path / 'metrics.jsonl')
  with pytest.raises(InputError, match=expected):
    metrics_log.MetricsLog(tmp_path, 0, True)


def test_a_repeated_evaluation_is_logged_once(tmp_path, make):
  out = make(10)
  for row in ({'train/loss': 1}, {'eval/loss': 2}):
    out.log(5, row)
  out.close()
  metrics_log.truncate(tmp_path / 'metrics.jsonl', 5)
  assert len(read_jsonl(tmp_path / 'metrics.jsonl')) == 2
  make(10, step=5, is_evaluated=False).close()
  assert read_jsonl(tmp_path / 'metrics.jsonl') == [
      {'step': 5, 'train/loss': 1}
  ]


def _events(workdir):
  """Reads event files: length u64, crc u32, event, crc u32."""
  events = []
  for path in sorted((workdir / 'tensorboard').iterdir()):
    data = path.read_bytes()
    while data:
      (length,) = struct.unpack('<Q', data[:8])
      events.append(event_pb2.Event.FromString(data[12 : 12 + length]))
      data = data[16 + length :]
  return events


def numbers(workdir):
  """Returns the numbers in event files: {(step, name): value}."""
  return {
      (event.step, value.tag): value.simple_value
      for event in _events(workdir)
      for value in event.summary.value
      if value.tag not in small_training.MACHINE_METRICS
  }


def test_tensorboard_gets_the_same_numbers(tmp_path, make):
  out = make(10, step=4)
  out.log(5, {'train/loss': 1.5})
  out.close()
  events = _events(tmp_path)
  assert numbers(tmp_path) == {(5, 'train/loss'): 1.5}
  # TensorBoard hides an earlier process's events from step 5 on.
  started = event_pb2.SessionLog.START
  assert [e.step for e in events if e.session_log.status == started] == [5]


def test_plain_lines_come_every_few_seconds(make):
  clock, stream = Clock(), io.StringIO()
  out = make(100, stream=stream, seconds=30.0, clock=clock)
  for step in range(1, 101):
    clock.now += 1
    out.progress(step, dict(loss=5.0 - step / 100, tokens=500))
  out.close()
  lines = stream.getvalue().splitlines()
  assert '\r' not in stream.getvalue() and '\x1b' not in stream.getvalue()
  assert len(lines) == 5  # steps 1, 31, 61, 91 and the last
  assert lines[1] == 'step  31/100  loss 4.690  500 tokens/s  1:09 left'
  assert lines[-1] == 'step 100/100  loss 4.000  500 tokens/s'


def test_the_time_left_says_that_it_leaves_compilation_out(make):
  clock, stream = Clock(), io.StringIO()
  out = make(1000, stream=stream, seconds=0.0, clock=clock)
  for step in range(1, 101):
    clock.now += 1
    if step == 10:
      with out.compiling('2 x 8 -> 4 tokens'):
        clock.now += 100
    out.progress(step, dict(loss=5.0, tokens=500))
  lines = stream.getvalue().splitlines()
  lines = [line for line in lines if line.endswith(('left', 'compiling'))]
  without = [line.endswith('left without compiling') for line in lines]
  # Step 10 compiled after 9 steps; 64 steps after those it is forgotten.
  assert without == [False] * 9 + [True] * 64 + [False] * 27
  assert '  16:30 left without' in lines[9]


def test_the_bar_is_one_line_below_the_messages(make, terminal):
  clock, stream = Clock(), Terminal()
  out = make(1000, stream=stream, clock=clock)
  for step in range(1, 501):
    clock.now += 1
    out.progress(step, dict(loss=3.0, tokens=12_345))
    if step == 250:
      out.note('step 250: eval/x/loss 3.1')
  drawn = stream.getvalue().split('\r')
  assert '\x1b[Kstep 250: eval/x/loss 3.1\n' in drawn
  assert stream.getvalue().count('\n') == 1
  bar = drawn[-1].removesuffix('\x1b[K')  # clears the rest of the line
  assert bar.startswith('step  500/1000  ━━━━') and '╌' in bar
  assert bar.endswith('loss 3.000  12,345 tokens/s  8:20 left')
  assert len(bar) < 80
  out.close()
  assert stream.getvalue().endswith('\n')


def test_waiting_for_data_is_shown(make):
  """As a share of the steps' time, above 5%."""
  clock, stream = Clock(), io.StringIO()
  out = make(100, stream=stream, seconds=0.0, clock=clock)

  def step(number, wait):
    with out.waiting():
      clock.now += wait
    clock.now += 4 - wait
    out.progress(number, dict(loss=3.0, tokens=100))

  for number in range(1, 11):
    step(number, 0.1)
  assert out.machine_metrics(0)['data_wait'] == pytest.approx(0.025)
  assert 'waiting' not in stream.getvalue()
  for number in range(11, 21):
    with out.activity('evaluating'):
      clock.now += 50
    step(number, 1.9)
  assert out.machine_metrics(0)['data_wait'] == pytest.approx(0.25)
  line = stream.getvalue().splitlines()[-1]
  expected = 'step  20/100  loss 3.000  25 tokens/s  25% waiting for data'
  assert line.startswith(expected)
  out.close()


def test_waiting_does_not_count_while_a_step_runs(make):
  clock, output = Clock(), mock.Mock()
  out = make(100, clock=clock)
  for step, done, expected in (1, True, 0.25), (2, False, 0.125):
    output.is_ready.return_value = done
    with out.waiting({'loss': output, 'tokens': output}):
      clock.now += 1
    clock.now += 3
    out.progress(step, dict(loss=3.0, tokens=100))
    assert out.machine_metrics(0)['data_wait'] == pytest.approx(expected)
  out.close()


def test_goodput_is_the_share_of_time_in_steps_that_are_kept(make, tmp_path):
  """10 s to compile, 5 steps of 4 s, 10 s to save; killed, resumed at step 2."""
  path = tmp_path / 'metrics.jsonl'

  def go_on(out, clock, steps):
    with out.activity('compiling'):
      clock.now += 10
    for number in steps:
      clock.now += 4
      out.progress(number, dict(loss=3.0, tokens=100))
      row = dict(loss=3.0, tokens=100, nonfinite=0)
      out.log_steps(number, [row])
      out.log_evaluation(number, {'eval/a/loss': 2.0})
    with out.activity('saving'):
      clock.now += 10
    return out.machine_metrics(0)

  clock = Clock()
  out = make(9, clock=clock)
  row = go_on(out, clock, range(1, 6))
  assert (row['goodput'], row['run_seconds']) == (0.5, 40)
  out.close()
  # The last line, of step 5, is from before the save.
  assert read_jsonl(path)[-2]['train/run_seconds'] == 30
  clock.now += 1000  # nothing runs
  out = make(9, clock=clock, step=2)
  row = go_on(out, clock, range(3, 5))
  assert row['run_seconds'] == 30 + 28
  assert row['goodput'] == pytest.approx((2 * 4 + 2 * 4) / 58)
  out.close()
  kept = [x for x in read_jsonl(path) if 'train/loss' in x]
  assert [x['train/run_seconds'] for x in kept] == [14, 18, 44, 48]


def test_the_time_of_a_step_without_compilations(make, tmp_path):
  """Steps of 2 seconds; before each, the next one compiles."""
  # Older versions wrote no totals, so the tokens of their steps are unknown.
  (tmp_path / 'metrics.jsonl').write_text('{"step": 1}\n')
  clock = Clock()
  out = make(100, clock=clock, peak=1.5, step=1, devices=2)
  for number in range(2, 5):
    with out.activity('compiling'):
      clock.now += 2
      with out.activity('inside'):  # counts once
        clock.now += 28
    clock.now += 2
    out.progress(number, dict(loss=3.0, tokens=100, samples=4, flops=3e12))
  row = out.machine_metrics(0)
  assert row['tokens_per_second'] == pytest.approx(50)
  assert row['samples_per_second'] == pytest.approx(2)
  assert row['step_seconds'] == pytest.approx(2)
  # 3 TFLOP in 2 seconds, on 2 devices of 1.5 TFLOP/s.
  assert row['mfu'] == pytest.approx(0.5)
  assert row['data_wait'] == 0 and 'total_tokens' not in row
  out.close()


def test_a_terminal_without_unicode_gets_an_ascii_bar(make, terminal):

  class Old(Terminal):
    encoding = 'latin-1'

  clock, stream = Clock(), Old()
  out = make(4, stream=stream, clock=clock)
  clock.now += 1
  out.progress(2, dict(loss=3.0, tokens=5))
  out.close()
  assert '####....' in stream.getvalue().encode('latin-1').decode()


def test_a_mean_leaves_out_skipped_steps():
  row = lambda loss, bad: {'loss': np.float32(loss), 'nonfinite': bad}
  mean = telemetry_lib.mean_of_finite([row(1, 0), row(np.nan, 1), row(3, 0)])
  assert mean == {'loss': 2.0, 'nonfinite': 1}
  mean = telemetry_lib.mean_of_finite([row(np.inf, 1)])
  assert np.isnan(mean['loss']) and mean['nonfinite'] == 1


def test_a_long_compilation_is_reported_unless_the_line_shows_it(
    make, monkeypatch, capsys
):
  clock, stream = Clock(), io.StringIO()
  monkeypatch.setattr(compiling, '_reported', set())
  out = make(10, stream=stream, clock=clock, seconds=30.0)
  for what in 'first', 'second':  # the second within 30 seconds
    with out.compiling(what):
      compiling._report(compiling._described[-1])
  out.close()
  assert 'compiling for first' in stream.getvalue()
  assert 'compiling for second' not in stream.getvalue()
  assert capsys.readouterr().err == 'compiling for second\n'
