"""A line of progress on stderr, for work whose parts are counted.

On a terminal it is one line that is drawn over; elsewhere a line is printed now
and then.
"""

import collections
import math
import os
import shutil
import sys
import time


class Progress:
  """Shows how far the work is and how long the stage it is in still takes."""

  def __init__(self, stream=None, seconds=30.0, clock=time.monotonic):
    """Draws nothing yet.

    Args:
      stream: where to; None: stderr.
      seconds: between lines when the stream is no terminal.
      clock: seconds since whenever.
    """
    self._stream = stream or sys.stderr
    self._live = self._stream.isatty() and os.environ.get('TERM') != 'dumb'
    self._clock, self._seconds = clock, 0.1 if self._live else seconds
    encoding = (getattr(self._stream, 'encoding', None) or 'utf-8').lower()
    self._marks = '━╌' if encoding.startswith('utf') else '#.'
    self._shown = -math.inf if self._live else clock()
    self._drawn, self._stage, self._head = False, '', ''
    self._done = self._total = 0
    # (time, done) of the last calls: the first layer compiles, the others do
    # not.
    self._window = collections.deque(maxlen=8)

  def head(self, text):
    """Sets what stands before the stage: which document it is."""
    self._head = text

  def show(self, stage, done, total):
    """Tells how far a stage is.

    Args:
      stage: such as 'encoding'; another one than before starts anew.
      done: how many of its parts are done.
      total: how many there are at most.
    """
    if stage != self._stage or done < self._done:
      self._window.clear()
    self._stage, self._done, self._total = stage, done, total
    self._window.append((self._clock(), done))
    if self._clock() - self._shown >= self._seconds:
      self._shown = self._clock()
      if self._live:
        self._draw()
      else:
        print(self._line(100), file=self._stream, flush=True)

  def note(self, text):
    """Prints a line that stays."""
    self.wipe()
    print(text, file=self._stream, flush=True)

  def wipe(self):
    """Clears the line, so that something else can be printed."""
    if self._drawn:
      self._stream.write('\r\x1b[K')
      self._stream.flush()
      self._drawn = False

  def _draw(self):
    width = shutil.get_terminal_size().columns - 1
    # \x1b[K: clear to the end of the line.
    self._stream.write('\r' + self._line(width)[:width] + '\x1b[K')
    self._stream.flush()
    self._drawn = True

  def _line(self, width):
    """Returns 'a.txt  encoding  ━━╌╌╌╌╌  4/12  1:02 left'."""
    parts = [self._head] if self._head else []
    parts += [self._stage, f'{self._done}/{self._total}']
    left = self._time_left()
    if left is not None:
      parts.append(f'{duration(left)} left')
    if self._live:
      room = width - len('  '.join(parts)) - 2
      if room >= 12:
        fraction = self._done / max(self._total, 1)
        parts.insert(-1 if left is None else -2,
                     bar(fraction, min(room, 32), *self._marks))
    return '  '.join(parts)

  def _time_left(self):
    (then, few), (now, many) = self._window[0], self._window[-1]
    if many <= few or many >= self._total:
      return None
    return (self._total - many) * (now - then) / (many - few)


def bar(fraction, width, done, left):
  """A bar of `width` signs, those of the fraction `done`, the rest `left`."""
  full = int(min(max(fraction, 0), 1) * width)
  return done * full + left * (width - full)


def duration(seconds):
  """Returns '42 s', '3:07' minutes or '2:03:07' hours."""
  seconds = int(round(seconds))
  if seconds < 60:
    return f'{seconds} s'
  minutes, seconds = divmod(seconds, 60)
  if minutes < 60:
    return f'{minutes}:{seconds:02d}'
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02d}:{seconds:02d}'
