"""Collective operations of a run's hosts, and work of the first host only."""

import contextlib
import json
import re
import sys

import jax
from jax.experimental import multihost_utils
import numpy as np

from locost_jax.config import object_store
from locost_jax.devices import watchdog
from locost_jax.errors import FULL
from locost_jax.errors import InputError
from locost_jax.errors import Stopped

_LOST = 'Gloo|by peer|remote process exited|Socket closed'


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
  """A context whose InputError or Stopped on one host is raised on every host.

  So is a full disk, as an InputError.
  """
  problem = status = None
  try:
    yield
  except (InputError, Stopped) as error:
    if jax.process_count() == 1:
      raise
    problem, status = str(error), error.status
  except OSError as error:
    if error.errno not in FULL or jax.process_count() == 1:
      raise
    problem, status = f'{error.filename}: {error.strerror}', InputError.status
  for problem, status in filter(any, gather_rows([[problem, status]])):
    if status == InputError.status:
      raise InputError(problem)
    raise Stopped(problem, status)


@contextlib.contextmanager
def expecting_all_hosts():
  """A context that ends this process with one line after another has ended."""
  try:
    yield
  except (RuntimeError, ValueError) as error:
    reason = str(error).partition('\n')[0]
    is_lost = jax.process_count() > 1 and re.search(_LOST, reason)
    if isinstance(error, InputError) or not is_lost:
      raise
    sys.stdout.flush()
    watchdog.end(f'another host has ended ({reason})')  # JAX would wait for it


def gather_arrays(tree):
  """Returns a tree of whole numpy arrays on the first host, None on others.

  Leaf by leaf: a device holds one whole array at a time, the first host all.
  """
  leaves, structure = jax.tree.flatten(tree)
  for i, leaf in enumerate(leaves):
    whole = multihost_utils.process_allgather(leaf, tiled=True)
    # A copy: the next step reuses the memory of the state.
    leaves[i] = np.array(whole) if is_first_host() else None
  return structure.unflatten(leaves) if is_first_host() else None


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
