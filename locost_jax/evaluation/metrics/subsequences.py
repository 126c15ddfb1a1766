"""Longest common subsequences of lists of words, computed with bit vectors.

Row i of the usual table t[i][j] (the length of the longest common subsequence
of the first i words of one list and the first j of the other) increases by 0 or
1 from column to column. It is stored as one integer V whose bit j is 0 where
the row increases. A row takes four operations on such integers, for any number
of columns (Allison & Dix 1986, in the form of Hyyro 2004).
"""

import collections


def positions(words):
  """Returns {word: integer whose bit j is set if words[j] is the word}."""
  found = collections.defaultdict(int)
  for j, word in enumerate(words):
    found[word] |= 1 << j
  return dict(found)


def length(one, other):
  """Returns the length of the longest common subsequence of two lists."""
  if len(one) < len(other):
    one, other = other, one  # fewer bits per row
  where, ones = positions(other), (1 << len(other)) - 1
  row = ones
  for word in one:
    matches = where.get(word)
    if matches:
      row = _next_row(row, matches, ones)
  return len(other) - row.bit_count()


def indices(one, where, size):
  """Returns the words of one list that are in a longest common subsequence.

  If there are several subsequences, this is the one of Perl ROUGE-1.5.5 and
  rouge_score: from the ends of both lists, take a match; else skip the word
  of `one` if the length stays the same; else skip the word of the other list.

  Args:
    one: list of words.
    where: `positions` of the other list.
    size: the length of the other list.

  Returns:
    List of indices into `one`, descending.
  """
  row = ones = (1 << size) - 1
  rows = (
      []
  )  # (index, matches, row before, row after), only for words that match
  for i, word in enumerate(one):
    matches = where.get(word)
    if matches:
      before, row = row, _next_row(row, matches, ones)
      rows.append((i, matches, before, row))
  found, low = [], ones  # low: the bits of the remaining columns
  while rows:
    i, matches, before, after = rows[-1]
    if after & low == low:
      break  # the remaining lists have no common words
    if matches & (low ^ (low >> 1)):
      found.append(i)
      rows.pop()
      low >>= 1
    elif (before & low).bit_count() > (after & low).bit_count():
      low >>= 1  # t[i - 1][j] < t[i][j]
    else:
      rows.pop()
  return found


def _next_row(row, matches, ones):
  """Returns V of the next row, from V and the columns that match its word."""
  common = row & matches
  return ((row + common) | (row - common)) & ones
