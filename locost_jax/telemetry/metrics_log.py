"""metrics.jsonl, and its numbers in TensorBoard and W&B.

metrics.jsonl has one JSON object per line, `step` and the numbers measured
after that many steps: {"step": 100, "train/loss": 3.21, ...}. null stands for a
number that is not finite. Lines of evaluations also have texts, the signatures.
A run that continues drops the lines after the step it continues from, so each
step is there once. While the disk has no room, what is to be written waits in
memory (`growing_files`).
"""

import json
import math
from pathlib import Path

import numpy as np

from locost_jax import files
from locost_jax.errors import InputError
from locost_jax.telemetry import growing_files


class MetricsLog:
  """Writes every line to metrics.jsonl, TensorBoard and, if asked, W&B."""

  def __init__(self, workdir, start_step, measured, tracker, note, labels=()):
    """Opens WORKDIR/metrics.jsonl and WORKDIR/tensorboard for appending.

    Args:
      workdir: a Path that exists.
      start_step: the step that the run continues from; later lines are cut.
      measured: whether start_step has been evaluated, see `cut`.
      tracker: weights_and_biases.Tracker, or None.
      note: takes a line to print.
      labels: {beginning of names: {name: text}}: texts that go into every line
        of metrics.jsonl that has a number of such a name.
    """
    path = workdir / 'metrics.jsonl'
    cut(path, start_step, measured)
    self._file = growing_files.File(path)
    self._events = growing_files.Events(workdir / 'tensorboard', start_step + 1)
    self._tracker, self._note, self._is_full = tracker, note, False
    self._labels = dict(labels)

  def log(self, step, metrics):
    """Writes the numbers measured after `step` steps.

    Args:
      step: int.
      metrics: name -> number (an int, which stays exact, or what float()
        takes); one that is not finite becomes null in metrics.jsonl.
    """
    row = {'step': int(step)}
    for name, value in metrics.items():
      if not isinstance(value, int):
        # The shortest digits that distinguish every float32: 0.003, not
        # 0.003000000026077032.
        value = float(str(np.float32(value)))
      row[name] = value if math.isfinite(value) else None
      self._events.add_scalar(name, value, int(step))
    texts = {}
    for beginning, labels in self._labels.items():
      if any(name.startswith(beginning) for name in metrics):
        texts |= labels
    self._file.write((json.dumps(row | texts) + '\n').encode())
    self._report_full_disk()
    if self._tracker:
      self._tracker.log(
          int(step),
          {
              name: value
              for name, value in row.items()
              if name != 'step' and value is not None
          },
      )

  def sync(self):
    """Returns when all that was logged is on disk, if there is room."""
    self._file.sync()
    self._events.sync()
    self._report_full_disk()

  def close(self):
    """Syncs and ends the files."""
    self.sync()
    self._file.close()
    self._events.close()
    if self._tracker:
      self._tracker.close()

  def _report_full_disk(self):
    """Notes once that something could not be written, and once that it was."""
    problem = self._file.problem or self._events.problem
    if problem and not self._is_full:
      self._note(f'metrics could not be written and are kept: {problem}')
    elif self._is_full and not problem:
      self._note('metrics that had been kept are written')
    self._is_full = bool(problem)


def read_totals(path, step):
  """Reads a run's totals up to a step.

  Args:
    path: of metrics.jsonl; may not exist.
    step: the step it continues from.

  Returns:
    (tokens, or None if no line has them; joules; joules spent in all, with
    those for steps after `step`, which are done again).
  """
  tokens, kept, spent = None if step else 0, 0, 0
  for _, row in _read_lines(path):
    joules = row.get('train/total_joules', 0)
    spent = max(spent, joules)
    if row['step'] <= step:
      tokens = row.get('train/total_tokens', tokens)
      kept = max(kept, joules)
  return tokens, kept, spent


def keys(path):
  """Returns the names of the numbers of a metrics.jsonl: a sorted list.

  Raises:
    InputError: no such file.
  """
  _expect_file(path)
  rows = [row for _, row in _read_lines(path)]
  return sorted({name for row in rows for name in row} - {'step'})


def read_curve(path, key):
  """Reads one number of a run, against its steps.

  Args:
    path: of metrics.jsonl.
    key: 'train/loss' for example.

  Returns:
    (steps, values), two lists; steps at which it is missing or null are left
    out.

  Raises:
    InputError: no such file, or no line that has the key.
  """
  _expect_file(path)
  rows = [row for _, row in _read_lines(path)]
  found = [(row['step'], row[key]) for row in rows if row.get(key) is not None]
  if not found:
    known = ', '.join(keys(path)) or 'its keys, but it has no lines'
    raise InputError(f'{path}: no line has {key!r}; expected one of {known}')
  steps, values = zip(*found)
  return list(steps), list(values)


def read_texts(path, key):
  """Returns the different texts that a run has for a key, the first one first.

  Args:
    path: of metrics.jsonl; may not exist.
    key: 'eval/arxiv/signature/rouge' for example.
  """
  found = [row.get(key) for _, row in _read_lines(path)]
  return list(dict.fromkeys(text for text in found if isinstance(text, str)))


def _expect_file(path):
  if not Path(path).exists():
    raise InputError(f'{path}: no such file; expected metrics.jsonl of a run')


def cut(path, step, measured=True):
  """Drops the lines after a step, and a last line that was cut off.

  The file is replaced in one move: there is no moment without it.

  Args:
    path: of metrics.jsonl; may not exist.
    step: the last step whose lines stay.
    measured: False: of this step only the line of training stays.
  """
  path = Path(path)
  if not path.exists():
    return
  kept = []
  for line, row in _read_lines(path):
    is_kept = row['step'] <= step
    if row['step'] == step and not measured:
      is_kept = 'train/loss' in row
    if is_kept:
      kept.append(line + b'\n')
  files.write(path, b''.join(kept))


def _read_lines(path):
  """Yields (line, row) of the whole lines of metrics.jsonl."""
  if not Path(path).exists():
    return
  for line in Path(path).read_bytes().split(b'\n')[:-1]:
    try:
      yield line, json.loads(line)
    except ValueError:
      pass
