"""The text of an HTML page or an EPUB book, in reading order.

Paragraphs are kept apart by blank lines; what a reader does not read (scripts,
styles, navigation) is left out. Only the standard library is used.
"""

import codecs
from html import parser
import io
import posixpath
import re
from urllib import parse
from xml.etree import ElementTree
import zipfile
import zlib

from locost_jax.errors import InputError

# What they hold is not read. <title> repeats the heading.
_DROPPED = frozenset('script style nav template title'.split())
# A blank line before and after.
_BLOCKS = frozenset(
    'address article aside blockquote body center dd details dialog div dl dt '
    'fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr '
    'html main ol p pre section summary table tbody tfoot thead ul'.split()
)
# A line of their own.
_LINES = frozenset('li option tr'.split())
_CELLS = frozenset('td th'.split())
_ENCODING = re.compile(
    rb'<meta[^>]{0,200}?charset\s*=\s*["\']?\s*([\w.:-]+)'
    rb'|<\?xml[^>]{0,200}?encoding\s*=\s*["\']([\w.:-]+)',
    re.IGNORECASE,
)
_MARKS = (
    (codecs.BOM_UTF8, 'utf-8'),
    (codecs.BOM_UTF16_LE, 'utf-16-le'),
    (codecs.BOM_UTF16_BE, 'utf-16-be'),
)
# Browsers read these as windows-1252, and so must who reads the same pages.
_LATIN = frozenset('ascii iso8859-1 cp1252'.split())


def decode(data, where, encoding='utf-8'):
  """The text of bytes; a byte order mark decides, if there is one.

  Args:
    data: bytes.
    where: what to call them in an error.
    encoding: in absence of a mark.

  Raises:
    InputError: binary data, an unknown encoding, or bytes that are not in it.
  """
  for mark, name in _MARKS:
    if data.startswith(mark):
      data, encoding = data[len(mark) :], name
      break
  if b'\0' in data and not encoding.startswith('utf-16'):
    kind = (
        'a PDF (pdftotext makes text of it)'
        if (data.startswith(b'%PDF'))
        else 'a zip archive'
        if (data.startswith(b'PK\3\4'))
        else 'binary data'
    )
    raise InputError(
        f'{where}: is {kind}, expected text (byte {data.index(0)} is zero)'
    )
  try:
    text = data.decode(encoding)
  except UnicodeDecodeError as error:
    name = 'UTF-8' if encoding == 'utf-8' else encoding
    raise InputError(
        f'{where}: not {name} (byte {error.start} is '
        f'0x{data[error.start]:02x})'
    ) from None
  except LookupError:
    raise InputError(
        f'{where}: says that its encoding is {encoding!r}, which '
        'is not known'
    ) from None
  return text.replace('\r\n', '\n').replace('\r', '\n')


def html_text(data, where):
  """The text of an HTML or XHTML page.

  Args:
    data: its bytes. The encoding is that of the byte order mark, of <meta> or
      of the XML declaration, else UTF-8.
    where: what to call it in an error.

  Returns:
    str; blank lines between paragraphs, none at the ends.

  Raises:
    InputError: as `decode`.
  """
  found = _ENCODING.search(data[:2048])
  encoding = (found[1] or found[2]).decode().lower() if found else 'utf-8'
  try:
    known = codecs.lookup(encoding).name
  except LookupError:
    known = encoding
  if known in _LATIN:
    encoding = 'cp1252'
  elif known.startswith('utf-16'):  # it could not have been read so far
    encoding = 'utf-8'
  page = _Page()
  page.feed(decode(data, where, encoding))
  page.close()
  return page.text()


class _Page(parser.HTMLParser):
  """Collects the text of a page.

  Until all is there \\0 stands for the end of a paragraph, \\1 for that of a
  line, \\2 and \\3 for newlines and spaces that are kept.
  """

  def __init__(self):
    super().__init__(convert_charrefs=True)
    self._parts, self._dropped, self._verbatim = [], [], 0

  def handle_starttag(self, tag, attrs):
    if tag in _DROPPED:
      self._dropped.append(tag)
    self._break(tag)
    if tag == 'br':  # two of them end a paragraph
      self._parts.append('\2')
    self._verbatim += tag == 'pre'

  def handle_endtag(self, tag):
    if tag in self._dropped:  # closes what was left open inside it
      del self._dropped[self._dropped.index(tag) :]
    self._break(tag)
    self._verbatim = max(self._verbatim - (tag == 'pre'), 0)

  def handle_data(self, data):
    if not self._dropped:
      data = re.sub('[\0\1\2\3]', '', data)
      self._parts.append(
          data.replace('\n', '\2').replace(' ', '\3')
          if self._verbatim
          else re.sub(r'[ \t\n\f\xa0]+', ' ', data)
      )

  def unknown_decl(self, data):
    if data.startswith('CDATA['):
      self.handle_data(data[len('CDATA[') :])

  def _break(self, tag):
    self._parts.append(
        '\0'
        if tag in _BLOCKS
        else '\1'
        if tag in _LINES
        else ' '
        if tag in _CELLS
        else ''
    )

  def text(self):
    """Everything so far, its breaks made lines."""
    text = re.sub(' {2,}', ' ', ''.join(self._parts))
    text = re.sub(' ?([\0\1\2]) ?', r'\1', text)
    text = re.sub('\1*\0[\0\1]*', '\n\n', text)
    text = re.sub('\1+', '\n', text)
    text = text.replace('\2', '\n').replace('\3', ' ')
    return re.sub(r'\n{3,}', '\n\n', text).strip()


def epub_text(data, where):
  """The text of an EPUB book: its pages in the order of its spine.

  Args:
    data: bytes of the file.
    where: what to call it in an error.

  Returns:
    str; blank lines between paragraphs.

  Raises:
    InputError: not an EPUB, broken, encrypted, or a page that is not text.
  """
  try:
    with zipfile.ZipFile(io.BytesIO(data)) as book:
      return _read_book(book, where)
  except (
      zipfile.BadZipFile,
      zipfile.LargeZipFile,
      ElementTree.ParseError,
      KeyError,
      RuntimeError,
      NotImplementedError,
      EOFError,
      zlib.error,
  ) as error:
    reason = ' '.join(str(error).strip('"\'').split())
    raise InputError(f'{where}: a broken EPUB: {reason}') from None


def _read_book(book, where):
  names = set(book.namelist())
  container = _xml(book, 'META-INF/container.xml')
  root = next(
      (
          node.get('full-path')
          for node in container.iter()
          if _local(node) == 'rootfile' and node.get('full-path')
      ),
      None,
  )
  if root is None:
    raise InputError(
        f'{where}: a broken EPUB: META-INF/container.xml names no package'
    )
  package = _xml(book, root)
  pages, order = {}, []
  for node in package.iter():
    if _local(node) == 'item':
      # The table of contents is no part of the text.
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
  order = [pages[name] for name in order if name in pages]
  if not order:
    raise InputError(f'{where}: a broken EPUB: {root} lists no page')
  encrypted = set()
  if 'META-INF/encryption.xml' in names:
    encrypted = {
        parse.unquote(node.get('URI', ''))
        for node in _xml(book, 'META-INF/encryption.xml').iter()
        if _local(node) == 'CipherReference'
    }
  # Books without DRM may still have their fonts obfuscated.
  if encrypted & set(order) or any(
      book.getinfo(page).flag_bits & 1 for page in order if page in names
  ):
    raise InputError(f'{where}: an encrypted EPUB (DRM), which cannot be read')
  texts = [html_text(book.read(page), f'{where}, {page}') for page in order]
  return '\n\n'.join(text for text in texts if text)


def _xml(book, name):
  return ElementTree.fromstring(book.read(name))


def _local(node):
  return str(node.tag).rpartition('}')[2]
