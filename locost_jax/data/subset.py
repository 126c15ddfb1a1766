"""Some records of a cache, read like a cache; few-shot training sets.

`config.data.train_examples` trains on a few examples of a corpus (SimCAS's
figure 4). They are chosen among its tokenised records, so that every number and
every seed shares one cache.
"""

from locost_jax.data import order
from locost_jax.errors import InputError

# Which examples are chosen: a use of permutations besides those of
# data/order.py and data/mixture.py.
_EXAMPLES = 4


class Subset:
  """Some records of a cache, as data/pipeline.py and a mixture read them."""

  windows = 1

  def __init__(self, cache, rows):
    """Makes the subset.

    Args:
      cache: a records.Cache.
      rows: int64 [n], the numbers of its records, in the order of the subset.
    """
    self._cache, self._rows = cache, rows
    self.lengths, self.shapes = cache.lengths[rows], cache.shapes[rows]

  def __len__(self):
    return len(self._rows)

  def __getitem__(self, index):
    return self.read([index])[0]

  def read(self, indices):
    """The records with these indices, as a list of dicts in their order."""
    return self._cache.read(self._rows[list(indices)])

  def total(self):
    """Records in an epoch."""
    return len(self)

  def sizes(self, epoch, index):
    """The records of each part of a window."""
    del epoch, index
    return [len(self)]

  def window(self, epoch, index):
    """The parts of a window, as caches."""
    del epoch, index
    return [self]


def choose_examples(task, cache, data):
  """Chooses the training examples of a task.

  A function of config.data.seed and the number of records alone, hence the same
  in every process. With one seed, fewer examples are among the more.

  Args:
    task: its name.
    cache: records.Cache of its training split; or None, or a
      streamed.StreamedCache where train_examples is 0.
    data: config.data: train_examples, seed.

  Returns:
    The cache itself where train_examples is 0, else a Subset in the order of
    the corpus.

  Raises:
    InputError: the cache has fewer records.
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
