"""The progress line, on a terminal and elsewhere."""

import io

import pytest

from locost_jax.config import progress
from tests.telemetry.test_telemetry import Clock
from tests.telemetry.test_telemetry import Terminal


@pytest.fixture
def clock():
  """A clock that tests set: clock.now = 5.0."""
  clock = Clock()
  clock.now = 0.0
  return clock


def test_without_a_terminal_lines_are_rare(clock):
  stream = io.StringIO()
  shown = progress.Progress(stream, 30, clock)
  shown.head('a.txt')
  for done in range(13):
    clock.now = 10.0 * done
    shown.show('encoding', done, 12)
  shown.note('A note.')
  assert stream.getvalue().splitlines() == [
      'a.txt  encoding  3/12  1:30 left',
      'a.txt  encoding  6/12  1:00 left',
      'a.txt  encoding  9/12  30 s left',
      'a.txt  encoding  12/12',
      'A note.',
  ]


def test_a_terminal_redraws_one_line(clock, monkeypatch):
  monkeypatch.setenv('TERM', 'xterm')
  monkeypatch.setenv('COLUMNS', '60')
  stream = Terminal()
  shown = progress.Progress(stream, clock=clock)
  shown.show('encoding', 0, 4)
  clock.now = 8.0
  shown.show('encoding', 1, 4)
  shown.note('A note.')
  # Another stage has its own rate.
  clock.now = 10.0
  shown.show('decoding', 0, 10)
  clock.now = 11.0
  shown.show('decoding', 5, 10)
  drawn = stream.getvalue().split('\r')
  assert '\n' not in stream.getvalue().replace('A note.\n', '')
  assert drawn[2] == f'encoding  {"━" * 8}{"╌" * 24}  1/4  24 s left\x1b[K'
  assert drawn[3] == '\x1b[KA note.\n'
  assert drawn[-1] == f'decoding  {"━" * 16}{"╌" * 16}  5/10  1 s left\x1b[K'
  assert all(len(line) < 60 + len('\x1b[K') for line in drawn)


def test_redrawing_is_limited(clock, monkeypatch):
  monkeypatch.setenv('TERM', 'xterm')
  stream = Terminal()
  shown = progress.Progress(stream, clock=clock)
  for done in range(1000):
    clock.now = done / 1000
    shown.show('decoding', done, 1000)
  assert stream.getvalue().count('\r') <= 11


@pytest.mark.parametrize(
    'seconds, expected',
    [(0.4, '0 s'), (59.4, '59 s'), (187, '3:07'), (7387, '2:03:07')],
)
def test_duration(seconds, expected):
  assert progress.duration(seconds) == expected
