"""Checks the files of summaries and pages before anything is computed.

An existing file is replaced only with --overwrite and only if it is a regular
file. A document is never replaced.
"""

import contextlib
import os
import sys

from locost_jax import files
from locost_jax.errors import InputError


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
    overwrite: whether existing files may be replaced.
    keeps_rows: whether existing rows of the output stay (`results` checks them).
    inputs: paths of the documents, '-' for standard input.
    total: number of documents.
  """
  documents = _identities(inputs)
  output, report = paths['output'], paths['report']
  written = {
      'output': [output, partial_path(output)] if output else [],
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
  if os.path.lexists(path) and os.path.exists(path):
    raise InputError(
        f'--{flag}={path}: exists already; expected the name of a new file, or '
        '--overwrite, which replaces it'
    )


def partial_path(output):
  """Returns the path that holds FILE's summaries until all are done."""
  return output + '.partial'


def _identities(inputs):
  """Returns {identity: name} of the documents."""
  found = {_identity(path): path for path in inputs if path != '-'}
  if '-' in inputs and sys.stdin is not None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
      found[_identity(sys.stdin.fileno())] = 'on standard input'
  found.pop(None, None)
  return found


def _identity(path):
  """Returns the device and inode of a file; None: it does not exist."""
  try:
    status = os.stat(path)
  except (OSError, ValueError):
    return None
  return status.st_dev, status.st_ino
