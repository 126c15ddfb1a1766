"""Whole files on disk: a file is there complete, or not at all."""

import hashlib
import os
from pathlib import Path

_BLOCK = 1 << 22  # bytes read at once


def write(path, content):
  """Writes a file so that a crash leaves the old one or the new one.

  Args:
    path: of the file; its directories are made.
    content: bytes; or str, written as UTF-8 with line ends as they are.
  """
  data = content.encode() if isinstance(content, str) else content
  path = Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  temporary = path.with_name(f'{path.name}.tmp{os.getpid()}')
  try:
    with open(temporary, 'wb') as file:
      file.write(data)
      file.flush()
      os.fsync(file.fileno())
    os.replace(temporary, path)
  finally:
    temporary.unlink(missing_ok=True)
  sync(path.parent)


def sync(path):
  """Makes a file, or the names in a directory, survive a power cut."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def describe(file):
  """Returns 'BYTES SHA-256' of an open binary file, or of bytes.

  0.8 s per GiB on a core with SHA instructions.
  """
  if isinstance(file, bytes):
    return f'{len(file)} {hashlib.sha256(file).hexdigest()}'
  digest, size = hashlib.sha256(), 0
  while block := file.read(_BLOCK):
    digest.update(block)
    size += len(block)
  return f'{size} {digest.hexdigest()}'
