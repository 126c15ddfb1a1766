"""Words for gap sentences and ROUGE: those of a-z and 0-9, or of any script.

`latin` has the words of rouge_score (and of the papers). It cuts a word at each
other letter, so texts that are not written in a-z need `of_any_script`.
"""

import re
import unicodedata

_LATIN = re.compile('[a-z0-9]+')
_LETTERS = re.compile(r'[^\W\d_]+')
# Scripts that are written without spaces between words.
_UNSPACED = (
    range(0x0E00, 0x10A0),  # Thai, Lao, Tibetan, Burmese
    range(0x1780, 0x1800),  # Khmer
    range(0x3040, 0x3100),  # Hiragana, Katakana
    range(0x31F0, 0x3200),
    range(0x3400, 0xA000),  # Chinese characters
    range(0xF900, 0xFB00),
    range(0x20000, 0x40000),
)


def latin(text):
  """Returns the runs of a-z and 0-9 in lower case, like rouge_score."""
  return _LATIN.findall(text.lower())


def of_any_script(text):
  """Returns the runs of letters, marks and digits, NFKC and case-folded.

  In scripts written without spaces, each character is a word.
  """
  folded = unicodedata.normalize('NFKC', text).casefold()
  return folded.translate(_SEPARATED).split()


def is_latin(texts):
  """Whether `latin` counts at least half of the letters of texts.

  A letter counts if all letters of its word are in a-z: `latin` cuts other
  words into pieces.
  """
  counted = letters = 0
  for text in texts:
    if text.isascii():  # fast
      runs = _LETTERS.findall(text)
    else:
      runs = _LETTERS.findall(unicodedata.normalize('NFC', text))
    letters += sum(map(len, runs))
    counted += sum(len(run) for run in runs if run.isascii())
  return 2 * counted >= letters


class _Separated(dict):
  """The replacement of each character by code point, computed on first use."""

  def __missing__(self, code):
    character = chr(code)
    kind = unicodedata.category(character)
    if kind == 'Cf':  # joiners within words, direction marks
      made = ''
    elif kind[0] not in 'LMN':
      made = ' '
    elif any(code in script for script in _UNSPACED):
      made = f' {character} '
    else:
      made = character
    return self.setdefault(code, made)


_SEPARATED = _Separated()
