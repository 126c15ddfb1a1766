"""Formulas, raised text and symbols of Word, in one line of Unicode.

'10^6', 'log_2 8', '1/12 x^2', '√(x+1)', '∑_(i=1)^n i'; 'α' for an 'a' in Symbol.
"""

import re

_ARGUMENTS = frozenset('num den e sub sup deg lim fName mr'.split())
_STRUCTURES = frozenset(
    'f d m eqArr acc rad nary func sSub sSup sSubSup sPre limLow limUpp'.split()
)
_PROPERTIES = frozenset('chr begChr endChr sepChr type'.split())
_DEPTH = 256  # of nested arguments; each level copies its text
# One number, name or character, or something in parentheses.
_SIMPLE = re.compile(r'[+−–-]?[\w.,]+[+−–-]?|.?|\([^()]*\)', re.DOTALL)
# Raised and lowered text between marks that XML cannot have. Two more marks,
# \0 and \1, part a formula from words, and raised digits from other digits.
_OPEN, _SHUT = {'^': '\2', '_': '\4'}, {'^': '\3', '_': '\5'}
_RAISED = re.compile('([\2\4])([^\2-\5]*)[\3\5]')
_FRACTION = re.compile('\2(\\d+)\3 ?([/⁄]) ?\4(\\d+)\5')
_ORDINAL = re.compile('st|nd|rd|th|[eor]|er|re|me|T?M|SM|lle', re.IGNORECASE)

_GREEK = (
    ' !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾'
    'αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼'
)
_SIGNS = (
    '€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓'
    '◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪'
)
_CIRCLED = '⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿'
_FONTS = {  # {font: {code of the first: characters}}
    'symbol': {0x20: _GREEK, 0xA0: _SIGNS, 0xF1: '〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭'},
    'wingdings': {
        **{0x20: ' ', 0x22: '✂', 0x28: '☎✆✉', 0x41: '✌', 0x45: '☜☞☝☟'},
        **{0x4A: '☺😐☹', 0x6C: '●❍■□', 0x71: '❑❒⬧⧫◆❖⬥', 0x80: _CIRCLED},
        **{0x9E: '·•', 0xA7: '▪◻', 0xD8: '➢', 0xDF: '←→↑↓↖↗↙↘', 0xE8: '➔'},
        **{0xEF: '⇦⇨⇧⇩⬄⇳', 0xFB: '✗✓☒☑'},
    },
    'wingdings 2': {0x20: ' ', 0x4F: '✗✓☒☑', 0x69: _CIRCLED, 0xA3: '□'},
    'wingdings 3': {0x20: ' ', 0x66: '←→↑↓↖↗↙↘'},
    'webdings': {0x20: ' ', 0x61: '✔', 0x72: '✖'},
}
_CODES = {
    font: {
        first + i: character
        for first, characters in ranges.items()
        for i, character in enumerate(characters)
    }
    for font, ranges in _FONTS.items()
}
_PRIVATE = re.compile('[\uf000-\uf0ff]')  # the codes of symbol fonts


def in_unicode(text, font):
  """Returns a text in a font as Unicode, and the codes that have no character.

  Letters of symbol fonts stand at their codes or, in the private use area, at
  0xF000 and their codes. Elsewhere a text stays as it is.
  """
  if not font and text.isascii():
    return text, ()
  codes = _CODES.get(font.casefold().removesuffix('mt'))
  if codes is None and not _PRIVATE.search(text):
    return text, ()
  found, unknown = [], []
  for character in text:
    code = ord(character)
    code -= 0xF000 if _PRIVATE.match(character) else 0
    known = (codes or {}).get(code)
    is_symbol = code < 256 if codes else code != ord(character)
    if known is None and is_symbol:
      unknown.append(code)
    else:
      found.append(known or character)
  return ''.join(found), unknown


class Pieces:
  """The text of a paragraph in parts.

  Attributes:
    raised: '^' or '_' while text is raised or lowered, else ''.
    kind: 'heading', 'item' or ''.
  """

  def __init__(self):
    self.raised, self.kind, self._pieces = '', '', []
    self._open = []  # [(tag, index of its first piece, values)] of formulas

  def append(self, text):
    """Adds a text on the line."""
    self._pieces.append(text)

  def add_text(self, text):
    """Adds a text as high as `raised` says."""
    if self.raised and not self._open:
      text = f'{_OPEN[self.raised]}{text}{_SHUT[self.raised]}'
    self._pieces.append(text)

  def open(self, tag, value):
    """Reads the start of an element of a formula."""
    if tag in _ARGUMENTS or tag in _STRUCTURES:
      if len(self._open) == _DEPTH:
        raise ValueError(f'more than {_DEPTH} nested parts of a formula')
      self._open.append((tag, len(self._pieces), {}))
    elif tag in _PROPERTIES and self._open:
      self._open[-1][2][tag] = value

  def close(self, tag):
    """Reads the end of an element of a formula."""
    if self._open and tag == self._open[-1][0]:
      _, start, values = self._open.pop()
      text = ''.join(self._pieces[start:])
      del self._pieces[start:]
      text += _written(tag, values) if values else ''
      if tag in _ARGUMENTS and self._open:
        self._open[-1][2].setdefault(tag, []).append(text)
      else:
        self._pieces.append(f'\0{text}\0')

  def text(self):
    """Returns the text, with marks for raised digits."""
    text = ''.join(self._pieces).replace('\3\2', '').replace('\5\4', '')
    text = _FRACTION.sub('\0\\1\\2\\3\0', text)
    text = _RAISED.sub(_marked, text)
    text = re.sub('(?<=[\\w)])\0+(?=\\w)|(?<=\\d)\1+(?=\\d)', ' ', text)
    return re.sub('[\0-\5]', '', text)


def _marked(found):
  """Returns raised or lowered text, with '^' or '_' if digits need it."""
  before = found.string[found.start() - 1 : found.start()]
  text = found[2]
  if found[1] == '\4':
    return ('_' if before.isdigit() else '') + text + '\1'
  is_mark = re.match(r'[+−–-]?\d', text) or (
      before.isdigit() and text[:1].isalpha() and not _ORDINAL.fullmatch(text)
  )
  is_mark = is_mark and before.strip()
  return ('^' + _grouped(text) if is_mark else text) + '\1'


def _grouped(text):
  """Returns a text, in parentheses if it is more than one word."""
  text = text.strip('\0 ')
  return text if _SIMPLE.fullmatch(text) else f'({text})'


def _written(tag, values):
  """Returns a formula of {argument: [text, ...], property: str}."""
  get = lambda name: _grouped(' '.join(values.get(name, ())))
  inner = values.get('e', [])
  if tag == 'f':
    between = ' choose ' if values.get('type') == 'noBar' else '/'
    return get('num') + between + get('den')
  if tag == 'd':
    inner = values.get('sepChr', '|').join(inner)
    return values.get('begChr', '(') + inner + values.get('endChr', ')')
  if tag in ('m', 'eqArr', 'mr'):
    return (', ' if tag == 'mr' else '; ').join(values.get('mr', inner))
  if tag == 'rad':
    degree = get('deg')
    return '√' + (f'[{degree}]' if degree else '') + get('e')
  scripts = (('_', 'sub'), ('^', 'sup'), ('^_'[tag == 'limLow'], 'lim'))
  scripts = ''.join(mark + get(name) for mark, name in scripts if get(name))
  if tag == 'nary':
    return f'{values.get("chr", "∫")}{scripts} {get("e")}'
  if tag == 'func':
    return f'{" ".join(values.get("fName", ()))} {get("e")}'
  if tag == 'sPre':
    return scripts + get('e')
  return get('e') + (values.get('chr', '\u0302') if tag == 'acc' else scripts)
