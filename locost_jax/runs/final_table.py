"""Formats the report at the end of a run: tables, examples, the next command.

Plain text for a terminal of 80 columns, or one JSON object.
"""

import json
import textwrap
from typing import NamedTuple

from locost_jax.evaluation import metric_table

WIDTH = 80
_NOTES = """\
loss: nats per target token. content: of the tokens that stand in the document
and are not among the 150 commonest. R-1, R-2, R-L (of whole texts), R-Lsum (of
their sentences): ROUGE F1 x 100. mean: of R-1, R-2 and, by the protocol, R-Lsum
or R-L. recall: % of the reference's words that stand in the document, without
the 150 commonest."""
_NUMBER = 5  # characters of the longest number


class Row(NamedTuple):
  """A line of a table: a name and {'loss': ..., 'rouge1': ..., ...}."""

  name: str
  metrics: dict
  is_baseline: bool = False
  is_result: bool = False  # whether a checkpoint of the run was measured


class Table(NamedTuple):
  """Rows measured on the same documents."""

  task: str
  split: str
  documents: int  # number of documents measured
  rows: list
  selection: str = ''  # from `predictions.selection_of`
  total: int = 0  # documents in the split; 0: the same number
  signatures: dict = {}  # from `metric_table.signatures`
  columns: tuple = metric_table.columns(())  # in the order of tables


class Example(NamedTuple):
  """One document with its two summaries."""

  id: str
  source: str
  reference: str
  prediction: str


def format_text(tables, examples, workdir, step=None, by_length=()):
  """Returns the whole report as text.

  Args:
    workdir: the run's WORKDIR, for the next command.
    step: the checkpoint's step of the examples; None: not printed.
    by_length: list of Table, with a row for each group of lengths.
  """
  parts = []
  for shown in tables, by_length:
    columns = columns_of(shown)
    parts += [format_table(table, columns) for table in shown]
  parts.append(_NOTES)
  if examples:
    of_step = f' (checkpoint of step {step})' if step is not None else ''
    parts.append(f'Summaries of documents it was not trained on{of_step}:')
    parts += [format_example(example) for example in examples]
  parts.append(
      'Try it on a text of your own:\n'
      f'  python -m locost_jax.summarize --checkpoint={workdir} FILE'
  )
  return '\n\n'.join(parts)


def columns_of(tables):
  """Returns the metric columns for which any row has a number."""
  keys = {key for table in tables for row in table.rows for key in row.metrics}
  columns = dict.fromkeys(column for x in tables for column in x.columns)
  return [x for x in columns if x.title and x.key in keys]


def format_table(table, columns):
  """Returns a table as text, with the baselines below a dashed line."""
  width = WIDTH - sum(map(_cell, columns))  # of the column of names
  count = count_documents(table.documents, table.total)
  title = f'{table.task}, {table.split}, {count}'
  if table.selection:
    title += f', {table.selection}'
  head = title if len(title) <= width else ''
  lines = [] if head else [title]
  titles = ''.join(column.title.rjust(_cell(column)) for column in columns)
  lines.append(head.ljust(width) + titles)
  lines.append('─' * WIDTH)
  rows = [row for row in table.rows if not row.is_baseline]
  plain = [row for row in table.rows if row.is_baseline]
  lines += [_format_row(row, columns, width) for row in rows]
  if plain:
    lines.append('┄' * WIDTH)
    lines += [_format_row(row, columns, width) for row in plain]
  lines += table.signatures.values()
  return '\n'.join(lines)


def _cell(column):
  """Returns a column's width in characters, including the space before it."""
  return 1 + max(_NUMBER, len(column.title))


def count_documents(documents, total=0):
  """Returns '382 documents', or '500 of 6,440 documents' for a part of a split."""
  of = f' of {total:,}' if total > documents else ''
  return f'{documents:,}{of} documents'


def _format_row(row, columns, width):
  cells = ''
  for column in columns:
    value = row.metrics.get(column.key)
    cells += _format_number(value, column.digits).rjust(_cell(column))
  return (_clip(row.name, width - 1).ljust(width) + cells).rstrip()


def _format_number(value, digits):
  """Returns a number with `digits` digits, or fewer where it is too long."""
  if value is None:
    return ''
  text = f'{value:.{digits}f}'
  excess = max(0, len(text) - _NUMBER)
  return f'{value:.{max(0, digits - excess)}f}'


def format_example(example):
  """Returns the start of a document and its two summaries as text."""
  lines = ['─── ' + _clip(example.id, WIDTH - 5) + ' ']
  lines[0] = lines[0].ljust(WIDTH, '─')
  for label, text, max_lines in (
      ('document', example.source, 3),
      ('reference', example.reference, 4),
      ('model', example.prediction, 4),
  ):
    lines += textwrap.wrap(
        ' '.join(text.split()) or '(empty)',
        WIDTH,
        initial_indent=f'{label:<11}',
        subsequent_indent=' ' * 11,
        max_lines=max_lines,
        placeholder=' …',
    )
  return '\n'.join(lines)


def format_json(tables, examples, workdir, step=None, by_length=()):
  """Returns the same report as one JSON object.

  Its top-level metrics are those of the last checkpoint in the last table.
  """
  report = {'workdir': str(workdir), 'step': step}
  if tables:
    last = tables[-1]
    report.update(task=last.task, split=last.split, documents=last.documents)
    report.update([row for row in last.rows if row.is_result][-1].metrics)
  report['tables'] = [to_json(table) for table in tables]
  if by_length:
    report['by_length'] = [to_json(table) for table in by_length]
  report['examples'] = [example._asdict() for example in examples]
  return json.dumps(report, ensure_ascii=False)


def to_json(table):
  """Returns a Table as a dict for JSON."""
  return dict(
      task=table.task,
      split=table.split,
      documents=table.documents,
      total=table.total or table.documents,
      **({'selection': table.selection} if table.selection else {}),
      signatures=table.signatures,
      rows=[dict(name=row.name.strip(), **row.metrics) for row in table.rows],
  )


def _clip(text, width):
  return text if len(text) <= width else text[: width - 1] + '…'
