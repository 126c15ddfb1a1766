"""The text of subtitles: WebVTT (.vtt) and SubRip (.srt).

Each turn of a known speaker is a paragraph, in the form of meeting corpora:
'NAME: words'. Speakers are those of '<v NAME>' and, until the next '>>', of
'>> NAME:'; other words before a colon are part of the text. Each cue is a
place, with its time and its speaker if known. Markup is left out, and the lines
that rolling captions show again.
"""

import re

from locost_jax.documents import markup
from locost_jax.documents import places
from locost_jax.errors import InputError

# A line of two times begins a cue, whatever is around it.
_TIME = (
    r'(-?(?=\d+ ?(?::|[.,;] ?\d+ ?[:.,;]))\d{1,4}(?: ?[:.,;] ?\d{1,9}){1,3})'
)
_ARROW = r'(?:[-–—]+ ?-* ?(?:>|&gt;)|→)'
_NUMBER = r'(?:\d+\s+)?'  # of a cue, on the line of its times
_TIMES = re.compile(rf'{_NUMBER}{_TIME}\s*+{_ARROW}\s*+{_TIME}(?=\s|\Z)(.*)')
_LIKE_TIMES = re.compile(
    rf'{_NUMBER}-?\d{{1,4}} ?[:.] ?\d\S{{0,20}}(?: \S{{1,20}})? ?-+ ?-+ ?'
    '(?:>|&gt;)'
)
_SETTING = re.compile(r'\w+:\S*')
_VOICE = re.compile(r'<v(?:\.[^\s<>]*+)?+\s++([^<>]++)>|</v>', re.I)
# '>> JOHN:'; a line that begins with '>>' alone is of an unknown speaker.
_TURN = re.compile(
    r"(?:\A|(?<=\s))>>+\s*([^\W\d_][\w.'’-]*(?: [\w.'’-]+){0,3}):\s+|\A(?=>>)"
)
_READING = re.compile(r'<rt(?:\.[^<>]*+)?>([^<]*+)(?:</rt>)?')
_BREAK = re.compile(r'(\b[a-z]:\\\S*)|(?-i:\\[Nh])|</?(?:br|p)\s?/?>', re.I)
# Other angle brackets, such as those of 'a <b and c> d', are text.
_MARKS = re.compile(
    r'</?(?:[bcisuv]|em|font|ruby|span|strong)(?:\.[^\s<>]*+)?'
    r'(?:\s[^<>=]*+=[^<>]*+)?\s?/?>|</?lang[^<>]*+>'
    r'|<(?:\d+:)?\d\d:\d\d[.,]\d{1,3}>|\{\\[^{}]*\}|\{/?[bisu]\}',
    re.I,
)
_COMMENT = re.compile(r'(?:NOTE|STYLE|REGION)(?:\s|\Z)')
_HEAD = re.compile(r'WEBVTT[\s-]*|\d+\Z|[\w-]+\s?[:=].*', re.I)  # and settings
_PARAGRAPH = '\n\n'  # between paragraphs
_PAUSE = 2.0  # a longer pause (seconds) after a sentence ends a paragraph
_LONG = 600  # a longer paragraph (characters) ends with its current sentence
_TOUCH = 0.011  # seconds between cues of rolling captions, at most
_ROLLED = 8  # lines of them, at most
_ENDS = re.compile(rf'[.!?…{places.MARKS}]["\'”’)\]」』]*\Z')


def read(text, where, left_out):
  """Returns the text of subtitles with their times as places: a Placed.

  The words of a cue whose time cannot be read stay; a note has its line.

  Raises:
    InputError: a file without a valid time.
  """
  pieces, found = [], []
  at = -len(_PARAGRAPH)  # the text begins after the first break
  before, length = None, 0  # the previous line; characters of the paragraph
  for line in _lines(_cues(text, where, left_out), left_out):
    start, _, speaker, words = line
    between = _PARAGRAPH
    if before and speaker == before[2]:
      is_late = length > _LONG or start - before[1] > _PAUSE
      if not (is_late and _ENDS.search(before[3])):
        between = places.between(before[3], words)
    if between == _PARAGRAPH:
      words, length = f'{speaker}: {words}' if speaker else words, 0
    at += len(between)
    clock = f'{int(start) // 3600:02}:{int(start) // 60 % 60:02}:'
    label = f'{clock}{int(start) % 60:02}' + (speaker and f', {speaker}')
    if not found or found[-1].label != label:
      found.append(places.Place(at, label))
    pieces += [between, words]
    at += len(words)
    length += len(words)
    before = line
  if not before:
    raise InputError(f'{where}: has no subtitles')
  text = ''.join(pieces[1:])
  return places.Placed(text, tuple(found), left_out.notes(where))


def _cues(text, where, left_out):
  """Returns [(start, end, lines), ...] of the cues; times in seconds."""
  lines = ['', *map(str.strip, text.split('\n'))]
  is_vtt = lines[1].upper().startswith('WEBVTT')
  skipped, is_numbered, is_timed = 'head' * is_vtt, False, False
  cues = [(0.0, 0.0, [])]  # of what is before the first time
  for n, line in enumerate(lines[1:], start=1):
    previous = lines[n - 1]
    if _TIMES.match(line) or _LIKE_TIMES.match(line):
      # The line before is the cue's number, or its name after a blank line.
      is_apart = not lines[n - 2]
      is_first = is_apart or is_numbered or len(cues) == 1
      is_number = previous.isdigit() and is_first
      is_numbered |= is_number
      is_number_apart = cues[-1][2][-1:] == [lines[n - 2]] == [str(len(cues))]
      if not previous and is_number_apart and (is_numbered or len(cues) == 1):
        cues[-1][2].pop()  # a blank line follows the cue's number
        is_numbered = True
      if not skipped and previous and (is_number or (is_vtt and is_apart)):
        name = cues[-1][2].pop()
        if not is_number:
          left_out.add('line', 'left out as names of cues', name)
      times = _times(line)
      start, end, words = times or (cues[-1][1] + 2 * _TOUCH, 0.0, '')
      if end < start:
        why = 'not readable (the words are kept)'
        left_out.add('time', why, f'{line} in line {n}')
      cues.append((start, max(start, end), [words]))
      skipped, is_timed = '', is_timed or times is not None
    elif not line:
      skipped = ''
    else:
      if is_vtt and not previous and _COMMENT.match(line):
        skipped, line = line[:4], line[4:]
      if not skipped:
        cues[-1][2].append(line)
      elif skipped == 'head':
        line = _HEAD.sub('', line)
      if skipped in ('head', 'NOTE') and line:
        count = len(line.split())
        left_out.add('word', 'left out as comments', line.strip(), count)
  if not is_timed and any(lines[1 + is_vtt :]):
    like = (i for i, line in enumerate(lines) if _LIKE_TIMES.match(line))
    n = next(like, 1)
    raise InputError(
        f'{where}:{n}: expected a time like 00:01:02.000 --> 00:01:04.000, got '
        f'{lines[n][:60]!r}'
    )
  return cues


def _times(line):
  """Returns the seconds of 'START --> END ...' and words after it, or None."""
  found, times = _TIMES.match(line), []
  for time in found.groups()[:2] if found else ():
    *numbers, last = re.findall(r'\d+', time)
    if len(numbers) == 3 or re.search(r'[.,;] ?\d+\Z', time):
      last = f'{numbers.pop()}.{last}'  # a fraction
    minutes = sum(int(x) * 60**i for i, x in enumerate(reversed(numbers)))
    if float(last) < 60:
      times.append(0.0 if time[0] == '-' else 60 * minutes + float(last))
  if len(times) < 2:
    return None
  is_words = not all(map(_SETTING.fullmatch, found[3].split()))
  return *times, found[3].strip() * is_words


def _lines(cues, left_out):
  """Yields (start, end, speaker or '', words) of each line that is said."""
  before, until, turn = [], 0.0, ''
  for start, end, lines in cues:
    said, voice = [], ''
    for line in lines:
      for reading in _READING.findall(line):
        left_out.add('reading', 'left out (ruby)', reading)
      texts = _VOICE.split(_READING.sub('', line))
      for voice, text in zip([voice, *texts[1::2]], texts[::2]):
        turns = _TURN.split(_plain(text))
        for turn, words in zip([turn, *turns[1::2]], turns[::2]):
          if words.strip():
            said.append((_plain(voice or turn or ''), words.strip()))
    # Rolling captions begin with the last lines of the cue that they touch.
    is_near = start <= until + _TOUCH
    most = min(len(before), len(said), is_near * _ROLLED)
    shown = next((i for i in range(most, 0, -1) if before[-i:] == said[:i]), 0)
    for _, words in said[:shown]:
      left_out.add('line', 'left out as shown again by rolling captions', words)
    for line in said[shown:]:
      yield start, end, *line
    before, until = said, end


def _plain(line):
  """Returns a line without markup."""
  line = _BREAK.sub(lambda found: found[1] or ' ', line)
  return ' '.join(markup.unescape(_MARKS.sub('', line)).split())
