"""A text with labelled places: pages, headings or times."""

import bisect
import re
from typing import NamedTuple

_MAX_LABEL = 80  # characters
_TIME = re.compile(r'\d{2,}:\d\d:\d\d(?:,|\Z)')  # of `documents.subtitles`


class Place(NamedTuple):
  """A place of a document, up to the start of the next one."""

  start: int  # index of its first character in the text
  label: str  # such as 'page 214', 'Methods' or '00:41:07, PhD A'


class Placed(NamedTuple):
  """A text and its places."""

  text: str
  places: tuple = ()  # of Place, sorted by start
  notes: tuple = ()  # messages about content that was not read


def with_headings(text, headings):
  """Returns the Placed of a text and its [(start, heading), ...]."""
  found = [of_heading(*heading) for heading in headings]
  return Placed(text, tuple(place for place in found if place.label))


def of_heading(start, heading):
  """Returns the Place of a heading, cut, and without Sphinx's mark '¶'."""
  label = ' '.join(heading.split()).removesuffix('¶').rstrip()
  if len(label) > _MAX_LABEL:
    label = label[: _MAX_LABEL - 1].rstrip() + '…'
  return Place(start, label)


def starts_of_times(places):
  """Returns the starts of the places that are times: the cues of subtitles."""
  return [place.start for place in places if _TIME.match(place.label)]


def label_at(places, offset):
  """Returns the label of the place that contains a character, or ''."""
  i = bisect.bisect_right(places, offset, key=lambda place: place.start)
  return places[i - 1].label if i else ''


def label_of(places, span):
  """Returns the labels of a passage's first and last place.

  Args:
    span: (start, end) of the passage, in characters; end is exclusive.

  Returns:
    'page 3', 'page 3 to page 5', '00:41:07 to 00:41:19, PhD A', or ''.
  """
  first, last = (
      label_at(places, offset)
      for offset in (span[0], max(span[0], span[1] - 1))
  )
  if first == last or not first:
    return first
  time, comma, speaker = first.partition(', ')
  if comma and _TIME.match(first) and last.endswith(comma + speaker):
    return f'{time} to {last}'
  return f'{first} to {last}'
