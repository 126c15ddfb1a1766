"""Pictures of sentences and their distance in a document (PageSum)."""

from locost_jax import files
from locost_jax.config import kinds
from locost_jax.errors import InputError
from papers.figures import points
from papers.figures import style

BINS = 20  # of figure 4
_SHARES = kinds.list_of(kinds.number(0, 1))


def read_similarity(path):
  """Returns (distances, mean similarity at each, mean of all pairs).

  The file is what `papers.score --metrics=locality --output=FILE` writes.
  """
  try:
    found = points.read_json(path)['metrics']['locality']
    rows = [
        (row['distance'], row['similarity']) for row in found['similarities']
    ]
    return *zip(*rows, strict=True), found['values']['document']['all_pairs']
  except (LookupError, TypeError):
    raise InputError(
        f'{path}: expected what papers.score --metrics=locality --output writes'
    ) from None


def draw_similarity(result, *results):
  """Similarity of sentences by distance; dashed: the mean (PageSum 1)."""
  figure, ((axis,),) = style.make_figure(1, 1, 4.2, 3.0)
  paths = [result, *results]
  for number, (name, path) in enumerate(zip(points.short_names(paths), paths)):
    distances, similarities, mean = read_similarity(path)
    look = style.line(number, len(distances))
    axis.plot(distances, similarities, label=name, **look)
    dashed = dict(linestyle=(0, (6, 3)), linewidth=0.8)
    axis.axhline(mean, color=look['color'], **dashed)
  axis.grid(alpha=0.3)
  axis.set_xlabel('distance of two sentences, in sentences')
  axis.set_ylabel('similarity (cosine)')
  style.add_legend(figure, [axis])
  return figure


def draw_distances(result, *results):
  """Distances of sentences that a summary fuses (PageSum 4)."""
  paths = [result, *results]
  figure, axes = style.make_figure(1, len(paths), 3.8, 2.9)
  for number, (axis, path) in enumerate(zip(axes[0], paths)):
    found = points.read_json(path)
    shares = found.get('distances')
    files.check_value(path, 'distances', shares, _SHARES)
    axis.hist(shares, BINS, range=(0, 1), color=style.color(number))
    axis.set_title(f'{found.get("task", path)} {found.get("split", "")}')
    axis.set_xlabel('distance, as a share of the sentences of a document')
  axes[0, 0].set_ylabel('pairs of interdependent sentences')
  return figure
