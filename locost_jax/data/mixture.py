"""Mixes the training splits of several tasks in proportion to their sizes.

An epoch of the mixture has min(n_i, cap) of the n_i records of task i (T5's
examples-proportional mixing with an artificial limit; Raffel et al. 2020,
section 3.5.2). Each task reads all its records in a seeded order before it
repeats one, over several epochs of the mixture if necessary. So the record at a
position depends only on (seed, position), as data/order.py requires.
"""

import numpy as np

from locost_jax.data import order
from locost_jax.data import subset

# The purpose of a permutation; see data/order.py for the others.
_TASKS = 3


class Mixture:
  """The training splits of several tasks, as data/pipeline.py reads them."""

  windows = 1

  def __init__(self, tasks, cap, seed):
    """Makes the mixture.

    Args:
      tasks: dict of task -> records.Cache or subset.Subset.
      cap: maximum records of a task in an epoch.
      seed: seed of the order.
    """
    self.tasks, self._seed = tasks, seed
    self._caches = list(tasks.values())
    self._sizes = [min(len(cache), cap) for cache in self._caches]
    self._opened = None, None

  def total(self):
    """Returns the number of records in an epoch."""
    return sum(self._sizes)

  def sizes(self, epoch, index):
    """Returns the number of records of each task in an epoch."""
    del epoch, index
    return self._sizes

  def window(self, epoch, index):
    """Returns the records of each task in an epoch, as caches."""
    del index
    if self._opened[0] != epoch:
      self._opened = epoch, [
          subset.Subset(cache, self._rows(i, epoch))
          for i, cache in enumerate(self._caches)
      ]
    return self._opened[1]

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
