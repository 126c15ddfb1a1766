"""The text of a Word document, .docx (extra `documents`: python-docx).

Paragraphs and tables come in their order; headings are places. A row of a table
is a line, its cells separated by ' | '. Headers, footers and notes are not read.
"""

import io
import zipfile

from locost_jax.documents import markup
from locost_jax.documents.places import Place
from locost_jax.documents.places import Placed
from locost_jax.errors import InputError

_HEADINGS = ('Heading', 'Title')


def read(data, where, most=None):
  """Returns the text of a .docx with its headings as places.

  Args:
    data: bytes of the file.
    where: what to call it in an error.
    most: bytes that its files may unpack to; None: no limit.

  Returns:
    Placed.

  Raises:
    InputError: python-docx is missing, or a broken, encrypted or too large
      file.
  """
  if data.startswith(b'\xd0\xcf\x11\xe0'):
    raise InputError(
        f'{where}: is encrypted, or of an older Word; expected a .docx without '
        'a password'
    )
  try:
    import docx
  except ImportError:
    raise InputError(
        f'{where}: is a Word document, which needs python-docx: '
        'pip install "locost_jax[documents]"'
    ) from None
  try:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
      # zipfile unpacks no more than these numbers say.
      size = sum(item.file_size for item in archive.infolist())
    markup.check_size(where, size, most)
    blocks = list(docx.Document(io.BytesIO(data)).iter_inner_content())
    return _join(_parts(blocks))
  except (InputError, MemoryError):
    raise
  except Exception as error:  # of zipfile, lxml or python-docx
    reason = ' '.join(str(error).strip('"\'').split()) or type(error).__name__
    raise InputError(f'{where}: a broken Word document: {reason}') from None


def _parts(blocks):
  """Yields (text, is a heading) of paragraphs and tables."""
  for block in blocks:
    if hasattr(block, 'rows'):
      yield '\n'.join(map(_row, block.rows)), False
    elif block.text.strip():
      style = block.style.name if block.style is not None else ''
      yield block.text.strip(), style.startswith(_HEADINGS)


def _row(row):
  """A row of a table; a cell that spans several columns is read once."""
  cells = []
  for cell in row.cells:
    if not cells or cell._tc is not cells[-1]._tc:  # pylint: disable=protected-access
      cells.append(cell)
  return ' | '.join(' '.join(cell.text.split()) for cell in cells)


def _join(parts):
  """Parts of `_parts` -> Placed, a blank line between them."""
  texts, places, at = [], [], 0
  for text, is_heading in parts:
    if is_heading:
      places.append(Place(at, ' '.join(text.split())))
    texts.append(text)
    at += len(text) + 2
  return Placed('\n\n'.join(texts), tuple(places))
