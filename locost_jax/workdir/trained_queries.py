"""Whether a run was trained with queries: RUN/queries.json.

Training writes it once, from the first training rows. Runs of older versions,
and released models, do not say.
"""

import json
import os

from locost_jax import files
from locost_jax import untrusted

FILE = 'queries.json'


def save(directory, asked):
  """Writes whether the training rows have queries.

  Args:
    directory: of the run, or of its phase.
    asked: bool.
  """
  files.write(
      os.path.join(directory, FILE), json.dumps({'queries': bool(asked)}) + '\n'
  )


def load(directory):
  """Returns whether a run was trained with queries; None: it does not say."""
  try:
    found = untrusted.read_object(os.path.join(directory, FILE))
  except FileNotFoundError:
    return None
  return found.get('queries') is True
