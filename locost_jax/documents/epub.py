"""The text of an EPUB book, in reading order; uses only the standard library."""

import posixpath
import re
from urllib import parse
from xml.etree import ElementTree

from locost_jax.documents import archive
from locost_jax.documents import markup
from locost_jax.documents import page_styles
from locost_jax.documents import places
from locost_jax.errors import InputError

_BETWEEN = '\n\n'  # two pages
# A file of the spine is a page if it is markup, whatever its type says.
_MARKUP = re.compile(rb'[\s\0\xef\xbb\xbf\xfe\xff]*<')
_TYPE = '{http://www.idpf.org/2007/ops}type'  # of a nav


def read(data, where, max_bytes=None):
  """Returns the text of an EPUB with its headings as places: a Placed.

  A page is read once, even if the spine lists it several times. A page without
  a heading has its title in the table of contents. In a book without such
  titles, pages without a heading are called 'section 3' and so on.

  Raises:
    InputError: broken, encrypted, unpacks to more than max_bytes, or a page
      that is not text.
  """
  left_out, texts, headings, at = places.LeftOut(), [], [], 0
  with archive.open_archive(data, where, 'EPUB', max_bytes) as book:
    order, unlisted, titles, styles = _order(book, left_out)
    if _encrypted(book) & {*order, *unlisted}:
      raise InputError(
          f'{where}: an encrypted EPUB (DRM), which cannot be read'
      )
    linked = set()

    def pages():  # those of the spine, then those that only links open
      yield from order
      for name in unlisted:
        if name in linked:
          yield name
        else:
          left_out.add('page', 'left out (not in the spine)', name)

    for name in pages():
      page, named, found = book.read(name), f'{where}, {name}', []
      linked.update(
          x for x in unlisted if posixpath.basename(x).encode() in page
      )
      if name.lower().endswith('.txt') and not _MARKUP.match(page):
        text = markup.decode(page, named).strip()
      else:
        text, found = markup.html_headings(
            page, named, 'utf-8', left_out, styles=styles
        )
      if not text:
        continue
      section = f'section {len(texts) + 1}'
      found = found or [(0, titles.get(name, '') if titles else section)]
      headings += [(at + start, heading) for start, heading in found]
      texts.append(text)
      at += len(text) + len(_BETWEEN)
  return places.with_headings(
      _BETWEEN.join(texts), headings, left_out.notes(where)
  )


def _order(book, left_out):
  """Returns the pages of the spine, other pages, titles and styles of classes."""
  container = book.find('META-INF/container.xml')
  root = _xml(book, container).find('.//{*}rootfile[@full-path]')
  if root is None:
    raise InputError(
        f'{book.where}: a broken EPUB: META-INF/container.xml names no package'
    )
  root = book.find(root.get('full-path'))
  package, items, contents, order = _xml(book, root), {}, [], []
  for node in package.iterfind('.//{*}item'):
    name = _linked(book, root, node.get('href', ''))
    kind = node.get('media-type', '')
    if (
        'nav' in node.get('properties', '').split()
        or kind == 'application/x-dtbncx+xml'
    ):
      contents.append(name)
    items[node.get('id')] = name, kind, node.get('fallback')
  spine = [node.get('idref') for node in package.iterfind('.//{*}itemref')]
  for item in dict.fromkeys(spine):
    if name := _page(book, items, item):
      order.append(name)
    else:
      name, kind, _ = items.get(item, (item, 'not listed', None))
      why = 'no text' if name in book else 'missing'
      left_out.add('page', f'left out ({why})', f'{name}, {kind}')
  if not order:
    raise InputError(f'{book.where}: a broken EPUB: {root} lists no page in it')
  known = {*contents, *order, *(fallback for *_, fallback in items.values())}
  unlisted = [
      name
      for item, (name, kind, _) in items.items()
      if 'html' in kind.lower() and name in book and not known & {item, name}
  ]
  sheets = [
      x for x, kind, _ in items.values() if kind == 'text/css' and x in book
  ]
  sheet = b''.join(map(book.read, sheets)).decode('utf-8', 'replace')
  styles = page_styles.class_styles(sheet)
  order, unlisted = map(list, map(dict.fromkeys, (order, unlisted)))
  return order, unlisted, _titles(book, contents), styles


def _page(book, items, item):
  """Returns the name of the first page among an item and its fallbacks."""
  for _ in range(8):  # fallbacks may be a circle
    name, kind, item = items.get(item, ('', '', None))
    is_text = re.search('html|text/plain', kind.lower())
    if name in book and (is_text or _MARKUP.match(book.read(name))):
      return name
  return None


def _titles(book, contents):
  """Returns {page: title} of the tables of contents; {} if they are broken."""
  titles = {}
  for name in contents:
    try:
      root = _xml(book, name)
    except (ElementTree.ParseError, KeyError, RuntimeError):
      continue
    links = [  # of EPUB 3
        (link.get('href'), link)
        for nav in root.iterfind('.//{*}nav')
        if 'toc' in nav.get(_TYPE, '').split()
        for link in nav.iterfind('.//{*}a[@href]')
    ]
    for point in root.iterfind('.//{*}navPoint'):  # of EPUB 2
      target, label = point.find('{*}content'), point.find('{*}navLabel')
      if target is not None and label is not None:
        links.append((target.get('src', ''), label))
    for link, label in links:
      title = ' '.join(''.join(label.itertext()).split())
      if title:
        titles.setdefault(_linked(book, name, link), title)
  return titles


def _encrypted(book):
  """Returns the names of encrypted files, which may be just fonts."""
  name = 'META-INF/encryption.xml'
  if name not in book:
    return set()
  nodes = _xml(book, name).iterfind('.//{*}CipherReference')
  return {book.find(parse.unquote(node.get('URI', ''))) for node in nodes}


def _xml(book, name):
  return ElementTree.fromstring(book.read(name))


def _linked(book, name, link):
  return book.resolve(name, parse.unquote(link.partition('#')[0]))
