"""The metrics by name, in the order of the tables.

config.eval.metrics and `score --metrics` choose some of them; the config may
also name Metrics of its own.
"""

from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.evaluation import content
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import rouge
from locost_jax.evaluation.metrics import texts

METRICS = {
    entry.name: entry
    for entry in (
        content.LOSS,
        rouge.of_protocol(),
        content.recall_of(),
        texts.ANSWERS,
        texts.LENGTH,
        texts.REPETITION,
    )
}
# Metrics whose words are those of config.eval.protocol.
_OF_PROTOCOL = {'rouge': rouge.of_protocol, 'recall': content.recall_of}
# Those of `score --metrics`, and those of config.eval.metrics.
OF_SCORE = {name: entry for name, entry in METRICS.items() if entry.what}
OF_CONFIG = {name: entry for name, entry in METRICS.items() if entry.sums}
# config.checkpoint.metric: the loss with fewer than FEW_DOCUMENTS documents,
# because ROUGE is then mostly noise; else the mean of ROUGE.
AUTO = 'auto'
FEW_DOCUMENTS = 500


def choose_best_by(names, documents):
  """Returns the key of the number that chooses the best checkpoint."""
  check(names, AUTO)
  preferred = ['loss', 'rouge_mean']
  if documents >= FEW_DOCUMENTS:
    preferred.reverse()
  keys = _keys(names)
  return next(key for key in preferred + keys if key in keys)


def select(names, *needs, protocol=protocols.AUTO):
  """Returns the metrics of these names, or raises an InputError.

  Args:
    *needs: some of metric.TEXT, metric.CONTENT and metric.MODEL: only metrics
      that need one of them; no argument: all.
  """
  words, chosen = protocols.find(protocol, 'config.eval.protocol'), []
  for entry in names:
    if not isinstance(entry, metric.Metric):
      if entry not in OF_CONFIG:
        raise InputError(
            f'config.eval.metrics: {entry!r} is none of '
            f'{", ".join(map(repr, OF_CONFIG))}, or a Metric of your own '
            'config (--config=FILE)'
        )
      entry = _of_protocol(OF_CONFIG[entry], words)
    chosen.append(entry)
  return [entry for entry in chosen if not needs or entry.needs in needs]


def _of_protocol(entry, protocol):
  """Returns a Metric with the words of a protocol."""
  return _OF_PROTOCOL.get(entry, lambda _: entry)(protocol)


def columns(names):
  """Returns all columns of tables, with those of a config's own metrics."""
  known = OF_CONFIG | {x: x for x in names if isinstance(x, metric.Metric)}
  return tuple(column for entry in known.values() for column in entry.columns)


def lower_is_better(names):
  """Returns the keys whose best value is the smallest."""
  return frozenset(x.key for x in columns(names) if x.lower_is_better)


def of_summaries(names, protocol=protocols.AUTO):
  """Returns the metrics of these names that need generated summaries."""
  return select(names, metric.TEXT, metric.CONTENT, protocol=protocol)


def signatures(names, documents, protocol=protocols.AUTO):
  """Returns {metric: signature} of the metrics that have a signature."""
  return {
      entry.name: entry.signature(documents)
      for entry in select(names, protocol=protocol)
      if entry.parts
  }


def check(names, best_by):
  """Raises an InputError for unknown metrics, or if none computes `best_by`."""
  measured = _keys(names)
  if best_by == AUTO and measured:
    return
  if best_by.rsplit('/', 1)[-1] not in measured:
    raise InputError(
        f'config.checkpoint.metric={best_by!r} is not measured: '
        f'config.eval.metrics={tuple(names)} gives '
        f'{", ".join(measured) or "nothing"}'
    )


def _keys(names):
  """Returns the keys of the numbers of these metrics."""
  return [key for entry in select(names) for key in entry.keys]


def find(names, known):
  """Returns {name: Metric} of --metrics, or raises an InputError."""
  for name in names or ['']:
    if name not in known:
      raise InputError(
          f'--metrics={name}: no such metric{suggest(name, known) or ":"} '
          f'expected some of {", ".join(known)}'
      )
  return {name: known[name] for name in names}


def find_models(chosen, texts):
  """Returns {name of a metric: its model}.

  Args:
    texts: list of --model: 'MODEL' for all metrics that need a model, or
      'NAME=MODEL' for one of `chosen`.

  Raises:
    InputError: a model is missing, or no metric needs it.
  """
  wanted = [name for name, one in chosen.items() if one.loads_model]
  models = {}
  for text in texts:
    name, equals, model = text.partition('=')
    is_named = equals and (name in chosen or name in METRICS)
    named = {name: model} if is_named else dict.fromkeys(wanted, text)
    for one in named or [name]:
      if one not in wanted or one in models:
        problem = 'two models' if one in models else 'no model'
        raise InputError(
            f'--model={text}: --metrics={one} has {problem}; these need one: '
            f'{", ".join(wanted) or "none"}'
        )
    models |= named
  for name in wanted:
    if not models.get(name):
      raise InputError(
          f'--metrics={name} needs a model: --model=DIR, or '
          f'--model={name}=DIR,OTHER=DIR for several metrics'
      )
  return models


def run(chosen, models, rows, settings):
  """Computes all metrics; an InputError of one does not stop the others.

  Returns ({name: Result}, the first InputError of a metric, or None).
  """
  found, problem = {}, None
  for name, one in chosen.items():
    try:
      one = _of_protocol(one, settings.protocol)
      found[name] = metric.measure(
          one, rows, settings._replace(model=models.get(name))
      )
    except InputError as error:
      problem = problem or error
  return found, problem
