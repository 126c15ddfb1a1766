"""Estimates the time that all documents of a call still take."""

import time
from typing import NamedTuple


class TimeLeft:
  """Time in proportion to the characters that are not yet summarised."""

  def __init__(self, jobs, clock=time.monotonic):
    """Starts the clock.

    Args:
      jobs: list of `summaries.Job`: all documents.
    """
    self._left = sum(len(job.document.text) for job in jobs)
    self._done, self._clock = 0, clock
    self._start, self._end = clock(), None

  def finish(self, characters):
    """Counts these characters as done."""
    self._done += characters
    self._left -= characters
    now = self._clock()
    if self._done:
      self._end = now + (now - self._start) * self._left / self._done

  def seconds(self):
    """Returns the estimate; None before anything is done."""
    return None if self._end is None else max(0.0, self._end - self._clock())


class Share(NamedTuple):
  """The share that some parts of a document have in all the work."""

  name: str  # of the document, or of one of its levels
  time_left: TimeLeft  # of all documents
  characters: float  # of the document, that these parts stand for
