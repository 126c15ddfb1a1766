"""Measures how long a run's steps take and how long they wait for data.

Time for other work (compiling, evaluating, saving) does not count; the loop waits
for the running step before it begins. Utilisation is relative to the peak
FLOP/s of the devices, from their makers' data sheets.

`trace_steps` profiles a few steps with jax.profiler. WORKDIR/profile (one per
phase) gets one directory per trace. To see it:

  pip install xprof && xprof --logdir=WORKDIR/profile     (or TensorBoard)
  https://ui.perfetto.dev                       opens its *.trace.json.gz
"""

import collections
import contextlib
import re
from typing import NamedTuple

import jax

# Steps without compilation before the trace: the first ones after a compilation
# still fill caches and memory pools.
_WARMUP = 2
# Regex of jax.Device.device_kind -> TFLOP/s of one device, as JAX counts them,
# for dense matrix products in bfloat16 (float16 on devices without it) with sums
# in float32; the first match decides. A chip of TPU v2, v3 or 7x is two devices,
# one per core, with half its FLOP/s each.
TFLOPS = (
    (r'GB[23]00', 2500.0),
    (r'B[23]00', 2250.0),
    (r'H200|H100.*(HBM3|SXM)', 989.0),
    (r'H100.*NVL', 835.0),
    (r'H100.*PCIe', 756.0),
    (r'A100\b|A800\b', 312.0),
    (r'L40S', 362.0),
    (r'L4$', 121.0),
    (r'A10G', 70.0),
    (r'A10$', 125.0),
    (r'RTX 4090', 165.0),
    (r'RTX 3090', 71.0),
    (r'V100\b', 125.0),
    (r'T4$', 65.0),
    (r'TPU7x', 1153.5),
    (r'TPU v6 lite|TPU v6e', 918.0),
    (r'TPU v5 lite|TPU v5e', 197.0),
    (r'TPU v5', 459.0),
    (r'TPU v4 lite', 138.0),
    (r'TPU v4', 275.0),
    (r'TPU v3', 61.5),
    (r'TPU v2', 22.5),
)


def peak_flops(kind):
  """Returns the peak FLOP/s of one device; None if not in the table (any CPU).

  A float32 run on an A100 reaches at most 1/16 of it, or 1/2 with TF32.

  Args:
    kind: jax.Device.device_kind, 'NVIDIA H100 80GB HBM3' or 'TPU v4'.
  """
  for pattern, tflops in TFLOPS:
    if re.search(pattern, kind):
      return tflops * 1e12
  return None


class _Mark(NamedTuple):
  """Sums at the end of a step."""

  seconds: float  # spent on steps
  step: int
  tokens: int = 0
  samples: int = 0
  flops: float = 0.0
  waited: float = 0.0  # seconds


class StepTimes:
  """Rates over the last 64 steps, or fewer at the start."""

  def __init__(self, clock, start_step):
    """Starts to measure."""
    self._clock = clock
    self._excluded = self._waited = 0.0
    self._start = clock()
    start = _Mark(self._start, start_step)
    self._marks = collections.deque([start], maxlen=64)

  def add(self, step, tokens, samples, flops):
    """Counts a finished step."""
    last = self._marks[-1]
    self._marks.append(
        _Mark(
            self._clock() - self._excluded,
            step,
            last.tokens + int(tokens),
            last.samples + int(samples),
            last.flops + float(flops),
            self._waited,
        )
    )

  @contextlib.contextmanager
  def excluded(self):
    """Context whose time does not count; no step may run."""
    start = self._clock()
    try:
      yield
    finally:
      self._excluded += self._clock() - start

  @contextlib.contextmanager
  def waiting(self, running=None):
    """Context in which the host waits for data.

    It counts unless the step whose outputs are `running`, a tree of arrays or
    None, still runs at its end: then the devices did not wait.
    """
    start = self._clock()
    yield
    outputs = jax.tree.leaves(running)
    if all(x.is_ready() for x in outputs):
      self._waited += self._clock() - start

  def seconds(self):
    """Returns (seconds of finished steps, of everything since the start)."""
    return self._marks[-1].seconds - self._start, self._clock() - self._start

  def rates(self, peak=None):
    """Returns the known rates: name -> number; {} before the first step.

    Args:
      peak: peak FLOP/s of all devices together, or None.
    """
    first, last = self._marks[0], self._marks[-1]
    seconds = last.seconds - first.seconds
    if seconds <= 0:
      return {}
    row = dict(
        tokens_per_second=(last.tokens - first.tokens) / seconds,
        samples_per_second=(last.samples - first.samples) / seconds,
        step_seconds=seconds / max(last.step - first.step, 1),
        data_wait=min((last.waited - first.waited) / seconds, 1.0),
    )
    if peak and last.flops > first.flops:
      row['mfu'] = (last.flops - first.flops) / seconds / peak
    return row


@contextlib.contextmanager
def trace_steps(step_function, directory, steps, telemetry):
  """Context that traces `steps` calls in a row of a step function.

  Yields:
    The function to call instead; with 0 steps, and on hosts other than the
    first, `step_function` itself.
  """
  if not steps or jax.process_index():
    yield step_function
    return
  seen, untraced, first, traced = set(), _WARMUP, 0, 0
  trace = contextlib.ExitStack()

  def call(state, batch):
    nonlocal untraced, first, traced
    shapes = tuple(x.shape for x in jax.tree.leaves(batch))
    untraced -= shapes in seen
    seen.add(shapes)
    if untraced < 0 and not traced:
      first = int(state.step)
      jax.block_until_ready(state)  # keeps earlier steps out of the trace
      with telemetry.activity('tracing'):
        jax.profiler.start_trace(str(directory))
      trace.callback(end)
    if untraced >= 0 or traced == steps:
      return step_function(state, batch)
    traced += 1
    with jax.profiler.StepTraceAnnotation('train', step_num=first + traced):
      state, metrics = step_function(state, batch)
    if traced == steps:
      jax.block_until_ready((state, metrics))
      trace.close()
    return state, metrics

  def end():
    with telemetry.activity('tracing'):
      jax.profiler.stop_trace()
    telemetry.note(
        f'{directory}: a trace of {traced} steps; see it with '
        f'`xprof --logdir={directory}` (pip install xprof), or open its '
        '*.trace.json.gz in https://ui.perfetto.dev'
    )

  try:
    yield call
  finally:
    trace.close()
    if seen and not traced:
      telemetry.note(
          f'--profile: no trace: the run ended within {_WARMUP} steps after its '
          'last compilation'
      )
