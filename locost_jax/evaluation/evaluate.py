"""Evaluates a model on a split: loss, generated summaries and their scores.

`metric_table.METRICS` lists the metrics. Summaries are generated with
config.decode, and only if a metric needs them. `baselines.py` gives the numbers
to compare with.
"""

import contextlib
import functools
from pathlib import Path

import jax
from jax.experimental import multihost_utils
import numpy as np

from locost_jax import files
from locost_jax.config import decode_settings
from locost_jax.config import kinds
from locost_jax.config.progress import Progress
from locost_jax.devices import collective
from locost_jax.devices import compiling
from locost_jax.devices import sharding
from locost_jax.devices import watchdog
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.evaluation import content
from locost_jax.evaluation import metric_table
from locost_jax.evaluation.metrics import metric as metric_lib
from locost_jax.evaluation.metrics import protocols
from locost_jax.generation import generate

_TOKENS = kinds.list_of(kinds.list_of(kinds.integer(0, 10**7)))


def check(config):
  """Raises an InputError for invalid settings of an evaluation."""
  metric_table.check(config.eval.metrics, config.checkpoint.metric)
  protocols.find(config.eval.protocol, 'config.eval.protocol')
  decode_settings.of_run(config)


def measure(what, params, batches, metrics=None, generated=None):
  """Measures a model on a split.

  Args:
    what: an `assemble.Setup`, or an object with its model, vocabulary, mesh,
      config (of which eval.metrics, eval.protocol and decode are used) and
      common: the `content.Common` of the training targets, or None: recall and
      content_loss are not measured.
    params: the model's parameters, on the mesh.
    batches: as from `pipeline.eval_batches`, this host's rows.
    metrics: replaces config.eval.metrics.
    generated: a `GeneratedBatches`, for an evaluation that can be stopped and
      continued.

  Returns:
    ({'loss': nats per target token, 'accuracy': 0 to 1, 'rouge1': F1 x 100,
    ...}, [{id, prediction, reference, tokens_kept}, ...]), the rows of all
    hosts; no rows if no metric needs summaries. tokens_kept counts the input
    tokens that the model read.
  """
  settings, mesh = what.config.eval, what.mesh
  names = settings.metrics if metrics is None else metrics
  of_model = metric_table.select(names, metric_lib.MODEL)
  of_text = metric_table.of_summaries(names, settings.protocol)
  parts, rows = [], []
  with jax.set_mesh(mesh):
    for i, (batch, info) in enumerate(
        content.with_weights(batches, what.common)
    ):
      watchdog.heartbeat()
      shape = compiling.shape_of(batch['encoder_input_tokens'])
      if of_model:
        placed = sharding.global_batch(batch, mesh, what.vocabulary.pad_id)
        with compiling.describe(shape):
          parts += [x.sums(what.model, params, placed) for x in of_model]
      if of_text:
        real = len(info['id'])
        write = functools.partial(_generate, what, params, batch, real)
        with compiling.describe(shape):
          tokens = generated.get(i, write) if generated else write()
        rows += _rows(batch, info, tokens, what)
  measured = metric_lib.means(parts)
  for entry in of_model:
    if entry.derive is not None:
      measured |= entry.derive(measured)
  if of_text:
    rows = collective.gather_rows(
        rows if sharding.host_part(mesh).leads else []
    )
    measured |= score(of_text, rows)
    for row in rows:
      row.pop('contents', None)
  return measured, rows


def score(metrics, rows, texts=None):
  """Scores rows by metrics of texts, with progress on stderr.

  Args:
    rows: dicts with prediction, reference and, for CONTENT, contents.
    texts: replace the predictions; None: nothing does.
  """
  with showing_progress() as show:
    return metric_lib.score(
        metrics,
        texts or [row['prediction'] for row in rows],
        [row['reference'] for row in rows],
        [row.get('contents') for row in rows],
        show,
    )


@contextlib.contextmanager
def showing_progress():
  """Yields a function (done, total) that shows it and calls the watchdog."""
  progress = Progress()

  def show(done, total):
    watchdog.heartbeat()
    if collective.is_first_host():
      progress.show('scoring', done, total)

  try:
    yield show
  finally:
    progress.wipe()


def _rows(batch, info, tokens, what):
  """Returns a row for each document, see `measure`, with its contents."""
  vocabulary, rows = what.vocabulary, []
  for i, (name, reference) in enumerate(zip(info['id'], info['reference'])):
    read = batch['encoder_input_tokens'][i]
    row = dict(
        id=name,
        prediction=vocabulary.decode(tokens[i]),
        reference=reference,
        tokens_kept=int((read != vocabulary.pad_id).sum()),
    )
    if what.common is not None:
      row['contents'] = content.of_document(
          read, reference, vocabulary, what.common
      )
    rows.append(row)
  return rows


def _generate(what, params, batch, real):
  """Generates this host's rows of tokens, padding rows included."""
  config, mesh = what.config, what.mesh
  inputs = np.array(batch['encoder_input_tokens'])
  # Padding rows would be decoded to max_length, so they copy the first row.
  inputs[real:] = inputs[:1]
  settings = decode_settings.with_ids(
      decode_settings.of_run(config), what.vocabulary
  )
  rows = {'encoder_input_tokens': inputs}
  if decode_settings.method_of(settings) == 'sample':
    rows['seeds'] = generate.document_seeds(
        inputs, inputs != settings.pad_id, config.decode.seed
    )
  rows = sharding.global_batch(rows, mesh, settings.pad_id)
  tokens, _ = generate.generate(
      what.model,
      params,
      rows['encoder_input_tokens'],
      None,
      settings,
      rows.get('seeds'),
  )
  tokens = np.asarray(multihost_utils.process_allgather(tokens, tiled=True))
  part = sharding.host_part(mesh)
  rows = len(tokens) // part.count
  start = rows * part.index
  return tokens[start : start + rows].tolist()


class GeneratedBatches:
  """The batches generated so far with one model on one split.

  Generating takes nearly all of an evaluation's time. After an interruption, an
  evaluation reuses the stored batches and generates only the rest. Each host has
  a JSONL file: first the key, everything the tokens depend on; then {'tokens':
  lists of ids} for each batch, in order.
  """

  def __init__(self, path, key):
    """Reads this host's file, up to a damaged line, if it has the same key."""
    self._path, self._journal, self._found = Path(path), None, []
    files.check_regular(path)
    try:
      self._path.parent.mkdir(parents=True, exist_ok=True)
      self._journal = files.Journal(open(path, 'a+b', buffering=0), key)
      self._found = list(_read_tokens(self._journal.lines, path))
    except OSError as error:
      self._give_up(disk_error(error))
    # Hosts generate together, so all start at the first batch missing on any.
    count = min(collective.gather_rows([len(self._found)]))
    self._found = self._found[:count]
    if count:
      collective.log(f'{count:,} batches were generated before ({path})')
    if self._journal is not None:
      self._journal.keep(count)
      self._check()

  def get(self, number, generate):
    """Returns the tokens of a batch, stored before or now made by `generate`.

    A write error is only logged.
    """
    if number < len(self._found):
      return self._found[number]
    tokens = generate()
    if self._journal is not None:
      self._journal.add({'tokens': tokens})
      self._check()
    return tokens

  def remove(self):
    """Removes the file, when the results are complete."""
    if self._journal is not None:
      self._journal.close()
    self._path.unlink(missing_ok=True)

  def _check(self):
    if self._journal.problem:
      self._give_up(self._journal.problem)

  def _give_up(self, problem):
    self._journal = None
    collective.log(
        f'{self._path}: {problem}: if this evaluation is stopped, it starts '
        'again from the beginning'
    )


def _read_tokens(lines, path):
  """Yields the tokens of lines up to a damaged one."""
  for line in lines:
    try:
      tokens = files.parse_object(line, path).get('tokens')
      files.check_value(path, 'tokens', tokens, _TOKENS)
    except InputError:
      return
    yield tokens
