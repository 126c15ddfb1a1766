"""The watchdog's waiting time, measured with a fake clock."""

import itertools
import threading
import types

import jax
import jax.numpy as jnp
import pytest

from locost_jax.hosts import watchdog


class Ended(Exception):
  """Raised in place of ending the process."""


@pytest.fixture
def count_ticks(monkeypatch):
  """count_ticks(watch, jumps) -> ticks until the watchdog ends the process.

  The clock first advances by the jumps, then by the watchdog's own tick.
  """
  now = [0.0]
  clock = types.SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0])
  monkeypatch.setattr(watchdog, 'time', clock)
  monkeypatch.setattr(watchdog.Watchdog, '_tell', lambda self: None)

  def end(status):
    assert status == watchdog.STATUS
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


def test_a_silent_process_is_ended(count_ticks):
  """It is ended after ten ticks, whatever their length."""
  assert 10 <= count_ticks(watchdog.Watchdog(2)) <= 11


def test_time_while_the_process_was_stopped_does_not_count(count_ticks):
  """However long the process was stopped."""
  looks = count_ticks(watchdog.Watchdog(2), [0.2, 1e6, 0.2, 1e6])
  assert 7 <= looks <= 9  # a stop counts as two ticks


def test_alive_resets_the_watchdog(count_ticks, monkeypatch):
  watch = watchdog.Watchdog(2)
  # Calls `alive` at each tick, like the watched thread.
  monkeypatch.setattr(watch, '_is_compiling', watch.alive)
  assert count_ticks(watch) is None


def test_a_hang_after_a_compilation_is_found(count_ticks, monkeypatch):
  watch = watchdog.Watchdog(2)
  looks = itertools.count(1)
  monkeypatch.setattr(watch, '_is_compiling', lambda: next(looks) <= 500)
  assert 510 <= count_ticks(watch) <= 511


def test_a_compiling_thread_is_detected():
  """A compiling thread is detected at any moment, a computing one never."""
  watch, seen, is_over = watchdog.Watchdog(2), [], threading.Event()

  def look():
    while not is_over.is_set() and not seen:
      seen.extend([True] * watch._is_compiling())

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
