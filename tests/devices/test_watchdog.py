"""The watchdog's timer, with a fake clock."""

import itertools
import threading
import types

import jax
import jax.numpy as jnp
import pytest

from locost_jax.devices import watchdog
from locost_jax.errors import AGAIN


class Ended(Exception):
  """Raised in place of ending the process."""


@pytest.fixture
def count_ticks(monkeypatch):
  """Returns count_ticks(watch, jumps) -> rounds until the process ends.

  Between rounds the clock advances by the jumps, then by the watchdog's tick.
  """
  now = [0.0]
  clock = types.SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0])
  monkeypatch.setattr(watchdog, 'time', clock)
  monkeypatch.setattr(watchdog.Watchdog, '_report', lambda self: None)

  def end(status):
    assert status == AGAIN
    raise Ended

  monkeypatch.setattr(watchdog.os, '_exit', end)

  def count_ticks(watch, jumps=(), most=1000):
    jumps, looks = iter(jumps), itertools.count(1)
    looked = 0

    def wait(tick):
      nonlocal looked
      looked = next(looks)
      now[0] += next(jumps, tick)
      return looked > most  # like the end of the run

    watch._ended = types.SimpleNamespace(wait=wait)
    try:
      watch._watch()
    except Ended:
      return looked
    return None

  return count_ticks


def test_time_in_a_stopped_process_does_not_count(count_ticks):
  looks = count_ticks(watchdog.Watchdog(2), [0.2, 1e6, 0.2, 1e6])
  assert 7 <= looks <= 9  # a stop counts as two ticks


def test_heartbeats_keep_the_process_alive(count_ticks, monkeypatch):
  watch = watchdog.Watchdog(2)
  # Called between two rounds, as the watched thread might.
  monkeypatch.setattr(watchdog, 'is_compiling', lambda _: watch.heartbeat())
  assert count_ticks(watch) is None


def test_time_counts_only_after_a_compilation(count_ticks, monkeypatch):
  """Ten rounds of silence, for any number of seconds, end the process."""
  watch = watchdog.Watchdog(2)
  looks = itertools.count(1)
  monkeypatch.setattr(watchdog, 'is_compiling', lambda _: next(looks) <= 500)
  assert 510 <= count_ticks(watch) <= 511


def test_only_compiling_threads_count_as_compiling():
  watched, seen, is_over = threading.get_ident(), [], threading.Event()

  def look():
    while not is_over.is_set() and not seen:
      seen.extend([True] * watchdog.is_compiling(watched))

  x = jnp.ones(8)
  x.sum().block_until_ready()  # compiles now
  looking = threading.Thread(target=look)
  looking.start()
  for _ in range(20):
    x.sum().block_until_ready()
  assert not seen
  for i in range(1000):
    jax.jit(lambda x, i=i: jnp.sin(x) + i).lower(x).compile()
    if seen:
      break
  is_over.set()
  looking.join()
  assert seen
