"""The texts of files, for use from Python."""

import os

from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import documents
from locost_jax.summarizing import texts


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


def check_is_text(document, pages, name='the text'):
  """Raises an InputError for an empty text, or the name of a file.

  Args:
    document: a string, or a dict as `texts` describes it.
    pages: `texts.Pages`, or None.
    name: of the document, for the error.
  """
  is_short = isinstance(document, str) and len(document) < 1000
  if is_short and os.path.isfile(document):
    raise InputError(
        f'{visible(document)}: is the name of a file; expected a text, such as '
        f'those of locost_jax.read({document!r})'
    )
  if not texts.text_of(document, pages).text.strip():
    raise InputError(f'{name} is empty: expected some text')
