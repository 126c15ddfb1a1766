"""A trained model ready to use: directory -> model, parameters, vocabulary.

`load` takes what a run wrote (a WORKDIR or one checkpoint in it) or a Hugging
Face directory, and returns a `Summarizer`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.generation import decode_settings
from locost_jax.generation import generate
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import hub
from locost_jax.hugging_face import weights
from locost_jax.models import parameters
from locost_jax.summarizing import batching
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find


def load(directory, dtype=jnp.float32, convolution='exact'):
  """Loads a model.

  Args:
    directory: a WORKDIR (it stands for its last finished phase and there for
      its best checkpoint, or its latest), a checkpoint in it, a Hugging Face
      directory, or a name on its Hub: org/name or org/name@revision.
    dtype: of matmuls and activations: float32 or bfloat16. float64 (with
      jax_enable_x64) computes everything in it.
    convolution: 'exact', or 'release' to reproduce the CUDA path that released
      weights were trained with (see `ops.long_conv.release_kernel`). Only
      'exact' gives results that do not depend on padding.

  Returns:
    A `Summarizer`; its vocabulary is None when the directory has no tokenizer
    files.

  Raises:
    InputError: nothing there, or something missing, unused or mismatched.
  """
  directory = hub.find_directory(directory)
  run = find.find_run(directory)
  if run is None:
    config, home = configs.model_config(directory), directory
    decoding = configs.generation_settings(directory)
  else:
    home, step_directory, settings = run
    config = dict(settings['model'])
    decoding = decode_settings.of_run(settings)
  if config['name'] == 'locost':
    config['convolution'] = convolution
  dtype = jnp.dtype(dtype)
  model = models.build(config, dtype=dtype.name)
  vocabulary = find.find_vocabulary(home)
  find.check_vocabulary(home, vocabulary, config)
  if vocabulary is not None:
    models.check_padding(
        model.config, vocabulary.pad_id, f'{home}: its vocabulary'
    )
  abstract = parameters.abstract_params(model)
  precision = jnp.promote_types(dtype, jnp.float32)
  # One by one: what was read of a parameter is freed when it is in its place.
  place = lambda array: jax.device_put(
      array.astype(precision, copy=False)
  ).block_until_ready()
  if run is None:
    params = parameters.unflatten(
        weights.load_params(
            directory, config, parameters.flatten(abstract), place
        )
    )
  else:
    params = find.load_run_params(step_directory, settings)
    checkpoint.compare(params, abstract, step_directory)
    params = parameters.flatten(params)
    params = parameters.unflatten(
        {path: place(params.pop(path)) for path in list(params)}
    )
  return Summarizer(model, params, vocabulary, decoding)


class Summarizer:
  """A model with its parameters and vocabulary; numpy in, numpy out.

  Attributes:
    config: the model's config, a frozen dataclass.
    params: nested dict of arrays.
    model: the Flax module.
    vocabulary: text <-> tokens, or None.
    settings: a `decode_settings.Settings`: how the run that trained it, or the
      release, writes summaries, with the vocabulary's ids.
  """

  def __init__(self, model, params, vocabulary=None, settings=None):
    self.model = model
    self.params = jax.device_put(params)
    self.vocabulary = vocabulary
    settings = settings or decode_settings.Settings()
    self.settings = (
        settings
        if vocabulary is None
        else (decode_settings.with_ids(settings, vocabulary))
    )
    self._kernels = generate.KeptKernels(self.model, self.params)

  @property
  def config(self):
    return self.model.config

  def encode(self, inputs, input_mask=None):
    """inputs [B, L] -> the encoder's states [B, L, D]."""
    inputs, input_mask = self._check(inputs, input_mask)
    memory = generate.encode_in_steps(
        self.model,
        self.params,
        inputs,
        input_mask,
        self._kernels.get(inputs.shape[1]),
    )
    return np.asarray(memory['states'])

  def logits(self, inputs, targets_in, input_mask=None):
    """inputs [B, L], targets_in [B, T] (start id first) -> [B, T, V]."""
    inputs, input_mask = self._check(inputs, input_mask)
    targets_in, _ = self._check(targets_in, None, 'targets_in')
    return np.asarray(
        generate.logits(self.model, self.params, inputs, targets_in, input_mask)
    )

  def generate(
      self,
      inputs,
      input_mask=None,
      *,
      seed=0,
      progress=None,
      on_encoded=None,
      **options,
  ):
    """Writes summaries: greedily, unless asked for more.

    Args:
      inputs: [B, L] token ids.
      input_mask: [B, L], true at tokens; None: where inputs are not pad.
      seed: of sampling. What is drawn depends on it and on the document only.
      progress, on_encoded: None, or called as in `generate.generate_in_steps`.
      **options: options of `decode_settings.Settings`: max_length=512,
        num_beams=1, min_length=0, temperature, top_p and so on. Any of
        temperature, top_k and top_p asks for sampling.

    Returns:
      int32 [B, n], n <= max_length: tokens up to and including eos, then pad.

    Raises:
      InputError: an unknown option, or values that cannot be.
    """
    plain = decode_settings.Settings(
        eos_id=self.settings.eos_id,
        pad_id=self.settings.pad_id,
        start_id=self.settings.start_id,
        start=self.settings.start,
    )
    settings = self._change(plain, options)
    return self._generate(
        inputs, input_mask, settings, seed, progress, on_encoded
    )

  def _generate(
      self, inputs, input_mask, settings, seed, progress, on_encoded=None
  ):
    inputs, input_mask = self._check(inputs, input_mask)
    decode_settings.check(settings, self.config.vocab_size)
    models.check_length(self.config, settings.max_length, 'max_length')
    pad_id = settings.pad_id
    if input_mask is None:
      input_mask = inputs != pad_id
    seeds = None
    if decode_settings.method_of(settings) == 'sample':
      seeds = generate.document_seeds(inputs, input_mask, seed)
    length = inputs.shape[1]
    padding = (0, 0), (0, batching.padded_length(self.config, length) - length)
    inputs = np.pad(inputs, padding, constant_values=pad_id)
    input_mask = np.pad(input_mask, padding)
    tokens, _ = generate.generate_in_steps(
        self.model,
        self.params,
        inputs,
        input_mask,
        settings,
        seeds,
        self._kernels.get(inputs.shape[1]),
        progress,
        on_encoded,
    )
    tokens = np.asarray(tokens)
    used = np.flatnonzero((tokens != pad_id).any(0))
    return tokens[:, : used.max(initial=-1) + 1]

  def summarize(
      self,
      texts,
      *,
      seed=0,
      max_input_length=None,
      batch_size=8,
      progress=None,
      **options,
  ):
    """Summarises documents of any length.

    Args:
      texts: a document or a list of documents.
      seed: as in `generate`.
      max_input_length: tokens read of a document; None: all of them.
      batch_size: most documents read at once; they share a length bucket.
      progress: as in `generate`, for each batch.
      **options: as in `generate`; what is not given is as in `settings`.

    Returns:
      A list of str, one summary per document, in order.

    Raises:
      InputError: no vocabulary, an unknown option, or values that cannot be.
    """
    if self.vocabulary is None:
      raise InputError(
          'this model was loaded without a vocabulary: its '
          'directory lacks spiece.model or tokenizer.json'
      )
    texts = [texts] if isinstance(texts, str) else list(texts)
    settings = self._change(self.settings, options)
    documents = [self.tokenize(text, max_input_length) for text in texts]
    for number, ids in enumerate(documents):
      models.check_length(
          self.config,
          len(ids),
          f'document {number}',
          '; a max_input_length reads its beginning',
      )
    summaries = [''] * len(texts)
    for length, rows in batching.make_batches(
        range(len(texts)),
        lambda i: batching.padded_length(self.config, len(documents[i])),
        lambda _: batch_size,
    ):
      inputs = np.full((len(rows), length), settings.pad_id, np.int32)
      for row, i in enumerate(rows):
        inputs[row, : len(documents[i])] = documents[i]
      outputs = self._generate(inputs, None, settings, seed, progress)
      for i, tokens in zip(rows, outputs):
        summaries[i] = self.vocabulary.decode(tokens.tolist())
    return summaries

  def _change(self, settings, options):
    """`decode_settings.change`, with the ids of what `start` asks for."""
    settings = decode_settings.change(settings, options)
    if self.vocabulary is None or options.get('start') is None:
      return settings
    return decode_settings.with_ids(settings, self.vocabulary)

  def tokenize(self, text, max_input_length=None):
    """The ids of a document as the model reads it, eos last."""
    return batching.truncate(
        vocabulary_lib.surround(self.vocabulary, self.vocabulary.encode(text)),
        max_input_length,
    )

  def _check(self, tokens, mask, name='inputs'):
    """Integer ids in range, [B, L], and a mask of the same shape or None."""
    tokens = np.asarray(tokens)
    V = self.config.vocab_size
    if tokens.ndim != 2 or not np.issubdtype(tokens.dtype, np.integer):
      raise InputError(
          f'{name} is {tokens.dtype}{list(tokens.shape)}: '
          'expected integers [batch, length]'
      )
    if 0 in tokens.shape:
      raise InputError(f'{name} is empty: shape {list(tokens.shape)}')
    models.check_length(self.config, tokens.shape[1], name)
    if tokens.min() < 0 or tokens.max() >= V:
      raise InputError(
          f'{name} has ids from {tokens.min()} to {tokens.max()}: '
          f'expected 0 to {V - 1}'
      )
    if mask is not None:
      mask = np.asarray(mask).astype(bool)
      if mask.shape != tokens.shape:
        raise InputError(
            f'input_mask has shape {list(mask.shape)}, {name} '
            f'{list(tokens.shape)}: expected the same'
        )
    return tokens.astype(np.int32), mask
