"""Writes metrics to metrics.jsonl and TensorBoard; reads metrics.jsonl.

metrics.jsonl has one JSON object per line: `step` and the numbers measured
after that many steps, {"step": 100, "train/loss": 3.21, ...}. A number that is
not finite is null. Lines of evaluations also have texts, the signatures. A run
that resumes from a step drops the lines after it. A full disk ends the run.
"""

import contextlib
import json
import math
import os
from pathlib import Path
import socket
import time

import numpy as np
from tensorboardX import record_writer
from tensorboardX import summary
from tensorboardX.proto import event_pb2

from locost_jax import files
from locost_jax.errors import InputError


class MetricsLog:
  """Writes every line to metrics.jsonl and TensorBoard."""

  def __init__(self, workdir, start_step, is_evaluated):
    """Opens WORKDIR/metrics.jsonl and WORKDIR/tensorboard for appending.

    Args:
      is_evaluated: whether start_step has been evaluated, see `truncate`.
    """
    path = workdir / 'metrics.jsonl'
    truncate(path, start_step, is_evaluated)
    self._file = open(path, 'ab')
    self._events = _open_events(workdir / 'tensorboard', start_step + 1)

  def log(self, step, metrics, texts=()):
    """Writes the numbers measured after `step` steps.

    Args:
      metrics: name -> number: an int, which stays exact, or anything that
        float() takes. A number that is not finite becomes null.
      texts: name -> text, added to the line of metrics.jsonl.
    """
    row = {'step': int(step)}
    for name, value in metrics.items():
      if not isinstance(value, int):
        # The shortest decimal that gives this float32: 0.003 instead of
        # 0.003000000026077032.
        value = float(str(np.float32(value)))
      row[name] = value if math.isfinite(value) else None
    with _explaining_disk_errors():
      for name, value in metrics.items():
        event = summary.scalar(name, float(value))
        _write_event(self._events, step=int(step), summary=event)
      self._file.write((json.dumps(row | dict(texts)) + '\n').encode())
      self._file.flush()
      self._events.flush()

  def sync(self):
    """Flushes everything logged to disk."""
    with _explaining_disk_errors():
      os.fsync(self._file.fileno())
      self._events.flush()

  def close(self):
    """Syncs and closes the files."""
    self.sync()
    with _explaining_disk_errors():
      self._file.close()
      self._events.close()


@contextlib.contextmanager
def _explaining_disk_errors():
  """A context in which a full disk is one line, an InputError."""
  try:
    yield
  except OSError as error:
    raise InputError(
        f'the metrics could not be written: {error.strerror}: make room and run '
        'the same command again'
    ) from error


def _open_events(directory, purge_step):
  """Creates DIRECTORY/events.out.tfevents.TIME.HOST, returns its writer.

  TensorBoard hides an earlier process's events from `purge_step` on.
  (tensorboardX's SummaryWriter has a thread that dies at the first error and
  then blocks the run when its queue is full.)
  """
  directory.mkdir(parents=True, exist_ok=True)
  name = f'events.out.tfevents.{time.time():.6f}.{socket.gethostname()}'
  writer = record_writer.RecordWriter(str(directory / name))
  _write_event(writer, file_version='brain.Event:2')
  start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
  _write_event(writer, step=purge_step, session_log=start)
  return writer


def _write_event(writer, **fields):
  event = event_pb2.Event(wall_time=time.time(), **fields)
  writer.write(event.SerializeToString())


def read_totals(path, step, logged):
  """Returns what a run has counted before it resumes from a step.

  Args:
    logged: steps that the lines count; the next line will count the others.

  Returns:
    (tokens of the steps up to `step`, or None if unknown; seconds of these
    steps; seconds of everything).
  """
  tokens, useful, total = None if logged else 0, 0.0, 0.0
  for _, row in read_lines(path):
    total = row.get('train/run_seconds', total)
    if row['step'] <= step:
      tokens = row.get('train/total_tokens', tokens)
      useful = row.get('train/goodput', useful / (total or 1)) * total
  return tokens, useful, total


def truncate(path, step, is_evaluated=True):
  """Removes the lines after a step, and an incomplete last one; atomically.

  Args:
    is_evaluated: if False, only the training line of `step` itself stays.
  """
  path, kept = Path(path), []
  if not path.exists():
    return
  for line, row in read_lines(path):
    is_kept = row['step'] <= step
    if row['step'] == step and not is_evaluated:
      is_kept = 'train/loss' in row
    if is_kept:
      kept.append(line + b'\n')
  files.write(path, b''.join(kept))


def read_lines(path):
  """Yields (line, row) for each complete line of metrics.jsonl."""
  files.check_regular(path)
  if not Path(path).exists():
    return
  lines = Path(path).read_bytes().split(b'\n')[:-1]
  for number, line in enumerate(lines, 1):
    try:
      row = json.loads(line)
    except (ValueError, RecursionError):  # cut by a kill
      continue
    if not isinstance(row, dict) or not isinstance(row.get('step'), int):
      raise InputError(
          f'{path}:{number}: expected an object with a step, got '
          f'{files.show_value(row)}'
      )
    yield line, row
