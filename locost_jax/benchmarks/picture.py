"""Plots a result: times and memory against length, on logarithmic axes."""

from locost_jax.benchmarks import tables
from locost_jax.benchmarks import units

# Unit -> (label of its axis, base of the logarithm), from left to right.
_AXES = {'s': ('seconds', 10), 'B': ('bytes', 2)}


def draw(result, path):
  """Draws a result as a PNG.

  A model or form has the same colour in both plots.

  Args:
    result: from `run_benchmark.run`.
    path: the PNG file.

  Raises:
    ImportError: matplotlib is not installed.
  """
  from matplotlib.figure import Figure  # no window system is needed

  figure = Figure(figsize=(11, 6), layout='constrained')
  axes = dict(zip(_AXES, figure.subplots(1, 2)))
  colors = {}
  for heading, columns, rows in tables.make_tables(result):
    if not heading.startswith('Longest'):
      _draw_table(axes, heading, columns, rows, colors)
  unit_of_length = 'words' if result['command'] == 'gsg' else 'tokens'
  for unit, (label, base) in _AXES.items():
    _label_axis(axes[unit], f'length ({unit_of_length})', label, base)
  figure.suptitle(
      f"bench {result['command']}: {result['device']}, "
      f"{result['settings']['dtype']}"
  )
  figure.savefig(path, dpi=150)


def _draw_table(axes, heading, columns, rows, colors):
  """Draws the times and bytes of one table.

  Args:
    axes: {unit: axis}.
    heading, columns, rows: a table of `tables.make_tables`.
    colors: {(heading, index of the line on its axis): colour}; new lines are
      added.
  """
  name = heading.partition(': ')[2] or (
      'one layer' if heading == tables.LAYER else ''
  )
  drawn = dict.fromkeys(axes, 0)
  for title, path, unit in columns:
    if unit not in axes:
      continue
    points = [
        (row['length'], tables.look_up(row, path))
        for row in rows
        if tables.look_up(row, path)
    ]
    if points:
      label = ', '.join(filter(None, (name, title)))
      color = colors.setdefault((heading, drawn[unit]), f'C{len(colors)}')
      drawn[unit] += 1
      axes[unit].plot(
          *zip(*points), marker='o', markersize=4, label=label, color=color
      )
    for row in rows if unit == 'B' else ():
      if row.get('memory_ended'):
        axes[unit].plot(row['length'], row['peak_bytes'], 'kx', markersize=9)


def _label_axis(axis, xlabel, ylabel, base):
  """Labels an axis and puts its legend below the plot."""
  axis.set(xlabel=xlabel, ylabel=ylabel)
  axis.set_xscale('log', base=2)
  axis.set_yscale('log', base=base)
  axis.xaxis.set_major_formatter(lambda x, _: units.format_length(x))
  if ylabel == 'bytes':
    axis.yaxis.set_major_formatter(lambda y, _: units.format_value(int(y), 'B'))
  axis.grid(True, which='major', alpha=0.3)
  if axis.lines:
    axis.legend(
        fontsize='small',
        frameon=False,
        ncols=2,
        loc='upper center',
        bbox_to_anchor=(0.5, -0.12),
    )
