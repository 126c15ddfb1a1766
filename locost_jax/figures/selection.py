"""Pictures of SimCAS's selection: its paper's figures 2 and 8.

The numbers come from what commands write: metrics.jsonl of a run, and the rows
of `summarize --format=json`; the start states from `models.start_states`.
"""

import numpy as np

from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.telemetry import metrics_log

_BLUE, _ORANGE = '#2b6cb0', '#b4431b'
_ROW = ('tokens_kept', 'tokens_selected', 'seconds')


def draw_training(metrics, path, limit=None):
  """Draws selected tokens and reward against steps (figure 2, left).

  Args:
    metrics: path of a run's metrics.jsonl.
    path: of the PNG.
    limit: `model.limit` of the run, drawn as a line; None: no line.

  Raises:
    ImportError: matplotlib is not installed.
    InputError: no such file, or a run that trained no selector.
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
  figure, axes = _make_figure(1)
  axis = axes[0]
  axis.plot(*zip(*selected), color=_BLUE)
  if limit is not None:
    axis.axhline(limit, color='gray', linestyle='--', label=f'limit {limit:,}')
    # Above the axes, where no curve is.
    axis.legend(frameon=False, loc='lower center', bbox_to_anchor=(0.5, 1))
  axis.set(xlabel='steps', ylim=(0, None))
  axis.set_ylabel('selected tokens', color=_BLUE)
  right = axis.twinx()
  right.plot(*zip(*reward), color=_ORANGE, linewidth=1)
  right.set_ylabel('reward', color=_ORANGE)
  figure.savefig(path, dpi=150)
  return figure


def draw_lengths(rows, path):
  """Draws selected tokens and time against input length (figure 2, right).

  Args:
    rows: path of the JSONL that `summarize --output` wrote with a model that
      selects. Times are a document's own with --batch_size=1, and without
      compiling if the command has been called before.
    path: of the PNG.

  Returns:
    The matplotlib Figure.

  Raises:
    ImportError: matplotlib is not installed.
    InputError: no such file, or a row without the numbers.
  """
  lengths, selected, seconds = zip(*_read_rows(rows))
  figure, (left, right) = _make_figure(2)
  for axis, values, label, color in (
      (left, selected, 'selected tokens', _BLUE),
      (right, seconds, 'seconds', _ORANGE),
  ):
    axis.plot(lengths, values, marker='o', markersize=4, color=color)
    axis.set(xlabel='tokens of the document', ylabel=label, ylim=(0, None))
    axis.set_xscale('log', base=2)
    axis.xaxis.set_major_formatter(lambda x, _: f'{x:,.0f}')
  figure.savefig(path, dpi=150)
  return figure


def draw_similarity(similarities, path):
  """Draws how alike the chunks' start states are, layer by layer (figure 8).

  Args:
    similarities: [layers, C, C], of `models.start_states.similarities` or
      `cosines`.
    path: of the PNG.

  Returns:
    The matplotlib Figure.

  Raises:
    ImportError: matplotlib is not installed.
  """
  figure, axes = _make_figure(len(similarities))
  least = min(0.0, float(np.min(similarities)))
  for number, (axis, values) in enumerate(zip(axes, similarities), start=1):
    image = axis.imshow(values, vmin=least, vmax=1, cmap='viridis')
    axis.set(title=f'layer {number}', xlabel='chunk')
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.yaxis.get_major_locator().set_params(integer=True)
  axes[0].set_ylabel('chunk')
  figure.colorbar(image, ax=list(axes), shrink=0.6)
  figure.savefig(path, dpi=150)
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


def _make_figure(columns):
  """Returns a figure and its axes, side by side."""
  from matplotlib.figure import Figure  # no window system is needed

  figure = Figure(figsize=(2 + 3.2 * columns, 3.8), layout='constrained')
  return figure, figure.subplots(1, columns, squeeze=False)[0]
