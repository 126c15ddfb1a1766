"""Sets up a run: mesh, model, vocabulary and records of each phase.

They are expensive, so a `Setup` makes them once; checks, training, evaluation
and the dry run all take Setups.
"""

import functools

from locost_jax import models
from locost_jax.data import cache as cache_lib
from locost_jax.data import pipeline
from locost_jax.data import tasks
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.evaluation import metric_table
from locost_jax.models import parameters
from locost_jax.runs import validation


class Setup:
  """One phase of a run, with its mesh, model, vocabulary and records.

  Attributes:
    vocabulary: text <-> ids; None until `use_vocabulary`.
    caches: {split: the result of `cache.open_cache`}; {} until `open_caches`.
    shares: the result of `resume.resolve_schedule`.
  """

  def __init__(self, phase, devices=None):
    """Makes the mesh of a phases.Phase; devices None: those of this process."""
    self.name, self.directory, self.config = phase
    self.mesh = sharding.make_mesh(self.config.mesh, devices)
    self.vocabulary, self.caches, self.shares = None, {}, {}
    self._shapes = {}  # model.vocab_size -> the parameters' shapes

  @functools.cached_property
  def model(self):
    """The Flax module; config.model.vocab_size must be known."""
    train = self.config.train
    return models.build(self.config.model, train.dtype, train.remat)

  @property
  def shapes(self):
    """The parameters' shapes.

    Until the vocabulary is known, it has the fewest tokens a model can have.
    """
    model = self.config.model
    size = model.vocab_size
    if size not in self._shapes:
      self._shapes[size] = parameters.abstract_params(
          self.model if size else models.build(with_vocabulary(model))
      )
    return self._shapes[size]

  @property
  def task(self):
    """'jsonl' for the user's own files, or the name of the task or mixture."""
    return tasks.name(self.config)

  def train_batches(self, start_step):
    """Returns an endless iterator of this host's batches, from a step on."""
    cache, part = self.caches['train'], sharding.host_part(self.mesh)
    where = start_step, part.index, part.count
    return pipeline.train_batches(cache, self.vocabulary, self.config, *where)

  def eval_batches(self, cache):
    """Returns this host's batches of an evaluation split."""
    part = sharding.host_part(self.mesh)
    return pipeline.eval_batches(
        cache, self.vocabulary, self.config, part.index, part.count
    )

  def eval_caches(self, split):
    """Returns {task: records} of an evaluation split; {} if it has no records."""
    cache = self.caches.get(split)
    if cache is None:
      return {}
    return cache if isinstance(cache, dict) else {self.task: cache}

  def documents(self, cache):
    """Returns the number of documents of a split that evaluations measure."""
    return min(self.config.eval.examples or len(cache), len(cache))

  @property
  def lower_is_better(self):
    """The metrics of which checkpoints with lower values are better."""
    return metric_table.lower_is_better(self.config.eval.metrics)

  # A method and attributes: the functions take a Setup.
  evaluate = validation.evaluate
  labels = functools.cached_property(validation.labels)
  common = functools.cached_property(validation.common)

  def expect_vocabulary(self, vocabulary):
    """`use_vocabulary`; None: one that will be trained, of its full size."""
    if vocabulary is not None:
      self.use_vocabulary(vocabulary)
    elif not self.config.model.vocab_size:
      self.config.model.vocab_size = self.config.data.vocabulary_size

  def use_vocabulary(self, vocabulary):
    """Sets the vocabulary, and config.model.vocab_size if it is 0."""
    self.vocabulary = vocabulary
    fill_vocab_size(self.config, vocabulary)

  def open_caches(self, directory, splits, allow_other_caches=False):
    """Opens the records of some splits, tokenising what is missing."""
    for split in splits:
      self.caches[split] = cache_lib.open_cache(
          self.config,
          self.vocabulary,
          split,
          directory,
          allow_other_caches=allow_other_caches,
      )
    validation.choose_protocol(self)


def with_vocabulary(model_config):
  """Returns config.model as a dict, with the smallest vocab_size instead of 0."""
  size = model_config.vocab_size or model_config.get('pad_id', 0) + 1
  return dict(model_config, vocab_size=size)


def model_facts(config):
  """Returns the `ModelConfig` of a run, made before its vocabulary is known."""
  return models.make_config(with_vocabulary(config.model))


def fill_vocab_size(config, vocabulary):
  """Sets config.model.vocab_size to the vocabulary's size if it is 0."""
  if not config.model.vocab_size:
    config.model.vocab_size = vocabulary.size
  if config.model.vocab_size < vocabulary.size:
    raise InputError(
        f'config.model.vocab_size={config.model.vocab_size}: expected 0 or at '
        f'least {vocabulary.size}, the tokens of the vocabulary'
    )
