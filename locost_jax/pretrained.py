"""A trained model ready to use: directory -> model, parameters, vocabulary.

`load` takes what a run wrote (a WORKDIR or one checkpoint in it) or a Hugging
Face directory, and returns a `Summarizer`.
"""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax import checkpoint
from locost_jax import decode
from locost_jax import generate
from locost_jax import lora
from locost_jax import models
from locost_jax import workdir
from locost_jax.data import pipeline
from locost_jax.data import vocabulary as vocabularies
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import hub
from locost_jax.hugging_face import weights

# Tokens from where on `bucket_length` goes in smaller steps.
LONG = 1 << 17


def load(directory, dtype=jnp.float32, convolution='exact'):
  """Loads a model.

  Args:
    directory: a WORKDIR (it stands for its last finished phase and there for
      its best checkpoint, or its latest), a checkpoint in it, a Hugging Face
      directory, or a name on its Hub: org/name or org/name@revision.
    dtype: of matmuls and activations: float32 or bfloat16. float64 (with
      jax_enable_x64) computes everything in it.
    convolution: 'exact', or 'release' to reproduce the CUDA path that released
      weights were trained with (see `models.long_conv.release_kernel`). Only
      'exact' gives results that do not depend on padding.

  Returns:
    A `Summarizer`; its vocabulary is None when the directory has no tokenizer
    files.

  Raises:
    InputError: nothing there, or something missing, unused or mismatched.
  """
  directory = hub.find_directory(directory)
  run = find_run(directory)
  if run is None:
    config, home = configs.model_config(directory), directory
    decoding = configs.decode_settings(directory)
  else:
    home, step_directory, settings = run
    config = dict(settings['model'])
    decoding = decode.from_config(settings['decode'])
  if config['name'] == 'locost':
    config['convolution'] = convolution
  dtype = jnp.dtype(dtype)
  model = models.build(config, dtype=dtype.name)
  vocabulary = find_vocabulary(home)
  check_vocabulary(home, vocabulary, config)
  if vocabulary is not None:
    models.check_padding(
        model.config, vocabulary.pad_id, f'{home}: its vocabulary')
  abstract = abstract_params(model)
  precision = jnp.promote_types(dtype, jnp.float32)
  # One by one: what was read of a parameter is freed when it is in its place.
  place = lambda array: jax.device_put(
      array.astype(precision, copy=False)).block_until_ready()
  if run is None:
    params = unflatten(weights.load_params(
        directory, config, flatten(abstract), place))
  else:
    params = load_run_params(step_directory, settings)
    checkpoint.compare(params, abstract, step_directory)
    params = flatten(params)
    params = unflatten({path: place(params.pop(path)) for path in list(params)})
  return Summarizer(model, params, vocabulary, decoding)


def find_run(directory):
  """Where a run's checkpoint lies.

  Args:
    directory: a WORKDIR (with phases it stands for the last finished one; while
      none is, for the last that has a checkpoint) or a checkpoint in one.

  Returns:
    (home, checkpoint, config as nested dicts), home being where config.json and
    vocabulary/ are; None when no run wrote the directory.
  """
  directory = os.path.abspath(directory)
  parent, name = os.path.split(directory)
  if name.isdigit() and os.path.basename(parent) == 'checkpoints':
    home, step_directory = os.path.dirname(parent), directory
  else:
    home, step_directory = directory, None
  config = workdir.read_config(home)
  if not isinstance(config, dict) or 'train' not in config:
    return None
  if config.get('phases'):
    phases = [os.path.join(home, phase) for phase, _ in config['phases']]
    steps = {phase: checkpoint.latest_step(os.path.join(phase, 'checkpoints'))
             for phase in phases}
    begun = [(phase, workdir.read_config(phase)) for phase in reversed(phases)
             if steps[phase] is not None]
    finished = [(phase, settings) for phase, settings in begun
                if steps[phase] >= settings['train']['steps']]
    home, config = (finished or begun or [(home, config)])[0]
  return home, step_directory or checkpoint.find(home), config


def load_run_params(directory, config):
  """The model's parameters in a checkpoint, adapters merged, as numpy.

  Args:
    directory: of the checkpoint.
    config: the run's, as nested dicts.
  """
  # Runs begun before there were adapters say nothing of them, and have none.
  settings = config['train'].get('lora', {'alpha': 1.0})
  params = lora.merge(checkpoint.load_params(directory), settings['alpha'])
  return jax.tree.map(np.asarray, params)


def find_vocabulary(home):
  """The vocabulary of a run or a Hugging Face directory, or None."""
  for directory in (os.path.join(home, 'vocabulary'), home):
    if vocabularies.is_in(directory):
      return vocabularies.load_vocabulary(directory)
  return None


def check_vocabulary(home, vocabulary, config):
  """Raises an InputError if the embedding has fewer rows than tokens.

  More it may have: releases round it up.

  Args:
    home: where both are, to name it.
    vocabulary: or None.
    config: `config.model` as a mapping.
  """
  if vocabulary is not None and vocabulary.size > config['vocab_size']:
    raise InputError(
        f'{home}: its vocabulary has {vocabulary.size} tokens, its model only '
        f'{config["vocab_size"]}: they do not belong together')


def abstract_params(model):
  """The shapes of the model's parameters, without making them."""
  tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  init = functools.partial(model.init, jax.random.key(0))
  return jax.eval_shape(init, tokens, tokens)['params']


def flatten(tree):
  """Nested dict -> {path: leaf}."""
  return {jax.tree_util.keystr(path, simple=True, separator='/'): leaf
          for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def unflatten(flat):
  """{path: leaf} -> nested dict."""
  tree = {}
  for path, leaf in flat.items():
    *parents, last = path.split('/')
    node = tree
    for parent in parents:
      node = node.setdefault(parent, {})
    node[last] = leaf
  return tree


def bucket_length(length):
  """What inputs of this length are padded to: 2^k or 1.5 * 2^k.

  From LONG on to eighths of 2^k: reading takes longer than compiling by far.
  """
  if length > LONG:
    eighth = 1 << ((length - 1).bit_length() - 4)
    return -(-length // eighth) * eighth
  buckets = pipeline.buckets(max(2 * length, pipeline.SMALLEST_BUCKET))
  return int(buckets[np.searchsorted(buckets, length)])


def padded_length(config, length, least=1):
  """What inputs of this length are padded to.

  Args:
    config: the model's. The release's convolution, whose results depend on the
      length, takes no padding.
    length: tokens, not more than the model has positions.
    least: shorter inputs are padded as if they had so many.
  """
  if getattr(config, 'convolution', 'exact') != 'exact':
    return length
  most = models.max_positions(config)
  padded = bucket_length(max(length, least))
  return padded if most is None else min(padded, most)


def truncate(ids, most):
  """At most so many of a document's ids, the end mark among them; None: all."""
  if most is None or len(ids) <= most:
    return ids
  return ids[:most - 1] + ids[-1:]


def make_batches(documents, length_of, rows):
  """Groups documents of one length, those that are wanted first in front.

  Args:
    documents: anything that stands for them, in the order in which they are
      wanted.
    length_of: document -> the length it is padded to.
    rows: length -> most documents in a batch; 0 counts as 1.

  Returns:
    List of (length, list of documents).
  """
  groups, batches = {}, []
  for document in documents:
    length = length_of(document)
    if length not in groups or len(groups[length]) == max(rows(length), 1):
      groups[length] = []
      batches.append((length, groups[length]))
    groups[length].append(document)
  return batches


class Summarizer:
  """A model with its parameters and vocabulary; numpy in, numpy out.

  Attributes:
    config: the model's config, a frozen dataclass.
    params: nested dict of arrays.
    model: the Flax module.
    vocabulary: text <-> tokens, or None.
    settings: a `decode.Settings`: how the run that trained it, or the release,
      writes summaries, with the vocabulary's ids.
  """

  def __init__(self, model, params, vocabulary=None, settings=None):
    self.model = model
    self.params = jax.device_put(params)
    self.vocabulary = vocabulary
    settings = settings or decode.Settings()
    self.settings = settings if vocabulary is None else (
        decode.with_ids(settings, vocabulary))
    self._kernels = generate.KeptKernels(self.model, self.params)

  @property
  def config(self):
    return self.model.config

  def encode(self, inputs, input_mask=None):
    """inputs [B, L] -> the encoder's states [B, L, D]."""
    inputs, input_mask = self._check(inputs, input_mask)
    memory = generate.encode_in_steps(
        self.model, self.params, inputs, input_mask,
        self._kernels.get(inputs.shape[1]))
    return np.asarray(memory['states'])

  def logits(self, inputs, targets_in, input_mask=None):
    """inputs [B, L], targets_in [B, T] (start id first) -> [B, T, V]."""
    inputs, input_mask = self._check(inputs, input_mask)
    targets_in, _ = self._check(targets_in, None, 'targets_in')
    return np.asarray(generate.logits(
        self.model, self.params, inputs, targets_in, input_mask))

  def generate(self, inputs, input_mask=None, max_length=512, num_beams=1,
               min_length=0, no_repeat_ngram_size=0, length_penalty=1.0,
               length_penalty_form='hugging_face', early_stopping=False,
               temperature=None, top_k=None, top_p=None, forced_first_token=-1,
               forced_last_token=-1, method=None, seed=0, progress=None,
               on_encoded=None):
    """Writes summaries: greedily, unless asked for more.

    Args:
      inputs: [B, L] token ids.
      input_mask: [B, L], true at tokens; None: where inputs are not pad.
      max_length: most tokens written, eos included.
      num_beams: above 1: beam search.
      min_length: fewest tokens written, eos included.
      no_repeat_ngram_size: n-grams written at most once; 0: no limit.
      length_penalty, length_penalty_form, early_stopping, temperature, top_k,
        top_p, forced_first_token, forced_last_token: as in `decode.Settings`.
        Any of temperature, top_k and top_p asks for sampling.
      method: 'greedy', 'beam' or 'sample' instead of what the others ask for.
      seed: of sampling. What is drawn depends on it and on the document only.
      progress, on_encoded: None, or called as in `generate.generate_in_steps`.

    Returns:
      int32 [B, n], n <= max_length: tokens up to and including eos, then pad.
    """
    ids = {key: getattr(self.settings, key)
           for key in ('eos_id', 'pad_id', 'start_id')}
    settings = decode.change(decode.Settings(**ids), dict(
        max_length=max_length, num_beams=num_beams, min_length=min_length,
        no_repeat_ngram_size=no_repeat_ngram_size,
        length_penalty=length_penalty, length_penalty_form=length_penalty_form,
        early_stopping=early_stopping, temperature=temperature, top_k=top_k,
        top_p=top_p, forced_first_token=forced_first_token,
        forced_last_token=forced_last_token, method=method))
    return self._generate(
        inputs, input_mask, settings, seed, progress, on_encoded)

  def _generate(self, inputs, input_mask, settings, seed, progress,
                on_encoded=None):
    inputs, input_mask = self._check(inputs, input_mask)
    decode.check(settings, self.config.vocab_size)
    models.check_length(self.config, settings.max_length, 'max_length')
    pad_id = settings.pad_id
    if input_mask is None:
      input_mask = inputs != pad_id
    seeds = None
    if decode.method_of(settings) == 'sample':
      seeds = generate.document_seeds(inputs, input_mask, seed)
    length = inputs.shape[1]
    padding = (0, 0), (0, padded_length(self.config, length) - length)
    inputs = np.pad(inputs, padding, constant_values=pad_id)
    input_mask = np.pad(input_mask, padding)
    tokens, _ = generate.generate_in_steps(
        self.model, self.params, inputs, input_mask, settings, seeds,
        self._kernels.get(inputs.shape[1]), progress, on_encoded)
    tokens = np.asarray(tokens)
    used = np.flatnonzero((tokens != pad_id).any(0))
    return tokens[:, :used.max(initial=-1) + 1]

  def summarize(self, texts, max_length=None, num_beams=None, min_length=None,
                no_repeat_ngram_size=None, length_penalty=None,
                length_penalty_form=None, early_stopping=None,
                temperature=None, top_k=None, top_p=None, method=None, seed=0,
                max_input_length=None, batch_size=8, progress=None):
    """Summarises documents of any length.

    Args:
      texts: a document or a list of documents.
      max_length, num_beams, min_length, no_repeat_ngram_size, length_penalty,
        length_penalty_form, early_stopping, temperature, top_k, top_p, method:
        as in `generate`; None: as in `settings`.
      seed: as in `generate`.
      max_input_length: tokens read of a document; None: all of them.
      batch_size: most documents read at once; they share a length bucket.
      progress: as in `generate`, for each batch.

    Returns:
      A list of str, one summary per document, in order.
    """
    if self.vocabulary is None:
      raise InputError('this model was loaded without a vocabulary: its '
                       'directory lacks spiece.model or tokenizer.json')
    texts = [texts] if isinstance(texts, str) else list(texts)
    settings = decode.change(self.settings, dict(
        max_length=max_length, num_beams=num_beams, min_length=min_length,
        no_repeat_ngram_size=no_repeat_ngram_size,
        length_penalty=length_penalty, length_penalty_form=length_penalty_form,
        early_stopping=early_stopping, temperature=temperature, top_k=top_k,
        top_p=top_p, method=method))
    documents = [self.tokenize(text, max_input_length) for text in texts]
    for number, ids in enumerate(documents):
      models.check_length(self.config, len(ids), f'document {number}',
                          '; a max_input_length reads its beginning')
    summaries = [''] * len(texts)
    for length, rows in make_batches(
        range(len(texts)),
        lambda i: padded_length(self.config, len(documents[i])),
        lambda _: batch_size):
      inputs = np.full((len(rows), length), settings.pad_id, np.int32)
      for row, i in enumerate(rows):
        inputs[row, :len(documents[i])] = documents[i]
      outputs = self._generate(inputs, None, settings, seed, progress)
      for i, tokens in zip(rows, outputs):
        summaries[i] = self.vocabulary.decode(tokens.tolist())
    return summaries

  def tokenize(self, text, max_input_length=None):
    """The ids of a document as the model reads it, eos last."""
    return truncate(vocabularies.surround(
        self.vocabulary, self.vocabulary.encode(text)), max_input_length)

  def _check(self, tokens, mask, name='inputs'):
    """Integer ids in range, [B, L], and a mask of the same shape or None."""
    tokens = np.asarray(tokens)
    V = self.config.vocab_size
    if tokens.ndim != 2 or not np.issubdtype(tokens.dtype, np.integer):
      raise InputError(f'{name} is {tokens.dtype}{list(tokens.shape)}: '
                       'expected integers [batch, length]')
    if 0 in tokens.shape:
      raise InputError(f'{name} is empty: shape {list(tokens.shape)}')
    models.check_length(self.config, tokens.shape[1], name)
    if tokens.min() < 0 or tokens.max() >= V:
      raise InputError(f'{name} has ids from {tokens.min()} to {tokens.max()}: '
                       f'expected 0 to {V - 1}')
    if mask is not None:
      mask = np.asarray(mask).astype(bool)
      if mask.shape != tokens.shape:
        raise InputError(f'input_mask has shape {list(mask.shape)}, {name} '
                         f'{list(tokens.shape)}: expected the same')
    return tokens.astype(np.int32), mask

