"""Downloads the files of a model on the Hub into huggingface_hub's cache.

A broken download continues, also in another process: huggingface_hub itself
begins a file anew in each process. Every file is compared with its checksum
before it is used.

The cache is laid out as huggingface_hub has it (its guide "Understand
caching"): blobs/CHECKSUM, snapshots/COMMIT/FILE -> blobs/CHECKSUM and
refs/REVISION, which holds a commit. So other programs find the model as well.
"""

import hashlib
import os
import re
import shutil
import time
from typing import NamedTuple

from locost_jax.command_line import progress
from locost_jax.errors import InputError

_CHECKSUM = re.compile('[0-9a-f]{40}|[0-9a-f]{64}')
_PIECE = 2**20  # bytes that are read at a time to compute a checksum


class File(NamedTuple):
  """A file of a repository.

  Attributes:
    name: its path in the repository.
    size: bytes.
    checksum: SHA-256 in hex of a large file (LFS); of other files git's SHA-1
      in hex, which covers a header as well. Also the name of the blob.
  """

  name: str
  size: int
  checksum: str


def read_files(siblings, names):
  """Returns the `File`s of these names.

  Args:
    siblings: `model_info(..., files_metadata=True).siblings`.
    names: those that are needed.

  Raises:
    InputError: the Hub gives no size or no checksum.
  """
  files = []
  for sibling in siblings:
    if sibling.rfilename not in names:
      continue
    checksum = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
    if not _CHECKSUM.fullmatch(checksum or '') or sibling.size is None:
      raise InputError(
          f'{sibling.rfilename}: the Hub gives no size or no checksum'
      )
    files.append(File(sibling.rfilename, sibling.size, checksum))
  return files


class Cache:
  """The directory of one repository in huggingface_hub's cache."""

  def __init__(self, repository):
    """Makes nothing yet.

    Args:
      repository: org/name.
    """
    from huggingface_hub import constants

    folder = 'models--' + repository.replace('/', '--')
    self.home = os.path.join(constants.HF_HUB_CACHE, folder)
    self.locks = os.path.join(constants.HF_HUB_CACHE, '.locks', folder)

  def snapshot(self, commit):
    """Returns the directory of a commit, which may not exist."""
    return os.path.join(self.home, 'snapshots', commit)

  def blob(self, file):
    """Returns the path of a file's content, which may not exist."""
    return os.path.join(self.home, 'blobs', file.checksum)

  def has(self, file, commit):
    """Returns whether a file is here, whole."""
    linked = os.path.join(self.snapshot(commit), file.name)
    return os.path.exists(linked) or os.path.exists(self.blob(file))

  def count_bytes(self, file):
    """Returns how many bytes of an unfinished download are here."""
    try:
      return os.path.getsize(self.blob(file) + '.partial')
    except FileNotFoundError:
      return 0

  def find_kept(self, revision):
    """Returns the directory of a revision that was downloaded, or None."""
    path = os.path.join(self.home, 'refs', revision)
    commit = revision
    if os.path.isfile(path):
      with open(path, encoding='utf-8') as f:
        commit = f.read().strip()
    directory = self.snapshot(commit)
    has_config = os.path.exists(os.path.join(directory, 'config.json'))
    return directory if has_config else None

  def keep(self, files, revision, commit):
    """Links the files of a commit and notes that a revision is this commit."""
    directory = self.snapshot(commit)
    os.makedirs(directory, exist_ok=True)
    for file in files:
      link = os.path.join(directory, file.name)
      if os.path.exists(link):
        continue
      try:
        os.symlink(os.path.relpath(self.blob(file), directory), link)
      except OSError:  # no links on this file system
        os.replace(self.blob(file), link)
    if revision != commit:
      path = os.path.join(self.home, 'refs', revision)
      os.makedirs(os.path.dirname(path), exist_ok=True)
      with open(path, 'w', encoding='utf-8') as f:
        f.write(commit)
    return directory


def fetch(cache, repository, commit, files, title):
  """Downloads those of the files that are not in the cache.

  Prints the size first, and progress while it downloads, to stderr.

  Args:
    cache: the repository's `Cache`.
    repository: org/name.
    commit: 40 hex digits.
    files: list of `File`.
    title: the model's name in messages, hf://org/name@revision.

  Raises:
    InputError: too little room on the disk, or a wrong checksum.
    OSError and others: see `hub_errors.explain`.
  """
  missing = [file for file in files if not cache.has(file, commit)]
  if not missing:
    return
  os.makedirs(os.path.join(cache.home, 'blobs'), exist_ok=True)
  os.makedirs(cache.locks, exist_ok=True)
  total = sum(file.size for file in missing)
  here = sum(min(cache.count_bytes(file), file.size) for file in missing)
  _check_space(cache, total - here, title)
  line = progress.Line()
  number = len(missing)
  line.note(
      f'{title}: downloads {number} file{"s" * (number > 1)}, '
      f'{format_bytes(total)}'
      + (f', {format_bytes(here)} of it already here' if here else '')
  )
  meter = _Meter(line, here, total)
  for file in missing:
    _fetch_file(cache, repository, commit, file, title, meter)
  line.wipe()


def _check_space(cache, needed, title):
  free = shutil.disk_usage(cache.home).free
  if free < needed:
    raise InputError(
        f'{title}: {format_bytes(needed)} to download, but '
        f'{os.path.dirname(cache.home)} has {format_bytes(free)} left: free '
        'some space, or set HF_HOME to a directory on another disk'
    )


def _fetch_file(cache, repository, commit, file, title, meter):
  """Downloads one file, or the rest of it, and compares its checksum."""
  import huggingface_hub
  from huggingface_hub import file_download
  from huggingface_hub import utils

  blob = cache.blob(file)
  partial = blob + '.partial'
  # huggingface_hub's own lock of this file.
  with utils.WeakFileLock(os.path.join(cache.locks, f'{file.checksum}.lock')):
    if os.path.exists(blob):  # another process was faster
      return
    if cache.count_bytes(file) > file.size:
      os.remove(partial)
    with open(partial, 'ab') as f:
      file_download.http_get(
          huggingface_hub.hf_hub_url(repository, file.name, revision=commit),
          _Counted(f, meter),
          resume_size=f.tell(),
          headers=utils.build_hf_headers(),
          expected_size=file.size,
          displayed_filename=file.name,
      )
    found = compute_checksum(partial, len(file.checksum))
    if found != file.checksum:
      os.remove(partial)
      raise InputError(
          f'{title}: {file.name}: its checksum is {found[:12]}..., but the '
          f'Hub has {file.checksum[:12]}...: what was downloaded is damaged '
          'and has been deleted; the same command downloads it again'
      )
    os.replace(partial, blob)


def compute_checksum(path, digits):
  """Returns the SHA-256 of a file, or git's SHA-1 where that has 40 digits."""
  checksum = hashlib.sha256()
  if digits == 40:
    checksum = hashlib.sha1(b'blob %d\0' % os.path.getsize(path))
  with open(path, 'rb') as f:
    while piece := f.read(_PIECE):
      checksum.update(piece)
  return checksum.hexdigest()


class _Meter:
  """Shows bytes, speed and the time left on a line of progress."""

  def __init__(self, line, done, total):
    self._line, self._begun = line, time.monotonic()
    self._first, self._done, self._total = done, done, total

  def add(self, count):
    """Counts bytes that have arrived; a negative number takes them back."""
    self._done += count
    seconds = time.monotonic() - self._begun
    parts = ['downloading', f'{format_bytes(self._done, self._total)}']
    speed = (self._done - self._first) / max(seconds, 1e-3)
    if speed > 0:
      left = progress.duration((self._total - self._done) / speed)
      parts += [f'{format_bytes(speed)}/s', f'{left} left']
    self._line.show(parts, self._done / max(self._total, 1), 1)


class _Counted:
  """A file open for appending that reports to a meter what is written."""

  def __init__(self, file, meter):
    self._file, self._meter = file, meter
    self._position = 0

  def write(self, piece):
    """Writes bytes, so that they are kept if the process is killed."""
    self._file.write(piece)
    self._file.flush()
    self._meter.add(len(piece))

  def truncate(self):
    """Cuts the file off where it stands: the server begins it anew."""
    end = self._file.seek(0, os.SEEK_END)
    self._file.truncate(self._position)
    self._meter.add(self._position - end)

  def seek(self, position):
    """Sets the place for `truncate`; writing always appends."""
    self._position = position

  def tell(self):
    """Returns the number of bytes in the file."""
    return self._file.tell()


def format_bytes(count, total=None):
  """Returns '1.63 GB', or '0.40 of 1.63 GB' with a total; powers of 1000."""
  largest = count if total is None else total
  for unit, size in (('GB', 1e9), ('MB', 1e6), ('kB', 1e3), ('bytes', 1)):
    if largest >= size or size == 1:
      break
  digits = 0 if size == 1 else 2 if size == 1e9 else 1
  shown = f'{count / size:.{digits}f}'
  if total is not None:
    shown += f' of {total / size:.{digits}f}'
  return f'{shown} {unit}'
