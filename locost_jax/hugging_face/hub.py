"""Models by their name on the Hugging Face Hub: hf://org/name[@revision].

The Hub is asked only if the user says so, with `hf://` or by allowing
downloads: a path with a mistake in it makes no connection. huggingface_hub
downloads; its cache, login and environment variables (HF_HOME, HF_TOKEN,
HF_ENDPOINT, HF_HUB_OFFLINE) are used as they are.
"""

import contextlib
import os
import re
import sys
import warnings

from locost_jax import files
from locost_jax.config import object_store
from locost_jax.errors import FULL
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.hugging_face import find_builtin
from locost_jax.hugging_face import tensors

PREFIX = 'hf://'
# No part of a revision is '..' or empty: it becomes a path in the cache.
_NAME = re.compile(r'\w[\w.-]*/\w[\w.-]*(@\w[\w.-]*(/\w[\w.-]*)*)?')
_COMMIT = re.compile('[0-9a-f]{40}')
_PAGE = re.compile(r'https?://huggingface\.co/(\w[\w.-]*/\w[\w.-]*)/?\Z')

# The files of all kinds of tokenizers.
TOKENIZER_FILES = (
    'spiece.model',
    'sentencepiece.bpe.model',
    'vocabulary.json',
    'vocab.json',
    'vocab.txt',
    'merges.txt',
    'tokenizer.json',
    'tokenizer_config.json',
    'special_tokens_map.json',
    'added_tokens.json',
)
# Patterns of what reads the parameters of a run, or of an export.
_MODEL_FILES = '* */config.json */queries.json **/vocabulary/*'
_STEP_FILES = '{0}manifest.json {0}metrics/* {0}params/**'


def find_directory(name, allow_download=None):
  """Returns the directory of a model; downloads a model of the Hub.

  Args:
    name: a local directory, one in a bucket (gs://), builtin:name, or
      hf://org/name or hf://org/name@revision.
    allow_download: whether org/name is a name on the Hub if there is no such
      directory; None: no, and the caller has no option that allows it.
  """
  name = os.fspath(name)
  if name.startswith(PREFIX):
    if not _NAME.fullmatch(name[len(PREFIX) :]):
      raise InputError(
          f'{visible(name)}: expected {PREFIX}org/name or '
          f'{PREFIX}org/name@revision'
      )
    return download(name[len(PREFIX) :])
  if object_store.is_uri(name):
    return _copy(name)
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


def _copy(uri):
  """Copies the model of a directory in a bucket; returns its directory here."""
  root, _, step = uri.rstrip('/').rpartition('/checkpoints/')
  if not step.isdecimal():
    root, step = uri.rstrip('/'), ''
  steps = _STEP_FILES.format(f'checkpoints/{step}/' if step else '**/')
  copy = object_store.local(root, (*_MODEL_FILES.split(), *steps.split()))
  return os.path.join(copy, 'checkpoints', step) if step else copy


def download(text):
  """Downloads what is needed of org/name[@revision] and not here yet.

  Of the weights these are safetensors, or else pickles. Prints the commit to
  stderr; returns the directory.

  Raises:
    InputError: no such model or revision, no access, no room on the disk, or no
      answer and no earlier download.
  """
  import huggingface_hub

  repository, _, revision = text.partition('@')
  commit = 40 * '0'  # if the Hub does not answer
  with contextlib.suppress(Exception):  # `snapshot_download` says why
    info = huggingface_hub.HfApi().model_info(
        repository, revision=revision or 'main', timeout=30.0
    )
    commit = info.sha
  if not _COMMIT.fullmatch(str(commit)):  # it becomes a path
    raise InputError(
        f'{PREFIX}{text}: the Hub names the commit {files.show_value(commit)}; '
        'expected 40 hex digits'
    )
  for stem in tensors.SAFETENSORS, tensors.PICKLE:
    first, last = stem.split('.')
    weights = stem, f'{stem}.index.json', f'{first}-*-of-*.{last}'
    try:
      with warnings.catch_warnings():
        warnings.filterwarnings('error', 'Not enough free disk space')
        directory = huggingface_hub.snapshot_download(
            repository,
            revision=revision or None,
            allow_patterns=[
                'config.json',
                'generation_config.json',
                *TOKENIZER_FILES,
                *weights,
            ],
        )
    except Exception as error:  # the HTTP client's own as well
      line = _explain(error, repository)
      raise InputError(f'{PREFIX}{text}: {line}') from None
    if any(name.endswith(last) for name in os.listdir(directory)):
      break
  print(f'{repository}@{os.path.basename(directory)}', file=sys.stderr)
  return directory


def _explain(error, repository):
  """Explains an exception of huggingface_hub in one line."""
  import huggingface_hub
  from huggingface_hub import constants
  from huggingface_hub import errors

  if isinstance(error, errors.LocalEntryNotFoundError):
    error = error.__cause__ or error
  page = f'https://huggingface.co/{repository}'
  status = getattr(getattr(error, 'response', None), 'status_code', None)
  if isinstance(error, errors.GatedRepoError):  # a RepositoryNotFoundError, too
    return (
        f'access to this model is restricted: accept its terms at {page}, '
        'then log in with `hf auth login`'
    )
  if isinstance(error, errors.RevisionNotFoundError):
    return 'the model has no branch, tag or commit of this name'
  if isinstance(error, errors.RepositoryNotFoundError):
    return (
        'the Hub has no model of this name, or it is private: check the '
        'name, or log in with `hf auth login`'
    )
  if status in (401, 403):
    return (
        f'the Hub refused the login ({status}): log in again with '
        '`hf auth login`'
    )
  if status is not None:
    return f'the Hub answered {status}: try again later'
  if isinstance(error, UserWarning) or getattr(error, 'errno', 0) in FULL:
    return (
        f'{str(error).rstrip(".")}: free some space in '
        f'{constants.HF_HUB_CACHE}, or set HF_HOME '
        'to a directory on another disk'
    )
  if isinstance(error, OSError) and error.filename:
    return f'{error.filename}: {error.strerror}'
  reason, token = str(error).strip(), huggingface_hub.get_token()
  if not reason or 'Bearer' in reason or token and token in reason:
    reason = type(error).__name__
  reason = visible(reason.split('\n')[0][:200])
  return (
      f'no answer from {constants.ENDPOINT} that can be used: without a '
      f'network, download {page} by hand into DIR and pass DIR ({reason})'
  )
