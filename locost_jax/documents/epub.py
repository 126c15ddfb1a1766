"""The text of an EPUB book, in reading order.

Books are untrusted: files are unpacked only up to a size limit. Uses only the
standard library.
"""

import posixpath
from urllib import parse
from xml.etree import ElementTree

from locost_jax.documents import archive
from locost_jax.documents import markup
from locost_jax.errors import InputError

_BETWEEN = '\n\n'  # two pages
_TYPE = '{http://www.idpf.org/2007/ops}type'  # of a nav


def read_headings(data, where, max_bytes=None):
  """Returns the text of an EPUB and its headings; arguments as in `read_text`.

  A page without a heading has its title in the table of contents. In a book
  without such titles, pages without a heading are called 'section 3' and so on.

  Returns:
    (text, [(start, heading), ...]); start is the index of a character.
  """
  texts, headings, at = [], [], 0
  for marked, title in _read_pages(data, where, max_bytes, True):
    text, found = markup.take_marks(marked)
    if not found and title:
      found = [(0, title)]
    headings += [(at + start, heading) for start, heading in found]
    texts.append(text)
    at += len(text) + len(_BETWEEN)
  return _BETWEEN.join(texts), headings


def read_text(data, where, max_bytes=None):
  """Returns the text of an EPUB book: its pages in the order of its spine.

  A page is read once, even if the spine lists it several times.

  Args:
    where: name of the file, for error messages.
    max_bytes: limit of the total unpacked size; None: no limit.

  Returns:
    str; blank lines between paragraphs.

  Raises:
    InputError: not an EPUB, broken, encrypted, too large, or a page that is not
      text.
  """
  pages = _read_pages(data, where, max_bytes, False)
  return _BETWEEN.join(text for text, _ in pages)


def _read_pages(data, where, max_bytes, marks_headings):
  """Returns `_Book.pages` of a file."""
  with archive.open_archive(data, where, 'EPUB') as book:
    return _Book(book, where, max_bytes).pages(marks_headings)


class _Book:
  """Reads the files of an EPUB."""

  def __init__(self, book, where, max_bytes):
    self._book, self._where, self._max_bytes = book, where, max_bytes
    self._unpacked = 0

  def pages(self, marks_headings):
    """Returns [(text, title or ''), ...] of the pages that have text.

    Args:
      marks_headings: whether \\4 begins each heading of a text.
    """
    order, contents = self._order()
    if self._encrypted() & set(order) or any(
        self._book.getinfo(page).flag_bits & 1
        for page in order
        if page in self._book.NameToInfo
    ):
      raise InputError(
          f'{self._where}: an encrypted EPUB (DRM), which cannot be read'
      )
    titles = self._titles(contents) if marks_headings else {}
    pages = []
    for number, name in enumerate(order, start=1):
      page = markup.Page(marks_headings)
      source = self._read(name)
      page.feed(markup.source_text(source, f'{self._where}, {name}', 'utf-8'))
      title = titles.get(name, '') if titles else f'section {number}'
      pages.append((page.text(), title))
    return [(text, title) for text, title in pages if text]

  def _titles(self, contents):
    """Returns {page: title} of the tables of contents; {} if they are broken."""
    titles = {}
    for name in contents:
      try:
        entries = list(_entries(self._xml(name)))
      except (ElementTree.ParseError, KeyError, RuntimeError):
        continue
      for link, title in entries:
        titles.setdefault(_join(name, link.partition('#')[0]), title)
    return titles

  def _order(self):
    """Returns the names of the pages in reading order, and of the contents."""
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
    pages, order, contents = {}, [], []
    for node in self._xml(root).iter():
      if _local(node) == 'item':
        name, kind = _join(root, node.get('href', '')), node.get('media-type')
        is_contents = 'nav' in node.get('properties', '').split()
        if is_contents or kind == 'application/x-dtbncx+xml':
          contents.append(name)  # no part of the text
        elif 'html' in (kind or ''):
          pages[node.get('id')] = name
      elif _local(node) == 'itemref' and node.get('linear') != 'no':
        order.append(node.get('idref'))
    order = list(dict.fromkeys(pages[name] for name in order if name in pages))
    if not order:
      raise InputError(f'{self._where}: a broken EPUB: {root} lists no page')
    return order, contents

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


def _join(name, link):
  """Returns the name of a file that another one links to."""
  return posixpath.normpath(
      posixpath.join(posixpath.dirname(name), parse.unquote(link))
  )


def _entries(root):
  """Yields (link, title) of a table of contents: EPUB 3 (nav), then 2 (NCX)."""
  for nav in root.iter():
    if _local(nav) == 'nav' and 'toc' in nav.get(_TYPE, '').split():
      for node in nav.iter():
        if _local(node) == 'a' and node.get('href') and _title(node):
          yield node.get('href'), _title(node)
  for point in root.iter():
    if _local(point) == 'navPoint':
      children = {_local(child): child for child in point}
      if {'content', 'navLabel'} <= children.keys():
        yield children['content'].get('src', ''), _title(children['navLabel'])


def _title(node):
  return ' '.join(''.join(node.itertext()).split())


def _local(node):
  return str(node.tag).rpartition('}')[2]
