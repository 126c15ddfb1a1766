"""Formulas, raised text and symbols of Word, in one line of Unicode.

'10^6', 'log_(2)8', '√(x+1)', '∑_(i=1)^n i'; 'α' for an 'a' in Symbol.
"""

import re

from locost_jax.documents import markup

UP, DOWN, _, _GROUP, _OVER, _BY, _END, _TOKEN = markup.MARKS
# {element: (before its arguments, between them, ..., after them)}; properties
# in braces.
_SHAPES = {
    'f': (_OVER, _BY, _END),
    'noBar': (_GROUP, f'{_END} choose {_GROUP}', _END),  # a kind of f
    'd': ('{begChr}', '{sepChr}', '{endChr}'),
    **dict.fromkeys(('m', 'eqArr'), ('', '; ', '')),
    'mr': ('', ', ', ''),
    'acc': (_GROUP, f'{_END}{{accent}}'),
    'rad': ('√[', f']{_GROUP}', _END),
    'nary': ('{chr}' + DOWN, _END + UP, f'{_END} {_GROUP}', _END),
    'func': ('', f' {_GROUP}', _END),
    **dict.fromkeys(('sSub', 'limLow'), (_GROUP, _END + DOWN, _END)),
    **dict.fromkeys(('sSup', 'limUpp'), (_GROUP, _END + UP, _END)),
    'sSubSup': (_GROUP, _END + DOWN, _END + UP, _END),
    'sPre': (DOWN, _END + UP, _END + _GROUP, _END),
    **dict.fromkeys('bar box borderBox groupChr phant'.split(), ('', '', '')),
}
_ARGUMENTS = frozenset('num den e sub sup deg lim fName mr'.split())
_PROPERTIES = dict(
    begChr='(', sepChr='|', endChr=')', chr='∫', accent='\u0302'
)  # by default

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
# Letters of symbol fonts stand at their codes or, in the private use area, at
# 0xF000 and their codes. There stay those that are unknown.
_CODES = {}
for _font, _ranges in _FONTS.items():
  _codes = {code: chr(0xF000 + code) for code in range(0x20, 0x100)}
  for _first, _characters in _ranges.items():
    _codes.update(enumerate(_characters, _first))
  _CODES[_font] = _codes | {0xF000 + code: c for code, c in _codes.items()}
_UNKNOWN = re.compile('[\uf000-\uf0ff]')


def in_unicode(text, font):
  """Returns a text in a font as Unicode, and what has no character there."""
  codes = _CODES.get(font.casefold().removesuffix('mt'))
  text = text.translate(codes) if codes else text
  return _UNKNOWN.sub('', text), _UNKNOWN.findall(text)


class Pieces(list):
  """The text of a paragraph in parts, with the marks of `markup`.

  Attributes:
    raised: UP or DOWN while text is raised or lowered, else ''.
    kind: 'heading', 'item' or ''.
    goes_on: whether the next paragraph is part of it.
    list: its properties for `numbering.WordNumbers`.
  """

  def __init__(self):
    super().__init__()
    self.raised = self.kind = self._height = ''
    self.list, self.goes_on = {}, False
    self._open = []  # [[shape, arguments so far, properties]] of formulas

  def add_text(self, text):
    """Adds a text as high as `raised` says."""
    if not self.raised or self._open:
      self.append(text)
    elif self[-1:] == [_END] and self._height == self.raised:
      self[-1:] = text, _END
    else:
      self.extend((self.raised, text, _END))
      self._height = self.raised

  def open(self, tag, value):
    """Reads the start of an element of a formula."""
    if tag in _ARGUMENTS and self._open:
      shape, count, properties = self._open[-1]
      self.append(shape[min(count, len(shape) - 2)].format(**properties))
      self._open[-1][1] += 1
    if tag in _SHAPES:
      self._open.append([_SHAPES[tag], 0, dict(_PROPERTIES)])
      self.append(_TOKEN)
    elif value == 'noBar' and self._open:
      self._open[-1][0] = _SHAPES[value]
    elif tag in _PROPERTIES and self._open:
      self._open[-1][2] |= {tag: value, 'accent': value}

  def close(self, tag):
    """Reads the end of an element of a formula."""
    if tag in _SHAPES and self._open:
      shape, count, properties = self._open.pop()
      last = shape[-1] if count else ''
      self.append(last.format(**properties) + _TOKEN)

  def text(self):
    """Returns the text, with signs for what is raised."""
    return markup.write_marks(''.join(self)).replace('√[]', '√')
