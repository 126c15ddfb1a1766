"""Collective operations of a run's hosts, and work of the first host only."""

import contextlib
import json
import sys

import jax
from jax.experimental import multihost_utils
import numpy as np

from locost_jax.config import object_store
from locost_jax.errors import InputError


def is_first_host():
  """Returns whether this process is the one that writes and prints."""
  return jax.process_index() == 0


def wait_for_hosts(name):
  """Blocks until every host has called this with the same name."""
  if jax.process_count() > 1:
    multihost_utils.sync_global_devices(name)


def log(text):
  """Prints a line on stderr, on the first host only."""
  if is_first_host():
    print(object_store.original(text), file=sys.stderr, flush=True)


@contextlib.contextmanager
def raising_together():
  """A context whose InputError on one host is raised on every host."""
  problem = None
  try:
    yield
  except InputError as error:
    problem = str(error)
  problem = next(filter(None, gather_rows([problem])), None)
  if problem:
    raise InputError(problem)


def gather_rows(rows):
  """Returns the rows of all hosts in one list, the same on every host."""
  if jax.process_count() == 1:
    return rows
  data = np.frombuffer(json.dumps(rows).encode(), np.uint8)
  sizes = multihost_utils.process_allgather(np.array(len(data)))
  padded = np.zeros(int(sizes.max()), np.uint8)
  padded[: len(data)] = data
  gathered = multihost_utils.process_allgather(padded)
  return [
      row
      for size, data in zip(sizes, gathered)
      for row in json.loads(data[: int(size)].tobytes())
  ]
