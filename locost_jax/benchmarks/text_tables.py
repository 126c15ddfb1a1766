"""Formats the tables of a result as text, with the growth of the times."""

from locost_jax.benchmarks import tables
from locost_jax.benchmarks import units


def format_result(result):
  """Returns all tables of a result, with notes below."""
  parts = [
      format_table(heading, columns, rows)
      for heading, columns, rows in tables.make_tables(result)
  ]
  return '\n\n'.join(parts + ['\n'.join(notes(result))]).rstrip() + '\n'


def notes(result):
  """Yields the notes below the tables: device, settings and failures."""
  for row in result['rows']:
    yield from _row_notes(row)
  sources = {
      row['energy_source'] for row in result['rows'] if row.get('energy_source')
  }
  for source in sorted(sources):
    yield f'energy: {source}'
  settings = result['settings']
  if (
      result['command'] == 'cost'
      and settings['prices']['per_kwh']
      and any(row.get('joules') is None for row in result['rows'])
  ):
    yield 'money: without energy'
  if result['command'] == 'gsg':
    for row in result['rows']:
      if not row.get('same', True):
        yield f"{row['length']} words: rouge_score chooses OTHER sentences"
    yield f"one thread, medians of up to {settings['repeats']}"
    return
  yield (
      f"{result['device']}, {result['machine']['cores']} cores, "
      f"{settings['dtype']}, batch {settings['batch_size']}, medians of up "
      f"to {settings['repeats']}"
  )


def _row_notes(row):
  if row.get('memory_ended'):
    yield (
        f"{row['length']} tokens: out of memory at "
        f"{units.format_value(row['peak_bytes'], 'B')}"
    )
  if row.get('same_tokens') is not None:
    yield (
        f"{row['length']} tokens: the caches give "
        f"{'the same' if row['same_tokens'] else 'DIFFERENT'} tokens"
    )


def format_table(heading, columns, rows):
  """Returns a heading, a line of titles and a line per row.

  Numbers are right-aligned, texts left-aligned.

  Args:
    heading: str.
    columns: see `tables`.
    rows: list of dicts.
  """
  growth_lines = _growth_lines(columns, rows)
  lines = [
      [title for title, _, _ in columns],
      *(_cells(columns, row) for row in rows),
      *growth_lines,
  ]
  widths = [max(map(len, column)) for column in zip(*lines)]
  written = [
      '  '.join(
          cell.ljust(width) if unit == 't' else cell.rjust(width)
          for cell, width, (_, _, unit) in zip(line, widths, columns)
      ).rstrip()
      for line in lines
  ]
  rule = '─' * (sum(widths) + 2 * len(widths) - 2)
  written.insert(1, rule)
  if growth_lines:
    written.insert(-len(growth_lines), '┄' * len(rule))
  return '\n'.join([heading, *written])


def _cells(columns, row):
  cells = [
      units.format_value(tables.look_up(row, path), unit)
      for _, path, unit in columns
  ]
  if row.get('memory_ended'):
    peak = units.format_value(row['peak_bytes'], 'B')
    cells[-1] = f'out of memory at {peak}'
  return cells


def _growth_lines(columns, rows):
  """Returns two lines: exponents of the times, and relative time per token."""
  growths = {
      path: tables.column_growth(rows, path)
      for _, path, unit in columns
      if unit == 's'
  }
  if not any(growths.values()):
    return []
  longest = max(row['length'] for row in rows)
  base = next(found['base'] for found in growths.values() if found)
  first, second = [], []
  for title, path, unit in columns:
    found = growths.get(path)
    first.append(f"{found['exponent']:.3f}" if found else '')
    second.append(f"{found['per_token']:.3f}x" if found else '')
    if path == 'length':
      first[-1] = 'time ~ length^'
      what = 'word' if title == 'words' else 'token'
      second[-1] = f'per {what}, {longest} / {base}'
  return [first, second]
