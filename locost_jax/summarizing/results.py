"""A file of summaries that can be interrupted: FILE and FILE.partial.

While work goes on every row is appended to FILE.partial and is on disk before
the next one begins; at the end FILE takes its place, whole. So a process that
is killed at any moment loses the summaries it was writing and no other, and
the next call does only what is missing. Rows are JSON in FILE.partial, in the
order they were finished; FILE has them in the order of the documents, as JSON
or as text.
"""

import fcntl
import json
import os

from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.files import write

_FIELDS = ('id', 'prediction', 'sha256')


class Results:
  """Rows by (id, sha256 of the text); those of an earlier call are there."""

  def __init__(self, path, made_with, as_json, overwrite=False):
    """Reads what there is and opens FILE.partial for appending.

    Args:
      path: FILE.
      made_with: what every new row holds besides its summary; `settings`,
        `dtype` and the checkpoint's fingerprint must be those of the old rows.
      as_json: JSON lines; otherwise a line of text per summary.
      overwrite: start afresh whatever there is.

    Raises:
      InputError: other settings, another checkpoint, a FILE of something else,
        or another process at work on it.
    """
    self._path, self._as_json = path, as_json
    self._partial = path + '.partial'
    self._made_with, self._rows = made_with, {}
    try:
      self._file = open(self._partial, 'a+b')
    except OSError as error:
      raise InputError(
          f'{self._partial}: cannot be written: {error.strerror}'
      ) from None
    try:
      try:
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except OSError:
        raise InputError(
            f'{self._partial}: another process is writing it'
        ) from None
      if overwrite:
        self._file.truncate(0)
      else:
        if as_json and os.path.exists(path):
          self._read(path)
        self._drop_torn_line()
        self._read(self._partial)
    except InputError:
      self.close()
      raise

  def get(self, name, sha256):
    """Returns the row of a document, or None."""
    return self._rows.get((name, sha256))

  def add(self, row):
    """Puts a row on disk."""
    self._rows[row['id'], row['sha256']] = row
    self._file.write(json_line(row).encode() + b'\n')
    self._file.flush()
    os.fsync(self._file.fileno())

  def finish(self, keys):
    """Puts FILE in its place.

    Args:
      keys: (id, sha256) of the documents of this call, in order; those without
        a row have failed.

    Returns:
      How many rows of other documents FILE holds in front of these: a JSONL
      file keeps what it had, a text has only what was asked for.
    """
    names = {name for name, _ in keys}
    others = (
        [row for (name, _), row in self._rows.items() if name not in names]
        if self._as_json
        else []
    )
    rows = others + [self._rows[key] for key in keys if key in self._rows]
    write(
        self._path,
        ''.join(
            (json_line(row) if self._as_json else text_line(row)) + '\n'
            for row in rows
        ),
    )
    os.unlink(self._partial)
    return len(others)

  def close(self):
    """Ends the file; one that never got a row leaves nothing behind."""
    if os.path.exists(self._partial) and not os.path.getsize(self._partial):
      os.unlink(self._partial)
    self._file.close()

  def _drop_torn_line(self):
    """Cuts off what a killed process had not finished writing."""
    self._file.seek(0)
    data = self._file.read()
    self._file.truncate(data.rfind(b'\n') + 1)

  def _read(self, path):
    try:
      rows = list(sources.read_jsonl([path], _FIELDS))
    except InputError as error:
      raise InputError(
          f'{error}: it is no result of this command, and '
          '--overwrite replaces it'
      ) from None
    now = _compared(self._made_with)
    for row in rows:
      before = _compared(row)
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
      self._rows[row['id'], row['sha256']] = row


def text_line(row):
  """A summary as one line of text."""
  return ' '.join(row['prediction'].split())


def json_line(row):
  """A row as one line of JSON; always UTF-8, also for lone surrogates."""
  line = json.dumps(row, ensure_ascii=False)
  try:
    line.encode()
  except UnicodeEncodeError:
    line = json.dumps(row)
  return line


def _compared(row):
  """What decides which summary a document gets, and when it may differ."""
  return {
      **(row.get('settings') or {}),
      'dtype': row.get('dtype'),
      'checkpoint': (row.get('checkpoint') or {}).get('fingerprint'),
  }
