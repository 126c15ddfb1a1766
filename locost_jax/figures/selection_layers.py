"""Pictures of SimCAS's selection (figures 2 and 8 of its paper).

The numbers come from the metrics.jsonl of a run and from the rows of `summarize
--format=json`; the start states come from `models.start_states`.
"""

import numpy as np

from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.figures import style
from locost_jax.telemetry import metrics_log

_BLUE, _ORANGE = style.COLORS[:2]
_ROW = ('tokens_kept', 'tokens_selected', 'seconds')


def draw_training(metrics, limit=None):
  """Draws selected tokens and reward against steps (figure 2, left).

  Args:
    metrics: path of a run's metrics.jsonl.
    limit: `model.limit` of the run, drawn as a line; None: no line.

  Returns:
    The matplotlib Figure.

  Raises:
    ImportError: matplotlib is not installed.
    InputError: the file does not exist, or the run trained no selector.
  """
  # Both are 0 until the selector's first turn.
  selected, reward = (
      [
          point
          for point in zip(*metrics_log.read_curve(metrics, key))
          if point[1]
      ]
      for key in ('train/selected', 'train/reward')
  )
  figure, axes = style.make_figure(1, 1, 4.2, 3.2)
  axis = axes[0, 0]
  axis.plot(*zip(*selected), color=_BLUE)
  if limit is not None:
    axis.axhline(limit, color='gray', linestyle='--', label=f'limit {limit:,}')
    # Above the axes, where no curve is.
    axis.legend(frameon=False, loc='lower center', bbox_to_anchor=(0.5, 1))
  axis.set(xlabel='steps', ylim=(0, None))
  axis.set_ylabel('selected tokens', color=_BLUE)
  right = axis.twinx()
  right.spines.right.set_visible(True)
  right.plot(*zip(*reward), color=_ORANGE, linewidth=1)
  right.set_ylabel('reward', color=_ORANGE)
  return figure


def draw_lengths(rows):
  """Draws selected tokens and time against input length (figure 2, right).

  Args:
    rows: path of the JSONL that `summarize --output` wrote with a model that
      selects tokens. Use --batch_size=1 for the times of single documents, and
      a second call for times without compilation.

  Returns:
    The matplotlib Figure.

  Raises:
    ImportError: matplotlib is not installed.
    InputError: the file does not exist, or a row lacks the numbers.
  """
  lengths, selected, seconds = zip(*_read_rows(rows))
  figure, ((left, right),) = style.make_figure(1, 2, 3.4, 3.2)
  for axis, values, label, color in (
      (left, selected, 'selected tokens', _BLUE),
      (right, seconds, 'seconds', _ORANGE),
  ):
    axis.plot(lengths, values, marker='o', markersize=4, color=color)
    axis.set(xlabel='tokens of the document', ylabel=label, ylim=(0, None))
    style.count_on(axis.xaxis)
  return figure


def draw_similarity(similarities):
  """Draws the similarity of the chunks' start states in each layer (figure 8).

  Args:
    similarities: [2, layers, C, C]: `models.start_states.cosines` (upper row)
      and `models.start_states.similarities` (lower row).

  Returns:
    The matplotlib Figure.

  Raises:
    ImportError: matplotlib is not installed.
  """
  rows, layers = similarities.shape[:2]
  columns = min(6, layers)
  figure, axes = style.make_figure(rows * -(-layers // columns), columns, 2, 2)
  least = min(0.0, float(np.min(similarities)))
  names = 'cosine', 'Sim'
  for number, axis in enumerate(axes.flat):
    band, column = divmod(number, columns)
    row, block = band % rows, band // rows
    layer = block * columns + column
    if layer >= layers:
      axis.remove()
      continue
    image = axis.imshow(
        similarities[row, layer], vmin=least, vmax=1, cmap='viridis'
    )
    axis.set_title(f'{names[row]}, layer {layer + 1}')
    axis.spines[:].set_visible(True)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.yaxis.get_major_locator().set_params(integer=True)
  figure.supxlabel('chunk', fontsize=9)
  figure.supylabel('chunk', fontsize=9)
  figure.colorbar(image, ax=list(figure.axes), shrink=0.6)
  return figure


def _read_rows(path):
  """Returns the numbers _ROW of each row of a JSONL file, sorted."""
  found = []
  for number, row in enumerate(sources.read_jsonl([str(path)]), start=1):
    for name in _ROW:
      if not isinstance(row.get(name), (int, float)):
        raise InputError(
            f'{path}: row {number} has no number {name!r}; expected rows of '
            '`summarize --output=FILE.jsonl` with a model that selects tokens'
        )
    found.append([row[name] for name in _ROW])
  if not found:
    raise InputError(f'{path}: has no rows')
  return sorted(found)
