"""Pictures of sentences and their distance in a document (PageSum).

Figure 1 shows the similarity of two sentences against their distance. Figure 4
shows the distances of sentences that a summary fuses; `data.interdependent`
finds them.
"""

import numpy as np

from locost_jax import untrusted
from locost_jax.errors import InputError
from locost_jax.figures import style

BINS = 20  # of figure 4
_POINT = {
    'distance': untrusted.number(0),
    'similarity': untrusted.number(-1, 1),
    'count': untrusted.integer(1, 10**12),
}


def means(rows, where):
  """Returns the mean similarity at each distance.

  Args:
    rows: dicts with distance (in sentences) and similarity (a cosine); also
      with count, if a row is the mean of several pairs.
    where: the file, for errors.

  Returns:
    (distances, means, mean of all pairs).

  Raises:
    InputError: a row lacks these numbers, or there are no rows.
  """
  found = {}
  for number, row in enumerate(rows, start=1):
    row = {'count': 1} | row
    for key, kind in _POINT.items():
      if key not in row:
        raise InputError(
            f'{where}: row {number} lacks {key}; expected distance and '
            'similarity, and optionally count'
        )
      untrusted.check(f'{where}: row {number}', key, row[key], kind)
    total = found.setdefault(row['distance'], np.zeros(2))
    total += row['count'] * row['similarity'], row['count']
  if not found:
    raise InputError(f'{where}: has no rows; expected distance and similarity')
  distances = sorted(found)
  sums, counts = np.array([found[distance] for distance in distances]).T
  return distances, sums / counts, sums.sum() / counts.sum()


def draw_similarity(inputs):
  """Draws figure 1: similarity against distance; dashed: mean of all pairs.

  Args:
    inputs: list of (name, rows), rows as in `means`.

  Returns:
    The matplotlib Figure.
  """
  figure, axes = style.make_figure(1, 1, 4.2, 3.0)
  axis = axes[0, 0]
  for number, (name, rows) in enumerate(inputs):
    distances, similarities, mean = means(rows, name)
    look = style.line(number, len(distances))
    axis.plot(distances, similarities, label=name, **look)
    axis.axhline(
        mean, color=look['color'], linestyle=(0, (6, 3)), linewidth=0.8
    )
  axis.grid(alpha=0.3)
  axis.set(
      xlabel='distance of two sentences, in sentences',
      ylabel='similarity (cosine)',
  )
  style.add_legend(figure, [axis])
  return figure


def draw_distances(inputs):
  """Draws figure 4: pairs of interdependent sentences against their distance.

  Args:
    inputs: list of (name, result): JSON objects of `data.interdependent`.

  Returns:
    The matplotlib Figure.

  Raises:
    InputError: a result has no distances.
  """
  figure, axes = style.make_figure(1, len(inputs), 3.8, 2.9)
  for number, (axis, (name, result)) in enumerate(zip(axes[0], inputs)):
    shares = result.get('distances')
    untrusted.check(
        name, 'distances', shares, untrusted.list_of(untrusted.number(0, 1))
    )
    axis.hist(shares, BINS, range=(0, 1), color=style.color(number))
    axis.set(
        title=f'{result.get("task", name)} {result.get("split", "")}',
        xlabel='distance, as a share of the sentences of a document',
    )
  axes[0, 0].set_ylabel('pairs of interdependent sentences')
  return figure
