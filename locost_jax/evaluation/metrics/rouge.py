"""ROUGE (Lin 2004) with the numbers of Google's rouge_score.

F1 in percent, averaged over pairs. ROUGE-Lsum compares sentence by sentence;
`data/text.py` splits both texts. The package itself is not called, because its
loops are slow (docs/evaluation.md).
"""

import functools

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols

TYPES = protocols.TYPES
MEAN = protocols.MEAN  # of rouge1, rouge2 and rougeLsum


def sums(prediction, references, stemmer=False):
  """Returns {key: (F1 x 100, 1)} of one document.

  Args:
    prediction: str.
    references: list of str; each kind of ROUGE takes its best reference.
    stemmer: whether words are stemmed first (Porter). The LOCOST release does
      not stem, many other papers do.
  """
  protocol = protocols.PROTOCOLS['google' if stemmer else 'locost']
  scores = protocols.score(protocol, prediction, references)
  return {name: (value, 1.0) for name, value in scores.items()}


def signature(documents):
  """Returns the signature of `sums`, see `protocols.signature`."""
  return protocols.signature(protocols.PROTOCOLS['locost'], documents, None)


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
    signature=signature,
)


def rouge(predictions, references, stemmer=False):
  """Scores predictions against references.

  Args:
    predictions: list of n strings.
    references: list of n strings; or of lists of strings, see `sums`.
    stemmer: see `sums`.

  Returns:
    dict of floats: 'rouge1', 'rouge2', 'rougeL', 'rougeLsum' (mean F1 x 100)
    and 'rouge_mean', which can choose the best checkpoint.

  Raises:
    InputError: the lists are empty, or differ in length.
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
