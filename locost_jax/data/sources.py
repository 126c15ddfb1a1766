"""Where text comes from: files, and corpora that TFDS prepared.

- JSONL: one object a line, UTF-8, split at the byte '\\n' only (some strings
  hold U+0085 and others that `str.splitlines` would split at); `.gz` is read
  through gzip. data/file_formats.py reads the other formats.
- TFDS: a corpus somebody prepared on this machine; never a download.

No TensorFlow is imported.
"""

import glob
import gzip
import hashlib
import itertools
import json
import os
import re
import zlib

from locost_jax.errors import InputError

# Characters of a document at most, where nothing else says where it ends: more
# than the longest of all novels.
LONGEST = 1 << 26


def is_held_out(key, fraction=0.02):
  """Whether a row belongs to the held-out part, by the hash of its key.

  Args:
    key: a string; equal keys fall on one side.
    fraction: share of the keys that is held out.
  """
  return hash_key(key) < fraction * 2**64


def hash_key(key):
  """Hashes a string to 64 bits, the same on every machine."""
  data = key.encode('utf-8', errors='replace')
  return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), 'big')


# --- Files -------------------------------------------------------------------


def expand_globs(globs):
  """Finds the files of comma-separated glob patterns.

  Args:
    globs: such as 'a/train-*.jsonl.gz,b.jsonl'.

  Returns:
    Sorted paths, each once.

  Raises:
    InputError: a pattern matches no file.
  """
  files = set()
  patterns = [p.strip() for p in globs.split(',') if p.strip()]
  if not patterns:
    raise InputError(f'{globs!r}: expected at least one file or glob pattern')
  for pattern in patterns:
    # A name that exists is meant literally, brackets and all.
    matches = (
        [pattern]
        if os.path.isfile(pattern)
        else [
            p for p in glob.glob(pattern, recursive=True) if os.path.isfile(p)
        ]
    )
    if not matches:
      raise InputError(
          f'{pattern}: no such file'
          if not glob.has_magic(pattern)
          else f'{pattern}: no file matches this pattern'
      )
    files.update(matches)
  return sorted(files)


def read_jsonl(files, fields=()):
  """Reads the rows of JSONL files.

  Args:
    files: paths; those that end in '.gz' are decompressed.
    fields: names of the fields every row must have, as strings.

  Yields:
    A dict a row, in order. Empty lines are passed over; a byte order mark and
    carriage returns at line ends are tolerated.

  Raises:
    InputError: a file cannot be read; a line is not UTF-8, not a JSON object,
      or lacks a field (with file and line number).
  """
  for path in files:
    for number, line in read_lines(path):
      yield parse_row(path, number, line, fields)


def read_lines(path, most=None):
  """Yields (line number from 1, bytes without the line end) of a file.

  Args:
    path: of the file; one that ends in '.gz' is decompressed.
    most: bytes of a line, and of all white space around lines; None: no limit.

  Raises:
    InputError: the file cannot be read, or holds too long a line.
  """
  space = 0
  for number, line in raw_lines(path, most, ' (--max_document_bytes)'):
    text = line.strip()
    space += len(line) - len(text)
    if most is not None and max(len(text), space) > most:
      raise _too_long(path, number, most, ' (--max_document_bytes)')
    if text:
      yield number, text


def raw_lines(path, most=None, limit=''):
  """Yields the lines of a file as they are, but for a byte order mark.

  Args:
    path: of the file; one that ends in '.gz' is decompressed.
    most: bytes of a line, its end not counted; None: no limit.
    limit: what sets `most`, for the error.

  Yields:
    (line number from 1, bytes with the line end).

  Raises:
    InputError: the file cannot be read, or a line is longer.
  """
  try:
    with gzip.open(path) if path.endswith('.gz') else open(path, 'rb') as f:
      for number in itertools.count(1):
        # Up to b'\n' only, as the file is binary.
        line = f.readline(-1 if most is None else most + 1)
        if not line:
          return
        if most is not None and len(line.removesuffix(b'\n')) > most:
          raise _too_long(path, number, most, limit)
        if number == 1 and line.startswith(b'\xef\xbb\xbf'):
          line = line[3:]
        yield number, line
  except (OSError, EOFError, zlib.error) as e:
    reason = getattr(e, 'strerror', None) or str(e)
    raise InputError(f'{path}: cannot be read: {reason}') from None


def _too_long(path, number, most, limit):
  return InputError(
      f'{path}:{number}: a row has more than {most:,} bytes{limit}; the file is '
      'not read from here on'
  )


def decode(where, data):
  """Returns the text of bytes that must be UTF-8; `where` begins an error."""
  if b'\0' in data:
    raise InputError(
        f'{where}: a NUL byte: expected text in UTF-8, not UTF-16 or a file of '
        'another kind'
    )
  try:
    return data.decode('utf-8')
  except UnicodeDecodeError as e:
    raise InputError(
        f'{where}: not UTF-8 (byte {e.start}); expected the file to be saved as '
        'UTF-8'
    ) from None


def parse_row(path, number, line, fields):
  """Returns the dict of a line; errors and fields as in `read_jsonl`."""
  where = f'{path}:{number}'
  try:
    row = json.loads(line.decode('utf-8'))
  except UnicodeDecodeError as e:
    raise InputError(f'{where}: not UTF-8 (byte {e.start})') from None
  except (ValueError, RecursionError) as e:
    raise InputError(f'{where}: not JSON: {e}') from None
  if not isinstance(row, dict):
    raise InputError(
        f'{where}: expected a JSON object, got {type(row).__name__}'
    )
  check_texts(where, row, fields)
  return row


def check_texts(where, row, fields):
  """Raises an InputError unless a row has each of these fields, as a string."""
  for field in fields:
    if field not in row:
      raise InputError(
          f'{where}: no field {field!r}; the row has '
          f'{", ".join(map(repr, row)) or "none"}'
      )
    if not isinstance(row[field], str):
      raise InputError(
          f'{where}: field {field!r} must be a string, got '
          f'{type(row[field]).__name__}'
      )


def check_parts(where, row):
  """Raises an InputError where an optional field has another form."""
  is_text = lambda value: isinstance(value, str)
  for field, what, is_part in (
      (
          'sections',
          'objects with the strings heading and text',
          lambda part: isinstance(part, dict)
          and is_text(part.get('heading'))
          and is_text(part.get('text')),
      ),
      ('documents', 'strings', is_text),
      ('references', 'strings', is_text),
  ):
    value = row.get(field) or []
    if not isinstance(value, list) or not all(map(is_part, value)):
      raise InputError(f'{where}: field {field!r} must be a list of {what}')
  if not is_text(row.get('query') or ''):
    raise InputError(
        f"{where}: field 'query' must be a string, got "
        f'{type(row["query"]).__name__}'
    )


# --- TFDS --------------------------------------------------------------------


def find_tfds(name, tfds_dir=''):
  """Finds a corpus that TFDS prepared on this machine.

  Args:
    name: 'dataset', 'dataset/config', either with ':version' behind.
    tfds_dir: where TFDS keeps its data; '': $TFDS_DATA_DIR, or else
      ~/tensorflow_datasets.

  Returns:
    The directory of the version (the newest one unless named), which
    `tfds.builder_from_directory` reads.

  Raises:
    InputError: not found; nothing is downloaded.
  """
  from etils import epath  # also reads gs:// and the like

  base = epath.Path(
      tfds_dir or os.environ.get('TFDS_DATA_DIR') or '~/tensorflow_datasets'
  ).expanduser()
  dataset, _, version = name.partition(':')
  root = base / dataset
  prepared = [
      path.name
      for path in (root.iterdir() if root.is_dir() else ())
      if re.fullmatch(r'\d+\.\d+\.\d+', path.name)
      and (not version or path.name == version)
      and (path / 'dataset_info.json').exists()
  ]
  if not prepared:
    where = f' --data_dir={tfds_dir}' if tfds_dir else ''
    raise InputError(
        f'{name}: not prepared by TFDS: expected '
        f'{root / (version or "VERSION")}/dataset_info.json. Prepare it with '
        f'`tfds build {dataset}{where}`, or let config.data.tfds_dir name the '
        'directory that TFDS keeps it in'
    )
  newest = max(prepared, key=lambda v: tuple(map(int, v.split('.'))))
  return str(root / newest)


def tfds_shards(directory, split):
  """The files of a split in a directory of `find_tfds`, sorted."""
  from etils import epath

  return sorted(map(str, epath.Path(directory).glob(f'*-{split}.*-of-*')))
