"""The text of a Markdown file, unchanged, with its headings as places."""

import re

from locost_jax.documents import places
from locost_jax.documents.places import Placed

_HEADING = re.compile(r'^ {0,3}#{1,6}[ \t]+(.*)')
_CLOSING = re.compile(r'(?:^|[ \t])#+$')
_UNDERLINE = re.compile(r'^ {0,3}(=+|-{2,})[ \t]*$')
_FENCE = re.compile(r'^ {0,3}(```+|~~~+)')
# Marks that labels leave out: [text](target), emphasis and code.
_LINK = re.compile(r'!?\[([^\[\]]*)\]\([^()]*\)')
_EMPHASIS = re.compile(r'[*_`]+')
_MAX_HEADING = 1000  # characters; the rest of a heading is ignored


def read(text):
  """Returns the text with its headings as places.

  Returns:
    Placed.
  """
  headings, at, fence, before = [], 0, None, None
  for line in text.split('\n'):
    opened = _FENCE.match(line)
    if fence:
      if opened and opened[1].startswith(fence):
        fence = None
    elif opened:
      fence = opened[1]
    elif found := _HEADING.match(line):
      headings.append(places.of_heading(at, _plain(found[1])))
    elif before is not None and _UNDERLINE.match(line):
      headings.append(places.of_heading(before[0], _plain(before[1])))
    is_text = line.strip() and not fence and not _HEADING.match(line)
    before = (at, line) if is_text else None
    at += len(line) + 1
  return Placed(text, tuple(place for place in headings if place.label))


def _plain(heading):
  """Returns a heading without marks."""
  heading = _CLOSING.sub('', heading[:_MAX_HEADING].strip())
  return _EMPHASIS.sub('', _LINK.sub(r'\1', heading))
