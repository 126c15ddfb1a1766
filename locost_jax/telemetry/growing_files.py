"""Files that grow while a run lasts, and survive a disk without room.

What cannot be written stays in memory and is tried again with what comes next,
from the very byte on. tensorboardX would write its events in a thread that dies
of the first error, and stop the run when its queue is full.
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
    problem: why the last write did not succeed, in a few words, or ''.
  """

  def __init__(self, path):
    """Opens the file, making it if need be."""
    self._file = open(path, 'ab', buffering=0)
    self._waiting, self.problem = b'', ''

  def write(self, record):
    """Appends bytes, after those that are still waiting."""
    self._waiting += record
    try:
      while self._waiting:
        written = self._file.write(self._waiting)
        self._waiting = self._waiting[written:]
      self.problem = ''
    except OSError as error:
      self.problem = disk_error(error)

  def sync(self):
    """Returns when what could be written is on disk."""
    self.write(b'')
    try:
      os.fsync(self._file.fileno())
    except OSError as error:
      self.problem = disk_error(error)

  def close(self):
    """Writes what is missing to disk and closes the file."""
    self.sync()
    self._file.close()


class Events(File):
  """TensorBoard's events of one process."""

  def __init__(self, directory, purge_step):
    """Makes DIRECTORY/events.out.tfevents.TIME.HOST.

    Args:
      directory: made if it is not there.
      purge_step: TensorBoard hides what an earlier process wrote of this step
        and later ones.
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
