"""The report at the end of a run: each phase's best checkpoint and baselines.

It is plain text for a terminal of 80 columns, with examples and the next
command, or one JSON object. `evaluate_run` measures the numbers.
"""

import json
import os
import textwrap
from typing import NamedTuple

from locost_jax.config import tables as tables_lib
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
  predictions: str = ''  # the file with those of the last checkpoint
  test_set: str = ''  # from `predictions.test_set`

  @property
  def title(self):
    """'arxiv, test, 500 of 6,440 documents'."""
    count = count_documents(self.documents, self.total)
    words = self.task, self.split, count, self.selection
    return ', '.join(filter(None, words))


def format_text(tables, examples, workdir, step=None, by_length=(), home=''):
  """Returns the whole report as text.

  An example is a dict of id, source, reference and prediction.
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
  paths = [f'predictions: {x.predictions}' for x in tables if x.predictions]
  for what, name in ('checkpoints', 'checkpoints'), ('curves', 'metrics.jsonl'):
    paths.append(f'{what}: {os.path.join(home or workdir, name)}')
  parts.append('\n'.join(paths))
  return '\n\n'.join(parts)


def columns_of(tables):
  """Returns the metric columns for which any row has a number."""
  keys = {key for table in tables for row in table.rows for key in row.metrics}
  columns = dict.fromkeys(column for x in tables for column in x.columns)
  return [x for x in columns if x.title and x.key in keys]


def format_table(table, columns):
  """Returns a table as text, with the baselines below a dashed line."""
  least = [max(_NUMBER, len(column.title)) for column in columns]
  width = WIDTH - sum(least) - len(least)  # of the column of names
  head = table.title if len(table.title) < width else ''
  rows = sorted(table.rows, key=lambda row: row.is_baseline)
  cells = [[head, *(column.title for column in columns)]]
  cells += [
      [
          _clip(row.name, width - 1),
          *(_format_number(row.metrics.get(x.key), x.digits) for x in columns),
      ]
      for row in rows
  ]
  lines = tables_lib.align(cells, least=[width, *least], gap=' ')
  results = sum(not row.is_baseline for row in rows)
  if results < len(rows):
    lines.insert(1 + results, '┄' * WIDTH)
  lines.insert(1, '─' * WIDTH)
  before = [] if head else [table.title]
  return '\n'.join([*before, *lines, *table.signatures.values()])


def count_documents(documents, total=0):
  """Returns '382 documents', or '500 of 6,440 documents' for a part of a split."""
  of = f' of {total:,}' if total > documents else ''
  return f'{documents:,}{of} documents'


def _format_number(value, digits):
  """Returns a number with `digits` digits, or fewer where it is too long."""
  if value is None:
    return ''
  excess = max(0, len(f'{value:.{digits}f}') - _NUMBER)
  return f'{value:.{max(0, digits - excess)}f}'


def format_example(example):
  """Returns the start of a document and its two summaries as text."""
  lines = [f'─── {_clip(example["id"], WIDTH - 5)} '.ljust(WIDTH, '─')]
  for label, key, max_lines in (
      ('document', 'source', 3),
      ('reference', 'reference', 4),
      ('model', 'prediction', 4),
  ):
    lines += textwrap.wrap(
        ' '.join(example[key].split()) or '(empty)',
        WIDTH,
        initial_indent=f'{label:<11}',
        subsequent_indent=' ' * 11,
        max_lines=max_lines,
        placeholder=' …',
    )
  return '\n'.join(lines)


def format_json(tables, examples, workdir, step=None, by_length=(), home=''):
  """Returns the same report as one JSON object.

  Its top-level metrics are those of the last checkpoint in the last table.
  """
  report = {'workdir': str(workdir), 'step': step, 'home': home}
  if tables:
    last = tables[-1]
    report.update(task=last.task, split=last.split, documents=last.documents)
    report.update([row for row in last.rows if row.is_result][-1].metrics)
  report['tables'] = [to_json(table) for table in tables]
  if by_length:
    report['by_length'] = [to_json(table) for table in by_length]
  report['examples'] = examples
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
      predictions=table.predictions,
      test_set=table.test_set,
      rows=[dict(name=row.name.strip(), **row.metrics) for row in table.rows],
  )


def _clip(text, width):
  return text if len(text) <= width else text[: width - 1] + '…'
