"""SimCAS's selection in training (figure 2 of its paper)."""

import os

from papers.figures import curves as curves_lib
from papers.figures import points
from papers.figures import style

_BLUE, _ORANGE = style.COLORS[:2]


def draw_training(run):
  """Selected tokens and reward in training (SimCAS 2, left)."""
  # Both are 0 until the selector's first turn.
  path = points.find_metrics(run)
  keys = 'train/selected', 'train/reward'
  curves = curves_lib.read_curves(path, *keys)
  selected, reward = ([p for p in curves[key] if p[1]] for key in keys)
  figure, ((axis,),) = style.make_figure(1, 1, 4.2, 3.2)
  axis.plot(*zip(*selected), color=_BLUE)
  model = points.find_run(run)[2]['model'] if os.path.isdir(run) else {}
  if (limit := model.get('limit')) is not None:
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
