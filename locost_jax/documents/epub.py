"""The text of an EPUB book, in reading order; uses only the standard library."""

import posixpath
import re
from urllib import parse
from xml.etree import ElementTree

from locost_jax.documents import archive
from locost_jax.documents import markup
from locost_jax.errors import InputError

_BETWEEN = '\n\n'  # two pages
# A file of the spine is a page if it is markup, whatever its type says.
_MARKUP = re.compile(rb'[\s\0\xef\xbb\xbf\xfe\xff]*<')
_TYPE = '{http://www.idpf.org/2007/ops}type'  # of a nav


def read_headings(data, where, max_bytes, left_out):
  """Returns the text of an EPUB and its [(start, heading), ...].

  A page is read once, even if the spine lists it several times. A page without
  a heading has its title in the table of contents. In a book without such
  titles, pages without a heading are called 'section 3' and so on.

  Args:
    max_bytes: limit of the total unpacked size; None: no limit.
    left_out: `places.LeftOut` to add to.

  Raises:
    InputError: broken, encrypted, too large, or a page that is not text.
  """
  texts, headings, at = [], [], 0
  with archive.open_archive(data, where, 'EPUB', max_bytes) as book:
    order, contents = _order(book, left_out)
    if _encrypted(book) & set(order) or any(map(book.is_locked, order)):
      raise InputError(
          f'{where}: an encrypted EPUB (DRM), which cannot be read'
      )
    titles = _titles(book, contents)
    for name in order:
      text, found = markup.html_headings(
          book.read(name), f'{where}, {name}', 'utf-8', left_out
      )
      if not text:
        continue
      section = f'section {len(texts) + 1}'
      title = titles.get(name, '') if titles else section
      if not found and title:
        found = [(0, title)]
      headings += [(at + start, heading) for start, heading in found]
      texts.append(text)
      at += len(text) + len(_BETWEEN)
  return _BETWEEN.join(texts), headings


def _titles(book, contents):
  """Returns {page: title} of the tables of contents; {} if they are broken."""
  titles = {}
  for name in contents:
    try:
      entries = list(_entries(_xml(book, name)))
    except (ElementTree.ParseError, KeyError, RuntimeError):
      continue
    for link, title in entries:
      titles.setdefault(_join(name, link.partition('#')[0]), title)
  return titles


def _order(book, left_out):
  """Returns the names of the pages in reading order, and of the contents."""
  root = next(
      (
          node.get('full-path')
          for node in _xml(book, 'META-INF/container.xml').iter()
          if _local(node) == 'rootfile' and node.get('full-path')
      ),
      None,
  )
  if root is None:
    raise InputError(
        f'{book.where}: a broken EPUB: META-INF/container.xml names no package'
    )
  items, spine, contents = {}, [], []
  for node in _xml(book, root).iter():
    if _local(node) == 'item':
      name, kind = _join(root, node.get('href', '')), node.get('media-type', '')
      is_nav = 'nav' in node.get('properties', '').split()
      if is_nav or kind == 'application/x-dtbncx+xml':
        contents.append(name)
      items[node.get('id')] = name, kind, node.get('fallback')
    elif _local(node) == 'itemref':
      spine.append(node.get('idref'))
  order = []
  for item in dict.fromkeys(spine):
    name = _page(book, items, item)
    if name is None:
      name, kind, _ = items.get(item, (item, 'not listed', None))
      left_out.add('page', 'left out (no text)', f'{name}, {kind}')
    else:
      order.append(name)
  if not order:
    raise InputError(f'{book.where}: a broken EPUB: {root} lists no page')
  return list(dict.fromkeys(order)), contents


def _page(book, items, item):
  """Returns the name of the first page among an item and its fallbacks."""
  for _ in range(8):  # fallbacks may be a circle
    name, kind, fallback = items.get(item, ('', '', None))
    if 'html' in kind.lower():
      return name
    if name in book and _MARKUP.match(book.read(name)):
      return name
    item = fallback
  return None


def _encrypted(book):
  """Returns the names of encrypted files, which may be just fonts."""
  name = 'META-INF/encryption.xml'
  if name not in book:
    return set()
  return {
      parse.unquote(node.get('URI', ''))
      for node in _xml(book, name).iter()
      if _local(node) == 'CipherReference'
  }


def _xml(book, name):
  return ElementTree.fromstring(book.read(name))


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
