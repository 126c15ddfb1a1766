"""ROUGE (Lin 2004) with Google's rouge_score, the papers' package.

F1 in percent, averaged over pairs. ROUGE-Lsum compares sentence by sentence and
needs them on lines of their own: both sides are split here, by text.py.
"""

from locost_jax.data import text as text_lib
from locost_jax.errors import InputError

TYPES = ('rouge1', 'rouge2', 'rougeL', 'rougeLsum')


def sentences_on_lines(text):
  """Returns a text with each of its sentences on a line."""
  return '\n'.join(text_lib.split_sentences(text))


def rouge(predictions, references, stemmer=False):
  """Scores predictions against references.

  Args:
    predictions: list of n strings.
    references: list of n strings; or of lists of strings, of which the best
      counts, for each kind of ROUGE by itself.
    stemmer: whether words are stemmed first (Porter); the LOCOST release does
      not, many other papers do.

  Returns:
    dict of floats: 'rouge1', 'rouge2', 'rougeL', 'rougeLsum' (mean F1 x 100)
    and 'rouge_mean', the mean of rouge1, rouge2 and rougeLsum by which
    checkpoints are chosen.

  Raises:
    InputError: there are no pairs, or not as many of one as of the other.
  """
  from rouge_score import rouge_scorer

  if len(predictions) != len(references):
    raise InputError(f'{len(predictions)} predictions but {len(references)} '
                     'references: expected as many')
  if not len(predictions):
    raise InputError('ROUGE of no predictions: expected at least one')
  scorer = rouge_scorer.RougeScorer(TYPES, use_stemmer=stemmer)
  sums = dict.fromkeys(TYPES, 0.)
  for prediction, reference in zip(predictions, references):
    several = [reference] if isinstance(reference, str) else reference
    scores = scorer.score_multi(
        list(map(sentences_on_lines, several)), sentences_on_lines(prediction))
    for name, score in scores.items():
      sums[name] += score.fmeasure
  means = {name: 100 * sums[name] / len(predictions) for name in TYPES}
  means['rouge_mean'] = (
      means['rouge1'] + means['rouge2'] + means['rougeLsum']) / 3
  return means
