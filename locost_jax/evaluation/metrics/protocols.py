"""Protocols: how a paper or a package computes ROUGE, one object each.

Tokeniser, stemmer, sentence splitter and the rule for several references change
ROUGE by points. A protocol fixes them, and its signature names them.
"""

from typing import Callable, NamedTuple

from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.evaluation.metrics import intervals
from locost_jax.evaluation.metrics import overlap
from locost_jax.evaluation.metrics import words

TYPES = ('rouge1', 'rouge2', 'rougeL', 'rougeLsum')
MEAN, GEOMETRIC = 'rouge_mean', 'rouge_geometric_mean'
# Column titles of tables, in this order.
TITLES = {
    'rouge1': 'R-1',
    'rouge2': 'R-2',
    'rougeL': 'R-L',
    'rougeLsum': 'R-Lsum',
    MEAN: 'mean',
    GEOMETRIC: 'geometric mean',
}
SPLIT = 'locost_jax-1'  # data/text.py; raise the number if its splits change


def best(overlaps):
  """Returns the highest F1 over references."""
  return max(map(overlap.f1, overlaps))


def pooled(overlaps):
  """Returns the F1 of counts summed over references (Perl ROUGE, formula A)."""
  return overlap.f1(overlap.Overlap(*map(sum, zip(*overlaps))))


class Protocol(NamedTuple):
  """One way to compute ROUGE.

  Attributes:
    name: in --protocol.
    what: one line about it.
    sentences: function text -> list of sentences, lists of words; see `words`.
    mean_of: the kinds of ROUGE that `rouge_mean` averages.
    tokens: name of the tokeniser, for the signature.
    stem: name of the stemmer, for the signature.
    combine: function (list of `overlap.Overlap`, one per reference) -> F1.
    geometric: whether to add the geometric mean of the means.
  """

  name: str
  what: str
  sentences: Callable
  mean_of: tuple
  tokens: str
  stem: str = 'no'
  combine: Callable = best
  geometric: bool = False


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            name='locost',
            what='rouge_score, no stemmer; used by LOCOST and main --evaluate',
            sentences=words.latin,
            mean_of=('rouge1', 'rouge2', 'rougeLsum'),
            tokens='rouge_score:0.1.2',
        ),
        Protocol(
            name='google',
            what='rouge_score with its stemmer; used by most papers since 2020',
            sentences=words.latin_stemmed,
            mean_of=('rouge1', 'rouge2', 'rougeLsum'),
            tokens='rouge_score:0.1.2',
            stem='nltk',
        ),
        Protocol(
            name='pagesum',
            what='Perl ROUGE-1.5.5 -m on Treebank tokens, R-Lsum; PageSum',
            sentences=words.treebank,
            mean_of=('rouge1', 'rouge2', 'rougeLsum'),
            tokens='ptb:1|ROUGE:1.5.5',
            stem='perl',
            combine=pooled,
        ),
        Protocol(
            name='simcas',
            what='as pagesum, but R-L except on arXiv and PubMed; SimCAS',
            sentences=words.treebank,
            mean_of=('rouge1', 'rouge2', 'rougeL'),
            tokens='ptb:1|ROUGE:1.5.5',
            stem='perl',
            combine=pooled,
        ),
        Protocol(
            name='scrolls',
            what='rouge_score, no stemmer, geometric mean; SCROLLS',
            sentences=words.latin,
            mean_of=('rouge1', 'rouge2', 'rougeL'),
            tokens='rouge_score:0.1.2',
            geometric=True,
        ),
        Protocol(
            name='booksum',
            what='rouge_score, no stemmer, R-L instead of R-Lsum',
            sentences=words.latin,
            mean_of=('rouge1', 'rouge2', 'rougeL'),
            tokens='rouge_score:0.1.2',
        ),
        Protocol(
            name='unicode',
            what='words of any script, for texts not in Latin letters',
            sentences=words.of_any_script,
            mean_of=('rouge1', 'rouge2', 'rougeLsum'),
            tokens='words:1',
        ),
    )
}


def find(name):
  """Returns the protocol of a name.

  Raises:
    InputError: unknown name; the message lists all names.
  """
  if name not in PROTOCOLS:
    raise InputError(
        f'--protocol={name}: no such protocol'
        f'{suggest(name, PROTOCOLS) or ":"} expected one of '
        f'{", ".join(PROTOCOLS)}'
    )
  return PROTOCOLS[name]


def score(protocol, prediction, references):
  """Returns {kind of ROUGE, or MEAN: F1 x 100} of one document.

  Args:
    protocol: a Protocol.
    prediction: str.
    references: list of str; at least one.
  """
  ours = protocol.sentences(prediction)
  found = [
      overlap.overlaps(ours, protocol.sentences(reference))
      for reference in references
  ]
  scores = {
      key: 100 * protocol.combine([overlaps[key] for overlaps in found])
      for key in TYPES
  }
  chosen = [scores[key] for key in protocol.mean_of]
  scores[MEAN] = sum(chosen) / len(chosen)
  return scores


def geometric_mean(protocol, means):
  """Returns the geometric mean of the means over all documents.

  Args:
    protocol: a Protocol; its `mean_of` names the kinds of ROUGE.
    means: {kind of ROUGE: float, or array of floats}.
  """
  product = 1.0
  for key in protocol.mean_of:
    product = product * means[key]
  return product ** (1 / len(protocol.mean_of))


def has_words(protocol, text):
  """Whether a text has any words of the protocol."""
  return any(protocol.sentences(text))


def signature(protocol, pairs, level=intervals.LEVEL):
  """Returns the signature of scores: 'rouge|locost|stem:no|...|n:1000|ci:95'.

  Args:
    protocol: a Protocol.
    pairs: number of scored pairs.
    level: of the intervals, in percent; None: no intervals.
  """
  parts = [
      'rouge',
      protocol.name,
      f'stem:{protocol.stem}',
      f'split:{SPLIT}',
      f'agg:{"max" if protocol.combine is best else "pooled"}',
      protocol.tokens,
      f'n:{pairs}',
  ]
  return '|'.join(parts if level is None else [*parts, f'ci:{level}'])


def method(signature):
  """Returns a signature up to the number of pairs.

  Scores can be compared if this part is equal.
  """
  return signature.partition('|n:')[0]
