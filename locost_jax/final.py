"""The numbers at the end of a run: who is how good on which documents.

For the task of the last phase: the model before training, after each phase
(its best checkpoint), and what costs nothing beside it. With
config.eval.baselines also a table of losses for each earlier task.
"""

import functools
import os

import jax

from locost_jax import checkpoint
from locost_jax import evaluate
from locost_jax import lora
from locost_jax import origin as origins
from locost_jax import parts
from locost_jax import pretrained
from locost_jax import sharding
from locost_jax import train
from locost_jax.data import mixture
from locost_jax.report import Example, Row, Table

EXAMPLES = 3  # documents shown with their summaries


def measure_run(phases, workdir, vocabulary, split, caches):
  """Measures the best checkpoints of a run.

  Args:
    phases: of `workdir.make_phases`; all have checkpoints.
    workdir: WORKDIR.
    vocabulary: the run's.
    split: 'validation' or 'test'.
    caches: a dict per phase, split -> cache or None.

  Returns:
    The arguments of report.format_text: tables, examples, workdir, step.
  """
  *_, last = phases
  with_baselines = last.config.eval.baselines
  step = int(checkpoint.find(last.directory).name)
  tables, examples = [], []
  origin = initial_params(phases[0]) if with_baselines else None
  if with_baselines:
    seen = {parts.task_name(last)}
    for phase, splits in zip(phases, caches):
      task = parts.task_name(phase)
      if task not in seen:
        seen.add(task)
        shown = [p for p in phases if parts.task_name(p) == task]
        for name, cache in parts.by_task(phase, splits.get(split)).items():
          tables.append(_measure_task(
              origin, shown, name, cache, train_cache(splits, name), split,
              vocabulary, ('loss',))[0])
  shown = phases if with_baselines else [last]
  for name, cache in parts.by_task(last, caches[-1][split]).items():
    table, rows = _measure_task(
        origin, shown, name, cache, train_cache(caches[-1], name), split,
        vocabulary, last.config.eval.metrics)
    tables.append(table)
    examples = examples or _choose_examples(
        rows, last.config, cache, vocabulary)
  return dict(tables=tables, examples=examples, workdir=str(workdir), step=step)


def train_cache(splits, task):
  """The training records of a task, also of one of a mixture; or None."""
  found = splits.get('train')
  return found.tasks[task] if isinstance(found, mixture.Mixture) else found


def _measure_task(origin, phases, task, cache, train_cache, split, vocabulary,
                  metrics):
  """Returns (Table, rows of predictions of the last of these phases).

  Args:
    origin: the untrained model's parameters, on the mesh; None: not measured.
    phases: those whose best checkpoints are measured.
    task: name of the task to measure on.
    cache: its records.
    train_cache: what the baselines learn from.
    split: name of the split.
    vocabulary: of the run.
    metrics: as config.eval.metrics.
  """
  *_, last = phases
  config = last.config
  mesh = sharding.make_mesh(config.mesh)
  model = parts.build(config)
  make_batches = functools.partial(
      parts.eval_batches, cache, vocabulary, config)
  documents = min(config.eval.examples or len(cache), len(cache))
  parts.tell(f'measuring on {task}, {split}, {documents} documents')
  measure = functools.partial(
      evaluate.measure, model, vocabulary=vocabulary, config=config, mesh=mesh)
  table_rows, rows = [], []
  if origin is not None:
    measured, _ = measure(origin, make_batches(), metrics=metrics)
    table_rows.append(Row('before training', measured))
  for phase in phases:
    step = int(checkpoint.find(phase.directory).name)
    params = put(lora.merge(
        checkpoint.load_params(phase.directory),
        phase.config.train.lora.alpha), mesh)
    measured, rows = measure(params, make_batches(), metrics=metrics)
    after = f'after {phase.name}' if phase.name else 'after training'
    table_rows.append(
        Row(f'{after}, step {step}', measured, is_result=True))
  if config.eval.baselines:
    exchanged, _ = measure(
        params, evaluate.exchange_inputs(make_batches(), vocabulary),
        metrics=('loss',))
    table_rows.append(Row('  its inputs exchanged between texts', exchanged))
    table_rows += _baseline_rows(evaluate.measure_baselines(
        make_batches(), evaluate.first_records(train_cache), vocabulary,
        metrics))
  if rows and parts.is_first_host():
    evaluate.keep_predictions(
        phases[-1].directory / 'predictions' / f'{task}-{split}-{step}.jsonl',
        rows)
  return Table(task, split, documents, table_rows), rows


def _baseline_rows(measured):
  rows = [Row('unigram model of the targets', measured['unigram'], True)]
  if 'lead' in measured:
    n = measured['lead'].pop('sentences')
    text = measured['constant'].pop('text')
    lead = 'first sentence' if n == 1 else f'first {n} sentences'
    rows.append(Row(f'lead: {lead} of the input', measured['lead'], True))
    rows.append(Row(f'best constant: “{text}”', measured['constant'], True))
  return rows


def initial_params(phase):
  """The parameters that a phase starts from, on its mesh; None if not there.

  Equal to those of step 0, as they follow from train.seed or train.init_from.
  """
  config = phase.config
  model, mesh = parts.build(config), sharding.make_mesh(config.mesh)
  shapes, given = pretrained.abstract_params(model), {}
  if config.train.init_from:
    if not os.path.isdir(config.train.init_from):
      return None
    given, _ = origins.load(config, shapes)
  with jax.set_mesh(mesh):
    init = jax.jit(functools.partial(train.init_params, model=model),
                   out_shardings=sharding.param_shardings(mesh, shapes))
    return origins.put(init(jax.random.key(config.train.seed)), given)


def put(params, mesh):
  """Numpy parameters -> arrays on the mesh."""
  return jax.device_put(params, sharding.param_shardings(mesh, params))


def _choose_examples(rows, config, cache, vocabulary):
  """Documents spread over the lengths: the rows come sorted by length."""
  count = min(EXAMPLES, len(rows))
  chosen = [rows[len(rows) * (2 * i + 1) // (2 * count)] for i in range(count)]
  sources = evaluate.find_inputs(
      parts.eval_batches(cache, vocabulary, config), vocabulary,
      {row['id'] for row in chosen}) if chosen else {}
  return [Example(row['id'], sources.get(row['id'], ''),
                  evaluate.first_reference(row['reference']),
                  row['prediction']) for row in chosen]
