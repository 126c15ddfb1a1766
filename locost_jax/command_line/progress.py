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


class Line:
  """One line on a stream that is written anew as the work goes on."""

  def __init__(
      self, stream=None, seconds=30.0, clock=time.monotonic, at_once=False
  ):
    """Draws nothing yet.

    Args:
      stream: where to; None: stderr.
      seconds: between lines when the stream is no terminal.
      clock: seconds since whenever.
      at_once: print the first line without waiting.
    """
    self._stream = stream or sys.stderr
    self.live = self._stream.isatty() and os.environ.get('TERM') != 'dumb'
    self.drawn = False
    self._clock, self._seconds = clock, 0.1 if self.live else seconds
    encoding = (getattr(self._stream, 'encoding', None) or 'utf-8').lower()
    self._marks = '━╌' if encoding.startswith('utf') else '#.'
    self._shown = -math.inf if self.live or at_once else clock()

  def show(self, parts, fraction=None, at=0, now=False):
    """Writes the line, unless that was done a moment ago.

    Args:
      parts: list of texts, shown side by side.
      fraction: how much is done; None: no bar.
      at: the part in front of which the bar is drawn, on a terminal with room.
      now: however long ago it was.
    """
    if not now and self._clock() - self._shown < self._seconds:
      return
    self._shown = self._clock()
    if not self.live:
      print('  '.join(parts), file=self._stream, flush=True)
      return
    width = shutil.get_terminal_size().columns - 1
    room = width - len('  '.join(parts)) - 2
    if fraction is not None and room >= 12:
      parts = [
          *parts[:at],
          bar(fraction, min(room, 32), *self._marks),
          *parts[at:],
      ]
    # \x1b[K: clear to the end of the line.
    self._stream.write('\r' + '  '.join(parts)[:width] + '\x1b[K')
    self._stream.flush()
    self.drawn = True

  def note(self, text):
    """Prints a line that stays."""
    self.wipe()
    print(text, file=self._stream, flush=True)

  def wipe(self):
    """Clears the line, so that something else can be printed."""
    if self.drawn:
      self._stream.write('\r\x1b[K')
      self._stream.flush()
      self.drawn = False

  def end(self):
    """Leaves the line as it is; what follows begins a new one."""
    if self.drawn:
      print(file=self._stream, flush=True)
      self.drawn = False


class Progress:
  """Shows how far the work is and how long the stage it is in still takes."""

  def __init__(self, stream=None, seconds=30.0, clock=time.monotonic):
    """Draws nothing yet; arguments as in `Line`."""
    self._line, self._clock = Line(stream, seconds, clock), clock
    self.note, self.wipe = self._line.note, self._line.wipe
    self._stage, self._head, self._done = '', '', 0
    # (time, done) of the last calls: the first layer compiles, the others do
    # not.
    self._window = collections.deque(maxlen=8)

  def head(self, text):
    """Sets what stands before the stage: which document it is."""
    self._head = text

  def show(self, stage, done, total):
    """Shows 'a.txt  encoding  ━━╌╌╌╌╌  4/12  1:02 left'.

    Args:
      stage: such as 'encoding'; another one than before starts anew.
      done: how many of its parts are done.
      total: how many there are at most.
    """
    if stage != self._stage or done < self._done:
      self._window.clear()
    self._stage, self._done = stage, done
    self._window.append((self._clock(), done))
    front = [self._head, stage] if self._head else [stage]
    (then, few), (now, _) = self._window[0], self._window[-1]
    parts = front + [f'{done}/{total}']
    if few < done < total:
      left = (total - done) * (now - then) / (done - few)
      parts.append(f'{duration(left)} left')
    self._line.show(parts, done / max(total, 1), len(front))


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
