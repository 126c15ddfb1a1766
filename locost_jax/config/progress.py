"""Shows the progress of counted work on stderr.

On a terminal it is one line that is redrawn; elsewhere a new line is printed
from time to time.
"""

import collections
import math
import os
import shutil
import sys
import time


class Progress:
  """Shows the progress of a stage of the work and the time it still takes."""

  def __init__(
      self, stream=None, seconds=30.0, clock=time.monotonic, at_once=False
  ):
    """Draws nothing yet.

    Args:
      stream: None: stderr.
      seconds: time between lines if the stream is not a terminal.
      at_once: print the first line without waiting.
    """
    self._stream = stream or sys.stderr
    self.live = self._stream.isatty() and os.environ.get('TERM') != 'dumb'
    self.drawn = False
    self._clock, self._seconds = clock, 0.1 if self.live else seconds
    encoding = (getattr(self._stream, 'encoding', None) or 'utf-8').lower()
    self._marks = '━╌' if encoding.startswith('utf') else '#.'
    self._shown = -math.inf if self.live or at_once else clock()
    self._stage, self._head, self._done = '', '', 0
    self._noted = set()
    # (time, done) of the last calls only, because the first layer also compiles.
    self._window = collections.deque(maxlen=8)

  def head(self, text):
    """Sets the text before the stage."""
    self._head = text

  def show(self, stage, done, total):
    """Shows 'a.txt  encoding  ━━╌╌╌╌╌  4/12  1:02 left'.

    A new stage restarts the timing.
    """
    if stage != self._stage or done < self._done:
      self._window.clear()
    self._stage, self._done = stage, done
    self._window.append((self._clock(), done))
    front = [self._head, stage] if self._head else [stage]
    (start, done_before), (now, _) = self._window[0], self._window[-1]
    parts = front + [f'{done}/{total}']
    if done_before < done < total:
      left = (total - done) * (now - start) / (done - done_before)
      parts.append(f'{duration(left)} left')
    self.write(parts, done / max(total, 1), len(front))

  def write(self, parts, fraction=None, at=0, now=False):
    """Writes a line, unless the last one was written a moment ago.

    Args:
      parts: texts, shown side by side.
      fraction: the share of the work that is done; None: no bar.
      at: index of the part before which the bar is drawn, on a terminal that is
        wide enough.
      now: write the line in any case.

    Returns:
      Whether it was written.
    """
    if not now and self._clock() - self._shown < self._seconds:
      return False
    self._shown = self._clock()
    if not self.live:
      print('  '.join(parts), file=self._stream, flush=True)
      return True
    width = shutil.get_terminal_size().columns - 1
    room = width - len('  '.join(parts)) - 2
    if fraction is not None and room >= 12:
      length, (done, left) = min(room, 32), self._marks
      full = int(min(max(fraction, 0), 1) * length)
      bar = done * full + left * (length - full)
      parts = [*parts[:at], bar, *parts[at:]]
    # \x1b[K: clear to the end of the line.
    self._stream.write('\r' + '  '.join(parts)[:width] + '\x1b[K')
    self._stream.flush()
    self.drawn = True
    return True

  def note(self, text):
    """Prints a line that stays."""
    self.wipe()
    print(text, file=self._stream, flush=True)

  def note_once(self, key, text):
    """Prints a line that stays, unless one with the same key was printed."""
    if key not in self._noted:
      self._noted.add(key)
      self.note(text)

  def wipe(self):
    """Clears the line, so that something else can be printed."""
    if self.drawn:
      self._stream.write('\r\x1b[K')
      self._stream.flush()
      self.drawn = False

  def end(self):
    """Keeps the line, and begins a new one."""
    if self.drawn:
      print(file=self._stream, flush=True)
      self.drawn = False


def note(text):
  """Prints a line on stderr, in place of any progress line drawn there."""
  progress = Progress()
  progress.drawn = progress.live
  progress.note(text)


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
