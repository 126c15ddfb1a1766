"""A trace of a few training steps, to see where their time goes.

WORKDIR/profile (with phases, that of each) gets what jax.profiler writes, one
directory per trace:

  pip install xprof && xprof --logdir=WORKDIR/profile     (or TensorBoard)
  https://ui.perfetto.dev                       opens the *.trace.json.gz in it
"""

import contextlib
from pathlib import Path

import jax

STEPS = 5  # that are traced where no number is given
# Steps before the trace that compile nothing: the first ones after a compiling
# still fill caches and memory pools.
WARM = 2


@contextlib.contextmanager
def traced(step_function, directory, steps, telemetry):
  """Traces some steps of what is called in this context.

  Args:
    step_function: (state, batch) -> (state, metrics), compiled per shape of
      the batch.
    directory: where traces go; made if it is not there.
    steps: how many; 0: none, and `step_function` itself is what comes back.
    telemetry: of the run, to say what was written; its rates leave the
      writing out.

  Yields:
    The function to call in place of `step_function`.
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
  """A step function; of its calls, `steps` in a row are traced."""

  def __init__(self, step_function, directory, steps, telemetry):
    self._step_function, self._directory = step_function, directory
    self._steps, self._telemetry = steps, telemetry
    self._seen, self._warm, self._traced, self._before = set(), 0, 0, 0
    self._running, self._over = False, False

  def __call__(self, state, batch):
    shapes = tuple(x.shape for x in jax.tree.leaves(batch))
    known = shapes in self._seen
    self._seen.add(shapes)
    if known and not self._over and not self._running:
      if self._warm == WARM:
        self._start(state)
      self._warm += 1
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
    jax.block_until_ready(state)  # the steps before are no part of it
    with self._telemetry.aside('tracing'):
      jax.profiler.start_trace(str(self._directory))
    self._running = True

  def end(self):
    """Writes the trace that is being made, if one is."""
    if self._running:
      with self._telemetry.aside('tracing'):
        jax.profiler.stop_trace()
      self._telemetry.note(
          f'{self._directory}: a trace of {self._traced} steps; see it with '
          f'`xprof --logdir={self._directory}` (pip install xprof), or open '
          'its *.trace.json.gz in https://ui.perfetto.dev'
      )
    elif self._seen and not self._over:
      self._telemetry.note(
          f'--profile: no trace: the run ended within {WARM} steps of what it '
          'compiled'
      )
    self._running, self._over = False, True
