"""A lease on a run in a bucket: one process at a time writes there.

A bucket has no locks that end with their process. The lease is an object with a
nonce, replaced every `RENEW` seconds under the condition that its generation is
the last that the holder wrote. A process that waits takes it over after
`TAKE_OVER` seconds without a change on its own clock, so the clocks of two
machines are never compared. A holder that was paused meanwhile finds out at its
next renewal, which it makes before each commit.
"""

import contextlib
import json
import os
import socket
import sys
import threading
import time
import uuid

from locost_jax.config import object_store
from locost_jax.errors import AGAIN
from locost_jax.errors import InputError
from locost_jax.errors import Stopped
from locost_jax.errors import visible

RENEW, TAKE_OVER, LOOK = 30.0, 90.0, 5.0  # seconds
_KEYS = 'nonce', 'count', 'holder'


class Lease:
  """The lease of one process.

  Attributes:
    generation: of the object before this process took the lease, or None.
  """

  def __init__(self, uri, bucket, name):
    """Takes the lease, or waits for the end of a holder that was killed.

    Args:
      uri: of the run, for messages.
      bucket: an `object_store.Bucket`.
      name: of the object.

    Raises:
      InputError: another process holds it, or the bucket cannot be written.
    """
    self._uri, self._bucket, self._name = uri, bucket, name
    self._nonce, self._count, self._lost = uuid.uuid4().hex, 0, ''
    self._lock, self._end = threading.Lock(), threading.Event()
    self.generation = self._wait_until_free()
    self._last = self.generation
    try:
      self._write()
    except object_store.Replaced:
      raise InputError(f'{uri}: another process has just begun here') from None
    self._thread = threading.Thread(target=self._renew_often, daemon=True)
    self._thread.start()

  def renew(self):
    """Renews the lease now; raises Stopped if another process has taken it."""
    with self._lock:
      self.check()
      try:
        self._write()
      except object_store.Replaced:
        self._lost = _holder(*self._bucket.read(self._name)) or 'nobody'
        self.check()

  def check(self):
    """Raises Stopped if another process is known to have taken the lease."""
    if self._lost:
      raise Stopped(
          f'{self._uri}: this process was paused or cut off, and lost the lease '
          f'to {self._lost}: stopped, without writing there',
          AGAIN,
      )

  def release(self, is_unused):
    """Frees the lease; removes the object if the run is new and unused."""
    self._end.set()
    self._thread.join()
    # What cannot be freed now is free after TAKE_OVER.
    with self._lock, contextlib.suppress(InputError):
      if not self._lost and is_unused and self.generation is None:
        self._bucket.write(self._name, None, self._last)
      elif not self._lost:
        self._write(is_free=True)

  def _write(self, is_free=False):
    """Replaces the object that this process wrote last."""
    self._count += 1  # no two writes are equal
    holder = f'process {os.getpid()} on {socket.gethostname()}'
    row = [self._nonce, self._count, '' if is_free else holder]
    data = json.dumps(dict(zip(_KEYS, row))).encode()
    try:
      self._last = self._bucket.write(self._name, data, self._last)
    except object_store.Replaced:
      # By a write of this process that seemed to have failed?
      there, generation = self._bucket.read(self._name)
      if there is None or self._nonce.encode() not in there:
        raise
      self._last = self._bucket.write(self._name, data, generation)

  def _renew_often(self):
    while not self._end.wait(RENEW):
      # A bucket that does not answer costs nobody the lease.
      with contextlib.suppress(InputError, Stopped):
        self.renew()

  def _wait_until_free(self):
    """Returns the generation of an object that may be replaced, or None."""
    seen, begin = None, time.monotonic()
    while True:
      data, generation = self._bucket.read(self._name)
      holder = _holder(data, generation)
      if not holder:
        return generation
      if seen is None:
        seen = generation
        print(
            f'{self._uri}: held by {holder}: waits for up to {TAKE_OVER:g} s '
            'whether it is alive',
            file=sys.stderr,
            flush=True,
        )
      if generation != seen:
        raise InputError(
            f'{self._uri}: {holder} is training here: wait for its end, or use '
            'another --workdir'
        )
      if time.monotonic() - begin > TAKE_OVER:
        return generation
      time.sleep(LOOK)


def _holder(data, generation):
  """Returns 'process PID on HOST', or '' if the lease is free."""
  if generation is None:
    return ''
  try:
    return visible(json.loads(data)[_KEYS[-1]])[:200]
  except (ValueError, LookupError, TypeError):
    return 'another process'
