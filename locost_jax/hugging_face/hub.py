"""Models by their name on the Hugging Face Hub: hf://org/name[@revision].

Nothing is looked for there unless the user says so, by `hf://` or by allowing
downloads: a path with a mistake in it stays on this machine. What was downloaded
is kept where huggingface_hub keeps it, and is used when there is no network.
"""

import os
import re
import sys

from locost_jax.builtin import find_builtin
from locost_jax.errors import FULL
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.hugging_face import tensors

PREFIX = 'hf://'
_NAME = re.compile(r'\w[\w.-]*/\w[\w.-]*(@[\w./-]+)?')

# What a tokenizer may consist of.
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
  """Returns the directory that a user means.

  Args:
    name: a local directory, builtin:name, or hf://org/name or
      hf://org/name@revision.
    allow_download: whether org/name, if there is no such directory, is a name
      on the Hub; None: no, and the caller has no option that would allow it.

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
  also = '' if allow_download is None else ', or org/name with --allow_download'
  raise InputError(
      f'{visible(name) or repr(name)}: no such directory; a model on the '
      f'Hugging Face Hub is {PREFIX}org/name[@revision]{also}'
  )


def download(text):
  """Downloads what is needed of a model, unless it is here already.

  Args:
    text: org/name[@revision]: a branch, a tag or a commit; without,
      the main branch. The commit is printed to stderr.

  Returns:
    The directory.

  Raises:
    InputError: there is no network and nothing was kept, or no such model.
  """
  repository, _, revision = text.partition('@')
  by_hand = (
      f'download https://huggingface.co/{repository} by hand into DIR '
      'and pass DIR'
  )
  try:
    import huggingface_hub
    from huggingface_hub import errors
  except ImportError:
    raise InputError(
        f'{PREFIX}{text}: pip install "locost_jax[hub]", or {by_hand}'
    ) from None
  try:
    info = huggingface_hub.HfApi().model_info(
        repository, revision=revision or None
    )
    files = choose_files([file.rfilename for file in info.siblings], text)
    directory = huggingface_hub.snapshot_download(
        repository, revision=info.sha, allow_patterns=files
    )
    _keep_reference(directory, revision or 'main', info.sha)
  except InputError:
    raise
  except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
    raise InputError(
        f'{PREFIX}{text}: the Hub has no such model or revision, or wants a '
        'login'
    ) from None
  except Exception as error:  # of which of its layers, it does not promise
    if isinstance(error, OSError) and error.errno in FULL:
      raise
    try:
      directory = huggingface_hub.snapshot_download(
          repository,
          revision=revision or None,
          local_files_only=True,
          allow_patterns=['config.json'],
      )
    except (errors.LocalEntryNotFoundError, ValueError):
      reason = (str(error).strip() or type(error).__name__).split('\n')[0]
      raise InputError(
          f'{PREFIX}{text}: no network: {by_hand} ({reason})'
      ) from None
  commit = os.path.basename(directory)
  print(f'{repository}@{commit}', file=sys.stderr, flush=True)
  return directory


def choose_files(names, text):
  """Which files of a repository are needed: safetensors rather than pickles.

  Args:
    names: of all its files.
    text: what the user calls it.

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


def _keep_reference(directory, revision, commit):
  """Notes which commit a revision was, for when there is no network.

  snapshot_download does it for the revision it is given, which is the commit.
  """
  if revision == commit:
    return
  path = os.path.join(directory, '..', '..', 'refs', revision)
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with open(path, 'w', encoding='utf-8') as f:
    f.write(commit)
