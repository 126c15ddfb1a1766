"""Splits texts into words, as the protocols of ROUGE need them."""

import functools
import re

from locost_jax.data import words
from locost_jax.evaluation.metrics import perl_stems

flat = words.of_any_script
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
  return [perl_stems.stem(word) for word in found]
