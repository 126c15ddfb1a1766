"""Warns about documents in a script that the vocabulary does not have."""

import numpy as np

from locost_jax.errors import visible
from locost_jax.vocabularies import unknown

_MOST = 0.1  # share of a document's tokens


def describe(vocabulary, pages):
  """Returns a sentence for a document with many unknown tokens, or ''.

  Args:
    pages: lists of ids, see `reading.Read`.
  """
  share = unknown.share(
      vocabulary, np.concatenate([np.ravel(p) for p in pages])
  )
  if share <= _MOST:
    return ''
  return (
      f"{share:.0%} of its tokens are characters that the model's vocabulary "
      'does not have; expected a model trained on this language'
  )


def report(vocabulary, jobs, progress):
  """Prints a line for the first such document of each file.

  Args:
    jobs: list of `summaries.Job`, tokenised or not.
  """
  for job in jobs:
    pages = job.pages or [vocabulary.encode(job.document.text)]
    line = describe(vocabulary, pages)
    if line:
      progress.note_once(
          job.document.source, visible(f'{job.document.id}: {line}')
      )
