"""The files of summaries: checked before the work, then FILE and FILE.partial.

An existing file is replaced only with --overwrite and only if it is a regular
file. A document is never replaced.

Each row is appended to FILE.partial and is on disk before the next one starts.
At the end, FILE is written whole and FILE.partial is removed. A process that is
killed at any moment loses only the summaries it was writing, and the next call
computes only the missing ones. FILE.partial has rows of JSON in the order they
finished; FILE has them in the order of the documents, in the form that its
ending names (`summary_form.Form`).
"""

import contextlib
import os
import sys

from locost_jax import files
from locost_jax.data import sources
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.summarizing import summary_form

PARTIAL = '.partial'  # behind FILE, until all summaries are done
_FIELDS = ('id', 'prediction', 'sha256')
_BEGIN = b'{"id": '  # every row that is appended to FILE.partial


def page_path(path, number, total):
  """Returns the file of one of `total` documents: out.html, or out-1.html."""
  if total == 1:
    return path
  stem, extension = os.path.splitext(path)
  return f'{stem}-{number:0{len(str(total))}}{extension}'


def page_paths(path, total):
  """Returns the files of a report: its pages, then its index."""
  pages = [page_path(path, i, total) for i in range(1, total + 1)]
  return pages if total == 1 else [*pages, path]


def check(paths, overwrite, keeps_rows, inputs, total):
  """Raises an InputError if writing would replace a file that must stay.

  Args:
    paths: {'output': FILE of the summaries or None, 'report': likewise}.
    keeps_rows: whether existing rows of the output stay (`Results` checks them).
    inputs: paths of the documents, '-' for standard input.
    total: number of documents.
  """
  documents = {_identity(path): path for path in inputs if path != '-'}
  if '-' in inputs and sys.stdin is not None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
      documents[_identity(sys.stdin.fileno())] = 'on standard input'
  documents.pop(None, None)
  output, report = paths['output'], paths['report']
  written = {
      'output': [output, output + PARTIAL] if output else [],
      'report': page_paths(report, total) if report else [],
  }
  for flag, own in written.items():
    for path in own:
      where = f'--{flag}={paths[flag]}'
      where += '' if path == paths[flag] else f': {path}'
      files.check_regular(path, where)
      identity = _identity(path)
      if identity in documents:
        raise InputError(
            f'{where}: is the document {documents[identity]}; expected another '
            'file'
        )
  names = set(map(os.path.realpath, written['output']))
  if names & set(map(os.path.realpath, written['report'])):
    raise InputError(
        f'--report={report}: is the file of --output, {output}; expected '
        'another'
    )
  if overwrite:
    return
  if output and not keeps_rows:
    refuse_existing(output, 'output')
  if not output:  # with --output, a repeated call rewrites its own pages
    for path in written['report']:
      refuse_existing(path, 'report')


def refuse_existing(path, flag):
  """Raises an InputError if the file exists."""
  if os.path.exists(path):
    raise InputError(
        f'--{flag}={path}: exists already; expected the name of a new file, or '
        '--overwrite, which replaces it'
    )


def _identity(path):
  """Returns the device and inode of a file; None: it does not exist."""
  try:
    status = os.stat(path)
  except (OSError, ValueError):
    return None
  return status.st_dev, status.st_ino


class Results:
  """Rows by (file, id, sha256 of the text), with those of earlier calls."""

  def __init__(
      self, path, made_with, form=summary_form.Form(), overwrite=False
  ):
    """Reads the existing rows and opens FILE.partial for appending.

    Args:
      made_with: fields of every new row besides its summary. `settings`,
        `dtype` and the checkpoint's fingerprint must match the old rows.
      form: of FILE; the rows of an existing FILE stay if it has JSON lines.

    Raises:
      InputError: FILE has other settings, another checkpoint or other contents,
        or another process is writing it.
    """
    self._path, self._form = path, form
    self._keeps_rows = form.name == 'jsonl'
    self._partial = path + PARTIAL
    self._made_with, self._rows = made_with, {}
    self._file = _open_locked(self._partial)
    try:
      self._journal = files.Journal(self._file)
      torn = self._journal.torn
      if torn[: len(_BEGIN)] != _BEGIN[: len(torn)]:
        raise InputError(
            f'{self._partial}: is no result of this command; move it away, or '
            'use another --output'
        )
      if not overwrite:
        if self._keeps_rows and os.path.exists(path):
          self._read(path, sources.read_lines(path))
        self._read(self._partial, enumerate(self._journal.lines, start=1))
      self._journal.keep(0 if overwrite else None)
    except BaseException:
      self.close()
      raise

  def get(self, key):
    """Returns the row of a document, or None; `key` as in `finish`."""
    return self._rows.get(key)

  def add(self, row):
    """Writes a row to disk; an InputError if it cannot be written."""
    self._rows[_key(row)] = row
    self._journal.write(summary_form.json_line(row).encode() + b'\n')
    if not self._journal.problem:
      self._journal.sync()
    if self._journal.problem:
      raise InputError(f'{self._partial}: {self._journal.problem}')

  def finish(self, entries, report=lambda line: None):
    """Writes FILE and removes FILE.partial.

    A JSONL file keeps its old rows, at its front; others have only the
    documents of this call.

    Args:
      entries: for each document of this call, in order, its (file, id, sha256)
        or a `documents.LeftOut`.
      report: takes a line about rows of other documents.

    Raises:
      InputError: it cannot be written; the rows stay in FILE.partial.
    """
    names, others = {entry[:2] for entry in entries}, []
    if self._keeps_rows:
      others = [row for key, row in self._rows.items() if key[:2] not in names]
    shown = others + [self._rows.get(entry, entry) for entry in entries]
    try:
      files.write(self._path, self._form.render(shown))
    except OSError as error:
      raise InputError(
          f'{self._path}: {disk_error(error)}; the summaries are in '
          f'{self._partial}'
      ) from None
    os.unlink(self._partial)
    if others:
      report(
          f'{self._path}: keeps {len(others)} summaries of documents that were '
          'not named now'
      )

  def close(self):
    """Closes FILE.partial, and removes it if it has no row."""
    status = os.fstat(self._file.fileno())
    if status.st_nlink and not status.st_size:
      os.unlink(self._partial)
    self._file.close()

  def _read(self, path, lines):
    """Adds the rows of a file after checking that they match this call."""
    try:
      rows = [
          sources.parse_row(path, number, line, _FIELDS)
          for number, line in lines
          if line
      ]
    except InputError as error:
      raise InputError(
          f'{error}: {path} was not written by this command; expected another '
          '--output, or --overwrite to replace it'
      ) from None
    now = compared(self._made_with)
    for row in rows:
      before = compared(row)
      differences = [
          f'{key} was {before.get(key)!r}, now {now.get(key)!r}'
          for key in sorted(now.keys() | before.keys())
          if before.get(key) != now.get(key)
      ]
      if differences:
        raise InputError(
            f'{path} was made with other settings: {"; ".join(differences)}. '
            'Use the same, another --output, or --overwrite'
        )
      self._rows[_key(row)] = row


def _open_locked(path):
  """Opens a file for appending, locked; an InputError if that is impossible."""
  try:
    return files.open_locked(path)
  except BlockingIOError:
    raise InputError(f'{path}: another process is writing it') from None
  except OSError as error:
    what = 'locked' if error.errno in files.NO_LOCKS else 'written'
    raise InputError(f'{path}: cannot be {what}: {error.strerror}') from None


def _key(row):
  return row.get('source'), row['id'], row['sha256']


def compared(row):
  """Returns the settings that decide a summary: with others it may differ."""
  return {
      **(row.get('settings') or {}),
      'dtype': row.get('dtype'),
      'checkpoint': (row.get('checkpoint') or {}).get('fingerprint'),
  }
