"""Prints a summary while it is written: `summarize --stream`."""

import sys

from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.generation import streaming
from locost_jax.summarizing import results


class Stream:
  """Prints the words of one summary after the other to stdout.

  The lines are those that are printed without --stream.
  """

  def __init__(self, vocabulary, progress):
    """Prints nothing yet.

    Args:
      vocabulary: text <-> token ids.
      progress: a `progress.Progress`; its line goes before a word is printed.
    """
    self._vocabulary, self._progress = vocabulary, progress
    self._printed = ''

  def on_tokens(self, tokens):
    """Prints the words that are certain.

    Args:
      tokens: of `generate.generate_in_steps`; the first list counts.
    """
    text = streaming.stable_text(self._vocabulary.decode(tokens[0]))
    self._print(results.text_line({'prediction': text}))

  def end(self, line):
    """Prints the rest of a line and ends it.

    Args:
      line: the whole line; None: the summary failed.
    """
    if line is not None:
      self._print(line)
    if self._printed or line is not None:
      self._write('\n')
    self._printed = ''

  def _print(self, line):
    if len(line) > len(self._printed):
      self._write(line[len(self._printed) :])
      self._printed = line

  def _write(self, text):
    self._progress.wipe()
    try:
      sys.stdout.write(text)
      sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe
      raise
    except OSError as error:
      sys.stdout = None  # the flush at exit would fail again
      raise InputError(f'standard output: {disk_error(error)}') from None


class QuietWhileWriting:
  """A progress line that shows nothing while words are printed."""

  def __init__(self, progress):
    self._progress = progress
    self.note, self.note_once = progress.note, progress.note_once
    self.wipe, self.head = progress.wipe, progress.head

  def show(self, stage, done, total):
    """See `progress.Progress.show`."""
    if stage != 'decoding':
      self._progress.show(stage, done, total)
