"""The texts of files, for use from Python."""

import os

from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import documents


def read(path: str | os.PathLike) -> list[str]:
  """Reads the texts of documents as the summarize command does.

  Args:
    path: a text, Markdown, web page, EPUB, PDF, Word document, subtitles, JSON
      Lines, or a directory of such files.

  Returns:
    A list of str, a text per document.

  Raises:
    InputError: a file that cannot be read, is empty or is of another kind.
  """
  lines = []
  found, failures = documents.read([os.fspath(path)], report=lines.append)[:2]
  if failures:
    errors = [line for line in lines if line.startswith('error: ')]
    raise InputError(errors[0].removeprefix('error: '))
  return [document.text for document in found]


def check_is_text(text):
  """Raises an InputError for the name of a file instead of its text."""
  if isinstance(text, str) and len(text) < 1000 and os.path.isfile(text):
    raise InputError(
        f'{visible(text)}: is the name of a file; expected a text, such as '
        f'those of locost_jax.read({text!r})'
    )
