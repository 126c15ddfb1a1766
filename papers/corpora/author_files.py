"""Reads the files that authors published: JSONL, text, web pages."""

import os

from locost_jax.data import sources
from locost_jax.documents import markup
from locost_jax.errors import InputError

# Name of a split in this package -> its name in the files.
VAL = dict(train='train', validation='val', test='test')
DEV = dict(train='train', validation='dev', test='test')
VALID = dict(train='train', validation='valid', test='test')


def find(directory, *names):
  """Returns the first of some paths in a directory; InputError if none is."""
  for name in names:
    path = os.path.join(directory, name)
    if os.path.exists(path):
      return path
  raise InputError(f'{directory}: expected {" or ".join(names)} in it')


def read_rows(directory, *names):
  """Yields (line number, row) of a JSONL file with one of these names."""
  path = find(directory, *names)
  for number, line in sources.read_lines(path):
    yield number, sources.parse_row(path, number, line, ())


def read_bytes(path):
  """Reads the bytes of a file; None if there is no file."""
  try:
    with open(path, 'rb') as f:
      return f.read()
  except FileNotFoundError:
    return None


def read_text(path):
  """Reads a UTF-8 file; None: no file. Raises an InputError if not UTF-8."""
  data = read_bytes(path)
  try:
    return None if data is None else data.decode('utf-8-sig')
  except UnicodeDecodeError as error:
    raise InputError(f'{path}: not UTF-8 (byte {error.start})') from None


def read_json(path):
  """Reads the JSON of a UTF-8 file; None if there is no text."""
  text = read_text(path)
  value = text and sources.loads(text, path)
  sources.report_replaced(path)
  return value or None


def decode(data):
  """Decodes bytes from the web: UTF-8, or else Latin-1."""
  try:
    return data.decode('utf-8-sig')
  except UnicodeDecodeError:
    return data.decode('latin-1')


def page_text(data, name):
  """Returns the text of a web page; Latin-1 if its encoding does not fit."""
  data = data.replace(b'\0', b'')
  try:
    return markup.html_headings(data, name, is_plain=True)[0]
  except InputError:
    # A byte order mark overrides the encoding that the page names.
    data = data.decode('latin-1').encode('utf-8-sig')
    return markup.html_headings(data, name, is_plain=True)[0]


def join(value, separator='\n'):
  """Joins a list of strings, or strips a string; the files have both."""
  if isinstance(value, str):
    return value.strip()
  if not isinstance(value, (list, type(None))):
    raise TypeError(f'expected a string or a list of strings, got {value!r}')
  return separator.join(part.strip() for part in value or () if part.strip())
