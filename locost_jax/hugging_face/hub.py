"""Models by their name on the Hugging Face Hub: hf://org/name[@revision].

The Hub is asked only if the user says so, with `hf://` or by allowing
downloads: a path with a mistake in it makes no connection. huggingface_hub
asks it; no more of the answer is trusted than has been checked: the commit
becomes a path, sizes bound what is written, and checksums are compared. The
files lie in huggingface_hub's cache as it lays them out (its guide "Understand
caching"): blobs/CHECKSUM, snapshots/COMMIT/FILE -> blobs/CHECKSUM and
refs/REVISION, which holds a commit.
"""

import contextlib
import hashlib
import io
import os
import re
import shutil
import sys
import uuid

from locost_jax import files
from locost_jax.config import object_store
from locost_jax.config import progress
from locost_jax.errors import FULL
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.hugging_face import find_builtin
from locost_jax.hugging_face import tensors

PREFIX = 'hf://'
# No part of a revision is '..' or empty: it becomes a path in the cache.
_NAME = re.compile(r'\w[\w.-]*/\w[\w.-]*(@\w[\w.-]*(/\w[\w.-]*)*)?')
_PAGE = re.compile(r'https?://huggingface\.co/(\w[\w.-]*/\w[\w.-]*)/?\Z')
_COMMIT = re.compile('[0-9a-f]{40}')
_CHECKSUM = re.compile('[0-9a-f]{40}|[0-9a-f]{64}')
# huggingface_hub's HTTP client is another package in each of its major
# versions.
_CLIENTS = ('httpx', 'httpx2', 'httpcore', 'httpcore2', 'requests', 'urllib3')

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

  Prints the size, the progress and at last the commit to stderr; returns the
  directory.

  Raises:
    InputError: no such model or revision, no access, no network and no earlier
      download, no room on the disk, or an answer that is not as announced.
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
  try:
    info = huggingface_hub.HfApi().model_info(
        repository, revision=revision, files_metadata=True, timeout=30.0
    )
    directory = _keep(repository, revision, title, info)
  except InputError:
    raise
  except Exception as error:  # the HTTP client's own as well
    if isinstance(error, OSError) and error.errno in FULL:
      raise
    is_unreachable, line = _explain(error, repository)
    kept = huggingface_hub.try_to_load_from_cache(
        repository, 'config.json', revision=revision
    )
    if not is_unreachable or not isinstance(kept, str):
      raise InputError(f'{title}: {line}') from None
    directory = os.path.dirname(kept)
  print(f'{repository}@{os.path.basename(directory)}', file=sys.stderr)
  return directory


def _keep(repository, revision, title, info):
  """Downloads a model's files and links them; returns the directory."""
  from huggingface_hub import constants

  commit = info.sha if isinstance(info.sha, str) else ''
  asked = revision if _COMMIT.fullmatch(revision) else commit
  if commit != asked or not _COMMIT.fullmatch(commit):
    raise InputError(
        f'{title}: the Hub names the commit {files.show_value(info.sha)}; expected '
        f'{asked if _COMMIT.fullmatch(asked) else "40 hex digits"}'
    )
  folder = 'models--' + repository.replace('/', '--')
  home = os.path.join(constants.HF_HUB_CACHE, folder)
  directory = os.path.join(home, 'snapshots', commit)
  siblings = {sibling.rfilename: sibling for sibling in info.siblings or ()}
  blobs = {}  # path of the blob, its checksum last -> (name, bytes)
  for name in choose_files(siblings, title):
    size, lfs = siblings[name].size, siblings[name].lfs
    checksum = lfs.sha256 if lfs else siblings[name].blob_id
    is_size = type(size) is int and size >= 0
    if not is_size or not _CHECKSUM.fullmatch(str(checksum)):
      raise InputError(f'{title}: {name}: the Hub gives no size or no checksum')
    if not os.path.exists(os.path.join(directory, name)):
      blobs[os.path.join(home, 'blobs', checksum)] = name, size
  missing = {x: blobs[x] for x in blobs if not os.path.exists(x)}
  if missing:
    _fetch(repository, commit, title, missing)
  os.makedirs(directory, exist_ok=True)
  for blob, (name, _) in blobs.items():
    link = os.path.join(directory, name)
    try:
      os.symlink(os.path.relpath(blob, directory), link)
    except OSError:  # another process was faster, or no links here
      os.replace(blob, link)
  if revision != commit:
    files.write(os.path.join(home, 'refs', revision), commit)
  return directory


def _fetch(repository, commit, title, missing):
  """Downloads blobs, see `_keep`; prints the size and the progress."""
  from huggingface_hub import hf_hub_url

  folder = os.path.dirname(next(iter(missing)))
  os.makedirs(folder, exist_ok=True)
  total, done = sum(size for _, size in missing.values()) / 1e6, 0
  free = shutil.disk_usage(folder).free / 1e6
  if free < total:
    raise InputError(
        f'{title}: {total:,.1f} MB to download, but {folder} has {free:,.1f} '
        'MB left: free some space, or set HF_HOME to a directory on another '
        'disk'
    )
  shown = progress.Progress()
  shown.note(f'{title}: downloads {len(missing)} files, {total:,.1f} MB')
  for blob, (name, size) in missing.items():

    def arrive(count, size=size, done=done):
      if count > size:
        raise InputError(
            f'longer than the {size:,} bytes that the Hub announced; what was '
            'downloaded has been deleted'
        )
      now = done + count / 1e6
      parts = ['downloading', f'{now:,.1f} of {total:,.1f} MB']
      shown.write(parts, now / max(total, 1e-6), 1)

    try:
      _fetch_file(hf_hub_url(repository, name, revision=commit), blob, arrive)
    except InputError as error:
      raise InputError(f'{title}: {name}: {error}') from None
    finally:
      shown.wipe()
    done += size / 1e6


def _fetch_file(url, blob, arrive):
  """Downloads a blob; of a broken or wrong download nothing is left.

  The path ends in the checksum; arrive(bytes so far) is called before a write.
  """
  from huggingface_hub import file_download
  from huggingface_hub import utils

  partial, checksum = f'{blob}.{uuid.uuid4().hex}', os.path.basename(blob)
  bars = utils.are_progress_bars_disabled()
  level = utils.logging.get_verbosity()
  utils.disable_progress_bars()
  utils.logging.set_verbosity_error()
  try:
    with _Counted(io.FileIO(partial, 'w'), arrive) as f:
      # The name is only for bars: without one, an answer's header is parsed.
      file_download.http_get(
          url, f, headers=utils.build_hf_headers(), displayed_filename='model'
      )
    found = compute_checksum(partial, len(checksum))
    if found != checksum:
      raise InputError(
          f'its checksum is {found[:12]}..., but the Hub has '
          f'{checksum[:12]}...: what was downloaded is damaged and has been '
          'deleted; the same command downloads it again'
      )
    os.replace(partial, blob)
  finally:
    utils.logging.set_verbosity(level)
    if not bars:
      utils.enable_progress_bars()
    with contextlib.suppress(FileNotFoundError):
      os.remove(partial)


class _Counted(io.BufferedWriter):
  """A file that calls arrive(bytes so far) before it writes."""

  def __init__(self, raw, arrive):
    super().__init__(raw)
    self._arrive = arrive

  def write(self, piece):
    """Writes bytes, unless `arrive` raises."""
    self._arrive(self.tell() + len(piece))
    return super().write(piece)


def compute_checksum(path, digits):
  """Returns the SHA-256 of a file, or git's SHA-1 where that has 40 digits."""
  digest = 'sha256'
  if digits == 40:  # a small file; git's hash covers a header as well
    digest = lambda: hashlib.sha1(b'blob %d\0' % os.path.getsize(path))
  with open(path, 'rb') as f:
    return hashlib.file_digest(f, digest).hexdigest()


def _explain(error, repository):
  """Explains an exception of huggingface_hub.

  Returns (whether the Hub gave no answer, or one of its own failure; one line).
  """
  import huggingface_hub
  from huggingface_hub import errors

  page = f'https://huggingface.co/{repository}'
  for kind, line in (
      (  # before its base class RepositoryNotFoundError
          errors.GatedRepoError,
          f'access to this model is restricted: accept its terms at {page}, '
          'then log in with `hf auth login`',
      ),
      (
          errors.RevisionNotFoundError,
          'the model has no branch, tag or commit of this name',
      ),
      (
          errors.RepositoryNotFoundError,
          'the Hub has no model of this name, or it is private: check the '
          'name, or log in with `hf auth login`',
      ),
  ):
    if isinstance(error, kind):
      return False, line
  status = getattr(getattr(error, 'response', None), 'status_code', None)
  if status in (401, 403):
    return False, (
        f'the Hub refused the login ({status}): log in again with '
        '`hf auth login`'
    )
  if status is not None:
    return status >= 500 or status in (408, 429), (
        f'the Hub answered {status}: try again later'
    )
  if isinstance(error, OSError) and error.filename:
    return False, f'{error.filename}: {error.strerror}'
  reason, token = str(error).strip(), huggingface_hub.get_token()
  if not reason or 'Bearer' in reason or token and token in reason:
    reason = type(error).__name__
  reason = visible(reason.split('\n')[0][:200])
  client = type(error).__module__.split('.')[0]
  if isinstance(error, OSError) or client in _CLIENTS:
    return True, (
        f'no answer from {huggingface_hub.constants.ENDPOINT}: without a '
        f'network, download {page} by hand into DIR and pass DIR ({reason})'
    )
  return False, f"the Hub's answer cannot be read ({reason})"


def choose_files(names, text):
  """Returns the files that are needed: safetensors rather than pickles."""
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
