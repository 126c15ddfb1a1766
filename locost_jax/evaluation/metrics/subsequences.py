"""Longest common subsequences of lists of words, a bit for each position.

Row i of the usual table t[i][j] (the longest common subsequence of the first i
words of one list and the first j of the other) rises by 0 or 1 from column to
column. It is kept as one integer V: bit j is 0 where the row rises. A row takes
four operations on such integers (Allison & Dix 1986, in the form of Hyyro
2004), however many columns they have.
"""

import collections


def positions(words):
  """Returns {word: integer whose bit j is set where words[j] is the word}."""
  found = collections.defaultdict(int)
  for j, word in enumerate(words):
    found[word] |= 1 << j
  return dict(found)


def length(one, other):
  """Returns the length of the longest common subsequence of two lists."""
  if len(one) < len(other):
    one, other = other, one  # fewer bits for each word
  where, ones = positions(other), (1 << len(other)) - 1
  row = ones
  for word in one:
    matches = where.get(word)
    if matches:
      row = _next_row(row, matches, ones)
  return len(other) - row.bit_count()


def indices(one, where, size):
  """Returns which words of one list a longest common subsequence has.

  There may be several; this is the one that Perl ROUGE-1.5.5 and rouge_score
  find: from the ends of both lists, take a match; or else pass over a word of
  `one` where that costs nothing; or else a word of the other list.

  Args:
    one: list of words.
    where: `positions` of the other list.
    size: the length of the other list.

  Returns:
    List of indices into `one`, descending.
  """
  row = ones = (1 << size) - 1
  rows = []  # (index, matches, row before, row after); others change nothing
  for i, word in enumerate(one):
    matches = where.get(word)
    if matches:
      before, row = row, _next_row(row, matches, ones)
      rows.append((i, matches, before, row))
  found, low = [], ones  # the bits of the columns that are left
  while rows:
    i, matches, before, after = rows[-1]
    if after & low == low:
      break  # nothing in common is left
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
