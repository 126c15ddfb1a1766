"""The text of subtitles: WebVTT (.vtt) and SubRip (.srt).

Each turn of a speaker is a paragraph, in the form of meeting corpora: 'NAME:
words'. Each cue is a place, with its time and its speaker if known; a cue may
have several speakers. Markup and the repeated lines of rolling captions are
left out.
"""

import re

from locost_jax.documents import markup
from locost_jax.documents.places import Place
from locost_jax.documents.places import Placed
from locost_jax.errors import InputError

_TIME = re.compile(r'(?:(\d{1,4}):)?([0-5]\d):([0-5]\d)[.,](\d{3})')
_ARROW = '-->'
_VOICE = re.compile(r'<v(?:\.[^\s<>]*+)?+\s++([^<>]++)>')
_MARKS = re.compile(r'<[^<>]*>|\{\\[^{}]*\}')
# 'JOHN: ...', '- PhD A: ...' or '>> JOHN: ...' at the beginning of a line.
_NAME = re.compile(r"(?:-|>>+)?\s*([\w.'’-]+(?: [\w.'’-]+){0,3}):\s+(?=\S)")
_SKIPPED = re.compile(r'(?:WEBVTT|NOTE|STYLE|REGION)(?:\s|\Z)')
_LIKE_A_TIME = re.compile(r'\d+:(?:\d\d(?::|[.,]\d)|\S{0,20}\s{0,5}-{0,3}>)')
_PAUSE = 2.0  # a longer pause (seconds) after a sentence ends a paragraph
_LONG = 600  # a longer paragraph (characters) ends with its current sentence
_ENDS = re.compile(r'[.!?…]["\'”’)\]]*\Z')


def read(text, where):
  """Returns the text of subtitles with their times as places: a Placed.

  Args:
    text: contents of the file.
    where: its name, for error messages.

  Raises:
    InputError: a cue without a valid time, or a file without cues.
  """
  pieces, places, at = [], [], 0
  before = None  # the previous cue; its speaker is the last known one
  length = 0  # characters of the paragraph
  for start, end, speaker, words in _cues(text, where):
    between = ' '
    if before is None:
      between = ''
    elif (speaker and speaker != before[2]) or (
        (length > _LONG or start - before[1] > _PAUSE)
        and _ENDS.search(before[3])
    ):
      between = '\n\n'
    named = speaker or (before[2] if before else '')
    if between != ' ' and named:
      words = f'{named}: {words}'
    if between != ' ':
      length = 0
    at += len(between)
    label = _clock(start) + (f', {named}' if named else '')
    if not places or places[-1].label != label:
      places.append(Place(at, label))
    pieces += [between, words]
    at += len(words)
    length += len(words)
    before = (start, end, named, words)
  if before is None:
    raise InputError(f'{where}: has no subtitles')
  return Placed(''.join(pieces), tuple(places))


def _cues(text, where):
  """Yields (start, end, speaker or '', line); times in seconds."""
  shown = set()  # lines of the previous cue
  times = None
  for number, block in _blocks(text):
    if _SKIPPED.match(block[0]) and _ARROW not in block[0]:
      continue
    at = next((i for i, line in enumerate(block[:2]) if _ARROW in line), None)
    if at is not None:
      times = _times(block[at], where, number + at)
      block = block[at + 1 :]
    elif times is None or any(map(_LIKE_A_TIME.match, block[:2])):
      # The second line, if the first is the number of the cue.
      bad = int(len(block) > 1 and block[0].isdigit())
      raise InputError(
          f'{where}:{number + bad}: expected a time like 00:01:02.000 --> '
          f'00:01:04.000, got {block[bad][:60]!r}'
      )
    # Without a time, the block continues a cue after a blank line in it.
    lines = [(name, _plain(line)) for name, line in _voices(block)]
    for name, line in lines:
      if line and (name, line) not in shown:
        yield *times, *((name, line) if name else _split_name(line))
    shown = set(lines)


def _voices(lines):
  """Yields (name in '<v name>' or '', text after it)."""
  for line in lines:
    first, *rest = _VOICE.split(line)
    yield '', first
    for name, words in zip(rest[::2], rest[1::2]):
      yield _plain(name), words


def _split_name(line):
  """Splits 'JOHN: ...' into ('JOHN', '...'); names begin with capitals."""
  found = _NAME.match(line)
  if found and all(
      word[0].isupper() or word[0].isdigit() for word in found[1].split()
  ):
    return found[1], line[found.end() :]
  return '', line


def _blocks(text):
  """Yields (line number, lines) of the blocks between blank lines."""
  block = []
  for number, line in enumerate(text.split('\n'), start=1):
    if line.strip():
      block.append(line.strip())
    elif block:
      yield number - len(block), block
      block = []
  if block:
    yield number + 1 - len(block), block


def _times(line, where, number):
  """Returns the seconds of 'START --> END ...'."""
  first, _, rest = line.partition(_ARROW)
  found = _TIME.fullmatch(first.strip()), _TIME.match(rest.strip())
  if not all(found):
    raise InputError(
        f'{where}:{number}: expected a time like 00:01:02.000 --> '
        f'00:01:04.000, got {line[:60]!r}'
    )
  start, end = (
      3600 * int(m[1] or 0) + 60 * int(m[2]) + int(m[3]) + int(m[4]) / 1000
      for m in found
  )
  if end < start:
    raise InputError(f'{where}:{number}: ends before it begins: {line[:60]!r}')
  return start, end


def _plain(line):
  """Returns a line without markup."""
  return ' '.join(markup.unescape(_MARKS.sub('', line)).split())


def _clock(seconds):
  """Formats seconds as 'HH:MM:SS'."""
  minutes, seconds = divmod(int(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours:02}:{minutes:02}:{seconds:02}'
