"""The text of an EPUB book, in reading order.

Books are untrusted: files are unpacked only up to a size limit. Uses only the
standard library.
"""

import io
import posixpath
from urllib import parse
from xml.etree import ElementTree
import zipfile

from locost_jax.documents import markup
from locost_jax.errors import InputError


def read_headings(data, where, max_bytes=None):
  """Returns the text of an EPUB and its headings; arguments as in `read_text`.

  Returns:
    (text, [(start, heading), ...]); start is the index of a character.
  """
  return markup.take_marks(_epub(data, where, max_bytes, marks_headings=True))


def read_text(data, where, max_bytes=None):
  """Returns the text of an EPUB book: its pages in the order of its spine.

  A page is read once, even if the spine lists it several times.

  Args:
    data: bytes of the file.
    where: name of the file, for error messages.
    max_bytes: limit of the total unpacked size; None: no limit.

  Returns:
    str; blank lines between paragraphs.

  Raises:
    InputError: not an EPUB, broken, encrypted, too large, or a page that is not
      text.
  """
  return _epub(data, where, max_bytes, marks_headings=False)


def _epub(data, where, max_bytes, marks_headings):
  """Returns the text; with marks_headings, \\4 begins each heading."""
  try:
    with zipfile.ZipFile(io.BytesIO(data)) as book:
      return _Book(book, where, max_bytes).text(marks_headings)
  except (InputError, MemoryError):
    raise
  except Exception as error:  # of zipfile, a decompressor, or the XML parser
    reason = ' '.join(str(error).strip('"\'').split()) or type(error).__name__
    raise InputError(f'{where}: a broken EPUB: {reason}') from None


class _Book:
  """Reads the files of an EPUB."""

  def __init__(self, book, where, max_bytes):
    self._book, self._where, self._max_bytes = book, where, max_bytes
    self._unpacked = 0

  def text(self, marks_headings):
    """Returns the text of the pages."""
    order = self._order()
    if self._encrypted() & set(order) or any(
        self._book.getinfo(page).flag_bits & 1
        for page in order
        if page in self._book.NameToInfo
    ):
      raise InputError(
          f'{self._where}: an encrypted EPUB (DRM), which cannot be read'
      )
    texts = []
    for name in order:
      page = markup.Page(marks_headings)
      source = self._read(name)
      page.feed(markup.source_text(source, f'{self._where}, {name}', 'utf-8'))
      texts.append(page.text())
    return '\n\n'.join(text for text in texts if text)

  def _order(self):
    """Returns the names of the pages in reading order, each once."""
    root = next(
        (
            node.get('full-path')
            for node in self._xml('META-INF/container.xml').iter()
            if _local(node) == 'rootfile' and node.get('full-path')
        ),
        None,
    )
    if root is None:
      raise InputError(
          f'{self._where}: a broken EPUB: META-INF/container.xml names no '
          'package'
      )
    pages, order = {}, []
    for node in self._xml(root).iter():
      if _local(node) == 'item':
        # The table of contents is not part of the text.
        if 'html' in node.get('media-type', '') and (
            'nav' not in node.get('properties', '').split()
        ):
          pages[node.get('id')] = posixpath.normpath(
              posixpath.join(
                  posixpath.dirname(root), parse.unquote(node.get('href', ''))
              )
          )
      elif _local(node) == 'itemref' and node.get('linear') != 'no':
        order.append(node.get('idref'))
    order = list(dict.fromkeys(pages[name] for name in order if name in pages))
    if not order:
      raise InputError(f'{self._where}: a broken EPUB: {root} lists no page')
    return order

  def _encrypted(self):
    """Returns the names of encrypted files, which may be just fonts."""
    name = 'META-INF/encryption.xml'
    if name not in self._book.NameToInfo:
      return set()
    return {
        parse.unquote(node.get('URI', ''))
        for node in self._xml(name).iter()
        if _local(node) == 'CipherReference'
    }

  def _xml(self, name):
    return ElementTree.fromstring(self._read(name))

  def _read(self, name):
    # zipfile never unpacks more than `file_size` bytes.
    self._unpacked += self._book.getinfo(name).file_size
    markup.check_size(f'{self._where}, {name}', self._unpacked, self._max_bytes)
    return self._book.read(name)


def _local(node):
  return str(node.tag).rpartition('}')[2]
