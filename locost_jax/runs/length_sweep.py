"""Evaluates one checkpoint at several maximum input lengths (LOCOST, table 6)."""

import copy
import functools
import json

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import rouge
from locost_jax.hosts import collective
from locost_jax.runs import evaluate_run
from locost_jax.runs import final_table
from locost_jax.runs import kept_scores
from locost_jax.values import ranges

GAIN = metric.Column('gain', 'gain %', 1)
_NOTE = """\
gain: increase of the mean ROUGE over the first length, in %. Stored results
of earlier runs are used again; --overwrite measures again."""


def parse(words):
  """Returns the lengths of --lengths.

  Args:
    words: list of str.

  Raises:
    InputError: a word is not a length, or is repeated.
  """
  try:
    lengths = [int(word) for word in words]
  except ValueError:
    lengths = []
  least, most = 2, ranges.TOKENS
  if (
      not lengths
      or len(set(lengths)) < len(lengths)
      or not all(least <= length <= most for length in lengths)
  ):
    raise InputError(
        f'--lengths={",".join(words)}: expected different numbers of tokens, '
        f'{least} to {most:,}, like 4096,8192'
    )
  return lengths


def evaluate_lengths(phases, workdir, lengths, whole_split, overwrite):
  """Evaluates the best checkpoint of WORKDIR at each length.

  Args:
    phases, workdir, whole_split: see `evaluate_run.evaluate_run`.
    lengths: values of config.data.max_input_length; gains are relative to the
      first.
    overwrite: whether to ignore stored results and measure again.

  Returns:
    dict of the arguments of `format_text`.

  Raises:
    InputError: the model reads pages, or as in `evaluate_run.evaluate_run`.
  """
  if phases[-1].config.data.pages:
    raise InputError(
        f'--lengths: config.data.pages={phases[-1].config.data.pages!r}: '
        'expected a model that reads a document as one sequence'
    )
  found = []
  for length in lengths:
    collective.log(f'maximum input length {length:,}')
    own = copy.deepcopy(phases)
    for phase in own:
      phase.config.data.max_input_length = length
      phase.config.eval.baselines = False
    found.append(
        evaluate_run.evaluate_run(
            own,
            workdir,
            whole_split,
            functools.partial(
                kept_scores.measure,
                name=f'length-{length}',
                overwrite=overwrite,
            ),
            f'.{length}',
        )
    )
  return dict(
      tables=[
          _join(tables, lengths)
          for tables in zip(*(results['tables'] for results in found))
      ],
      workdir=str(workdir),
      step=found[0]['step'],
  )


def _join(tables, lengths):
  """Joins the tables of one task, one for each length, into one table."""
  rows, first = [], None
  for table, length in zip(tables, lengths):
    metrics = dict(table.rows[-1].metrics)
    mean = metrics.get(rouge.MEAN)
    if first:
      metrics[GAIN.key] = 100 * (mean / first - 1)
    first = mean if first is None else first
    rows.append(final_table.Row(f'{length:,} tokens', metrics, is_result=True))
  return tables[0]._replace(rows=rows)


def format_text(tables, workdir, step):
  """Returns the report as text.

  Args:
    tables: list of final_table.Table, a row for each length.
    workdir: the run's WORKDIR.
    step: the checkpoint's step.
  """
  columns = (*final_table.columns_of(tables), GAIN)
  return '\n\n'.join(
      [
          f'{workdir}, checkpoint of step {step}, by maximum input length',
          *(final_table.format_table(table, columns) for table in tables),
          _NOTE,
      ]
  )


def format_json(tables, workdir, step):
  """Returns the same report as one JSON object."""
  shown = [final_table.to_json(table) for table in tables]
  return json.dumps(dict(workdir=workdir, step=step, tables=shown))
