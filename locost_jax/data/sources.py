"""Reads JSONL files.

- JSONL: one object per line, UTF-8, optionally compressed (`.gz`). Lines are
  split only at the byte '\\n', because strings may contain U+0085 and other
  characters at which `str.splitlines` splits. data/file_formats.py reads the
  other formats.
- Legal JSON can hold a lone surrogate, half of a character ("\\ud800"), which
  no UTF-8 file can: U+FFFD replaces it, and a line on stderr counts them.
"""

import collections
import functools
import glob
import gzip
import hashlib
import itertools
import json
import math
import numbers
import os
import re
import sys
import zlib

from locost_jax import files
from locost_jax.config import kinds
from locost_jax.config import object_store
from locost_jax.errors import InputError

# Maximum characters of a document in formats without a limit of their own; more
# than the longest novel.
LONGEST = 1 << 26

# Names of fields in an error, and characters of each.
_SHOWN, _CHARACTERS = 12, 30
_MOST_BAD = 100  # rows of a file; the rest is not read
_ESCAPED = re.compile(r'\\u[dD][89a-fA-F]')
_replaced = collections.defaultdict(dict)  # path -> {line: lone surrogates}
REPLACED = 'replaced by U+FFFD'  # ends the line that counts them


def is_held_out(key):
  """Whether a row is one of the 2% that are held out, by a hash of its key."""
  return hash_key(key) < 0.02 * 2**64


def hash_key(key):
  """Hashes a string to 64 bits, the same on every machine."""
  data = key.encode('utf-8', errors='replace')
  return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), 'big')


# --- Files -------------------------------------------------------------------


def expand_globs(globs, disk=object_store.DISK):
  """Finds the files of comma-separated glob patterns.

  Args:
    globs: such as 'a/train-*.jsonl.gz,b.jsonl'; a Function is its own file, and
      gs:// means copies of its objects.
    disk: the most GiB of the copies of a pattern.
  """
  if isinstance(globs, kinds.Function):
    return [globs]
  paths = {}  # name, which decides the order -> path
  patterns = [p.strip() for p in globs.split(',') if p.strip()]
  if not patterns:
    raise InputError(f'{globs!r}: expected at least one file or glob pattern')
  for pattern in patterns:
    if object_store.is_uri(pattern):
      paths.update(object_store.copy_matches(pattern, disk))
      continue
    # The name of an existing file is not a pattern, even with brackets.
    matches = [pattern]
    if not os.path.isfile(pattern):
      found = glob.glob(pattern, recursive=True)
      matches = list(filter(os.path.isfile, found))
    if not matches:
      files.check_regular(pattern)  # a directory, a pipe
      is_pattern = glob.has_magic(pattern)
      what = 'no file matches this pattern' if is_pattern else 'no such file'
      raise InputError(f'{pattern}: {what}')
    paths.update(zip(matches, matches))
  return [paths[name] for name in sorted(paths)]


def read_jsonl(path, fields=()):
  """Yields the rows of a JSONL file as dicts.

  Empty lines are skipped; a byte order mark and carriage returns at line ends
  are allowed.

  Args:
    fields: names of the fields every row must have, as strings; or {name: key
      of the config that chooses it}, for errors; or a function (row) -> names.

  Raises:
    InputError: the file cannot be read; a line is not UTF-8, not a JSON object,
      or lacks a field (with file and line number).
  """
  later = fields if callable(fields) else (*fields,)
  parse = lambda number, line: parse_row(
      path, number, line, fields if number == 1 else later
  )
  makers = (functools.partial(parse, *line) for line in read_lines(path))
  return good_rows(path, makers)


def good_rows(path, makers):
  """Yields the rows of a file that functions make, until one fails.

  Errors begin with the path; that of this row has the numbers of others, too.
  """
  bad, makers = [], iter(makers)
  while len(bad) < _MOST_BAD:
    try:
      row = next(makers)()
    except StopIteration:
      break
    except InputError as error:
      bad.append(str(error))
      continue
    if not bad:
      yield row
  if bad:
    # Number and text, which is the same for most.
    (_, _, first), *others = (
        line.removeprefix(path).lstrip(': ').partition(': ') for line in bad
    )
    shown = [n if first.startswith(x) else f'{n} ({x})' for n, _, x in others]
    least = 'at least ' * (len(bad) == _MOST_BAD)
    more = f'; {least}{len(others)} more bad rows: {", ".join(shown[:3])}'
    raise InputError(bad[0] + (more + ', ...' * (len(bad) > 4)) * bool(others))


def read_lines(path, max_bytes=None):
  """Yields (line number from 1, stripped bytes) of the lines with text.

  Args:
    max_bytes: maximum bytes of a line, and of all white space around lines;
      None: no limit.
  """
  space = 0
  for number, line in raw_lines(path, max_bytes, ' (--max_document_bytes)'):
    text = line.strip()
    space += len(line) - len(text)
    if max_bytes is not None and max(len(text), space) > max_bytes:
      raise _too_long(path, number, max_bytes, ' (--max_document_bytes)')
    if text:
      yield number, text
  report_replaced(path)


def raw_lines(path, max_bytes=None, limit=''):
  """Yields (number from 1, bytes with the end) of the lines of a file.

  A byte order mark is left out.

  Args:
    max_bytes: maximum bytes of a line without its end; None: no limit.
    limit: the flag that sets `max_bytes`, for the error.
  """
  try:
    with files.open_regular(path) as packed:
      f = gzip.open(packed) if path.endswith('.gz') else packed
      for number in itertools.count(1):
        # A binary file is split only at b'\n'.
        line = f.readline(-1 if max_bytes is None else max_bytes + 1)
        if not line:
          return
        if max_bytes is not None and len(line.removesuffix(b'\n')) > max_bytes:
          raise _too_long(path, number, max_bytes, limit)
        if number == 1 and line.startswith(b'\xef\xbb\xbf'):
          line = line[3:]
        yield number, line
  except (OSError, EOFError, zlib.error) as e:
    reason = getattr(e, 'strerror', None) or str(e)
    raise InputError(f'{path}: cannot be read: {reason}') from None


def _too_long(path, number, max_bytes, limit):
  return InputError(
      f'{path}:{number}: a row has more than {max_bytes:,} bytes{limit}; the '
      'file is not read from here on'
  )


def decode(where, data):
  """Decodes UTF-8 bytes; `where` names them in an error."""
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
  """Parses a line of a JSONL file; see `read_jsonl`."""
  where = f'{path}:{number}'
  is_list = number == 1 and line.lstrip().startswith(b'[')
  hint = "; a JSON list? expected a row in each line: jq -c '.[]'" * is_list
  try:
    row = loads(line.decode('utf-8'), path, number)
  except UnicodeDecodeError as e:
    raise InputError(f'{where}: not UTF-8 (byte {e.start})') from None
  except (ValueError, RecursionError) as e:
    raise InputError(f'{where}: not JSON: {e}{hint}') from None
  if not isinstance(row, dict):
    raise InputError(
        f'{where}: expected a JSON object, got {type(row).__name__}{hint}'
    )
  check_texts(where, row, fields(row) if callable(fields) else fields)
  return row


def loads(text, path, number=1):
  """Parses JSON like `json.loads`; replaces and counts lone surrogates.

  Args:
    path, number: its file, and its line or another number unique in the file.
  """
  value = json.loads(text)
  if _ESCAPED.search(text):
    text, count = kinds.LONE.subn(
        '\ufffd', json.dumps(value, ensure_ascii=False)
    )
    if count:
      value = json.loads(text)
      _replaced[path][number] = count
  return value


def report_replaced(path):
  """Prints how many lone surrogates of a file were replaced, if any."""
  if path in _replaced:
    _report(path, sum(_replaced[path].values()))


@functools.cache  # once, even if the file is read several times
def _report(path, count):
  what = f'lone surrogate{"s" * (count > 1)} in JSON'
  print(f'{path}: {count:,} {what}, {REPLACED}', file=sys.stderr, flush=True)


def id_of(where, row, is_whole=False):
  """Returns the id of a row as a str; None if it has none.

  Raises:
    InputError: it is neither a string nor a finite number, which `is_whole`
      limits to whole numbers.
  """
  found = row.get('id')
  if found is None:
    return None
  number = numbers.Integral if is_whole else numbers.Real
  is_number = isinstance(found, number) and not isinstance(found, bool)
  if not isinstance(found, str) and not (is_number and abs(found) < math.inf):
    raise InputError(
        f"{where}: field 'id' must be a string or a {'whole ' * is_whole}number, "
        f'got {type(found).__name__}'
    )
  return str(found)


def show_names(names):
  """Returns the first names of fields, cut, for an error; 'none' of none."""
  shown = [repr(str(x)[:_CHARACTERS]) for x in itertools.islice(names, _SHOWN)]
  return ', '.join(shown + ['...'] * (len(names) > _SHOWN)) or 'none'


def check_texts(where, row, fields):
  """Raises an InputError unless a row has these fields as strings."""
  for field in fields:
    if field not in row:
      raise InputError(
          f'{where}: no field {field!r}; the row has {show_names(row)}'
          f'{name_fields(row, fields)}'
      )
    if not isinstance(row[field], str):
      raise InputError(
          f'{where}: field {field!r} must be a string, got '
          f'{type(row[field]).__name__}'
      )


def name_fields(row, fields):
  """Returns '; try --config.data.input_field=article': the longest texts."""
  if not isinstance(fields, dict):
    return ''
  others = [key for key in row if key not in (*fields, 'id', 'query')]
  texts = [key for key in others if isinstance(row[key], str)]
  texts.sort(key=lambda key: -len(row[key]))
  missing = [key for name, key in fields.items() if key and name not in row]
  names = [*texts, *['FIELD'] * len(missing)]
  tried = (f' --config.data.{key}={name}' for key, name in zip(missing, names))
  return f'; try{"".join(tried)}' * bool(missing)


def check_parts(where, row):
  """Raises an InputError if an optional field has the wrong type."""
  is_text = lambda value: isinstance(value, str)
  is_section = lambda part: isinstance(part, dict) and all(
      is_text(part.get(name)) for name in ('heading', 'text')
  )
  for field, what, is_part in (
      ('sections', 'objects with the strings heading and text', is_section),
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
