"""Training sets made of other caches: mixtures of tasks, and subsets.

`Mixture` mixes the training splits of several tasks in proportion to their
sizes. An epoch of the mixture has min(n_i, cap) of the n_i records of task i
(T5's examples-proportional mixing with an artificial limit; Raffel et al. 2020,
section 3.5.2). Each task reads all its records in a seeded order before it
repeats one, over several epochs of the mixture if necessary. So the record at a
position depends only on (seed, position), as data/order.py requires.

`Subset` has some records of a cache: config.data.train_examples trains on a few
examples of a corpus (SimCAS, figure 4). They are chosen from its tokenised
records, so all numbers and seeds share one cache.
"""

import functools

import numpy as np

from locost_jax.data import order
from locost_jax.data import records
from locost_jax.errors import InputError

# The purposes of permutations; see data/order.py for the others.
_TASKS, _EXAMPLES = 3, 4


class Subset(records.TrainingSet):
  """Some records of a cache, with the methods of a cache."""

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


def choose_examples(task, cache, data):
  """Chooses the training examples of a task, by config.data.seed alone.

  A larger choice contains every smaller one. Without data.train_examples, the
  cache (also None or a streamed.StreamedCache) is returned.
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


class Mixture(records.TrainingSet):
  """The training splits of several tasks, as data/pipeline.py reads them."""

  def __init__(self, tasks, cap, seed):
    """Makes the mixture.

    Args:
      cap: maximum records of a task in an epoch.
    """
    self.tasks, self._seed = tasks, seed
    self._caches = list(tasks.values())
    self._sizes = [min(len(cache), cap) for cache in self._caches]
    self.window = functools.lru_cache(maxsize=1)(self._open)

  def total(self):
    """Returns the number of records in an epoch."""
    return sum(self._sizes)

  def _open(self, epoch, index):
    """Returns the records of each task in an epoch, as caches."""
    del index
    caches = enumerate(self._caches)
    return [Subset(cache, self._rows(i, epoch)) for i, cache in caches]

  def _rows(self, task, epoch):
    """Returns records epoch k .. (epoch + 1) k - 1 of a task's own stream."""
    n, k = len(self._caches[task]), self._sizes[task]
    start, stop = epoch * k, (epoch + 1) * k
    if not k:
      return np.zeros(0, np.int64)
    passes = [
        order.permutation(n, self._seed, _TASKS, task, number)
        for number in range(start // n, -(-stop // n))
    ]
    first = start - start // n * n
    return np.concatenate(passes)[first : first + k]
