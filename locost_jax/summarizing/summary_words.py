"""The words of a summary, and the word that each of its tokens belongs to."""

import re

import numpy as np

_WORD = re.compile(r'\S+')


def find(summary, ends):
  """Returns the words of a summary and the word of each token.

  Args:
    ends: int [T], where the tokens end in it.

  Returns:
    (list of (start, end), int [T]): a token belongs to the word that its last
    character is in or follows; -1: it ends before the first word.
  """
  spans = [match.span() for match in _WORD.finditer(summary)]
  starts = np.array([start for start, _ in spans], int)
  return spans, np.searchsorted(starts, np.asarray(ends) - 1, 'right') - 1
