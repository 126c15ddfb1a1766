"""Charts of a results page, as SVG that a browser scales to its column.

A chart is WIDTH units wide, in a column of about as many pixels, so that its
text is readable on a phone and on a desktop. Colours are classes (c0, c1 ...)
of the page's style sheet; lines also differ in their dashes.
"""

import math
from typing import Any, NamedTuple

from locost_jax.figures import style
from locost_jax.summarizing.page_html import escape

WIDTH, HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 20, 10, 38
COLORS = 6  # classes c0 .. c5
MOST_POINTS = 240  # of a line: a pixel cannot show more


class Line(NamedTuple):
  """A line of a chart.

  Attributes:
    name: shown in the tooltip.
    x, y: lists of numbers.
    color: index of the colour.
    low, high: ends of intervals around y; None: no intervals.
  """

  name: str
  x: list
  y: list
  color: int = 0
  low: Any = None
  high: Any = None


class Scale(NamedTuple):
  """A linear or logarithmic map from values to coordinates."""

  low: float
  high: float
  start: float
  end: float
  is_log: bool = False

  def at(self, value):
    """Returns the coordinate of a value, in pixels."""
    low, high = self.low, self.high
    if self.is_log:
      low, high, value = math.log(low), math.log(high), math.log(value)
    share = (value - low) / ((high - low) or 1)
    return self.start + share * (self.end - self.start)


def thin(x, y, most=MOST_POINTS):
  """Returns the means of consecutive points, at most `most` of them."""
  size = -(-len(x) // most)
  if size <= 1:
    return list(x), list(y)
  cuts = range(0, len(x), size)
  return tuple(
      [sum(v[i : i + size]) / len(v[i : i + size]) for i in cuts]
      for v in (x, y)
  )


def linear_ticks(low, high, most=5, least=0.0):
  """Returns round numbers from low to high: multiples of 1, 2 or 5 times 10^n.

  Args:
    low, high: ends of the axis.
    most: about the largest number of ticks.
    least: smallest distance between ticks.
  """
  span = (high - low) or abs(high) or 1
  step = 10.0 ** math.floor(math.log10(span / most))
  step *= next(f for f in (1, 2, 5, 10) if span / (f * step) <= most)
  step = max(step, least)
  first = math.ceil(low / step - 1e-9)
  last = math.floor(high / step + 1e-9)
  return [round(i * step, 12) for i in range(first, last + 1)]


def log_ticks(low, high, most=6):
  """Returns powers of 2 from low to high, every n-th of them."""
  first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
  every = max(1, -(-(last - first + 1) // most))
  return [2.0**i for i in range(first, last + 1, every)]


def format_number(value):
  """Formats a number for a tick."""
  if value and abs(value) < 0.001:
    return f'{value:.0e}'
  return f'{value:,.6g}'


def draw_lines(lines, x_label, y_label, x_log=False, y_log=False, dots=False):
  """Returns a chart of lines.

  Args:
    lines: list of Line; those without points are left out.
    x_label, y_label: labels of the axes.
    x_log, y_log: whether an axis is logarithmic; its values must be above 0.
    dots: whether each point has a mark with its value as a tooltip.

  Returns:
    SVG; '' if there is nothing to draw.
  """
  lines = [line for line in lines if len(line.x)]
  if not lines:
    return ''
  values = [
      v
      for line in lines
      for v in (*line.y, *(line.low or ()), *(line.high or ()))
  ]
  x = _scale(
      [v for line in lines for v in line.x],
      _LEFT,
      WIDTH - _RIGHT,
      x_log,
      margin=0.02,
  )
  y = _scale(values, HEIGHT - _BOTTOM, _TOP, y_log, margin=0.06)
  drawn = ''.join(_draw_line(line, x, y, dots) for line in lines)
  return (
      f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
      f'aria-label="{escape(y_label)} against {escape(x_label)}">'
      f'{_draw_axes(x, y, x_label)}{drawn}</svg>'
  )


def _scale(values, start, end, is_log, margin):
  """Returns a Scale of values with a margin, but none below 0 for values >= 0."""
  low, high = min(values), max(values)
  if is_log:
    room = (high / low) ** margin if high > low else 2
    return Scale(low / room, high * room, start, end, True)
  room = margin * (high - low) if high > low else (abs(high) * 0.1 or 1)
  least = low - room
  return Scale(max(0, least) if low >= 0 else least, high + room, start, end)


def _draw_axes(x, y, x_label):
  """Returns grid lines, ticks and the label of the horizontal axis."""
  parts = []
  for value in (log_ticks if y.is_log else linear_ticks)(y.low, y.high):
    at = y.at(value)
    label = (
        style.format_count(value)
        if _is_count(y, value)
        else (format_number(value))
    )
    parts.append(
        f'<path class="grid" d="M{_LEFT} {at:.1f}H{WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">'
        f'{label}</text>'
    )
  for value in (
      log_ticks(x.low, x.high)
      if x.is_log
      else linear_ticks(x.low, x.high, least=1)  # steps and layers are counts
  ):
    at = x.at(value)
    label = style.format_count(value) if x.is_log else format_number(value)
    parts.append(
        f'<path class="tick" d="M{at:.1f} {HEIGHT - _BOTTOM}v4"/>'
        f'<text x="{at:.1f}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">'
        f'{label}</text>'
    )
  parts.append(
      f'<path class="tick" d="M{_LEFT} {HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}"/>'
      f'<text x="{(_LEFT + WIDTH - _RIGHT) / 2}" y="{HEIGHT - 6}" '
      f'text-anchor="middle">{escape(x_label)}</text>'
  )
  return ''.join(parts)


def _is_count(scale, value):
  return scale.is_log and value >= 1


def _draw_line(line, x, y, dots):
  """Returns a line with its intervals and marks."""
  places = [(x.at(a), y.at(b)) for a, b in zip(line.x, line.y)]
  look = f'c{line.color % COLORS}'
  path = 'M' + 'L'.join(f'{a:.1f} {b:.1f}' for a, b in places)
  parts = [f'<path class="line {look}" d="{path}"/>']
  if line.low is not None:
    bars = ''.join(
        f'M{a:.1f} {y.at(low):.1f}V{y.at(high):.1f}'
        for (a, _), low, high in zip(places, line.low, line.high)
    )
    parts.append(f'<path class="bar {look}" d="{bars}"/>')
  if dots or len(places) == 1:
    parts += [
        f'<circle class="{look}" cx="{a:.1f}" cy="{b:.1f}" r="3.2"><title>'
        f'{escape(line.name)}: {format_number(v)} at {format_number(u)}'
        '</title></circle>'
        for (a, b), u, v in zip(places, line.x, line.y)
    ]
  return ''.join(parts)


def legend(names):
  """Returns a legend: the i-th name with the i-th colour; '' for one name."""
  if len(names) < 2:
    return ''
  entries = ''.join(
      f'<span><svg viewBox="0 0 26 8" aria-hidden="true"><path class="line '
      f'c{i % COLORS}" d="M1 4H25"/></svg>{escape(name)}</span>'
      for i, name in enumerate(names)
  )
  return f'<p class="legend">{entries}</p>'
