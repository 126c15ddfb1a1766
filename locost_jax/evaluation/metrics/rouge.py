"""ROUGE (Lin 2004) with Google's rouge_score, the papers' package.

F1 in percent, averaged over pairs. ROUGE-Lsum compares sentence by sentence and
needs them on lines of their own: both sides are split here, by text.py.
"""

import functools

from locost_jax.data import text as text_lib
from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric

TYPES = ('rouge1', 'rouge2', 'rougeL', 'rougeLsum')
MEAN = 'rouge_mean'  # of rouge1, rouge2 and rougeLsum


def sentences_on_lines(text):
  """Returns a text with each of its sentences on a line."""
  return '\n'.join(text_lib.split_sentences(text))


def sums(prediction, references, stemmer=False):
  """Returns {key: (F1 x 100, 1)} of one document.

  Args:
    prediction: str.
    references: list of str, of which the best counts, for each kind of ROUGE
      by itself.
    stemmer: whether words are stemmed first (Porter); the LOCOST release does
      not, many other papers do.
  """
  scores = _scorer(stemmer).score_multi(
      list(map(sentences_on_lines, references)), sentences_on_lines(prediction)
  )
  percent = {name: 100 * scores[name].fmeasure for name in TYPES}
  percent[MEAN] = (
      percent['rouge1'] + percent['rouge2'] + percent['rougeLsum']
  ) / 3
  return {name: (value, 1.0) for name, value in percent.items()}


@functools.cache
def _scorer(stemmer):
  from rouge_score import rouge_scorer

  return rouge_scorer.RougeScorer(TYPES, use_stemmer=stemmer)


ROUGE = metric.Metric(
    name='rouge',
    keys=(*TYPES, MEAN),
    needs=metric.TEXT,
    sums=sums,
    columns=(
        metric.Column('rouge1', 'R-1', 2),
        metric.Column('rouge2', 'R-2', 2),
        metric.Column('rougeL', 'R-L', 2),
        metric.Column('rougeLsum', 'R-Lsum', 2),
        metric.Column(MEAN, 'mean', 2),
    ),
)


def rouge(predictions, references, stemmer=False):
  """Scores predictions against references.

  Args:
    predictions: list of n strings.
    references: list of n strings; or of lists of strings, see `sums`.
    stemmer: see `sums`.

  Returns:
    dict of floats: 'rouge1', 'rouge2', 'rougeL', 'rougeLsum' (mean F1 x 100)
    and 'rouge_mean', by which checkpoints are chosen.

  Raises:
    InputError: there are no pairs, or not as many of one as of the other.
  """
  if len(predictions) != len(references):
    raise InputError(
        f'{len(predictions)} predictions but {len(references)} '
        'references: expected as many'
    )
  if not len(predictions):
    raise InputError('ROUGE of no predictions: expected at least one')
  scored = ROUGE._replace(sums=functools.partial(sums, stemmer=stemmer))
  return metric.score([scored], predictions, references)
