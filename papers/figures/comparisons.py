"""Pictures of models as points: score against memory, length and examples.

Points come from `points.read`, memory also from `bench`. Each data set has a
panel, each model a colour and a marker.
"""

import math

import numpy as np

from locost_jax.devices import memory
from locost_jax.errors import InputError
from papers.figures import costs
from papers.figures import points as points_lib
from papers.figures import style

_LARGEST = 900  # area of the largest circle, in square points


def draw_memory(points, *more, split=None, protocol='locost'):
  """ROUGE against memory of inference (LOCOST 1).

  The memory of a run's model is that of `bench encode` and `bench train`, whose
  results (.json) are inputs too. The area of a circle is proportional to the
  memory of training, if a point has train_memory; the smallest circle stays
  visible.
  """
  rows = read_memory([points, *more], split, protocol)
  most = max(point.get('train_memory', 0) for point in rows)
  xlabel = 'memory of inference'
  if most:
    xlabel += f'\n(area: of training, largest {memory.format_bytes(most)})'
  colors = _colors(rows)
  figure, _, panels = _make_panels(rows, 3.4)
  for axis, own in panels:
    for point in own:
      number, share = colors[point['model']], point.get('train_memory', 0)
      area = max(30, _LARGEST * share / (most or 1))
      place = point['memory'], point['score']
      marker = 'o' if share else style.MARKERS[number % 8]
      look = dict(color=style.color(number), alpha=0.6, marker=marker)
      axis.scatter(*place, s=area, **look)
      look = dict(ha='center', va='bottom', fontsize=8)
      look |= dict(textcoords='offset points')
      above = 0, 4 + math.sqrt(area) / 2
      axis.annotate(point['model'], place, above, **look)
    axis.margins(0.28, 0.25)
    style.bytes_on(axis.xaxis, max(point['memory'] for point in own))
    axis.set_xlabel(xlabel)
  return figure


def read_memory(paths, split=None, protocol='locost'):
  """Returns points with memory, see `draw_memory`, at the longest length."""
  results = [path for path in paths if path.endswith('.json')]
  others = [path for path in paths if path not in results]
  if not others:
    raise InputError(f'{results[0]}: expected runs or points besides')
  rows = points_lib.read(others, ('model', 'score'), split, protocol)
  found = costs.read(results)
  for key, question in ('memory', 'encode'), ('train_memory', 'train'):
    measured = found.get(question, {})
    longest = max((row[0] for x in measured.values() for row in x), default=0)
    for point in rows:
      peaks = [
          size
          for name, sizes in measured.items()
          for length, size, _ in sizes
          if name.partition(',')[0] == point['model']
          if not name.endswith('recomputing') and length == longest and size
      ]
      point |= {key: min(peaks)} if peaks else {}
  if missing := [point['model'] for point in rows if 'memory' not in point]:
    raise InputError(
        f'{missing[0]}: its memory is not known; expected a result of `bench '
        'encode` with it, or points with memory'
    )
  return rows


def draw_lengths(points, *more, split=None, protocol='locost'):
  """ROUGE against the input length of training (LOCOST 5).

  Points may have low and high, the ends of the score's interval.
  """
  needed = ('model', 'score', 'length')
  rows = points_lib.read([points, *more], needed, split, protocol)
  colors = _colors(rows)
  figure, axes, panels = _make_panels(rows, 3.0)
  for axis, own in panels:
    for model, line in points_lib.group(own, 'model').items():
      line = sorted(line, key=lambda point: point['length'])
      x, y = ([point[key] for point in line] for key in ('length', 'score'))
      look = style.line(colors[model])
      axis.plot(x, y, label=model, **look)
      if all('low' in point and 'high' in point for point in line):
        ends = [(p['score'] - p['low'], p['high'] - p['score']) for p in line]
        bars = dict(linestyle='none', linewidth=1, capsize=3)
        axis.errorbar(x, y, list(zip(*ends)), color=look['color'], **bars)
    style.count_on(axis.xaxis)
    axis.set_xticks(sorted({point['length'] for point in own}), minor=False)
    axis.minorticks_off()
    axis.set_xlabel('input length of training, tokens')
  style.add_legend(figure, axes)
  return figure


def draw_examples(points, *more, split=None, protocol='locost'):
  """ROUGE against training examples, over seeds (SimCAS 4).

  Points with the same model and number of examples are seeds: the picture shows
  their mean and one sample standard deviation (0 for one seed) to each side.
  """
  needed = ('model', 'score', 'examples')
  rows = points_lib.read([points, *more], needed, split, protocol)
  colors = _colors(rows)
  figure, axes, panels = _make_panels(rows, 3.0)
  for axis, own in panels:
    for model, line in points_lib.group(own, 'model').items():
      x, seeds = zip(*sorted(points_lib.group(line, 'examples').items()))
      scores = [np.array([point['score'] for point in same]) for same in seeds]
      mean = np.array([own.mean() for own in scores])
      spread = [own.std(ddof=1) if len(own) > 1 else 0.0 for own in scores]
      look = style.line(colors[model])
      axis.plot(x, mean, label=model, **look)
      band = dict(color=look['color'], alpha=0.18, linewidth=0)
      axis.fill_between(x, mean - spread, mean + spread, **band)
    axis.set_xscale('symlog', linthresh=10)  # shows 0 examples too
    ticks = sorted({point['examples'] for point in own})
    axis.set_xticks(ticks, [f'{tick:,}' for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel('training examples')
  style.add_legend(figure, axes)
  return figure


def _colors(points):
  """Returns {model: number of its colour}."""
  return {m: i for i, m in enumerate(points_lib.group(points, 'model'))}


def _make_panels(points, height):
  """Returns (Figure, Axes of each data set, pairs of Axes and points)."""
  groups = points_lib.group(points, 'data')
  figure, ((*axes,),) = style.make_figure(1, len(groups), 3.8, height)
  for axis, data in zip(axes, groups):
    axis.set_title(data)
    axis.grid(alpha=0.3)
  axes[0].set_ylabel('ROUGE')
  return figure, axes, list(zip(axes, groups.values()))
