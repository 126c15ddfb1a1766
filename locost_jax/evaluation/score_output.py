"""The output of `score --metrics`: a table and a signature for each metric."""

import math

_SIDES = 'values', 'intervals', 'documents'
_WIDTH = 14  # of a cell, at least


def format_text(summaries, measured, correlations=None):
  """Returns all tables as one text.

  Args:
    summaries: {name: result of `score_metric.summarize`}.
    measured: {name: `score_metric.Result`}.
    correlations: (titles, float [k, k]), or None.
  """
  blocks = [
      table(name, summaries[name], one.columns, one.numbers)
      for name, one in measured.items()
  ]
  if correlations is not None:
    blocks.append(correlation_table(*correlations))
  return '\n\n'.join(blocks)


def table(name, summary, columns, numbers):
  """Returns the table of one metric, with its signature below.

  Args:
    name: of the metric.
    summary: from `score_metric.summarize`.
    columns: tuple of `metric.Column`.
    numbers: {title: text}.
  """
  rows = [[name, *(column.title for column in columns)]]
  for row in summary['values']:
    known = {key: side[row] for key, side in summary.items() if key in _SIDES}
    rows.append([row, *(cell(known, column) for column in columns)])
  lines = _align(rows)
  lines += [f'{title}: {text}' for title, text in numbers.items()]
  return '\n'.join([*lines, summary['signature']])


def cell(known, column):
  """Returns '12.34 +-0.56 n:973': mean, half the interval, documents.

  Args:
    known: {one of _SIDES: {key: value}}.
    column: a `metric.Column`.
  """
  value, interval, documents = (known[side][column.key] for side in _SIDES)
  if value is None:
    return 'n/a'
  half = (interval[1] - interval[0]) / 2
  return f'{value:.{column.digits}f} +-{half:.{column.digits}f} n:{documents}'


def correlation_table(titles, values):
  """Returns the table of Pearson's correlations.

  Args:
    titles: list of k str.
    values: float [k, k].
  """
  rows = [['Pearson', *titles]]
  for title, row in zip(titles, values):
    cells = ['n/a' if math.isnan(value) else f'{value:.3f}' for value in row]
    rows.append([title, *cells])
  return '\n'.join(_align(rows, 5))


def _align(rows, width=_WIDTH):
  """Returns rows of cells as lines; first cells are left-aligned."""
  widths = [max(width, *map(len, column)) for column in zip(*rows)]
  return [
      '  '.join(
          f'{text:{">" if i else "<"}{widths[i]}}'
          for i, text in enumerate(cells)
      ).rstrip()
      for cells in rows
  ]
