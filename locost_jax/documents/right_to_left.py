"""Rows of a PDF in Arabic, Hebrew and their kin, in the order of reading.

PDFium parts such rows at numbers, brackets and marks, which it moves.
"""

import bisect
import collections
import itertools
import re
from typing import NamedTuple
import unicodedata

WORD = re.compile('[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]{2,}')
_BLANK = 0.16  # of a font's size: the least gap between two words of a row
# Kinds of characters by their direction; what is read from the left in a row
# of Arabic (a number, or words of other scripts); and the opposite.
_KINDS = dict(R='R', AL='R', L='L', EN='N', AN='N', CS='C', ET='T')
_LEFT_TO_RIGHT = re.compile('(?:[LN][^R]*)?L|T*N(?:C?N)*|T+')
_RIGHT_TO_LEFT = re.compile('R(?:[^LN]*R)?')
# Brackets that open after a letter, or close before one, as PDFium may give them.
_TURNED = re.compile(r'(?<!\S)[)\]}»›](?=\S)|(?<=\S)[(\[{«‹](?!\w)')
_MIRRORED = str.maketrans('()[]{}«»‹›', ')(][}{»«›‹')


class Glyph(NamedTuple):
  """A character by its place, in points."""

  text: str
  x: float  # of its origin
  y: float
  right: float  # edge
  middle: float  # doubled
  index: int


def rows(text, lines, glyph, size_of):
  """Yields the indices of each line, in the order of reading; -1: a blank.

  Lines at one height become a row, if it has letters of such a script.
  """
  rows = []  # [y, size, glyphs, lines]
  for line in lines:
    glyphs = [glyph(i) for i in line if not text[i].isspace()]
    base = [g for g in glyphs if not unicodedata.combining(g.text)] or glyphs
    y, size = base[0].y, size_of(base[0].index)
    if not rows or abs(y - rows[-1][0]) > 0.5 * size:
      rows.append((y, size, [], []))
    rows[-1][2].extend(glyphs)
    rows[-1][3].append(line)
  for _, size, glyphs, parts in rows:
    if WORD.search(''.join(text[i] for line in parts for i in line)):
      yield _in_order(text, glyphs, size)
    else:
      yield from parts


def _in_order(text, glyphs, size):
  """Returns the indices of a row's characters, from places to reading order.

  Blanks are where glyphs are apart, or alone between two. Marks follow their
  letter: that of their glyph, or the nearest.
  """
  letters, marks = [], collections.defaultdict(list)
  for one in sorted(glyphs, key=lambda g: (-g.x, -g.middle, -g.index)):
    if not unicodedata.combining(one.text):
      # A bold letter may be drawn twice, and a mark's glyph repeat its letter.
      is_again = lambda g: (
          g.text == one.text
          and g[1:3] != one[1:3]
          and g.x - one.x < 0.05 * size
      )
      letters[-4:] = [*itertools.filterfalse(is_again, letters[-4:]), one]
  for one in glyphs if letters else ():
    if unicodedata.combining(one.text):

      def distance(at):
        far = letters[at].middle - one.middle
        is_other = letters[at][1:3] != one[1:3]
        return is_other, abs(far), at if far < 0 else -at

      at = bisect.bisect_left(letters, -one.x, key=lambda g: -g.x)
      near = range(max(at - 4, 0), min(at + 4, len(letters)))
      found = marks[letters[min(near, key=distance)].index]
      if not any(g.text == one.text for g in found):
        found.append(one)
  base, before = sorted(g.y for g in glyphs)[len(glyphs) // 2], None
  row, kinds = [], []
  for one in letters:
    gap = (before.x - one.right) / size if before else 0
    first, last = sorted((before or one, one), key=lambda g: g.index)
    is_blank = text[first.index + 1 : last.index].isspace()
    if gap > (_BLANK / 2 if is_blank else _BLANK):
      row.append([-1])
      kinds.append(' ')
    kind = _KINDS.get(unicodedata.bidirectional(one.text), 'x')
    is_raised = kind == 'N' and abs(one.y - base) > 0.1 * size
    row.append([one.index, *(mark.index for mark in marks[one.index])])
    kinds.append('T' if is_raised else kind)
    before = one
  inner = _LEFT_TO_RIGHT
  if kinds.count('L') > kinds.count('R'):
    row, kinds, inner = row[::-1], kinds[::-1], _RIGHT_TO_LEFT
  for found in inner.finditer(''.join(kinds)):
    row[slice(*found.span())] = reversed(row[slice(*found.span())])
  return sum(row, [])


def with_brackets(line):
  """Returns a line whose brackets open before a word and close after it."""
  return _TURNED.sub(lambda m: m[0].translate(_MIRRORED), line)
