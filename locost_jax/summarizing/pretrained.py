"""A trained model ready to use: directory -> model, parameters, vocabulary.

`load` takes what a run wrote (a WORKDIR or one checkpoint in it) or a Hugging
Face directory, and returns a `Summarizer`.
"""

import functools
import os

import jax
import jax.numpy as jnp
import jax.typing
import numpy as np

from locost_jax import models
from locost_jax import untrusted
from locost_jax.config import decode_settings
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import hub
from locost_jax.hugging_face import weights
from locost_jax.models import parameters
from locost_jax.summarizing import documents
from locost_jax.summarizing import reading
from locost_jax.summarizing import summarizer
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find


@checkpoint.choose_again
def load(
    directory: str | os.PathLike,
    dtype: jax.typing.DTypeLike = jnp.float32,
    convolution: str = 'exact',
    allow_download: bool = False,
    **pages,
) -> summarizer.Summarizer:
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
  where = str(directory if run is None else step_directory)
  return summarizer.Summarizer(
      model, params, vocabulary, decoding, chosen, where
  )


def _place(array, precision, where):
  """Puts a parameter in its place; then what was read of it can be freed."""
  if not np.isfinite(array).all():
    raise InputError(
        f'{where}: one of its weights, of the shape {list(array.shape)}, '
        'is not a finite number (NaN or Inf): such a model writes nothing'
    )
  return jax.device_put(array.astype(precision, copy=False)).block_until_ready()


def read(path: str | os.PathLike) -> list[str]:
  """Reads the texts of documents as the summarize command does.

  Args:
    path: a text, Markdown, web page, EPUB, PDF, Word document, subtitles, JSON
      Lines, or a directory of such files.

  Returns:
    A list of str, a text per document.

  Raises:
    InputError: a file that cannot be read, is empty or is of another kind.
  """
  lines = []
  found, failures = documents.read([os.fspath(path)], report=lines.append)
  if failures:
    errors = [line for line in lines if line.startswith('error: ')]
    raise InputError(errors[0].removeprefix('error: '))
  return [document.text for document in found]
