"""Measures a run: `main --evaluate`, and the table at the end of training.

For the task of the last phase: the model before training, the best checkpoint
of each phase, and baselines that need no model.
"""

import functools
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax

from locost_jax.config import object_store
from locost_jax.config import versions
from locost_jax.data import mixture
from locost_jax.data import tasks
from locost_jax.devices import collective
from locost_jax.devices import compiling
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.evaluation import baselines
from locost_jax.evaluation import content
from locost_jax.evaluation import evaluate
from locost_jax.evaluation import metric_table
from locost_jax.evaluation import predictions
from locost_jax.evaluation.metrics import metric
from locost_jax.models import lora
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import checks
from locost_jax.runs import final_table
from locost_jax.runs import resume
from locost_jax.runs import validation
from locost_jax.training import step as step_lib
from locost_jax.training import warm_start
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib

EXAMPLES = 3  # documents shown with their summaries


def evaluate_run(phases, workdir, whole_split=False, by_length=False):
  """Evaluates the best checkpoint of WORKDIR.

  Uses the test split, or validation if it is missing. Data and decoding may
  differ from training; the model may not, except for its dropout.

  Args:
    whole_split: whether to measure all documents and ignore
      config.eval.examples, which is meant for evaluations during training.
  """
  setups = [assemble.Setup(phase) for phase in phases]
  for setup in setups:
    if whole_split:
      setup.config.eval.examples = 0
    checks.check_evaluation_keys(setup)
  setup = _choose_setup(setups, workdir)
  checks.require_train_extra()
  tasks.check(setup.config)
  vocabulary = vocabulary_lib.load_vocabulary(setup.directory / 'vocabulary')
  vocabulary = tasks.in_language(vocabulary, setup.config.data)
  checks.check_forced_tokens(setup.config, vocabulary)
  setup.use_vocabulary(vocabulary)
  caches = workdir / 'cache'
  setup.open_caches(caches, ('test', 'validation'))
  setup.caches['test'] = _without_hidden(setup)
  split = 'test' if setup.caches['test'] else 'validation'
  if setup.config.eval.baselines:
    setup.open_caches(caches, ('train',))
  return measure_run([setup], workdir, split, by_length)


def _choose_setup(setups, workdir):
  """Returns the Setup of the phase that WORKDIR's best checkpoint belongs to."""
  if not workdir.is_dir():
    raise InputError(f'--workdir={workdir}: no such directory; train first')
  run = find.find_run(workdir)
  if run is None:
    raise InputError(f'--workdir={workdir}: no config.json of a run in it')
  home, _, stored = run
  for setup in setups:
    if setup.directory.resolve() == Path(home).resolve():
      resume.check_same_model(setup, stored)
      return setup
  raise InputError(
      f'--workdir={workdir}: its last phase is {home}, which this config '
      'does not have'
  )


def _without_hidden(setup):
  """Returns {task: records} of the test split, if its summaries are not hidden."""
  found = setup.eval_caches('test')
  empty = len(vocabulary_lib.surround(setup.vocabulary, []))
  shown = {
      task: cache
      for task, cache in found.items()
      if (cache.lengths[:, 1] > empty).any()
  }
  for task in found.keys() - shown.keys():
    collective.log(f'{task}: the summaries of the test split are hidden')
  if found and not shown:
    collective.log('measuring on the validation split')
  return shown


class _Split(NamedTuple):
  """The records of one task and split to measure on."""

  setup: Any  # assemble.Setup of the last phase on this task
  task: str
  name: str  # 'validation' or 'test'
  cache: Any

  def batches(self):
    return self.setup.eval_batches(self.cache)

  def measure(self, params, generated=None):
    return evaluate.measure(
        self.setup, params, self.batches(), generated=generated
    )


def measure_run(setups, workdir, split, by_length=False):
  """Measures the best checkpoints of a run.

  Args:
    setups: assemble.Setups of the phases, caches open; all have checkpoints.

  Returns:
    The arguments of `final_table.format_text`.
  """
  *_, last = setups
  tables, groups, examples, initial = [], [], [], None
  shown, settings = [last], last.config.eval
  if settings.baselines:
    shown, initial = setups, initial_params(setups[0])
  for task, cache in last.eval_caches(split).items():
    records = _Split(last, task, split, cache)
    table, rows = _measure_task(records, shown, initial)
    tables.append(table)
    if by_length and rows:
      groups.append(table_by_length(table, rows, settings))
    if rows and not examples:
      examples = _choose_examples(rows, records)
  return dict(
      tables=tables,
      examples=examples,
      workdir=str(workdir),
      step=int(checkpoint.find(last.directory).name),
      by_length=groups,
      home=str(last.directory),
  )


def table_by_length(table, rows, settings):
  """Returns a table of the scores of documents by the tokens that were read.

  The last number of tokens of a group is a power of two; no group is empty.
  settings is config.eval.
  """
  groups = {}
  for row in rows:
    groups.setdefault((row['tokens_kept'] - 1).bit_length(), []).append(row)
  metrics = metric_table.select(
      settings.metrics, metric.TEXT, protocol=settings.protocol
  )
  return table._replace(
      task=f'{table.task}, by tokens read',
      rows=[
          final_table.Row(
              f'{(1 << k >> 1) + 1:,} to {1 << k:,}: '
              f'{final_table.count_documents(len(groups[k]))}',
              evaluate.score(metrics, groups[k]),
          )
          for k in sorted(groups)
      ],
  )


def _measure_task(records, setups, initial):
  """Returns the Table of a task, and the predictions of the last checkpoint."""
  setup, settings = records.setup, records.setup.config.eval
  documents = setup.documents(records.cache)
  table = final_table.Table(
      records.task,
      records.name,
      documents,
      [],
      predictions.selection_of(setup.config.model),
      len(records.cache),
      metric_table.signatures(settings.metrics, documents, settings.protocol),
      metric_table.columns(settings.metrics),
      test_set=validation.test_set(setup, records.cache),
  )
  collective.log(f'measuring on {table.title}')
  if initial is not None:
    measured, _ = records.measure(initial)
    table.rows.append(final_table.Row('before training', measured))
  for phase in setups:
    found, params = _best_params(phase, setup.mesh)
    measured, rows = _measure_checkpoint(records, phase.name, found, params)
    name = f'after {phase.name or "training"}, step {found["step"]}'
    table.rows.append(final_table.Row(name, measured, is_result=True))
  if settings.baselines:
    table.rows.extend(_baseline_rows(records, params))
  file = f'{records.task}-{records.name}-{found["step"]}'
  path = validation.write_predictions(setup, file, rows, found)
  return table._replace(predictions=path), rows


def _measure_checkpoint(records, phase, found, params):
  """Measures a checkpoint of a phase; continues an interrupted measurement."""
  setup, config = records.setup, phases_lib.to_dict(records.setup.config)
  if not metric_table.of_summaries(setup.config.eval.metrics):
    return records.measure(params)
  host, split = jax.process_index(), records.name
  name = f'{records.task}-{split}-{phase}-{found["step"]}.{host}.jsonl'
  depends_on = dict(
      checkpoint=found,
      split=split,
      records={
          task: [cache.path.name, setup.documents(cache)]
          for task, cache in setup.eval_caches(split).items()
      },
      **{
          section: config[section]
          for section in ('data', 'decode', 'eval', 'mesh', 'model', 'selector')
      },
      dtype=setup.config.train.dtype,
      hosts=jax.process_count(),
      versions=versions.installed(('locost_jax',)),
  )
  generated = evaluate.GeneratedBatches(
      setup.directory / 'evaluations' / name, depends_on
  )
  results = records.measure(params, generated=generated)
  generated.remove()
  return results


@checkpoint.choose_again
def _best_params(setup, mesh):
  """Returns (step and sha256 of its weights, parameters) of a phase's best."""
  path = checkpoint.find(setup.directory)
  params = checkpoint.load_params(path)
  found = dict(step=int(path.name), sha256=parameters.fingerprint(params))
  params = lora.merge(params, setup.config.train.lora.alpha)
  return found, jax.device_put(params, sharding.param_shardings(mesh, params))


def _baseline_rows(records, params):
  """Yields the rows of the exchanged inputs and of the baselines."""
  setup = records.setup
  others = baselines.exchange_inputs(
      content.with_weights(records.batches(), setup.common), setup.vocabulary
  )
  exchanged, _ = evaluate.measure(setup, params, others, ('loss',))
  yield final_table.Row("  another document's input", exchanged)
  cache = setup.caches.get('train')
  if cache is None:
    collective.log('no baselines: they need the training files')
    return
  if isinstance(cache, mixture.Mixture):
    cache = cache.tasks[records.task]
  for name, measured in baselines.measure(
      records.batches(),
      baselines.first_records(cache),
      setup.vocabulary,
      setup.config.eval.metrics,
      setup.common,
      setup.config.eval.protocol,
  ):
    yield final_table.Row(name, measured, is_baseline=True)


def initial_params(setup):
  """Returns the parameters that a phase starts from, on its mesh.

  They are equal to those of step 0, from train.seed and train.init_from; None
  if the directory of train.init_from is missing.
  """
  settings = setup.config.train
  source = settings.init_from
  if source and not (object_store.is_uri(source) or os.path.isdir(source)):
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
  count, sources = min(EXAMPLES, len(rows)), {}
  chosen = [rows[len(rows) * (2 * i + 1) // (2 * count)] for i in range(count)]
  ids = {row['id'] for row in chosen}
  for batch, info in records.batches():
    for name, tokens in zip(info['id'], batch['encoder_input_tokens']):
      if name in ids:
        sources[name] = content.input_text(tokens, records.setup.vocabulary)
  return [
      dict(
          id=row['id'],
          source=sources.get(row['id'], ''),
          reference=metric.as_list(row['reference'])[0],
          prediction=row['prediction'],
      )
      for row in chosen
  ]
