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
from locost_jax import hugging_face
from locost_jax import models
from locost_jax import workdir
from locost_jax.data import pipeline
from locost_jax.data import vocabulary as vocabularies
from locost_jax.errors import InputError


def load(directory, dtype=jnp.float32, convolution='exact'):
  """Loads a model.

  Args:
    directory: a WORKDIR (it stands for its last finished phase and there for
      its best checkpoint, or its latest), a checkpoint in it, or a Hugging Face
      directory of LOCOST weights.
    dtype: of matmuls and activations: float32 or bfloat16. float64 (with
      jax_enable_x64) computes everything in it.
    convolution: 'exact', or 'release' to reproduce the CUDA path that released
      weights were trained with (see `models.long_conv.release_conv`). Only
      'exact' gives results that do not depend on padding.

  Returns:
    A `Summarizer`; its vocabulary is None when the directory has no tokenizer
    files.

  Raises:
    InputError: nothing there, or something missing, unused or mismatched.
  """
  if not os.path.isdir(directory):
    raise InputError(f'{directory}: no such directory')
  run = find_run(directory)
  if run is None:
    config, decode_config = hugging_face.model_config(directory), {}
    home = directory
  else:
    home, step_directory, settings = run
    config, decode_config = dict(settings['model']), dict(settings['decode'])
  config['convolution'] = convolution
  dtype = jnp.dtype(dtype)
  model = models.build(config, dtype=dtype.name)
  vocabulary = find_vocabulary(home)
  if vocabulary is not None and vocabulary.size > config['vocab_size']:
    raise InputError(
        f'{home}: its vocabulary has {vocabulary.size} tokens, its model only '
        f'{config["vocab_size"]}: they do not belong together')
  abstract = abstract_params(model)
  if run is None:
    flat = hugging_face.load_params(
        directory, flatten(abstract),
        {'encoder': config['num_layers'],
         'decoder': config['num_decoder_layers']})
    params = unflatten(flat)
  else:
    params = checkpoint.load_params(step_directory)
    checkpoint.compare(params, abstract, step_directory)
  precision = jnp.promote_types(dtype, jnp.float32)
  params = jax.tree.map(lambda p: np.asarray(p, precision), params)
  return Summarizer(model, params, vocabulary, decode_config)


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


def find_vocabulary(home):
  """The vocabulary of a run or a Hugging Face directory, or None."""
  for directory in (os.path.join(home, 'vocabulary'), home):
    for name in (vocabularies.MODEL_FILE, vocabularies.INFO_FILE):
      if os.path.exists(os.path.join(directory, name)):
        return vocabularies.load_vocabulary(directory)
  return None


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
  """What inputs of this length are padded to: 2^k or 1.5 * 2^k."""
  buckets = pipeline.buckets(max(2 * length, pipeline.SMALLEST_BUCKET))
  return int(buckets[np.searchsorted(buckets, length)])


@functools.partial(jax.jit, static_argnums=0)
def encode(model, params, inputs, input_mask):
  return model.apply({'params': params}, inputs, input_mask, method='encode')


@functools.partial(jax.jit, static_argnums=0)
def logits(model, params, inputs, targets_in, input_mask):
  return model.apply({'params': params}, inputs, targets_in, input_mask)


@functools.partial(jax.jit, static_argnums=(0, 4, 5, 6))
def generate(model, params, inputs, input_mask, max_length, min_length=0,
             no_repeat_ngram_size=0):
  """Greedy decoding of a batch: inputs [B, L] -> int32 [B, max_length].

  Args:
    model: the Flax module; static, like the three numbers.
    params: its parameters.
    inputs: [B, L] token ids.
    input_mask: [B, L], or None: where inputs are not pad.
    max_length: most tokens written, eos included.
    min_length: fewest tokens written, eos included.
    no_repeat_ngram_size: as in `decode.greedy`.
  """
  variables = {'params': params}
  memory = model.apply(variables, inputs, input_mask, method='encode')
  shared, per_row = model.apply(
      variables, memory, max_length, method='init_cache')
  step = functools.partial(model.apply, variables, method='step')
  return decode.greedy(step, shared, per_row, inputs.shape[0], max_length,
                       min_length=min_length,
                       no_repeat_ngram_size=no_repeat_ngram_size)


class Summarizer:
  """A model with its parameters and vocabulary; numpy in, numpy out.

  Attributes:
    config: the model's config, a frozen dataclass.
    params: nested dict of arrays.
    model: the Flax module.
    vocabulary: text <-> tokens, or None.
    decode_config: generation settings of the run that trained it.
  """

  def __init__(self, model, params, vocabulary=None, decode_config=None):
    self.model = model
    self.params = jax.device_put(params)
    self.vocabulary = vocabulary
    self.decode_config = dict(decode_config or {})

  @property
  def config(self):
    return self.model.config

  def encode(self, inputs, input_mask=None):
    """inputs [B, L] -> the encoder's states [B, L, D]."""
    inputs, input_mask = self._check(inputs, input_mask)
    memory = encode(self.model, self.params, inputs, input_mask)
    return np.asarray(memory['states'])

  def logits(self, inputs, targets_in, input_mask=None):
    """inputs [B, L], targets_in [B, T] (start id first) -> [B, T, V]."""
    inputs, input_mask = self._check(inputs, input_mask)
    targets_in, _ = self._check(targets_in, None, 'targets_in')
    return np.asarray(
        logits(self.model, self.params, inputs, targets_in, input_mask))

  def generate(self, inputs, input_mask=None, max_length=512, min_length=0,
               no_repeat_ngram_size=0):
    """Greedy decoding.

    Args:
      inputs: [B, L] token ids.
      input_mask: [B, L], true at tokens; None: where inputs are not pad (0).
      max_length: most tokens written, eos included.
      min_length: fewest tokens written, eos included.
      no_repeat_ngram_size: n-grams written at most once; 0: no limit.

    Returns:
      int32 [B, n], n <= max_length: tokens up to and including eos, then pad.
    """
    inputs, input_mask = self._check(inputs, input_mask)
    check_lengths(max_length, min_length)
    if input_mask is None:
      input_mask = inputs != 0
    if self.config.convolution == 'exact':  # else the length matters
      padding = bucket_length(inputs.shape[1]) - inputs.shape[1]
      inputs, input_mask = (
          np.pad(x, ((0, 0), (0, padding))) for x in (inputs, input_mask))
    tokens = np.asarray(generate(
        self.model, self.params, inputs, input_mask, max_length, min_length,
        no_repeat_ngram_size))
    longest = (tokens != 0).sum(1).max(initial=0)
    return tokens[:, :longest]

  def summarize(self, texts, max_length=None, min_length=None,
                no_repeat_ngram_size=None, max_input_length=None,
                batch_size=8):
    """Summarises documents of any length.

    Args:
      texts: a document or a list of documents.
      max_length: most tokens of a summary; None: as it was trained, or 512.
      min_length: fewest tokens of a summary; None: as it was trained, or 0.
      no_repeat_ngram_size: None: as it was trained, or 0.
      max_input_length: tokens read of a document; None: all of them.
      batch_size: most documents read at once; they share a length bucket.

    Returns:
      A list of str, one summary per document, in order.
    """
    if self.vocabulary is None:
      raise InputError('this model was loaded without a vocabulary: its '
                       'directory lacks spiece.model')
    texts = [texts] if isinstance(texts, str) else list(texts)
    def setting(given, key, otherwise):
      return self.decode_config.get(key, otherwise) if given is None else given
    settings = dict(
        max_length=setting(max_length, 'max_length', 512),
        min_length=setting(min_length, 'min_length', 0),
        no_repeat_ngram_size=setting(
            no_repeat_ngram_size, 'no_repeat_ngram_size', 0))
    documents = [self.tokenize(text, max_input_length) for text in texts]
    buckets = {}
    for i, document in enumerate(documents):
      buckets.setdefault(bucket_length(len(document)), []).append(i)
    summaries = [''] * len(texts)
    for length, members in sorted(buckets.items()):
      for start in range(0, len(members), batch_size):
        rows = members[start:start + batch_size]
        inputs = np.zeros((len(rows), length), np.int32)
        for row, i in enumerate(rows):
          inputs[row, :len(documents[i])] = documents[i]
        for i, tokens in zip(rows, self.generate(inputs, **settings)):
          summaries[i] = self.vocabulary.decode(tokens.tolist())
    return summaries

  def tokenize(self, text, max_input_length=None):
    """The ids of a document as the model reads it, eos last."""
    ids = self.vocabulary.encode(text)
    if max_input_length is not None:
      ids = ids[:max_input_length - 1]
    return ids + [self.vocabulary.eos_id]

  def _check(self, tokens, mask, name='inputs'):
    """Integer ids in range, [B, L], and a mask of the same shape or None."""
    tokens = np.asarray(tokens)
    V = self.config.vocab_size
    if tokens.ndim != 2 or not np.issubdtype(tokens.dtype, np.integer):
      raise InputError(f'{name} is {tokens.dtype}{list(tokens.shape)}: '
                       'expected integers [batch, length]')
    if 0 in tokens.shape:
      raise InputError(f'{name} is empty: shape {list(tokens.shape)}')
    if tokens.min() < 0 or tokens.max() >= V:
      raise InputError(f'{name} has ids from {tokens.min()} to {tokens.max()}: '
                       f'expected 0 to {V - 1}')
    if mask is not None:
      mask = np.asarray(mask).astype(bool)
      if mask.shape != tokens.shape:
        raise InputError(f'input_mask has shape {list(mask.shape)}, {name} '
                         f'{list(tokens.shape)}: expected the same')
    return tokens.astype(np.int32), mask


def check_lengths(max_length, min_length):
  """Raises InputError unless 1 <= max_length and 0 <= min_length <= max."""
  if max_length < 1:
    raise InputError(f'max_length={max_length} must be at least 1')
  if not 0 <= min_length <= max_length:
    raise InputError(f'min_length={min_length} must lie between 0 and '
                     f'max_length={max_length}')
