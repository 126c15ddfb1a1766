"""Scores predictions with the metrics that only papers' tables need.

  python -m papers.score --predictions=runs/a --metrics=coherence --model=DIR
  python -m papers.score --predictions=runs/a --metrics=rouge,bertscore \\
      --model=DIR --correlation
  python -m papers.score --predictions=runs/a --compare=runs/b \\
      --metrics=coherence --model=DIR
  python -m papers.score --predictions=A.jsonl --submission=A.json

Takes the flags and metrics of `locost_jax.score`, and these besides. Each
number has half the width of its 95% interval.

--compare measures both files, and tests each difference of a metric by
approximate randomisation over the documents that have it in both (PageSum,
table 4). --correlation adds Pearson's correlation of all numbers of the
predictions over the documents (SimCAS, table 2). --output gets the numbers as
JSON, of which `papers.plot similarity` draws the curve of locality.
--submission writes {id: prediction}, the format of SCROLLS for one data set,
and scores nothing.
"""

import dataclasses
import functools
import json
import os

import numpy as np

from locost_jax import files
from locost_jax import score
from locost_jax.config import commands
from locost_jax.config import tables
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.evaluation import compare_predictions
from locost_jax.evaluation import metric_table
from locost_jax.evaluation import predictions
from locost_jax.evaluation.metrics import intervals
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from papers import bertscore
from papers import blanc
from papers import judge
from papers import sentences

METRICS = {
    **metric_table.OF_SCORE,
    'bertscore': bertscore.BERTSCORE,
    'blanc': blanc.BLANC,
    'coherence': metric.Metric(
        'coherence',
        sentences.COLUMNS,
        what='coherence by next-sentence prediction (PageSum)',
        run=sentences.coherence,
        loads_model=True,
    ),
    'locality': metric.Metric(
        'locality',
        sentences.LOCALITY_COLUMNS,
        needs=metric.DOCUMENT,
        what='sentence similarity by distance (PageSum, figure 1)',
        run=sentences.locality,
        loads_model=True,
    ),
    'judge': metric.Metric(
        'judge',
        judge.COLUMNS,
        needs=metric.DOCUMENT,
        what='a language model rates four dimensions from 1 to 5',
        run=judge.run,
        loads_model=True,
    ),
}


def define_flags(values, argv):
  """Defines this command's flags."""
  score.define_flags(values, argv, METRICS)
  table = {
      'submission': 'FILE.json: write {id: prediction} there',
      'output': 'FILE.json: write the numbers there',
      'layer': (
          "bertscore: the layer whose outputs are compared [its authors' "
          'choice]'
      ),
      'overwrite': (False, 'replace --submission, --output'),
      'correlation': (
          False,
          "add Pearson's correlation of the metrics over the documents",
      ),
      'seed': (0, "of judge's sample and coherence's shuffling"),
      'base_url': (
          'URL: judge: the server; its key is read from OPENAI_API_KEY'
      ),
      'sample': (500, 'judge: rate at most N documents'),
      'judge_cache': (
          os.path.expanduser('~/.cache/locost_jax/judge'),
          'DIR: judge: where to keep the answers',
      ),
  }
  commands.define(values, table)


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: the other words of the command line; there must be none.
  """
  commands.expect_flags_only(arguments)
  if not values.predictions:
    raise InputError('--predictions=FILE is missing: expected predictions')
  path = score.find_file(values.predictions, values.split)
  if values.compare and values.correlation:
    raise InputError('--compare and --correlation: expected one of them')
  for flag in 'submission', 'output':
    if target := values[flag].value:
      _check_new(flag, target, values.overwrite, path)
  if values.submission:
    return submit(path, values.submission)
  chosen = metric_table.find(score.split(values.metrics), METRICS)
  options = dict(
      bertscore=dict(layer=values.layer),
      coherence=dict(seed=values.seed),
      judge=dict(
          base_url=values.base_url,
          sample=values.sample,
          seed=values.seed,
          cache=values.judge_cache,
      ),
  )
  for name in options.keys() & chosen.keys():
    run = functools.partial(chosen[name].run, **options[name])
    chosen[name] = dataclasses.replace(chosen[name], run=run)
  if 'judge' in chosen:
    judge.check_url(values.base_url)
  protocol = protocols.find(values.protocol)
  other = values.compare and score.find_file(values.compare, values.split)

  def compare_rows(rows, measured):
    theirs = predictions.read_rows(other, values.documents, chosen)
    theirs = compare_predictions.match(rows, theirs, (path, other))
    models = metric_table.find_models(chosen, score.split(values.model))
    theirs, _ = score.measure(theirs, chosen, models, protocol, values)
    return compare(measured, theirs, (path, other))

  more = compare_rows if other else None
  if values.correlation:
    more = lambda _, measured: correlate(measured)
  result = score.print_metrics(path, chosen, protocol, values, more)
  if values.output:
    _write(f'--output={values.output}', values.output, result)


def compare(ours, theirs, names):
  """Compares two systems by all metrics of their predictions.

  Args:
    ours, theirs: {name of a metric: `metric.Result`} of the same documents.
    names: of the two files.

  Returns:
    (a table as text, {'predictions': names, 'differences': {key of a number:
    the dict of `intervals.compare`, with means of A and B, and documents}}).
    Only documents that have the number in both files count.
  """
  rows = [['', 'A', 'B', 'A - B', '95% interval', 'p', 'documents']]
  found = {}
  for name, one in ours.items():
    sides = [side[name].values for side in (ours, theirs) if name in side]
    if len(sides) < 2 or metric.PREDICTION not in one.values:
      continue
    both = np.stack([side[metric.PREDICTION] for side in sides])
    for i, column in enumerate(one.columns):
      known = both[:, ~np.isnan(both[:, :, i]).any(0), i, None]
      if not known.size:
        rows.append([column.title, *['n/a'] * 5, '0'])
        continue
      (result,) = intervals.compare(*known)
      means, n = known.mean((1, 2)).tolist(), known.shape[1]
      found[column.key] = dict(result, means=means, documents=n)
      digits = column.digits
      rows.append(
          [
              column.title,
              *(f'{mean:.{digits}f}' for mean in means),
              f'{result["difference"]:+.{digits}f}',
              ' to '.join(f'{end:.{digits}f}' for end in result['interval']),
              f'{result["p_randomisation"]:.4f}',
              str(n),
          ]
      )
  lines = [f'A: {names[0]}', f'B: {names[1]}', *tables.align(rows)]
  return '\n'.join(lines), dict(predictions=list(names), differences=found)


def correlate(measured):
  """Correlates all numbers of the predictions over documents, pairwise.

  Args:
    measured: {name: `metric.Result`}.

  Returns:
    (a table as text, {'correlation': titles and values; None: unknown}).
  """
  titles, columns = [], []
  for name, one in measured.items():
    numbers = one.values.get(metric.PREDICTION)
    if numbers is None:
      continue
    columns.append(numbers)
    for title in (column.title for column in one.columns):
      if name != 'rouge' and not title.startswith(name):
        title = name if len(one.columns) == 1 else f'{name} {title}'
      titles.append(title)
  values = pearson(np.concatenate(columns, axis=1))
  rows = [['Pearson', *titles]] + [
      [title, *('n/a' if np.isnan(x) else f'{x:.3f}' for x in row)]
      for title, row in zip(titles, values)
  ]
  plain = [[None if np.isnan(x) else float(x) for x in row] for row in values]
  found = dict(titles=titles, values=plain)
  return '\n'.join(tables.align(rows, least=5)), {'correlation': found}


def pearson(columns):
  """Correlates columns of numbers pairwise.

  Args:
    columns: float [n, k], a row for each document; NaN: missing.

  Returns:
    float [k, k]: for each pair of columns, over the documents that have both
    numbers. NaN with fewer than two such documents, or if a column is constant.
  """
  k = columns.shape[1]
  found = np.full([k, k], np.nan)
  for i in range(k):
    for j in range(k):
      both = columns[:, [i, j]][~np.isnan(columns[:, [i, j]]).any(1)]
      if (
          len(both) > 1
          and (np.ptp(both, axis=0) > 1e-12 * abs(both).max(0)).all()
      ):
        found[i, j] = np.corrcoef(both.T)[0, 1]
  return found


def _check_new(flag, target, overwrite, source):
  """Raises an InputError unless a file is new, or may be replaced."""
  where = f'--{flag}={target}'
  files.check_regular(target, where)
  if os.path.exists(target) and (
      not overwrite or os.path.samefile(target, source)
  ):
    raise InputError(
        f'{where}: exists already; expected a new file, or --overwrite'
    )


def _write(where, target, value):
  """Writes a value as JSON; an InputError if the file cannot be written."""
  try:
    files.write(target, json.dumps(value, ensure_ascii=False, indent=2) + '\n')
  except OSError as error:
    raise InputError(
        f'{where}: cannot be written: {disk_error(error)}'
    ) from None


def submit(path, target):
  """Writes {id: prediction} of a file of predictions, as SCROLLS wants it.

  Raises:
    InputError: an id is missing or repeated, or the file cannot be written.
  """
  found = {}
  for pair in predictions.read(path, references=False):
    if pair.id is None or pair.id in found:
      problem = 'no field' if pair.id is None else 'repeated'
      raise InputError(
          f"{path}:{pair.line}: {problem} 'id': --submission needs a different "
          'one for each row'
      )
    found[pair.id] = pair.prediction
  _write(f'--submission={target}', target, found)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
