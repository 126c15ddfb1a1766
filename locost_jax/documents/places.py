"""A text with its places: pages, headings, times."""

import bisect
from typing import NamedTuple

_LONGEST = 80  # characters of a heading as a label


class Place(NamedTuple):
  """A place of a document.

  Attributes:
    start: the character of the text at which it begins.
    label: its name, such as 'page 214', 'Methods' or '00:41:07, PhD A'.
  """

  start: int
  label: str


class Placed(NamedTuple):
  """A text and its places, by their starts.

  Attributes:
    text: str.
    places: tuple of Place.
    notes: tuple of lines about what was not read.
  """

  text: str
  places: tuple = ()
  notes: tuple = ()


def of_heading(start, heading):
  """Returns the Place of a heading; a long one is cut.

  Args:
    start: its first character.
    heading: its text; the mark that Sphinx puts behind it is left out.
  """
  label = ' '.join(heading.split()).removesuffix('¶').rstrip()
  if len(label) > _LONGEST:
    label = label[: _LONGEST - 1].rstrip() + '…'
  return Place(start, label)


def label_at(places, offset):
  """Returns the label of the place of a character, or ''.

  Args:
    places: sequence of Place.
    offset: of the character.
  """
  i = bisect.bisect_right(places, offset, key=lambda place: place.start)
  return places[i - 1].label if i else ''


def label_of(places, span):
  """Returns the labels of a passage, from the first place to the last.

  Args:
    places: sequence of Place.
    span: (start, end), its characters.

  Returns:
    'page 3', 'page 3 to page 5', or ''.
  """
  first, last = (
      label_at(places, offset)
      for offset in (span[0], max(span[0], span[1] - 1))
  )
  return first if first == last or not first else f'{first} to {last}'
