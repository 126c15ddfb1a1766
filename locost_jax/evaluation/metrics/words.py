"""Splits texts into sentences and words, as the protocols need them.

Each public function returns a list of sentences, each a list of words, except
`flat`.
"""

import functools
import re
import unicodedata

from locost_jax.data import text as text_lib
from locost_jax.evaluation.metrics import perl_stems

_LATIN = re.compile('[a-z0-9]+')
_BRACKETS = str.maketrans(
    {
        '(': ' lrb ',
        ')': ' rrb ',
        '[': ' lsb ',
        ']': ' rsb ',
        '{': ' lcb ',
        '}': ' rcb ',
    }
)
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
# Words that the Penn Treebank splits in two, but ROUGE's tokeniser does not.
_NEGATIONS = re.compile(r"(?<=\w)(?=n['\u2019]t\b)")
_COMPOUNDS = re.compile(
    r'\b(can(?=not\b)|gon(?=na\b)|got(?=ta\b)|wan(?=na\b)|(?:gim|lem)(?=me\b))'
)


def latin(text):
  """Splits into runs of a-z and 0-9 in lower case, like rouge_score."""
  return [
      _LATIN.findall(sentence.lower())
      for sentence in text_lib.split_sentences(text)
  ]


def latin_stemmed(text):
  """Like `latin`; NLTK's Porter stems words of more than three letters."""
  return [
      [stem for word in sentence if (stem := _porter()(word))]
      for sentence in latin(text)
  ]


@functools.cache
def _porter():
  from nltk.stem import porter

  stemmer = porter.PorterStemmer()

  @functools.lru_cache(1 << 18)
  def stem(word):
    made = stemmer.stem(word) if len(word) > 3 else word
    return made if _LATIN.fullmatch(made) else ''

  return stem


def treebank(text):
  """Splits into the words of Perl ROUGE-1.5.5 -m after Penn Treebank tokens.

  Stanford's tokeniser (CoreNLP 3.8) writes brackets as -LRB-, -RRB- and so on,
  which Perl ROUGE reads as the words lrb and rrb. ROUGE drops all punctuation,
  so the tokeniser's only other effect is to split contractions.
  """
  return [_treebank_words(s) for s in text_lib.split_sentences(text)]


def _treebank_words(sentence):
  sentence = _NEGATIONS.sub(' ', sentence.lower().translate(_BRACKETS))
  words = _LATIN.findall(_COMPOUNDS.sub(r'\1 ', sentence))
  return [perl_stems.stem(word) for word in words]


def of_any_script(text):
  """Splits into runs of letters, marks and digits, NFKC and case-folded.

  In scripts written without spaces, each character is a word.
  """
  return [
      unicodedata.normalize('NFKC', sentence)
      .casefold()
      .translate(_SEPARATED)
      .split()
      for sentence in text_lib.split_sentences(text)
  ]


def flat(text):
  """Returns the words of `of_any_script` as one list, without sentences."""
  return [word for sentence in of_any_script(text) for word in sentence]


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
