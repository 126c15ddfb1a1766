"""The report at the end of a run: each phase's best checkpoint and baselines.

For the task of the last phase: the model before training, the best checkpoint
of each phase, and baselines that need no model. The report is plain text for a
terminal of 80 columns, with examples and the next command, or one JSON object.
"""

import functools
import json
import os
import textwrap
from typing import Any, NamedTuple

import jax

from locost_jax.config import tables as tables_lib
from locost_jax.config import versions
from locost_jax.data import mixture
from locost_jax.devices import collective
from locost_jax.devices import compiling
from locost_jax.devices import sharding
from locost_jax.evaluation import baselines
from locost_jax.evaluation import content
from locost_jax.evaluation import evaluate
from locost_jax.evaluation import generated_batches
from locost_jax.evaluation import metric_table
from locost_jax.evaluation import predictions
from locost_jax.models import lora
from locost_jax.models import parameters
from locost_jax.training import step as step_lib
from locost_jax.training import warm_start
from locost_jax.workdir import checkpoint
from locost_jax.workdir import manifest
from locost_jax.workdir import phases as phases_lib

EXAMPLES = 3  # documents shown with their summaries
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


class Example(NamedTuple):
  """One document with its two summaries."""

  id: str
  source: str
  reference: str
  prediction: str


class _Split(NamedTuple):
  """The records of one task and split to measure on."""

  setup: Any  # assemble.Setup of the last phase on this task
  task: str
  name: str  # 'validation' or 'test'
  cache: Any

  def batches(self):
    return self.setup.eval_batches(self.cache)


def measure_run(setups, workdir, split, by_length=False):
  """Measures the best checkpoints of a run.

  Args:
    setups: assemble.Setups of the phases, caches open; all have checkpoints.
  """
  *_, last = setups
  tables, groups, examples, initial = [], [], [], None
  if last.config.eval.baselines:
    initial = initial_params(setups[0])
  shown = setups if last.config.eval.baselines else [last]
  for task, cache in last.eval_caches(split).items():
    records = _Split(last, task, split, cache)
    table, rows = _measure_task(records, shown, initial)
    tables.append(table)
    if by_length and rows:
      groups.append(_table_by_length(table, rows, last.config.eval))
    examples = examples or _choose_examples(rows, records)
  return dict(
      tables=tables,
      examples=examples,
      workdir=str(workdir),
      step=int(checkpoint.find(last.directory).name),
      by_length=groups,
      home=str(last.directory),
  )


def _table_by_length(table, rows, settings):
  """Returns a table's last checkpoint scored by length of the documents."""
  return table._replace(
      task=f'{table.task}, by tokens read',
      rows=[
          Row(f'{low:,} to {high:,}: {count_documents(n)}', scores)
          for low, high, n, scores in evaluate.score_by_length(
              rows, settings.metrics, settings.protocol
          )
      ],
  )


def _measure_task(records, setups, initial):
  """Measures the best checkpoints of some phases on one task."""
  setup, config = records.setup, records.setup.config
  metrics = config.eval.metrics
  total = len(records.cache)
  documents = min(config.eval.examples or total, total)
  selection = predictions.selection_of(setup.config.model)
  collective.log(
      f'measuring on {records.task}, {records.name}, '
      + count_documents(documents, total)
      + (f', {selection}' if selection else '')
  )
  measure = functools.partial(evaluate.measure, setup.evaluated)
  signatures = metric_table.signatures(metrics, documents, config.eval.protocol)
  table_rows, rows, path = [], [], ''
  if initial is not None:
    measured, _ = measure(initial, records.batches(), metrics=metrics)
    table_rows.append(Row('before training', measured))
  for phase in setups:
    found, params = _best_params(phase, setup.mesh)
    step = found['step']
    measured, rows = _measure_checkpoint(
        records, phase, step, params, measure, metrics
    )
    after = f'after {phase.name}' if phase.name else 'after training'
    table_rows.append(Row(f'{after}, step {step}', measured, is_result=True))
  if config.eval.baselines:
    table_rows += _baseline_rows(records, measure, params, metrics)
  if rows and collective.is_first_host():
    path = predictions.try_write(
        setup.predictions_file(records.task, records.name, step),
        rows,
        predictions.metadata(config, len(rows), found),
    )
  table = Table(
      records.task,
      records.name,
      documents,
      table_rows,
      selection,
      total,
      signatures,
      metric_table.columns(metrics),
      path,
  )
  return table, rows


def _measure_checkpoint(records, phase, step, params, measure, metrics):
  """Measures a checkpoint; continues an interrupted measurement."""
  if not metric_table.of_summaries(metrics):
    return measure(params, records.batches(), metrics=metrics)
  setup, host = records.setup, jax.process_index()
  name = f'{records.task}-{records.name}-{phase.name}-{step}.{host}.jsonl'
  generated = generated_batches.GeneratedBatches(
      setup.directory / 'evaluations' / name,
      dependencies(setup, [phase], records.name),
  )
  results = measure(
      params, records.batches(), metrics=metrics, generated=generated
  )
  generated.remove()
  return results


def dependencies(setup, phases, split):
  """Returns everything that the summaries of a split depend on, for JSON."""
  config, limit = phases_lib.to_dict(setup.config), setup.config.eval.examples
  return dict(
      checkpoints=[
          {'phase': phase.name, **identity(phase)} for phase in phases
      ],
      split=split,
      records={
          task: [cache.path.name, min(limit or len(cache), len(cache))]
          for task, cache in setup.eval_caches(split).items()
      },
      **{
          name: config[name]
          for name in ('data', 'decode', 'eval', 'mesh', 'model', 'selector')
      },
      dtype=setup.config.train.dtype,
      hosts=jax.process_count(),
      versions=versions.installed(('locost_jax',)),
  )


@checkpoint.choose_again
def identity(setup):
  """Returns step and sha256 (of its files) of a phase's best checkpoint."""
  path = checkpoint.find(setup.directory)
  return dict(step=int(path.name), sha256=manifest.identify(path, 'params/'))


@checkpoint.choose_again
def _best_params(setup, mesh):
  """Returns (step and sha256 of its weights, parameters) of a phase's best."""
  path = checkpoint.find(setup.directory)
  params = checkpoint.load_params(path)
  found = dict(step=int(path.name), sha256=parameters.fingerprint(params))
  params = lora.merge(params, setup.config.train.lora.alpha)
  return found, jax.device_put(params, sharding.param_shardings(mesh, params))


def _baseline_rows(records, measure, params, metrics):
  """Returns the rows of the exchanged inputs and of the baselines."""
  vocabulary = records.setup.vocabulary
  exchanged, _ = measure(
      params,
      baselines.exchange_inputs(
          content.with_weights(records.batches(), records.setup.common),
          vocabulary,
      ),
      metrics=('loss',),
  )
  rows = [Row("  another document's input", exchanged)]
  train_cache = _train_cache(records)
  if train_cache is None:
    collective.log('no baselines: they need the training files')
    return rows
  measured = baselines.measure(
      records.batches(),
      baselines.first_records(train_cache),
      vocabulary,
      metrics,
      records.setup.common,
      records.setup.config.eval.protocol,
  )
  rows.append(Row('unigrams of the targets', measured['unigram'], True))
  if 'lead' in measured:
    n = measured['lead'].pop('sentences')
    text = measured['constant'].pop('text')
    lead = 'first sentence' if n == 1 else f'first {n} sentences'
    rows.append(Row(f'lead: {lead}', measured['lead'], True))
    rows.append(Row(f'best constant: “{text}”', measured['constant'], True))
    oracle = 'oracle: chosen sentences'
    rows.append(Row(oracle, measured['oracle'], True))
  return rows


def _train_cache(records):
  """Returns the training records of the task, or of its part of a mixture."""
  found = records.setup.caches.get('train')
  if isinstance(found, mixture.Mixture):
    return found.tasks[records.task]
  return found


def initial_params(setup):
  """Returns the parameters that a phase starts from, on its mesh.

  They are equal to those of step 0, from train.seed and train.init_from; None
  if the directory of train.init_from is missing.
  """
  settings, given = setup.config.train, {}
  if settings.init_from:
    if not os.path.isdir(settings.init_from):
      return None
    given, _ = warm_start.load(setup.config, setup.shapes)
  with jax.set_mesh(setup.mesh):
    init = jax.jit(
        functools.partial(step_lib.init_params, model=setup.model),
        out_shardings=sharding.param_shardings(setup.mesh, setup.shapes),
    )
    with compiling.describe(compiling.INITIAL):
      params = init(jax.random.key(settings.seed))
    return warm_start.put(params, given)


def _choose_examples(rows, records):
  """Chooses examples of different lengths; the rows are sorted by length."""
  count = min(EXAMPLES, len(rows))
  if not count:
    return []
  chosen = [rows[len(rows) * (2 * i + 1) // (2 * count)] for i in range(count)]
  sources = baselines.find_inputs(
      records.batches(),
      records.setup.vocabulary,
      {row['id'] for row in chosen},
  )
  return [
      Example(
          row['id'],
          sources.get(row['id'], ''),
          baselines.first_reference(row['reference']),
          row['prediction'],
      )
      for row in chosen
  ]


def format_text(tables, examples, workdir, step=None, by_length=(), home=''):
  """Returns the whole report as text."""
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
  count = count_documents(table.documents, table.total)
  title = ', '.join(
      filter(None, [table.task, table.split, count, table.selection])
  )
  head = title if len(title) < width else ''
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
  before = [] if head else [title]
  return '\n'.join([*before, *lines, *table.signatures.values()])


def count_documents(documents, total=0):
  """Returns '382 documents', or '500 of 6,440 documents' for a part of a split."""
  of = f' of {total:,}' if total > documents else ''
  return f'{documents:,}{of} documents'


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
      predictions=table.predictions,
      rows=[dict(name=row.name.strip(), **row.metrics) for row in table.rows],
  )


def _clip(text, width):
  return text if len(text) <= width else text[: width - 1] + '…'
