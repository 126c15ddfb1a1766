"""The style of the pictures: colours, sizes, axes, and files.

The colours are those of Okabe and Ito (2008), which colour-blind people can
distinguish; lines also differ in their markers. Axes: [rows, columns] of panels.
"""

import io
import math

from locost_jax.devices import memory

# Blue, vermilion, green, purple, orange, sky blue, black, grey.
COLORS = (
    '#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #000000 #8C8C8C'
).split()
MARKERS = 'osD^vPX*'
_SETTINGS = {
    'font.size': 9,
    'axes.titlesize': 9.5,
    'axes.titlelocation': 'left',
    'axes.spines.top': False,
    'axes.spines.right': False,
    'axes.linewidth': 0.6,
    'xtick.major.width': 0.6,
    'ytick.major.width': 0.6,
    'legend.frameon': False,
    'svg.fonttype': 'none',  # text stays text
    'svg.hashsalt': 'locost_jax',  # makes files reproducible
}


def settings():
  """Returns a context in which matplotlib draws in this style."""
  import matplotlib

  return matplotlib.rc_context(_SETTINGS)


def make_figure(rows, columns, width=3.4, height=2.7, **subplots):
  """Returns (Figure, array of Axes [rows, columns]).

  Args:
    rows, columns: of panels.
    width, height: of one panel, in inches.
    **subplots: see `Figure.subplots`: sharex, sharey, height_ratios.
  """
  from matplotlib.figure import Figure  # no window system is needed

  size = 1 + width * columns, 0.4 + height * rows
  figure = Figure(figsize=size, layout='constrained')
  return figure, figure.subplots(rows, columns, squeeze=False, **subplots)


def color(number):
  """Returns the colour of a line, by its number."""
  return COLORS[number % len(COLORS)]


def line(number, points=0):
  """Returns the look of a line, as arguments of `Axes.plot`.

  Args:
    number: index of the line in its panel.
    points: its number of points; from 40 on it has no markers.
  """
  style = ('-', '--', '-.', ':')[number % 4]
  look = dict(color=color(number), linewidth=1.2, linestyle=style)
  if points < 40:
    look.update(marker=MARKERS[number % len(MARKERS)], markersize=4.5)
  return look


def count_on(axis):
  """Makes an axis (`Axes.xaxis` or `yaxis`) logarithmic, with integer ticks."""
  getattr(axis.axes, f'set_{axis.axis_name}scale')('log', base=2)
  axis.set_major_formatter(lambda value, _: format_count(value))


def format_count(value):
  """Formats a number of tokens: '512', '16K' if exact, '1M' if exact."""
  value = round(value)
  for size, unit in (2**20, 'M'), (2**10, 'K'):
    if value >= size and value % size == 0:
      return f'{value // size}{unit}'
  return f'{value:,}'


def bytes_on(axis, most):
  """Puts about four ticks at round numbers of bytes on an axis."""
  from matplotlib.ticker import MultipleLocator

  step = 2.0 ** round(math.log2(max(most, 4) / 4))
  axis.set_major_locator(MultipleLocator(step))
  axis.set_major_formatter(lambda value, _: memory.format_bytes(value))


def integers_on(axis):
  """Puts ticks at whole numbers on an axis."""
  from matplotlib.ticker import MaxNLocator

  axis.set_major_locator(MaxNLocator(5, integer=True))


def add_legend(figure, axes):
  """Puts one legend of all panels below them, each label once."""
  handles = {}
  for axis in axes:
    for handle, label in zip(*axis.get_legend_handles_labels()):
      handles.setdefault(label, handle)
  if handles:
    # Rows of the same length, as wide as the figure allows.
    inches = 0.5 + 0.085 * max(map(len, handles))
    rows = -(-len(handles) // max(1, int(figure.get_figwidth() / inches)))
    figure.legend(
        handles.values(),
        handles.keys(),
        loc='outside lower center',
        ncols=-(-len(handles) // rows),
    )


def render(figure, kind):
  """Returns the bytes of a Figure as 'png' or 'svg'."""
  buffer = io.BytesIO()
  metadata = {'Date': None} if kind == 'svg' else None
  figure.savefig(buffer, format=kind, dpi=150, metadata=metadata)
  return buffer.getvalue()
