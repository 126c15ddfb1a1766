"""Sentence splitting by rule: offline, linear in the length of the text.

A text is first cut into paragraphs, then every paragraph into sentences.

Paragraphs. A blank line always ends one. A single newline ends one too, unless
the text is hard-wrapped there: no line of the block is longer than 120
characters, the line does not end a sentence, the next line does not start an
item (a list mark, a speaker `Grad C:`, a doctest, a field `name : type`), and
either the next line starts in lower case or its first word would not have
fitted. So one newline separates the paragraphs of web text, the turns of a
transcript and the items of a list, and joins the lines of a docstring.

Sentences. `.`, `!`, `?` or an ellipsis, with the closing quotes and brackets
after it, ends a sentence if white space follows and the next character is not a
lower-case letter (`split_sentences`: in a text without capitals it may be one).
A full stop does not end one after an abbreviation (`Fig.`,
`e.g.`, a title, an initial) or after a number that opens the paragraph
(`1. Install`). After `etc.`, `Inc.`, `U.S.` and similar words it ends one only
if the next word is capitalised and commonly opens a sentence. Marks of other
scripts (`places.MARKS`) need no white space after them. Thai and Lao have no
marks: there white space after 30 letters without any ends a sentence.

Every character that is not white space is in exactly one sentence, in order.
"""

import re

from locost_jax.documents import places

_WRAP = 120  # characters; longer lines are paragraphs, not wrapped prose
_NARROWEST = 40  # characters; a narrower block is not wrapped for its width

_LINE = re.compile(r'[^\n]+|\n')
_FIRST_WORD = re.compile(r'\S+')
_ITEM = re.compile(
    r'(?:[-*+\u2022\u2013\u2014]|\d{1,3}[.)]|\(?[a-zA-Z0-9]{1,2}\)|\.\.'
    r'|#{1,6})[ \t]'  # list marks, a reST directive, a Markdown heading
    r'|>>>|\.\.\.[ \t]|```|\||:[a-zA-Z]|@[a-zA-Z]'
    r"|[A-Z][\w.'\u2019-]{0,20}(?:[ ][\w.'\u2019()-]{1,20}){0,3} ?:(?:\s|$)"
    r'|\*{0,2}\w{1,40}(?:, ?\*{0,2}\w{1,40}){0,4} : '
)
_MARKS = places.MARKS
_ENDS_LINE = re.compile(
    rf'[.!?:;\u2026{_MARKS}]["\'\u201d\u2019)\]\u00bb*_`]{{0,4}}\s*$'
)
_RULE = re.compile(r'[^\w\n]{3,}$')

# Letters of Thai and Lao, without digits and marks of repetition.
_THAI = '\u0e01-\u0e45\u0e47-\u0e4e\u0e81-\u0ec5\u0ec7-\u0ece'
# The look-behind starts a match only at the start of a run of marks, and the
# possessive quantifiers do not backtrack: the scan stays linear on '.....'.
_END = re.compile(
    r'(?<![.!?\u2026])[.!?\u2026]++'
    r'["\'\u201d\u2019)\]\u00bb*_`]*+(?=\s|$)'
    rf'|(?:[{_MARKS}]|\uff0e(?!\d))[.!?\u2026\uff0e{_MARKS}]*+'
    r'(?:[\u300d\u300f\u201d\u2019\uff09)\u00bb]|["\'](?=\s|$))*+'
    rf'|(?<=[{_THAI}]{{30}})(?=\s+[{_THAI}])'
)
# In a text whose sentences differ from those of earlier releases.
OTHER_SCRIPTS = re.compile(f'[{_MARKS}\uff0e{_THAI}]')
_OPENERS = '"\'\u201c\u2018([{\u00ab*_`'
_LONGEST = 24  # characters examined before a full stop

# Rarely or never at the end of a sentence.
_ABBREVIATIONS = frozenset("""
    mr mrs ms mx dr prof rev hon fr st messrs mme mlle gen col maj capt cpt lt
    sgt cmdr adm gov sen rep pres supt fig figs eq eqs eqn eqns chap pp eds cf
    e.g eg i.e ie viz vs v approx resp esp incl excl w.r.t wrt aka a.k.a mt
    dept univ assn bros thm lem
""".split())
_NUMBERED = frozenset("""
    no nos p art para sec sect tab ch vol vols pt ref refs ex app op def prop
    cor c ca
""".split())  # only before a number
# Both inside and at the end of sentences: the next word decides.
_AMBIGUOUS = frozenset("""
    etc inc ltd co corp jr sr esq al a.m p.m am pm b.c a.d b.c.e c.e u.s u.k
    u.n e.u u.s.a d.c ph.d m.d b.a m.a b.s m.s jan feb mar apr jun jul aug sep
    sept oct nov dec mon tue wed thu fri sat sun ave blvd rd min max dim dims
    arg args param params std avg lb lbs oz hr hrs sq ft ed trans
""".split())
_STARTERS = frozenset("""
    the a an this that these those it its he she they we i you his her their
    our my your there here in on at for from to of by with when where while
    what who why how which if as but and or so then thus hence however
    moreover furthermore also although though because since after before
    during until once both each every all some many most no not only one two
    see note use let now today yes well oh do does did is are was were can
    could should would will may might must for returns return default
""".split())


def paragraph_spans(text):
  """Yields (start, end) of the paragraphs of `text` that are not blank."""
  block = []  # lines of the current block: (start, end, stripped line)
  for match in _LINE.finditer(text):
    line = match.group()
    if line == '\n':
      # A newline at the start of a line is a blank line.
      if match.start() == 0 or text[match.start() - 1] == '\n':
        yield from _join_lines(block)
        block = []
      continue
    stripped = line.strip()
    if stripped:
      start = match.start() + line.index(stripped)
      block.append((start, start + len(stripped), stripped))
    else:
      yield from _join_lines(block)
      block = []
  yield from _join_lines(block)


def _join_lines(block):
  """Yields (start, end) of the paragraphs of a block without blank lines."""
  if not block:
    return
  width = max(len(line) for _, _, line in block)
  start, end, line = block[0]
  for next_start, next_end, next_line in block[1:]:
    if width > _WRAP or not _continues(line, next_line, width):
      yield start, end
      start = next_start
    end, line = next_end, next_line
  yield start, end


def _continues(line, next_line, width):
  """Whether a hard-wrapped paragraph continues in `next_line`."""
  if _RULE.match(next_line):  # an underline belongs to its heading
    return True
  if _RULE.match(line) or _ITEM.match(next_line):
    return False
  if _ENDS_LINE.search(line[-8:]):
    # 'e.g.' at the end of a line does not end a sentence.
    return line.endswith('.') and not _is_end(line, len(line) - 1, next_line)
  if next_line[0].islower():
    return True
  full = len(line) + 1 + len(_FIRST_WORD.match(next_line).group())
  return width >= _NARROWEST and full > width - 4


def _is_end(text, stop, rest, lower_case=False):
  """Whether the marks from text[stop] on end a sentence.

  Args:
    stop: index of the first mark.
    rest: text from the next character on that is not white space (at least its
      first word).
    lower_case: whether a sentence may begin with a lower-case letter.
  """
  if rest[0].islower() and not lower_case:
    return False
  if lower_case and text[stop - 1 : stop] == ' ':
    return True  # a tokenised text: its abbreviations keep their full stops
  if text[stop] != '.' or text[stop : stop + 2] in ('..', '.?', '.!'):
    return True
  before = text[max(0, stop - _LONGEST) : stop].rstrip()
  cut = max(before.rfind(' '), before.rfind('\n'), before.rfind('\t')) + 1
  word = before[cut:].lstrip(_OPENERS)
  lower = word.lower()
  if lower in _ABBREVIATIONS:
    return False
  if lower in _NUMBERED:
    return not (rest[0].isdigit() or rest[0] == '(')
  if len(word) == 1 and word.isalpha() and word.isupper() and word != 'I':
    return False
  if word.isdigit() and len(word) <= 3 and stop <= len(word) + 1:
    return False
  if lower in _AMBIGUOUS or re.fullmatch(r'(?:[A-Za-z]\.)+[A-Za-z]', word):
    opening = _FIRST_WORD.match(rest).group().lstrip(_OPENERS)
    if opening[:1].islower():  # et al. (see
      return False
    return opening.rstrip(',.;:!?\'"').lower() in _STARTERS
  return True


def sentence_spans(text, lower_case=False):
  """Finds the sentences of a text: a list of (start, end), in order.

  They are text[start:end] without white space at their ends; together they
  cover all other characters.

  Args:
    lower_case: whether a sentence may begin with a lower-case letter.
  """
  spans = []
  for start, end in paragraph_spans(text):
    paragraph = text[start:end]
    size = end - start
    begin = 0
    for match in _END.finditer(paragraph):
      after = match.end()
      while after < size and paragraph[after].isspace():
        after += 1
      if after == size:
        break
      if _is_end(
          paragraph,
          match.start(),
          paragraph[after : after + _LONGEST],
          lower_case,
      ):
        spans.append((start + begin, start + match.end()))
        begin = after
    spans.append((start + begin, end))
  return spans


def plain(value):
  """Returns a text, or the strings of JSON, as `places.plain` text."""
  if isinstance(value, dict):
    return {name: plain(part) for name, part in value.items()}
  if isinstance(value, list):
    return [plain(part) for part in value]
  return places.plain(value) if isinstance(value, str) else value


def squeeze(text):
  """Replaces every run of white space by one space and strips the ends."""
  return ' '.join(text.split())


def split_sentences(text, lower_case=None):
  """Returns the sentences of a text, white space squeezed; none is empty.

  Args:
    lower_case: whether a sentence may begin with a lower-case letter. None: in
      a text without capitals. Records are made with False.
  """
  if lower_case is None:
    lower_case = not any(map(str.isupper, text))
  spans = sentence_spans(text, lower_case)
  return [squeeze(text[start:end]) for start, end in spans]
