"""A model with its parameters and vocabulary: text in, summary out.

`load` makes a `Summarizer` of what a run wrote (a WORKDIR or one checkpoint in
it) or of a Hugging Face directory. Arrays are NumPy's on both sides.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import dataclasses
import functools
import os
import types
from typing import Any
import warnings

from flax import linen as nn
import jax
import jax.numpy as jnp
import jax.typing
import numpy as np
import numpy.typing

from locost_jax import files
from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.config import object_store
from locost_jax.config import progress
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.generation import generate
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import hub
from locost_jax.hugging_face import weights
from locost_jax.models import parameters
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing import page_reading
from locost_jax.summarizing import parts
from locost_jax.summarizing import reading
from locost_jax.summarizing import stream as stream_lib
from locost_jax.summarizing import token_places
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find

# A text, or a dict as `documents` describes it.
Document = str | Mapping | documents_lib.Text
ArrayLike = numpy.typing.ArrayLike


class Summarizer:
  """A model with its parameters and vocabulary; numpy in, numpy out.

  Attributes:
    config: the model's config, a frozen dataclass.
    params: nested dict of arrays.
    model: the Flax module.
    vocabulary: text <-> tokens, or None.
    settings: a `decode_settings.Settings`: how the run that trained it, or the
      release, writes summaries, with the vocabulary's ids.
    pages: a `documents.Pages`: how documents are cut; None: the model reads no
      pages.
    source: the checkpoint or directory it was loaded from, or ''.
    fields: config.data of the run that trained it, which names fields, or {}.
    prefix: stands in front of every text: T5's 'summarize: '.
    kernels: the encoder's, a `generate.KeptKernels`.
  """

  def __init__(
      self,
      model: nn.Module,
      params: Mapping,
      vocabulary=None,
      settings: decode_settings.Settings | None = None,
      pages: documents_lib.Pages | None = None,
      source: str = '',
  ):
    self.model = model
    self.params = jax.device_put(params)
    self.vocabulary = vocabulary
    self.settings = settings or decode_settings.Settings()
    if vocabulary is not None:
      self.settings = decode_settings.with_ids(self.settings, vocabulary)
    self.pages = pages or page_reading.choose_pages(model.config, None, {})
    self.source = source
    self.fields, self.prefix = {}, ''
    self.kernels = generate.KeptKernels(self.model, self.params)

  def __repr__(self) -> str:
    name = type(self.config).__name__.removesuffix('Config')
    number = sum(x.size for x in jax.tree.leaves(self.params))
    source = f', from {self.source}' if self.source else ''
    return f'Summarizer({name}, {number:,} parameters{source})'

  @property
  def config(self) -> Any:
    """The model's config, a frozen dataclass."""
    return self.model.config

  def encode(
      self, inputs: ArrayLike, input_mask: ArrayLike | None = None
  ) -> np.ndarray:
    """inputs [B, L] -> the encoder's states [B, L, D].

    A model that reads pages also takes [B, P, L]. It returns [B, P, L, D].
    """
    return np.asarray(self.memory(inputs, input_mask)['states'])

  def memory(
      self, inputs: ArrayLike, input_mask: ArrayLike | None = None
  ) -> Mapping[str, jax.Array]:
    """inputs as in `encode` -> all that the decoder reads, on the device.

    Its mask is true where the decoder attends: at tokens; of a model that
    selects, at the selected ones.
    """
    inputs, input_mask = self._check(inputs, input_mask)
    steps = generate.Steps(self.kernels.get(inputs.shape[-1]))
    return generate.encode(self.model, self.params, inputs, input_mask, steps)

  def logits(
      self,
      inputs: ArrayLike,
      targets_in: ArrayLike,
      input_mask: ArrayLike | None = None,
  ) -> np.ndarray:
    """inputs as in `generate`, targets_in [B, T] (start first) -> [B, T, V]."""
    inputs, input_mask = self._check(inputs, input_mask)
    targets_in, _ = self._check(targets_in, None, 'targets_in', False)
    return np.asarray(
        generate.logits(self.model, self.params, inputs, targets_in, input_mask)
    )

  def generate(
      self,
      inputs: ArrayLike,
      input_mask: ArrayLike | None = None,
      *,
      seed: int = 0,
      settings: decode_settings.Settings | None = None,
      progress: Callable | None = None,
      on_encoded: Callable | None = None,
      on_scores: Callable | None = None,
      global_attention_mask: ArrayLike | None = None,
      **options,
  ) -> np.ndarray:
    """Writes summaries: greedily, unless asked for more.

    Args:
      inputs: [B, L] token ids, or [B, P, L] of a model that reads pages.
      input_mask: of their shape, true at tokens; None: where inputs are not
        pad.
      seed: of sampling. What is drawn depends on it and on the document only.
      settings: what `options` change; None: plain greedy search.
      progress, on_encoded: None, or called as in `generate.Steps`.
      on_scores: None, or called with the scores of `generate`, float [B].
      global_attention_mask: of the shape of inputs, 1 at an LED's global
        tokens, one or more a row; None: see `models.led`.
      **options: options of `decode_settings.Settings`: max_length=512,
        num_beams=1, min_length=0, temperature, top_p and so on. Any of
        temperature, top_k and top_p asks for sampling.

    Returns:
      int32 [B, n], n <= max_length: tokens up to and including eos, then pad.

    Raises:
      InputError: an unknown option, or values that cannot be.
    """
    if settings is None:
      kept = 'eos_id', 'pad_id', 'start_id', 'banned_ids', 'start'
      settings = decode_settings.Settings(
          **{name: getattr(self.settings, name) for name in kept}
      )
    settings = self._change(settings, options)
    inputs, input_mask = self._check(inputs, input_mask)
    decode_settings.check(settings, self.config.vocab_size)
    models.check_length(
        self.config.of_targets(), settings.max_length, 'max_length'
    )
    if input_mask is None:
      input_mask = inputs != settings.pad_id
    seeds = None
    if decode_settings.method_of(settings) == 'sample':
      seeds = generate.document_seeds(inputs, input_mask, seed)
    length = inputs.shape[-1]
    padding = [(0, 0)] * inputs.ndim
    padding[-1] = 0, reading.padded_length(self.config, length) - length
    kernels = self.kernels.get(length + padding[-1][1])
    model = self.model
    if global_attention_mask is not None:
      model, input_mask = self._mark(input_mask, global_attention_mask)
    tokens, scores = generate.generate(
        model,
        self.params,
        np.pad(inputs, padding, constant_values=settings.pad_id),
        np.pad(input_mask, padding),
        settings,
        seeds,
        generate.Steps(kernels, progress, on_encoded),
    )
    if on_scores:
      on_scores(np.asarray(scores))
    tokens = np.asarray(tokens)
    used = np.flatnonzero((tokens != settings.pad_id).any(0))
    return tokens[:, : used.max(initial=-1) + 1]

  def _mark(self, mask, marks):
    """Returns a model that reads this number of global tokens, and its mask."""
    marks = np.asarray(marks).astype(bool)
    is_led, shape = self.config.separator_id is not None, mask.shape
    if not is_led or marks.shape != shape or not (marks & mask).any(-1).all():
      raise InputError(
          f'global_attention_mask{list(marks.shape)}: expected an LED and '
          f'{list(shape)}, with at least one token marked in each row'
      )
    mask = mask.astype(np.int32) + (marks & mask)
    most = int((mask == 2).sum(-1).max())
    config = dataclasses.replace(
        self.config, global_tokens=most, separator_id=-1
    )
    return dataclasses.replace(self.model, config=config), mask

  def stream(
      self,
      jobs: Sequence[stream_lib.Job],
      options: stream_lib.Options,
      progress: Any,
  ) -> Iterator[stream_lib.Done]:
    """Yields the result for each document as soon as it is finished.

    Args:
      progress: see `stream_lib.stream`.
    """
    make = stream_lib.stream if options.parts is None else parts.stream
    return make(self, jobs, options, progress)

  def summarize(
      self,
      documents: Document | Sequence[Document],
      *,
      seed: int = 0,
      max_input_length: int | None = None,
      batch_size: int = 8,
      progress: Callable | None = None,
      **options,
  ) -> list[str]:
    """Summarises documents of any length.

    Args:
      documents: one or a list: strings, or dicts as `documents` describes them.
      seed: as in `generate`.
      max_input_length: most tokens read of a document; None: all of them. Not
        for a model that reads P pages, which are the limit.
      batch_size: most documents read at once; they share a shape.
      progress: as in `generate`, for each batch.
      **options: as in `generate`; what is not given is as in `settings`.

    Returns:
      A list of str, one summary per document, in order.

    Raises:
      InputError: no vocabulary, an empty text, an unknown option, or values
        that cannot be.
    """
    if self.vocabulary is None:
      raise InputError(
          'this model was loaded without a vocabulary: its '
          'directory lacks spiece.model or tokenizer.json'
      )
    is_one = isinstance(documents, (str, Mapping, documents_lib.Text))
    jobs = []
    for number, document in enumerate([documents] if is_one else documents):
      name = 'the text' if is_one else f'texts[{number}]'
      text = self._check_text(document, name)
      given = documents_lib.Document(name, text.text, name, text)
      jobs.append(stream_lib.Job(number, given))
    how = stream_lib.Options(
        self._change(self.settings, options), seed, max_input_length, batch_size
    )
    notes, summaries = [], [''] * len(jobs)
    quiet = types.SimpleNamespace(
        show=progress or (lambda *_: None),
        head=lambda _: None,
        note_once=lambda _, line: notes.append(line),
    )
    for done in self.stream(jobs, how, quiet):
      while notes:
        warnings.warn(notes.pop(0), stacklevel=2)
      if done.error:
        raise done.error
      summaries[done.job.number] = done.row['prediction']
    return summaries

  def _check_text(self, document, name):
    """Returns the Text of a document that is not empty and no file's name."""
    is_short = isinstance(document, str) and len(document) < 1000
    if is_short and os.path.isfile(document):
      raise InputError(
          f'{visible(document)}: is the name of a file; expected a text, such '
          f'as those of locost_jax.read({document!r})'
      )
    text = self._text_of(document)
    if not text.text.strip():
      raise InputError(f'{name} is empty: expected some text')
    return text

  def _text_of(self, document):
    """`documents.text_of`, also of a row with the field names of the run."""
    for ours, key in ('document', 'input_field'), ('query', 'query_field'):
      name = self.fields.get(key)
      if isinstance(document, Mapping) and name in document:
        document = {**document, ours: document[name]}
    text = documents_lib.text_of(document, self.pages)
    return text._replace(prefix=self.prefix)

  def _change(self, settings, options):
    """`decode_settings.change`, with the ids of what `start` asks for."""
    settings = decode_settings.change(settings, options)
    if self.vocabulary is None or options.get('start') is None:
      return settings
    return decode_settings.with_ids(settings, self.vocabulary)

  def tokenize(
      self, document: Document, max_input_length: int | None = None
  ) -> list[int] | list[list[int]]:
    """The ids of a document as the model reads it, eos last.

    A model that reads pages has a list of lists, those of each page.
    """
    pages = self.read(document, max_input_length).pages
    return pages if self.pages else pages[0]

  def read(
      self, document: Document, max_input_length: int | None = None
  ) -> reading.Read:
    """A document, see `documents`, as the model reads it: a `reading.Read`.

    Raises:
      InputError: no text in it, or a max_input_length of a model that reads
        P pages.
    """
    is_limited = self.pages and not self.pages.are_chunks
    if is_limited and max_input_length is not None:
      raise InputError(
          f'max_input_length={max_input_length}: this model reads '
          f'{self.pages.num_pages} pages of {self.pages.page_length} tokens, '
          'which num_pages and page_length change'
      )
    text = self._text_of(document)
    return reading.read(self.vocabulary, text, self.pages, max_input_length)

  def locate(
      self, document: Document, max_input_length: int | None = None
  ) -> tuple[str, reading.Read, list[np.ndarray]]:
    """The text of a document, its Read, and `token_places.places` of the ids."""
    text = self._text_of(document)
    given = self.vocabulary, text, self.pages, max_input_length
    return text.text, reading.read(*given), token_places.places(*given)

  def memory_of(self, pages: Sequence) -> Mapping[str, jax.Array]:
    """`Read.pages` of one document -> `memory` of it alone."""
    shape = reading.padded_shape(self.config, pages, self.pages is not None)
    return self.memory(*reading.pad([pages], shape, self.settings.pad_id))

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
      self.config.check_mask(mask)
    elif name == 'inputs':
      self.config.check_mask(tokens != self.config.pad_id, name)
    return tokens.astype(np.int32), mask


@checkpoint.choose_again
def load(
    directory: str | os.PathLike,
    dtype: jax.typing.DTypeLike = jnp.float32,
    convolution: str = 'exact',
    allow_download: bool = False,
    language: str | None = None,
    **pages,
) -> Summarizer:
  """Loads a model.

  Args:
    directory: a WORKDIR (it stands for its last finished phase and there for
      its best checkpoint, or its latest), a checkpoint in it, a Hugging Face
      directory, each also in a bucket (gs://), a name on the Hub:
      hf://org/name[@revision], or builtin:documentation, which comes with the
      package.
    dtype: of matmuls and activations: float32 or bfloat16. float64 (with
      jax_enable_x64) computes everything in it.
    convolution: 'exact', or 'release' to reproduce the CUDA path that released
      weights were trained with (see `ops.long_conv.release_reverse`). Only
      'exact' gives results that do not depend on padding.
    allow_download: whether org/name is a name on the Hub, too, where there is no
      such directory.
    language: that texts are read and written in, by the name of its token in
      an mBART's vocabulary: 'ro_RO'. None: the tokenizer's and the settings'.
    **pages: fields of `documents.Pages`, for a model that reads pages. The
      defaults are those of the run that trained the model; for a Hugging Face
      directory see `page_reading.choose_pages`.

  Returns:
    A `Summarizer`; its vocabulary is None when the directory has no tokenizer
    files.

  Raises:
    InputError: nothing there, or something missing, unused or mismatched.
  """
  object_store.forget(os.fspath(directory))
  directory = hub.find_directory(directory, allow_download)
  run, data = find.find_run(directory), None
  if run is None:
    config, home = configs.model_config(directory), directory
    decoding = configs.generation_settings(
        directory, progress.note, has_start=bool(language)
    )
  else:
    home, _, settings = run
    config, data = dict(settings['model']), settings.get('data')
    with files.named(os.path.join(home, 'config.json')):
      decoding = decode_settings.of_run(settings)
  if 'convolution' in config:
    config['convolution'] = convolution
  dtype = jnp.dtype(dtype)
  vocabulary = find.find_vocabulary(home)
  if run is None:
    config = find.with_separator(config, vocabulary)
  with files.named(os.path.join(home, 'config.json')):
    models.make_config(config)
  model = models.build(config, dtype=dtype.name)
  chosen = page_reading.choose_pages(model.config, data, pages)
  find.check_vocabulary(home, vocabulary, config)
  if language:
    vocabulary, decoding = _in_language(vocabulary, decoding, language)
  if vocabulary is not None:
    models.check_padding(
        model.config, vocabulary.pad_id, f'{home}: its vocabulary'
    )
  params, where = _read_params(model, run, directory, config)
  made = Summarizer(model, params, vocabulary, decoding, chosen, str(where))
  made.fields = data or {}
  return made


def _read_params(model, run, directory, config):
  """Returns (parameters, where they were) of a run or a released directory."""
  abstract = parameters.abstract_params(model)
  precision = jnp.promote_types(model.dtype, jnp.float32)
  place = functools.partial(_place, precision=precision)
  if run is None:
    flat = parameters.flatten(abstract)
    flat = weights.load_params(directory, config, flat, place)
    return parameters.unflatten(flat), directory
  _, where, settings = run
  params = find.load_run_params(where, settings)
  checkpoint.compare(params, abstract, where)
  params = parameters.flatten(params)
  flat = {path: place(params.pop(path)) for path in list(params)}
  return parameters.unflatten(flat), where


def _in_language(vocabulary, decoding, language):
  """Returns the vocabulary and the settings that write in a language."""
  vocabulary = vocabulary_lib.with_language(vocabulary, language)
  if vocabulary.bos_id is not None:
    first = vocabulary.bos_id
    decoding = dataclasses.replace(decoding, forced_first_token=first)
  return vocabulary, decoding


def _place(array, precision):
  """Puts a parameter in its place; then what was read of it can be freed."""
  return jax.device_put(array.astype(precision, copy=False)).block_until_ready()
