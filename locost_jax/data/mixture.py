"""Several tasks trained on together, in proportion to their sizes.

An epoch of the mixture holds min(n_i, cap) records of task i, which has n_i
(T5's examples-proportional mixing with an artificial limit; Raffel et al. 2020,
section 3.5.2). A task goes through its own records in a seeded order before it
begins anew, however many epochs of the mixture that takes. So the record at any
position follows from (seed, position), as data/order.py wants it.
"""

import numpy as np

from locost_jax.data import order
from locost_jax.data import subset

# The purpose of a permutation; data/order.py has others.
_TASKS = 3


class Mixture:
  """The training splits of some tasks, read as one by data/pipeline.py."""

  windows = 1

  def __init__(self, tasks, cap, seed):
    """Makes the mixture.

    Args:
      tasks: dict of task -> records.Cache or subset.Subset.
      cap: the most records of a task in an epoch.
      seed: of the order.
    """
    self.tasks, self._seed = tasks, seed
    self._caches = list(tasks.values())
    self._sizes = [min(len(cache), cap) for cache in self._caches]
    self._opened = None, None

  def total(self):
    """Records in an epoch."""
    return sum(self._sizes)

  def sizes(self, epoch, index):
    """The records of each task in an epoch."""
    del epoch, index
    return self._sizes

  def window(self, epoch, index):
    """The records of each task that an epoch reads, as caches."""
    del index
    if self._opened[0] != epoch:
      self._opened = epoch, [
          subset.Subset(cache, self._rows(i, epoch))
          for i, cache in enumerate(self._caches)
      ]
    return self._opened[1]

  def _rows(self, task, epoch):
    """Records epoch k .. (epoch + 1) k - 1 of a task's own endless stream."""
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
