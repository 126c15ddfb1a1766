"""Subsets of a cache, for example few-shot training sets.

`config.data.train_examples` trains on a few examples of a corpus (SimCAS,
figure 4). They are chosen from its tokenised records, so all numbers and seeds
share one cache.
"""

from locost_jax.data import order
from locost_jax.errors import InputError

# The purpose of a permutation; see data/order.py for the others.
_EXAMPLES = 4


class Subset:
  """Some records of a cache, with the methods of a cache."""

  windows = 1

  def __init__(self, cache, rows):
    """Makes the subset.

    Args:
      rows: int64 [n], numbers of its records, in the order of the subset.
    """
    self._cache, self._rows = cache, rows
    self.lengths, self.shapes = cache.lengths[rows], cache.shapes[rows]

  def __len__(self):
    return len(self._rows)

  def __getitem__(self, index):
    return self.read([index])[0]

  def read(self, indices):
    """Returns the records with these indices as a list of dicts, in order."""
    return self._cache.read(self._rows[list(indices)])

  def total(self):
    """Returns the number of records in an epoch."""
    return len(self)

  def sizes(self, epoch, index):
    """Returns the number of records of each part of a window."""
    del epoch, index
    return [len(self)]

  def window(self, epoch, index):
    """Returns the parts of a window, as caches."""
    del epoch, index
    return [self]


def choose_examples(task, cache, data):
  """Chooses the training examples of a task.

  The choice depends only on config.data.seed and the number of records, so all
  processes agree. With one seed, a larger choice contains every smaller one.

  Args:
    cache: records.Cache of its training split. If train_examples is 0, None or
      a streamed.StreamedCache is allowed.
    data: config.data: train_examples, seed.

  Returns:
    The cache itself if train_examples is 0, else a Subset in the order of the
    corpus.

  Raises:
    InputError: the cache has fewer records than train_examples.
  """
  count = data.train_examples
  if not count or cache is None:
    return cache
  if count > len(cache):
    raise InputError(
        f'config.data.train_examples={count}: {task} has {len(cache)} training '
        f'examples; expected at most {len(cache)}, or 0 for all'
    )
  chosen = order.permutation(len(cache), data.seed, _EXAMPLES)[:count]
  chosen.sort()
  return Subset(cache, chosen)
