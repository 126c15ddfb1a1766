"""Compares our model with PyTorch models, each in a process of its own.

Compared are encoders, train steps, or whole models (encode and generate). All
models of a comparison are loaded, and their runs are interleaved. Each gets its
median time, its ratios to ours, and the peak memory of its process with the
whole model loaded. Train steps need much memory, so ours is compared with one
peer at a time. A process above the memory limit is stopped and reported; longer
inputs of its model are skipped.
"""

import contextlib
import functools
import statistics

from locost_jax.benchmarks import processes
from locost_jax.benchmarks import timing

# Our encoder: with kernels computed in each pass, or computed once and kept.
KERNELS_MADE, KERNELS_KEPT = 'locost, kernels made', 'locost, kernels kept'
# Our train step and our whole model.
OURS = 'locost'
# Suffix of a peer that recomputes activations, as ours does in pieces.
RECOMPUTES = ', recomputing'


def names_of(spec, peers):
  """Returns the names of all models: ours, then each peer in each form."""
  if spec['writes']:
    return [OURS, *peers]
  if not spec['learns']:
    return [KERNELS_MADE, KERNELS_KEPT, *peers]
  return [OURS, *(peer + form for peer in peers for form in ('', RECOMPUTES))]


def make_spec(spec, name, length):
  """Returns the worker's spec of a model, by its name in `names_of`."""
  spec = dict(spec, length=length)
  if name == OURS:
    return dict(spec, what='writer' if spec['writes'] else 'learner')
  if name in (KERNELS_MADE, KERNELS_KEPT):
    return dict(spec, what='encoder', kept=name == KERNELS_KEPT)
  return dict(
      spec,
      what='peer',
      peer=name.removesuffix(RECOMPUTES),
      recomputes=name.endswith(RECOMPUTES),
  )


def compare_all(spec, names, length, out_of_memory, report):
  """Compares all encoders or whole models together, but train steps in pairs.

  Our train step then has a row for each peer, such as 'locost, next to longt5'.
  Arguments and result are those of `compare`.
  """
  others = [
      name for name in names if name != OURS and name not in out_of_memory
  ]
  if not (spec['learns'] and others):
    return compare(spec, names, length, out_of_memory, report)
  rows = []
  for other in others:
    pair = compare(spec, [OURS, other], length, out_of_memory, report)
    for row in pair:
      if row['subject'] == OURS:
        row['subject'] = f'{OURS}, next to {other}'
    rows += pair
  return rows


def compare(spec, names, length, out_of_memory, report):
  """Times models at one length.

  Args:
    spec: see `spec.make_spec`.
    names: some of `names_of`.
    length: tokens.
    out_of_memory: {name: length that needed too much memory}; these models are
      skipped. New ones are added.
    report: function (line) that shows progress.

  Returns:
    A list of dicts: subject, length, times, seconds, loaded_peak_bytes (of the
    process before its first run), peak_bytes (after the last run), ratio_made
    and ratio_kept (its time / ours) or, for train steps and whole models, ratio
    (its time / ours), and peak_ratio (our peak, kernels made, / its peak); or
    memory_ended.
  """
  with contextlib.ExitStack() as stack:
    workers = _Workers(stack, length, out_of_memory)
    for name in dict.fromkeys(names):
      if name not in out_of_memory:
        report(f'{length} tokens: preparing {name}')
        workers.start(name, make_spec(spec, name, length))
    times = timing.time_interleaved(
        workers.calls(),
        spec['repeats'],
        spec['seconds'],
        lambda text: report(f'{length} tokens: {text}'),
    )
  rows = workers.rows
  for name, row in rows.items():
    if not row.get('memory_ended'):
      seconds = statistics.median(times[name])
      row.update(
          times=times[name],
          seconds=seconds,
          tokens_per_second=spec['batch_size'] * length / seconds,
          samples_per_second=spec['batch_size'] / seconds,
      )
  _add_ratios(rows)
  return list(rows.values())


class _Workers:
  """The worker processes of one comparison, by name.

  Attributes:
    rows: name -> row.
  """

  def __init__(self, stack, length, out_of_memory):
    """Starts no process yet.

    Args:
      stack: contextlib.ExitStack that will stop the processes.
      length, out_of_memory: see `compare`.
    """
    self._stack, self._length = stack, length
    self._out_of_memory, self._running = out_of_memory, {}
    self.rows = {}

  def start(self, name, spec):
    """Prepares a model, unless it or its kept kernels need too much memory."""
    row = self.rows[name] = dict(subject=name, length=self._length)
    try:
      worker = processes.WorkerProcess(spec, spec['limit'])
    except processes.OutOfMemory as error:
      self._end(name, error)
      return
    self._stack.callback(worker.close)
    row.update(worker.prepared)
    row['loaded_peak_bytes'] = row.pop('peak_bytes')
    if row.get('too_large_to_keep'):
      worker.close()
      del self.rows[name]
      return
    self._running[name] = worker

  def calls(self):
    """Returns {name: function () -> seconds, or None if out of memory}."""
    return {
        name: functools.partial(self._measure, name) for name in self._running
    }

  def _measure(self, name):
    try:
      answer = self._running[name].measure()
    except processes.OutOfMemory as error:
      self._end(name, error)
      return None
    self.rows[name].update(answer)
    return answer['seconds']

  def _end(self, name, error):
    self._out_of_memory[name] = self._length
    self.rows[name].update(memory_ended=True, peak_bytes=error.held)
    if name in self._running:
      self._running.pop(name).close()


def _add_ratios(rows):
  for ours, key in (
      (KERNELS_MADE, 'ratio_made'),
      (KERNELS_KEPT, 'ratio_kept'),
      (OURS, 'ratio'),
  ):
    for row in rows.values():
      if 'seconds' in row and 'seconds' in rows.get(ours, ()):
        row[key] = row['seconds'] / rows[ours]['seconds']
  ours = rows.get(KERNELS_MADE) or rows.get(OURS) or {}
  for row in rows.values():
    if 'seconds' in ours:
      row['peak_ratio'] = ours['peak_bytes'] / row['peak_bytes']


def find_longest(spec, name, start, report):
  """Finds the longest input whose process stays below spec['limit'].

  The length is doubled from `start` until the process is out of memory, then
  1.5 times the last length is tried. The search also ends after a pass longer
  than spec['seconds'].

  Args:
    spec: see `spec.make_spec`.
    name: of the model.
    start: first length, in tokens.
    report: function (line) that shows progress.

  Returns:
    dict(subject, length, peak_bytes, ended_at): length is None if `start` does
    not fit; ended_at is the shortest length that did not fit, None if the
    search hit its time limit.
  """
  found = dict(subject=name, length=None, peak_bytes=None, ended_at=None)

  def fits(length):
    report(f'longest input of {name}: trying {length} tokens')
    try:
      with processes.WorkerProcess(
          make_spec(spec, name, length), spec['limit']
      ) as worker:
        answer = worker.measure()
    except processes.OutOfMemory:
      found['ended_at'] = length
      return False
    found.update(peak_bytes=answer['peak_bytes'], length=length)
    return answer['seconds'] <= spec['seconds']

  length = start
  while fits(length):
    length *= 2
  if found['length'] and found['ended_at']:
    fits(found['length'] * 3 // 2)
  return found
