"""Pictures of models as points: score against memory, length and examples.

Points are dicts of `points.read`. Each data set has a panel, each model a
colour and a marker.
"""

import math
import statistics

from locost_jax.figures import points as points_lib
from locost_jax.figures import style

# Fields of a point that each picture needs.
MEMORY = ('model', 'score', 'memory')
LENGTH = ('model', 'score', 'length')
EXAMPLES = ('model', 'score', 'examples')
_LARGEST = 900  # area of the largest circle, in square points


def draw_memory(points):
  """Draws score against inference memory (LOCOST, figure 1).

  The area of a circle is proportional to the memory of training, if a point has
  train_memory; the smallest circle stays visible.

  Args:
    points: list of dicts with MEMORY and optionally train_memory, in bytes.

  Returns:
    The matplotlib Figure.
  """
  colors = _colors(points)
  most = max((point.get('train_memory', 0) for point in points), default=0)
  xlabel = 'memory of inference'
  if most:
    xlabel += f'\n(area: of training, largest {style.format_bytes(most)})'
  figure, _, panels = _make_panels(points, 3.4)
  for axis, own in panels:
    for point in own:
      number = colors[point['model']]
      share = point.get('train_memory', 0) / (most or 1)
      axis.scatter(
          point['memory'],
          point['score'],
          s=max(30, _LARGEST * share),
          color=style.color(number),
          alpha=0.6,
          marker='o' if share else style.MARKERS[number % 8],
      )
      axis.annotate(
          point['model'],
          (point['memory'], point['score']),
          (0, 4 + math.sqrt(max(30, _LARGEST * share)) / 2),
          textcoords='offset points',
          ha='center',
          va='bottom',
          fontsize=8,
      )
    axis.margins(0.28, 0.25)
    style.bytes_on(axis.xaxis, max(point['memory'] for point in own))
    axis.set_xlabel(xlabel)
  return figure


def draw_lengths(points):
  """Draws score against the input length of training (LOCOST, figure 5).

  Args:
    points: list of dicts with LENGTH, and optionally low and high, the ends of
      the score's interval.

  Returns:
    The matplotlib Figure.
  """
  colors = _colors(points)
  figure, axes, panels = _make_panels(points, 3.0)
  for axis, own in panels:
    for (model,), line in points_lib.group(own, 'model').items():
      line = sorted(line, key=lambda point: point['length'])
      x = [point['length'] for point in line]
      y = [point['score'] for point in line]
      look = style.line(colors[model])
      axis.plot(x, y, label=model, **look)
      if all('low' in point and 'high' in point for point in line):
        axis.errorbar(
            x,
            y,
            [
                [point['score'] - point['low'] for point in line],
                [point['high'] - point['score'] for point in line],
            ],
            color=look['color'],
            linestyle='none',
            linewidth=1,
            capsize=3,
        )
    style.count_on(axis.xaxis)
    axis.set_xticks(sorted({point['length'] for point in own}), minor=False)
    axis.minorticks_off()
    axis.set_xlabel('input length of training, tokens')
  style.add_legend(figure, axes)
  return figure


def spreads(points):
  """Returns {model: (examples, means, deviations)}, lists sorted by examples.

  Points with the same model and number of examples are seeds of one experiment.
  Their deviation is the sample standard deviation, 0 for a single seed.

  Args:
    points: list of dicts with EXAMPLES.
  """
  found = {}
  for (model,), own in points_lib.group(points, 'model').items():
    rows = []
    for (examples,), same in points_lib.group(own, 'examples').items():
      scores = [point['score'] for point in same]
      deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
      rows.append((examples, statistics.fmean(scores), deviation))
    found[model] = tuple(map(list, zip(*sorted(rows))))
  return found


def draw_examples(points):
  """Draws score against training examples, over seeds (SimCAS, figure 4).

  Points with the same model and number of examples are seeds: the picture shows
  their mean and one standard deviation to each side.

  Args:
    points: list of dicts with EXAMPLES.

  Returns:
    The matplotlib Figure.
  """
  colors = _colors(points)
  figure, axes, panels = _make_panels(points, 3.0)
  for axis, own in panels:
    for model, (x, means, deviations) in spreads(own).items():
      look = style.line(colors[model])
      axis.plot(x, means, label=model, **look)
      axis.fill_between(
          x,
          [mean - d for mean, d in zip(means, deviations)],
          [mean + d for mean, d in zip(means, deviations)],
          color=look['color'],
          alpha=0.18,
          linewidth=0,
      )
    axis.set_xscale('symlog', linthresh=10)  # shows 0 examples too
    ticks = sorted({point['examples'] for point in own})
    axis.set_xticks(ticks, [f'{tick:,}' for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel('training examples')
  style.add_legend(figure, axes)
  return figure


def _colors(points):
  """Returns {model: number of its colour}."""
  models = dict.fromkeys(point['model'] for point in points)
  return {model: number for number, model in enumerate(models)}


def _make_panels(points, height):
  """Makes a panel for each data set.

  Args:
    points: list of dicts.
    height: height of a panel in inches.

  Returns:
    (Figure, list of Axes, list of (Axes, the points of its data set)).
  """
  groups = points_lib.group(points, 'data')
  figure, ((*axes,),) = style.make_figure(1, len(groups), 3.8, height)
  for axis, (data,) in zip(axes, groups):
    axis.set_title(data)
    axis.grid(alpha=0.3)
  axes[0].set_ylabel('ROUGE')
  return figure, axes, list(zip(axes, groups.values()))
