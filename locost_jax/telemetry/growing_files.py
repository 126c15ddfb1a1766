"""Append-only files that survive a full disk.

Bytes that cannot be written stay in memory; the next write continues with them.
tensorboardX's own writer thread dies at the first error and then blocks the run
when its queue is full.
"""

import os
from pathlib import Path
import socket
import struct
import time

from tensorboardX import summary
from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import masked_crc32c

from locost_jax.errors import disk_error


class File:
  """A file of whole records, opened for appending.

  Attributes:
    problem: why the last write failed, in a few words, or ''.
  """

  def __init__(self, path):
    """Opens the file; creates it if it does not exist."""
    self._file = open(path, 'ab', buffering=0)
    self._pending, self.problem = b'', ''

  def write(self, record):
    """Appends pending bytes and the record; keeps what cannot be written."""
    self._pending += record
    try:
      while self._pending:
        written = self._file.write(self._pending)
        self._pending = self._pending[written:]
      self.problem = ''
    except OSError as error:
      self.problem = disk_error(error)

  def sync(self):
    """Writes pending bytes and flushes the file to disk, if possible."""
    self.write(b'')
    try:
      os.fsync(self._file.fileno())
    except OSError as error:
      self.problem = disk_error(error)

  def close(self):
    """Syncs and closes the file."""
    self.sync()
    self._file.close()


class Events(File):
  """A TensorBoard event file of one process."""

  def __init__(self, directory, purge_step):
    """Creates DIRECTORY/events.out.tfevents.TIME.HOST.

    Args:
      directory: created if missing.
      purge_step: TensorBoard hides an earlier process's events from this step
        on.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    super().__init__(
        directory
        / (f'events.out.tfevents.{time.time():.6f}.{socket.gethostname()}')
    )
    self._add(event_pb2.Event(file_version='brain.Event:2'))
    self._add(
        event_pb2.Event(
            step=purge_step,
            session_log=event_pb2.SessionLog(status=event_pb2.SessionLog.START),
        )
    )

  def add_scalar(self, name, value, step):
    """Writes one number, measured after `step` steps."""
    self._add(event_pb2.Event(step=step, summary=summary.scalar(name, value)))

  def _add(self, event):
    event.wall_time = time.time()
    data = event.SerializeToString()
    length = struct.pack('<Q', len(data))
    self.write(
        b''.join(
            [
                length,
                struct.pack('<I', masked_crc32c(length)),
                data,
                struct.pack('<I', masked_crc32c(data)),
            ]
        )
    )
