"""What a run prints at its end: tables, examples, the next command.

Plain text for a terminal of 80 columns, or one JSON object.
"""

import json
import textwrap
from typing import NamedTuple

WIDTH = 80
COLUMNS = (('loss', 'loss', 3), ('rouge1', 'R-1', 2), ('rouge2', 'R-2', 2),
           ('rougeLsum', 'R-Lsum', 2), ('rouge_mean', 'mean', 2))
_CELL = 7
_NAME = WIDTH - (_CELL + 1) * len(COLUMNS)


class Row(NamedTuple):
  """A line of a table: a name and {'loss': ..., 'rouge1': ..., ...}."""

  name: str
  metrics: dict
  is_baseline: bool = False
  is_result: bool = False  # of a checkpoint


class Table(NamedTuple):
  """Rows measured on the same documents."""

  task: str
  split: str
  documents: int
  rows: list


class Example(NamedTuple):
  """One document with its two summaries."""

  id: str
  source: str
  reference: str
  prediction: str


def format_text(tables, examples, workdir, step=None):
  """Returns the whole report as text.

  Args:
    tables: list of Table.
    examples: list of Example.
    workdir: of the run, for the next command.
    step: the step that the examples are of, if one should be told.
  """
  parts = [format_table(table) for table in tables]
  notes = 'loss: nats per target token. R-1, R-2, R-Lsum: ROUGE F1 x 100.'
  parts.append(notes)
  if examples:
    of_step = f' (checkpoint of step {step})' if step is not None else ''
    parts.append(f'Summaries of documents it was not trained on{of_step}:')
    parts += [format_example(example) for example in examples]
  parts.append('Try it on a text of your own:\n'
               f'  python -m locost_jax.summarize --checkpoint={workdir} FILE')
  return '\n\n'.join(parts)


def format_table(table):
  """Returns a table as text, its numbers aligned, baselines below a line."""
  title = f'{table.task}, {table.split}, {table.documents} documents'
  head = _clip(title, _NAME) if len(title) <= _NAME else ''
  lines = [] if head else [title]
  lines.append(head.ljust(_NAME) + ''.join(
      name.rjust(_CELL + 1) for _, name, _ in COLUMNS))
  lines.append('─' * WIDTH)
  rows = [row for row in table.rows if not row.is_baseline]
  plain = [row for row in table.rows if row.is_baseline]
  lines += map(_format_row, rows)
  if plain:
    lines.append('┄' * WIDTH)
    lines += map(_format_row, plain)
  return '\n'.join(lines)


def _format_row(row):
  cells = []
  for key, _, digits in COLUMNS:
    value = row.metrics.get(key)
    cell = '' if value is None else f'{value:.{digits}f}'
    cells.append(cell.rjust(_CELL + 1))
  return (_clip(row.name, _NAME - 1).ljust(_NAME) + ''.join(cells)).rstrip()


def format_example(example):
  """Returns the beginning of a document and its two summaries as text."""
  lines = ['─── ' + _clip(example.id, WIDTH - 5) + ' ']
  lines[0] = lines[0].ljust(WIDTH, '─')
  for label, text, most in (('document', example.source, 3),
                            ('reference', example.reference, 4),
                            ('model', example.prediction, 4)):
    lines += textwrap.wrap(
        ' '.join(text.split()) or '(empty)', WIDTH,
        initial_indent=f'{label:<11}', subsequent_indent=' ' * 11,
        max_lines=most, placeholder=' …')
  return '\n'.join(lines)


def format_json(tables, examples, workdir, step=None):
  """Returns the same as one JSON object.

  Its own numbers are those of the last checkpoint measured in the last table.
  """
  report = {'workdir': str(workdir), 'step': step}
  if tables:
    last = tables[-1]
    report.update(task=last.task, split=last.split, documents=last.documents)
    report.update([row for row in last.rows if row.is_result][-1].metrics)
  report['tables'] = [
      dict(task=table.task, split=table.split, documents=table.documents,
           rows=[dict(name=row.name.strip(), **row.metrics)
                 for row in table.rows])
      for table in tables]
  report['examples'] = [example._asdict() for example in examples]
  return json.dumps(report, ensure_ascii=False)


def _clip(text, width):
  return text if len(text) <= width else text[:width - 1] + '…'
