"""A text with labelled places: pages, headings or times."""

import bisect
import itertools
import re
from typing import NamedTuple
import unicodedata

from locost_jax.errors import InputError

_MAX_LABEL = 80  # characters
_TIME = re.compile(r'\d{2,}:\d\d:\d\d(?:,|\Z)')  # of `documents.subtitles`
# Of Chinese and Japanese, which have no blanks between words.
_WIDE = (
    '\u2e80-\u312f\u31a0-\u9fff\uf900-\ufaff\uff01-\uff9f\U00020000-\U0003ffff'
)
# End a sentence with or without a blank after them: in Chinese and Japanese,
# Arabic, Urdu, Armenian, Hindi and its kin, Burmese, Amharic, Khmer.
MARKS = (
    '\u3002\uff01\uff1f\uff61\u061f\u06d4\u0589\u0964\u0965\u104b\u1362\u1367'
    '\u17d4\u17d5'
)
WIDE = re.compile(f'[{_WIDE}]')
WIDE_BREAK = re.compile(f'\n(?<=[{_WIDE}]\n)[ \t]*(?=[{_WIDE}])')
_TOUCHING = re.compile(f'[{_WIDE}]["\'”’…]*\n["\'“‘…]*[{_WIDE}]')
# A break at the width of a page; shorter lines may be verses.
_WRAPPED = re.compile(
    f'\n(?<=[^\n]{{15}}[{_WIDE}]\n)(?<![。！？」』]\n)[ \t]*(?=[{_WIDE}])'
)
_UNSEEN = re.compile(
    # A soft hyphen, with the end of the line that it makes.
    '\xad(?:[ \t]*\n[ \t]*(?=[^\\W\\d_]))?'
    '|[\u034f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]'
    # Joiners of letters, which Arabic, Indic scripts and emoji need.
    '|(?<![\u0600-\u1cff\u2190-\u2bff\ua800-\ufdff\ufe0f\U0001f000-\U0001ffff])'
    '[\u200c\u200d]'
)


class Place(NamedTuple):
  """A place of a document, up to the start of the next one."""

  start: int  # index of its first character in the text
  label: str  # such as 'page 214', 'Methods' or '00:41:07, PhD A'


class Placed(NamedTuple):
  """A text and its places."""

  text: str
  places: tuple = ()  # of Place, sorted by start
  notes: tuple = ()  # messages about content that was not read


class LeftOut(dict):
  """What a reader leaves out of a document: {(unit, why): [count, example]}."""

  def add(self, unit, why, example, count=1):
    """Counts units, such as a 'line' that is 'left out as a running head'."""
    self.setdefault((unit, why), [0, example])[0] += count

  def notes(self, where):
    """Returns a line for each kind, for `Placed.notes`."""
    return tuple(
        f'{where}: {count:,} {unit}{"s" * (count > 1)} {why}, such as '
        f'{example[:_MAX_LABEL]!r}'
        for (unit, why), (count, example) in self.items()
    )


def check_size(where, size, max_bytes):
  """Raises an InputError for a size above max_bytes (None: no limit)."""
  if max_bytes is not None and size > max_bytes:
    raise InputError(
        f'{where}: holds {size:,} bytes, expected at most {max_bytes:,} '
        '(--max_document_bytes)'
    )


def clean(placed, is_wrapped=True):
  """Returns a Placed as `plain` text, with its places where they were."""
  bounds = [0, *(place.start for place in placed.places), len(placed.text)]
  texts = [
      plain(placed.text[a:b], is_wrapped) for a, b in itertools.pairwise(bounds)
  ]
  labels = [plain(place.label) for place in placed.places]
  found = tuple(map(Place, itertools.accumulate(map(len, texts)), labels))
  return placed._replace(text=''.join(texts), places=found)


def plain(text, is_wrapped=True):
  """Returns a text as plain text: what documents and training data become.

  Characters are composed (NFC); soft hyphens, zero-width characters, direction
  marks and byte order marks are removed; lines of Chinese and Japanese that
  were broken at a width are joined, unless the reader knows its lines.
  """
  if text.isascii():
    return text
  text = _UNSEEN.sub('', unicodedata.normalize('NFC', text))
  return _WRAPPED.sub('', text) if is_wrapped else text


def between(before, after):
  """Returns '' between two texts in Chinese or Japanese, else a blank."""
  return '' if _TOUCHING.search(f'{before[-4:]}\n{after[:4]}') else ' '


def with_headings(text, headings, notes=()):
  """Returns the Placed of a text and its [(start, heading), ...]."""
  found = [of_heading(*heading) for heading in headings]
  return Placed(text, tuple(place for place in found if place.label), notes)


def of_heading(start, heading):
  """Returns the Place of a heading, cut, and without Sphinx's mark '¶'."""
  label = ' '.join(heading.split()).removesuffix('¶').rstrip()
  if len(label) > _MAX_LABEL:
    label = label[: _MAX_LABEL - 1].rstrip() + '…'
  return Place(start, label)


def label_at(places, offset):
  """Returns the label of the place that contains a character, or ''."""
  i = bisect.bisect_right(places, offset, key=lambda place: place.start)
  return places[i - 1].label if i else ''


def label_of(places, span):
  """Returns 'page 3', 'page 3 to page 5', '00:41:07 to 00:41:19, PhD A' or ''.

  Args:
    span: (start, end) of a passage, in characters; end is exclusive.
  """
  first = label_at(places, span[0])
  last = label_at(places, max(span[0], span[1] - 1))
  if first == last or not first:
    return first
  time, comma, speaker = first.partition(', ')
  if comma and _TIME.match(first) and last.endswith(comma + speaker):
    return f'{time} to {last}'
  return f'{first} to {last}'
