"""Profiles a few training steps with jax.profiler.

WORKDIR/profile (one per phase) gets one directory per trace. To see it:

  pip install xprof && xprof --logdir=WORKDIR/profile     (or TensorBoard)
  https://ui.perfetto.dev                       opens its *.trace.json.gz
"""

import contextlib
from pathlib import Path

import jax

STEPS = 5  # traced steps by default
# Steps without compilation before the trace: the first ones after a compilation
# still fill caches and memory pools.
WARMUP = 2


@contextlib.contextmanager
def trace_steps(step_function, directory, steps, telemetry):
  """Context that traces some calls of a step function.

  Args:
    step_function: (state, batch) -> (state, metrics), compiled per shape of
      the batch.

  Yields:
    The function to call instead; with 0 steps, and on hosts other than the
    first, `step_function` itself.
  """
  if not steps or jax.process_index():
    yield step_function
    return
  trace = _Trace(step_function, Path(directory), steps, telemetry)
  try:
    yield trace
  finally:
    trace.end()


class _Trace:
  """Calls a step function and traces `steps` calls in a row."""

  def __init__(self, step_function, directory, steps, telemetry):
    self._step_function, self._directory = step_function, directory
    self._steps, self._telemetry = steps, telemetry
    self._seen, self._warmed_up, self._traced, self._before = set(), 0, 0, 0
    self._running, self._over = False, False

  def __call__(self, state, batch):
    shapes = tuple(x.shape for x in jax.tree.leaves(batch))
    known = shapes in self._seen
    self._seen.add(shapes)
    if known and not self._over and not self._running:
      if self._warmed_up == WARMUP:
        self._start(state)
      self._warmed_up += 1
    if not self._running:
      return self._step_function(state, batch)
    self._traced += 1
    with jax.profiler.StepTraceAnnotation(
        'train', step_num=self._before + self._traced
    ):
      state, metrics = self._step_function(state, batch)
    if self._traced == self._steps:
      jax.block_until_ready((state, metrics))
      self.end()
    return state, metrics

  def _start(self, state):
    self._before = int(state.step)
    jax.block_until_ready(state)  # keeps earlier steps out of the trace
    with self._telemetry.activity('tracing'):
      jax.profiler.start_trace(str(self._directory))
    self._running = True

  def end(self):
    """Writes the current trace, if any."""
    if self._running:
      with self._telemetry.activity('tracing'):
        jax.profiler.stop_trace()
      self._telemetry.note(
          f'{self._directory}: a trace of {self._traced} steps; see it with '
          f'`xprof --logdir={self._directory}` (pip install xprof), or open '
          'its *.trace.json.gz in https://ui.perfetto.dev'
      )
    elif self._seen and not self._over:
      self._telemetry.note(
          f'--profile: no trace: the run ended within {WARMUP} steps after its '
          'last compilation'
      )
    self._running, self._over = False, True
