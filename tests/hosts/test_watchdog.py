"""The watchdog's waiting time, by a clock of the test."""

import itertools
import threading
import types

import jax
import jax.numpy as jnp
import pytest

from locost_jax.hosts import watchdog


class Ended(Exception):
  """Stands for the end of the process."""


@pytest.fixture
def count_ticks(monkeypatch):
  """count_ticks(watch, jumps) -> looks of the watchdog until it ends all.

  Between looks the clock goes on by the jumps, then by the watchdog's own.
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
      return looked > most  # as if the run were over

    watch._ended = types.SimpleNamespace(wait=wait)
    try:
      watch._watch()
    except Ended:
      return looked
    return None

  return count_ticks


def test_silence_ends_the_process(count_ticks):
  """After ten looks, whatever the seconds are."""
  assert 10 <= count_ticks(watchdog.Watchdog(2)) <= 11


def test_a_process_that_was_stopped_has_not_been_waiting(count_ticks):
  """However late it is when it goes on."""
  looks = count_ticks(watchdog.Watchdog(2), [0.2, 1e6, 0.2, 1e6])
  assert 7 <= looks <= 9  # a stop counts as two


def test_signs_of_life_keep_it_silent(count_ticks, monkeypatch):
  watch = watchdog.Watchdog(2)
  # Whatever the watched thread does between two looks.
  monkeypatch.setattr(watch, '_is_compiling', watch.alive)
  assert count_ticks(watch) is None


def test_a_compilation_is_no_hang_but_what_comes_after_it_is(
    count_ticks, monkeypatch
):
  watch = watchdog.Watchdog(2)
  looks = itertools.count(1)
  monkeypatch.setattr(watch, '_is_compiling', lambda: next(looks) <= 500)
  assert 510 <= count_ticks(watch) <= 511


def test_a_thread_that_compiles_is_seen():
  """By a look at any moment of it; one that computes is not."""
  watch, seen, is_over = watchdog.Watchdog(2), [], threading.Event()

  def look():
    while not is_over.is_set() and not seen:
      seen.extend([True] * watch._is_compiling())

  x = jnp.ones(8)
  x.sum().block_until_ready()  # compiled here
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
