"""Finds and reads the documents that a user names.

A name is a file, a directory (every readable file in it and below, sorted) or
'-' for a text on standard input. `documents.readers` has the kinds of files;
a .jsonl file has a document in each row, and all but .epub, .pdf and Word's
may be compressed (.gz). A document that cannot be read, for whatever reason,
does not keep the others from being read. Only regular files are opened, and
sizes are looked at before memory is taken.
"""

import gzip
import math
import os
import sys

from locost_jax import files
from locost_jax.config import object_store
from locost_jax.data import sources
from locost_jax.devices import memory
from locost_jax.documents import places
from locost_jax.documents import readers
from locost_jax.errors import InputError
from locost_jax.summarizing import documents as documents_lib

_ROWS = ('.jsonl', '.jsonl.gz')
READABLE = (*readers.ENDINGS, *_ROWS)
_NAMED = 4  # files passed over that are named, the others are counted
# By default a document has at most this many bytes, or this part of the memory
# that is free: text, marks and tokens take a multiple of the bytes. All of them
# together take no more than the second part.
_MOST_BYTES, _PART, _PART_OF_ALL = 2**30, 1 / 8, 1 / 2


def read(path: str | os.PathLike) -> list[str]:
  """Reads the texts of documents as the summarize command does.

  Args:
    path: a text, Markdown, web page, EPUB, PDF, Word document, subtitles, JSON
      Lines, or a directory of such files.

  Raises:
    InputError: a file that cannot be read, is empty or is of another kind.
  """
  found, lacking = read_all([os.fspath(path)], report=lambda _: None)
  if lacking:
    raise InputError(f'{lacking[0].name}: {lacking[0].reason}')
  return [document.text for document in found]


def read_all(
    names, fields=documents_lib.Fields(), report=print, most=None, held=None
):
  """Reads all documents.

  Args:
    names: files, directories or '-'.
    report: called with a line for each document that cannot be read, for files
      of a directory that were passed over, and for what a reader left out.
    most: bytes of a document, also of what a file unpacks to; None: an eighth
      of the free memory, at most 1 GiB.
    held: characters of all documents; None: half of the free memory.

  Returns:
    (list of Document in the order of their names, list of LeftOut).
  """
  free = memory.free_host_bytes()
  free = math.inf if free is None else free
  most = most or int(min(_MOST_BYTES, free * _PART))
  held = free * _PART_OF_ALL if held is None else held
  documents, failures = [], []
  for name in names:
    object_store.forget(name)
  for path in _paths(names, report):
    for found in _read_safely(path, fields, most, report):
      place = len(documents) + len(failures)
      if isinstance(found, documents_lib.Document):
        held -= len(found.text)
        if held >= 0:
          documents.append(found._replace(place=place))
          continue
        found = InputError(
            f'{found.id}: all documents together take more than memory '
            'holds; summarise the rest in another call'
        )
      failures.append(documents_lib.left_out(place, path, found))
      report(f'error: {found}')
      if held < 0:
        return documents, failures
  return documents, failures


def inputs(names):
  """Returns the paths of all files that `read_all` opens for these names."""
  found = _paths(names, lambda _: None)
  return [path for path in found if isinstance(path, str)]


def _paths(names, report):
  """Yields the paths of names; an InputError for a name without any."""
  for name in names:
    try:
      yield from [name] if name == '-' else find(name, report)
    except InputError as error:
      yield error


def find(name, report=print):
  """Returns the files of a name: itself, or the readable ones below it.

  Args:
    name: a file or a directory, also in a bucket (gs://); hidden files and
      directories are passed over.
    report: called with a line where others were passed over.

  Raises:
    InputError: there is nothing of this name, or nothing readable in it.
  """
  paths = []
  if object_store.is_uri(name):
    bucket, own = object_store.parse(name)
    found = object_store.find(name)
    paths = [f'{object_store.PREFIX}{bucket}/{inner}' for inner in found]
    if own in found:
      return paths
    paths = [path for path in paths if '/.' not in path[len(name) :]]
  elif not os.path.exists(name):
    raise InputError(f'{name or repr(name)}: no such file')
  elif not os.path.isdir(name):
    return [name]
  for folder, folders, inside in os.walk(name):
    folders[:] = sorted(f for f in folders if not f.startswith('.'))
    paths += [
        os.path.join(folder, file)
        for file in inside
        if not file.startswith('.')
    ]
  readable = sorted(p for p in paths if p.lower().endswith(READABLE))
  others = sorted(set(paths) - set(readable))
  if not readable:
    raise InputError(
        f'{name}: a directory with nothing readable in it; '
        f'expected {" ".join(READABLE)}'
    )
  if others:
    shown = ', '.join(os.path.relpath(p, name) for p in others[:_NAMED])
    more = f' and {len(others) - _NAMED} more' if len(others) > _NAMED else ''
    report(f'{name}: passed over {len(others)} of other kinds: {shown}{more}')
  return readable


def _read_safely(path, fields, most, report):
  """Yields what `_read_file` does, and an InputError for its exception."""
  if isinstance(path, InputError):
    yield path
    return
  where = 'standard input' if path == '-' else path
  try:
    opened = object_store.local(path)
    yield from _read_file(path, opened, where, fields, most, report)
  except InputError as error:
    yield InputError(object_store.original(str(error)))
  except Exception as error:  # whatever a parser or a decompressor raises
    reason = getattr(error, 'strerror', None) or (
        f'{type(error).__name__}: {" ".join(str(error).split())}'
    )
    yield InputError(f'{where}: cannot be read: {reason}')


def _read_file(path, opened, where, fields, most, report):
  """Yields the Documents of a file or its copy; InputErrors for bad rows."""
  lower, row = path.lower(), None
  if path != '-':
    files.check_regular(opened)
  if lower.endswith(_ROWS):
    for row in sources.read_lines(opened, most):
      yield documents_lib.read_row(path, *row, fields)
    if row is None:
      raise InputError(f'{path}: holds no document')
    return
  kind = os.path.splitext(lower.removesuffix('.gz'))[1]
  found = readers.read(kind, _read_bytes(opened, where, most), where, most)
  if not found.text.strip():
    why = (f'; {note.removeprefix(f"{where}: ")}' for note in found.notes)
    raise InputError(f'{where}: an empty document{"".join(why)}')
  for note in found.notes:
    report(str(note))
  yield documents_lib.Document(path, found.text, path, places=found.places)


def _read_bytes(path, where, most):
  """Returns the bytes of a file, decompressed, or of standard input.

  Raises:
    InputError: there are more than `most`.
  """
  if path == '-':
    data = sys.stdin.buffer.read(most + 1)
  else:
    places.check_size(where, os.path.getsize(path), most)
    with (gzip.open if path.endswith('.gz') else open)(path, 'rb') as file:
      data = file.read(most + 1)
  if len(data) > most:
    raise InputError(
        f'{where}: holds more than {most:,} bytes, the most of a document '
        '(--max_document_bytes)'
    )
  return data
