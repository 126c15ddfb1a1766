"""A trained model ready to use: directory -> model, parameters, vocabulary.

`load` takes what a run wrote (a WORKDIR or one checkpoint in it) or a Hugging
Face directory, and returns a `Summarizer`.
"""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax import models
from locost_jax import untrusted
from locost_jax.errors import InputError
from locost_jax.generation import decode_settings
from locost_jax.generation import generate
from locost_jax.generation import streaming
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import hub
from locost_jax.hugging_face import weights
from locost_jax.models import parameters
from locost_jax.summarizing import batching
from locost_jax.summarizing import reading
from locost_jax.summarizing import texts
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find


def load(
    directory,
    dtype=jnp.float32,
    convolution='exact',
    allow_download=False,
    **pages,
):
  """Loads a model.

  Args:
    directory: a WORKDIR (it stands for its last finished phase and there for
      its best checkpoint, or its latest), a checkpoint in it, a Hugging Face
      directory, a name on its Hub: hf://org/name[@revision], or
      builtin:documentation, the model that comes with the package.
    dtype: of matmuls and activations: float32 or bfloat16. float64 (with
      jax_enable_x64) computes everything in it.
    convolution: 'exact', or 'release' to reproduce the CUDA path that released
      weights were trained with (see `ops.long_conv.release_kernel`). Only
      'exact' gives results that do not depend on padding.
    allow_download: whether org/name is a name on the Hub, too, where there is no
      such directory.
    **pages: how documents are cut into pages, for a model that reads them: the
      fields of `texts.Pages`. The defaults are those of the run that trained
      the model; for a Hugging Face directory see `reading.choose_pages`.

  Returns:
    A `Summarizer`; its vocabulary is None when the directory has no tokenizer
    files.

  Raises:
    InputError: nothing there, or something missing, unused or mismatched.
  """
  directory = hub.find_directory(directory, allow_download)
  run, data = find.find_run(directory), None
  if run is None:
    config, home = configs.model_config(directory), directory
    decoding = configs.generation_settings(directory)
  else:
    home, step_directory, settings = run
    config, data = dict(settings['model']), settings.get('data')
    with untrusted.named(os.path.join(home, 'config.json')):
      decoding = decode_settings.of_run(settings)
  if 'convolution' in config:
    config['convolution'] = convolution
  dtype = jnp.dtype(dtype)
  with untrusted.named(os.path.join(home, 'config.json')):
    models.make_config(config)
  model = models.build(config, dtype=dtype.name)
  chosen = reading.choose_pages(model.config, data, pages)
  vocabulary = find.find_vocabulary(home)
  find.check_vocabulary(home, vocabulary, config)
  if vocabulary is not None:
    models.check_padding(
        model.config, vocabulary.pad_id, f'{home}: its vocabulary'
    )
  abstract = parameters.abstract_params(model)
  precision = jnp.promote_types(dtype, jnp.float32)

  place = functools.partial(_place, precision=precision, where=directory)
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
  return Summarizer(model, params, vocabulary, decoding, chosen)


def _place(array, precision, where):
  """Puts a parameter in its place; then what was read of it can be freed."""
  if not np.isfinite(array).all():
    raise InputError(
        f'{where}: one of its weights, of the shape {list(array.shape)}, '
        'is not a finite number (NaN or Inf): such a model writes nothing'
    )
  return jax.device_put(array.astype(precision, copy=False)).block_until_ready()


class Summarizer:
  """A model with its parameters and vocabulary; numpy in, numpy out.

  Attributes:
    config: the model's config, a frozen dataclass.
    params: nested dict of arrays.
    model: the Flax module.
    vocabulary: text <-> tokens, or None.
    settings: a `decode_settings.Settings`: how the run that trained it, or the
      release, writes summaries, with the vocabulary's ids.
    pages: a `texts.Pages`: how documents are cut; None: the model reads none.
  """

  def __init__(self, model, params, vocabulary=None, settings=None, pages=None):
    self.model = model
    self.params = jax.device_put(params)
    self.vocabulary = vocabulary
    settings = settings or decode_settings.Settings()
    self.settings = (
        settings
        if vocabulary is None
        else (decode_settings.with_ids(settings, vocabulary))
    )
    self.pages = pages or reading.choose_pages(model.config, None, {})
    self._kernels = generate.KeptKernels(self.model, self.params)

  @property
  def config(self):
    return self.model.config

  def encode(self, inputs, input_mask=None):
    """inputs [B, L] -> the encoder's states [B, L, D].

    A model that reads pages also takes [B, P, L]. It returns [B, P, L, D].
    """
    return np.asarray(self.memory(inputs, input_mask)['states'])

  def memory(self, inputs, input_mask=None):
    """inputs as of `encode` -> all that the decoder reads, on the device.

    Its mask is true where the decoder attends: at tokens; of a model that
    selects, at the selected ones.
    """
    inputs, input_mask = self._check(inputs, input_mask)
    return generate.encode_in_steps(
        self.model,
        self.params,
        inputs,
        input_mask,
        self._kernels.get(inputs.shape[-1]),
    )

  def logits(self, inputs, targets_in, input_mask=None):
    """inputs as of `generate`, targets_in [B, T] (start first) -> [B, T, V]."""
    inputs, input_mask = self._check(inputs, input_mask)
    targets_in, _ = self._check(targets_in, None, 'targets_in', False)
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
      on_tokens=None,
      **options,
  ):
    """Writes summaries: greedily, unless asked for more.

    Args:
      inputs: [B, L] token ids, or [B, P, L] of a model that reads pages.
      input_mask: of their shape, true at tokens; None: where inputs are not
        pad.
      seed: of sampling. What is drawn depends on it and on the document only.
      progress, on_encoded, on_tokens: None, or called as in
        `generate.generate_in_steps`.
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
        inputs,
        input_mask,
        settings,
        seed,
        progress=progress,
        on_encoded=on_encoded,
        on_tokens=on_tokens,
    )

  def _generate(self, inputs, input_mask, settings, seed, **calls):
    """`generate` with Settings; calls are those of `generate_in_steps`."""
    inputs, input_mask, seeds = self._prepare(
        inputs, input_mask, settings, seed
    )
    tokens, _ = generate.generate_in_steps(
        self.model,
        self.params,
        inputs,
        input_mask,
        settings,
        seeds,
        self._kernels.get(inputs.shape[-1]),
        **calls,
    )
    tokens = np.asarray(tokens)
    used = np.flatnonzero((tokens != settings.pad_id).any(0))
    return tokens[:, : used.max(initial=-1) + 1]

  def _prepare(self, inputs, input_mask, settings, seed):
    """Checks everything and pads the length: inputs, their mask, seeds."""
    inputs, input_mask = self._check(inputs, input_mask)
    decode_settings.check(settings, self.config.vocab_size)
    models.check_length(self.config, settings.max_length, 'max_length')
    pad_id = settings.pad_id
    if input_mask is None:
      input_mask = inputs != pad_id
    seeds = None
    if decode_settings.method_of(settings) == 'sample':
      seeds = generate.document_seeds(inputs, input_mask, seed)
    length = inputs.shape[-1]
    padding = [(0, 0)] * inputs.ndim
    padding[-1] = 0, batching.padded_length(self.config, length) - length
    inputs = np.pad(inputs, padding, constant_values=pad_id)
    return inputs, np.pad(input_mask, padding), seeds

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
      texts: a document or a list of documents: strings, or dicts as
        `texts` describes them.
      seed: as in `generate`.
      max_input_length: most tokens read of a document; None: all of them. Not
        for a model that reads P pages, which are the limit.
      batch_size: most documents read at once; they share a shape.
      progress: as in `generate`, for each batch.
      **options: as in `generate`; what is not given is as in `settings`.

    Returns:
      A list of str, one summary per document, in order.

    Raises:
      InputError: no vocabulary, an unknown option, or values that cannot be.
    """
    self._check_vocabulary()
    texts = [texts] if isinstance(texts, (str, dict)) else list(texts)
    settings = self._change(self.settings, options)
    documents = [self.read(text, max_input_length).pages for text in texts]
    for number, pages in enumerate(documents):
      models.check_length(
          self.config,
          max(map(len, pages)),
          f'document {number}',
          '; a max_input_length reads its beginning',
      )
    summaries = [''] * len(texts)
    for shape, rows in batching.make_batches(
        range(len(texts)),
        lambda i: batching.padded_shape(
            self.config, documents[i], bool(self.pages)
        ),
        lambda _: batch_size,
    ):
      inputs, mask = batching.pad(
          [documents[i] for i in rows], shape, settings.pad_id
      )
      outputs = self._generate(inputs, mask, settings, seed, progress=progress)
      for i, tokens in zip(rows, outputs):
        summaries[i] = self.vocabulary.decode(tokens.tolist())
    return summaries

  def stream(self, text, *, seed=0, max_input_length=None, **options):
    """Summarises one document and yields the summary while it is written.

    Greedy search and sampling give each word when the next one begins. With
    beams, the words come that all beams begin with.

    Args:
      text: a document, as in `summarize`.
      seed, max_input_length, **options: as in `summarize`.

    Yields:
      Pieces of text; joined they are the summary that `summarize` returns.

    Raises:
      InputError: as `summarize`.
    """
    self._check_vocabulary()
    settings = self._change(self.settings, options)
    pages = self.read(text, max_input_length).pages
    shape = batching.padded_shape(self.config, pages, bool(self.pages))
    inputs, mask = batching.pad([pages], shape, settings.pad_id)
    inputs, mask, seeds = self._prepare(inputs, mask, settings, seed)
    memory = generate.encode_in_steps(
        self.model, self.params, inputs, mask, self._kernels.get(shape[-1])
    )
    steps = generate.decode_in_steps(
        self.model, self.params, memory, settings, seeds, 1
    )
    del memory
    given = ''
    for state in steps:
      (tokens,) = streaming.certain_tokens(settings, state)
      text = streaming.stable_text(self.vocabulary.decode(tokens))
      if len(text) > len(given):
        yield text[len(given) :]
        given = text
    tokens, _ = generate.finish(settings, state)
    yield self.vocabulary.decode(np.asarray(tokens)[0].tolist())[len(given) :]

  def _check_vocabulary(self):
    if self.vocabulary is None:
      raise InputError(
          'this model was loaded without a vocabulary: its '
          'directory lacks spiece.model or tokenizer.json'
      )

  def _change(self, settings, options):
    """`decode_settings.change`, with the ids of what `start` asks for."""
    settings = decode_settings.change(settings, options)
    if self.vocabulary is None or options.get('start') is None:
      return settings
    return decode_settings.with_ids(settings, self.vocabulary)

  def tokenize(self, text, max_input_length=None):
    """The ids of a document as the model reads it, eos last.

    A model that reads pages has a list of lists, those of each page.
    """
    pages = self.read(text, max_input_length).pages
    return pages if self.pages else pages[0]

  def read(self, text, max_input_length=None):
    """A document, see `texts`, as the model reads it: a `reading.Read`.

    Raises:
      InputError: no text in it, or a max_input_length of a model that reads
        P pages.
    """
    is_limited = self.pages and not reading.reads_chunks(self.pages)
    if is_limited and max_input_length is not None:
      raise InputError(
          f'max_input_length={max_input_length}: this model reads '
          f'{self.pages.num_pages} pages of {self.pages.page_length} tokens, '
          'which num_pages and page_length change'
      )
    text = texts.text_of(text, self.pages)
    return reading.read(self.vocabulary, text, self.pages, max_input_length)

  def _check(self, tokens, mask, name='inputs', may_be_pages=True):
    """Integer ids in range, [B, L] or pages, and a mask of the shape or None."""
    tokens = np.asarray(tokens)
    V = self.config.vocab_size
    paged = may_be_pages and self.pages
    if tokens.ndim not in ((2, 3) if paged else (2,)) or not np.issubdtype(
        tokens.dtype, np.integer
    ):
      raise InputError(
          f'{name} is {tokens.dtype}{list(tokens.shape)}: '
          f'expected integers [batch, length]'
          + (' or [batch, pages, length]' if paged else '')
      )
    if 0 in tokens.shape:
      raise InputError(f'{name} is empty: shape {list(tokens.shape)}')
    models.check_length(self.config, tokens.shape[-1], name)
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
      models.check_mask(self.config, mask)
    elif name == 'inputs':
      is_token = tokens != models.pad_id(self.config)
      models.check_mask(self.config, is_token, name)
    return tokens.astype(np.int32), mask
