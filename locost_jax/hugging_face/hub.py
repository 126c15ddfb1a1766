"""Models by their name on the Hugging Face Hub: hf://org/name[@revision].

The Hub is asked only if the user says so, with `hf://` or by allowing
downloads: a path with a mistake in it makes no connection. Downloads are kept
in huggingface_hub's cache and are used when there is no network.
"""

import contextlib
import os
import re
import sys

from locost_jax.builtin import find_builtin
from locost_jax.errors import FULL
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.hugging_face import downloads
from locost_jax.hugging_face import hub_errors
from locost_jax.hugging_face import tensors

PREFIX = 'hf://'
_NAME = re.compile(r'\w[\w.-]*/\w[\w.-]*(@[\w./-]+)?')
_PAGE = re.compile(r'https?://huggingface\.co/(\w[\w.-]*/\w[\w.-]*)/?\Z')

# The files of all kinds of tokenizers.
TOKENIZER_FILES = (
    'spiece.model',
    'vocabulary.json',
    'vocab.json',
    'vocab.txt',
    'merges.txt',
    'tokenizer.json',
    'tokenizer_config.json',
    'special_tokens_map.json',
    'added_tokens.json',
)


def find_directory(name, allow_download=None):
  """Returns the directory of a model; downloads a model of the Hub.

  Args:
    name: a local directory, builtin:name, or hf://org/name or
      hf://org/name@revision.
    allow_download: whether org/name is a name on the Hub if there is no such
      directory; None: no, and the caller has no option that allows it.

  Raises:
    InputError: there is no such directory or model.
  """
  name = os.fspath(name)
  if name.startswith(PREFIX):
    if not _NAME.fullmatch(name[len(PREFIX) :]):
      raise InputError(
          f'{visible(name)}: expected {PREFIX}org/name or '
          f'{PREFIX}org/name@revision'
      )
    return download(name[len(PREFIX) :])
  if name.startswith(find_builtin.PREFIX):
    return find_builtin.find_directory(name)
  if os.path.isdir(name):
    return name
  if allow_download and _NAME.fullmatch(name):
    return download(name)
  if os.path.isfile(name):
    raise InputError(f'{visible(name)}: is a file; expected a directory')
  if page := _PAGE.match(name):
    name = page[1]
    raise InputError(
        f'{visible(page[0])}: is a page; expected {PREFIX}{visible(name)}'
    )
  also = '' if allow_download is None else ', or org/name with --allow_download'
  raise InputError(
      f'{visible(name) or repr(name)}: no such directory; a model on the '
      f'Hugging Face Hub is {PREFIX}org/name[@revision]{also}'
  )


def download(text):
  """Downloads the files of a model that are needed and not here yet.

  Prints the size, the progress and at last the commit to stderr. A broken
  download continues when the same model is asked for again.

  Args:
    text: org/name[@revision]: a branch, a tag or a commit; without,
      the main branch.

  Returns:
    The directory.

  Raises:
    InputError: no such model or revision, no access, no network and no earlier
      download, no room on the disk, or a wrong checksum.
  """
  repository, _, revision = text.partition('@')
  title, revision = PREFIX + text, revision or 'main'
  try:
    import huggingface_hub
  except ImportError:
    raise InputError(
        f'{title}: pip install "locost_jax[hub]", or download '
        f'https://huggingface.co/{repository} by hand into DIR and pass DIR'
    ) from None
  cache = downloads.Cache(repository)
  with _quiet_client():
    try:
      info = huggingface_hub.HfApi().model_info(
          repository, revision=revision, files_metadata=True, timeout=30.0
      )
    except Exception as error:  # the HTTP client's own as well
      directory = cache.find_kept(revision)
      if directory is None or not hub_errors.is_unreachable(error):
        raise _explain(error, title, repository) from None
    else:
      names = choose_files([file.rfilename for file in info.siblings], title)
      files = downloads.read_files(info.siblings, names)
      try:
        downloads.fetch(cache, repository, info.sha, files, title)
        directory = cache.keep(files, revision, info.sha)
      except InputError:
        raise
      except Exception as error:
        raise _explain(error, title, repository, files, cache) from None
  commit = os.path.basename(directory)
  print(f'{repository}@{commit}', file=sys.stderr, flush=True)
  return directory


def _explain(error, title, repository, files=(), cache=None):
  """Returns what to raise for an exception of a download."""
  if isinstance(error, OSError) and error.errno in FULL:
    return error
  here = sum(cache.count_bytes(file) for file in files)
  if here and hub_errors.is_unreachable(error):
    return InputError(
        f'{title}: the connection broke; {downloads.format_bytes(here)} of an '
        'unfinished file are kept, and the same command continues there'
    )
  return hub_errors.explain(error, title, repository) or error


@contextlib.contextmanager
def _quiet_client():
  """In this context huggingface_hub draws no bars and logs no warnings."""
  from huggingface_hub import utils

  had_bars = not utils.are_progress_bars_disabled()
  verbosity = utils.logging.get_verbosity()
  utils.logging.set_verbosity_error()
  if had_bars:
    utils.disable_progress_bars()
  try:
    yield
  finally:
    utils.logging.set_verbosity(verbosity)
    if had_bars:
      utils.enable_progress_bars()


def choose_files(names, text):
  """Returns the files that are needed: safetensors rather than pickles.

  Args:
    names: the names of all files of a repository.
    text: the model's name in messages.

  Raises:
    InputError: there is no config.json, or no weights.
  """
  chosen = [
      name
      for name in names
      if name in ('config.json', 'generation_config.json', *TOKENIZER_FILES)
  ]
  if 'config.json' not in chosen:
    raise InputError(f'{text}: holds no config.json')
  for stem in (tensors.SAFETENSORS, tensors.PICKLE):
    if stem in names:
      return [*chosen, stem]
    if stem + '.index.json' in names:
      first, last = stem.split('.')
      shard = re.compile(rf'{first}-\d+-of-\d+\.{last}')
      return [
          *chosen,
          stem + '.index.json',
          *(name for name in names if shard.fullmatch(name)),
      ]
  raise InputError(
      f'{text}: holds no weights; expected {tensors.SAFETENSORS} '
      f'or {tensors.PICKLE}, whole or in shards'
  )
