"""Whole files on disk: a file is there complete, or not at all."""

import os
from pathlib import Path


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
