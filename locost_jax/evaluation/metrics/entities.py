"""Share of a summary's numbers and names that occur in its document.

- Numbers: runs of digits, with the points and commas between them; commas are
  dropped, so that 1,200 equals 1200. Numbers written as words do not count.
- Names: words of at least two letters that begin with a capital. The first word
  of a sentence counts only if it has another capital (NASA), because every
  first word is capitalised. A final 's is dropped.

Each number or name counts once. Numbers must match exactly, names without
regard to case. The score is in percent, the mean over the documents whose
summaries have any. It drops if a model invents a number or a name, which ROUGE
hardly notices, but also with a paraphrase (12 for twelve).
"""

import re

from locost_jax.data import text as text_lib
from locost_jax.evaluation.metrics import metric

_NUMBER = re.compile(r'\d+(?:[.,]\d+)*')
_WORD = re.compile(r"[^\W\d_]+(?:[-'\u2019][^\W\d_]+)*")
_POSSESSIVE = re.compile(r"['\u2019]s$", re.IGNORECASE)


def numbers(text):
  """Returns the set of numbers of a text, as strings without commas."""
  return {found.replace(',', '') for found in _NUMBER.findall(text)}


def names(text):
  """Returns the set of names of a text, case-folded."""
  found = set()
  for sentence in text_lib.split_sentences(text):
    for i, word in enumerate(_plain_words(sentence)):
      is_name = len(word) > 1 and word[0].isupper()
      if is_name and (i or any(map(str.isupper, word[1:]))):
        found.add(word.casefold())
  return found


def _plain_words(text):
  return [_POSSESSIVE.sub('', word) for word in _WORD.findall(text)]


def sums(prediction, document):
  """Returns {'numbers' or 'names': (percent in the document, 1)}."""
  found = {}
  known = {word.casefold() for word in _plain_words(document)}
  for key, ours, theirs in (
      ('numbers', numbers(prediction), numbers(document)),
      ('names', names(prediction), known),
  ):
    if ours:
      found[key] = (100 * len(ours & theirs) / len(ours), 1)
  return found


ENTITIES = metric.Metric(
    name='entities',
    keys=('numbers', 'names'),
    needs=metric.DOCUMENT,
    sums=sums,
    columns=(
        metric.Column('numbers', 'numbers', 1),
        metric.Column('names', 'names', 1),
    ),
)
