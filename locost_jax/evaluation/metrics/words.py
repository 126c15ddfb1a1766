"""Splits texts into words, as the protocols of ROUGE need them."""

import functools
from importlib import resources
import re

from locost_jax.data import words

_STEP_4 = (
    'al ance ence er ic able ible ant ement ou ism ate iti ous ive ize'
).split()
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
# Words that the Penn Treebank splits in two, but ROUGE's tokeniser does not.
_NEGATIONS = re.compile(r"(?<=\w)(?=n['\u2019]t\b)")
_COMPOUNDS = re.compile(
    r'\b(can(?=not\b)|gon(?=na\b)|got(?=ta\b)|wan(?=na\b)|(?:gim|lem)(?=me\b))'
)


def latin_stemmed(text):
  """Returns the words of rouge_score with its stemmer, NLTK's Porter."""
  return _stemming_tokenizer().tokenize(text)


@functools.cache
def _stemming_tokenizer():
  from rouge_score import tokenizers  # imports NLTK

  return tokenizers.DefaultTokenizer(use_stemmer=True)


def treebank(text):
  """Returns the words of Perl ROUGE-1.5.5 -m after Penn Treebank tokens.

  Stanford's tokeniser (CoreNLP 3.8) writes brackets as -LRB-, -RRB- and so on,
  which Perl ROUGE reads as the words lrb and rrb. ROUGE drops all punctuation,
  so the tokeniser's only other effect is to split contractions.
  """
  text = _NEGATIONS.sub(' ', text.lower().translate(_BRACKETS))
  found = words.latin(_COMPOUNDS.sub(r'\1 ', text))
  return [perl_stem(word) for word in found]


@functools.cache
def exceptions():
  """Returns {irregular form: word} of WordNet 2.0."""
  file = resources.files(__package__) / 'wordnet' / 'exceptions.txt'
  lines = map(str.split, file.read_text('utf-8').splitlines())
  return {form: word for word, *forms in lines for form in forms}


@functools.cache
def perl_stem(word):
  """Returns the stem of a word in lower case, as Perl ROUGE-1.5.5 -m has it.

  These are WordNet's exceptions, then Porter (1980).
  Only words of more than three letters are stemmed. `wordnet/exceptions.txt` has
  the 5,930 entries of the script's WordNet-2.0.exc.db, each line a word and its
  irregular forms. Where WordNet lists a form twice, the entry read last counts;
  the order adjectives, adverbs, nouns, verbs gives the published database ("best"
  is "well"; "older" is missing).
  """
  if len(word) <= 3:
    return word
  return exceptions().get(word) or _porter().stem(word)


@functools.cache
def _porter():
  """Returns Porter's stemmer as the script has it."""
  from nltk.stem import porter  # takes a second

  class Porter(porter.PorterStemmer):

    def _ends_double_consonant(self, word):
      return not word.endswith('yy') and super()._ends_double_consonant(word)

    def _step4(self, word):
      # The script removes up to three endings, one after the other.
      is_long = lambda stem: self._measure(stem) > 1
      # The s or t before -ion is part of the stem.
      after_s_or_t = lambda stem: stem.endswith(('s', 't')) and is_long(stem)
      for rules in (
          [(ending, '', is_long) for ending in _STEP_4],
          [('ment', '', is_long)],
          [('ent', '', is_long), ('ion', '', after_s_or_t)],
      ):
        word = self._apply_rule_list(word, rules)
      return word

  return Porter(Porter.MARTIN_EXTENSIONS)
