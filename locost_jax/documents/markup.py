"""The text of an HTML page, in reading order.

Blank lines separate paragraphs; invisible content (scripts, styles) and
navigation are left out. Uses only the standard library.

Pages are untrusted: any page is read in linear time (html.parser takes
quadratic time for unclosed tags).
"""

import codecs
import html
import re

from locost_jax.errors import InputError

# Elements without text to read. <title> repeats the heading; <svg> contains the
# labels of a drawing.
_DROPPED = frozenset('script style nav svg template title'.split())
# Elements with a blank line before and after, and on a line of their own.
_BLOCKS = (
    'address article aside blockquote body center dd details dialog div dl dt '
    'fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr '
    'html main ol p pre section summary table tbody tfoot thead ul'
)
_BREAKS = {
    **dict.fromkeys(_BLOCKS.split(), '\0'),
    **dict.fromkeys(('li', 'option', 'tr'), '\1'),
    **dict.fromkeys(('td', 'th'), ' '),
}
_HEADINGS = frozenset('h1 h2 h3 h4 h5 h6'.split())
_ENCODING = re.compile(
    rb'<meta[^>]{0,200}?charset\s*=\s*["\']?\s*([\w.:-]+)'
    rb'|<\?xml[^>]{0,200}?encoding\s*=\s*["\']([\w.:-]+)',
    re.IGNORECASE,
)
_MARKS = (
    (codecs.BOM_UTF8, 'utf-8'),
    # Before UTF-16, whose mark is the beginning of UTF-32's.
    (codecs.BOM_UTF32_LE, 'utf-32-le'),
    (codecs.BOM_UTF32_BE, 'utf-32-be'),
    (codecs.BOM_UTF16_LE, 'utf-16-le'),
    (codecs.BOM_UTF16_BE, 'utf-16-be'),
)
# Encodings that browsers read (the Encoding Standard), by Python's names.
_KNOWN = frozenset(
    'utf-8 cp866 iso8859-2 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7 '
    'iso8859-8 iso8859-10 iso8859-13 iso8859-14 iso8859-15 iso8859-16 koi8-r '
    'koi8-u mac-roman mac-cyrillic cp874 cp1250 cp1251 cp1252 cp1253 cp1254 '
    'cp1255 cp1256 cp1257 cp1258 gbk gb18030 big5 big5hkscs euc_jp iso2022_jp '
    'cp932 cp949'.split()
)
# Browsers read these as larger encodings, so this module does too. A page whose
# declaration of UTF-16 could be read as ASCII is not UTF-16.
_READ_AS = {
    **dict.fromkeys('ascii iso8859-1'.split(), 'cp1252'),
    **dict.fromkeys('utf-16 utf-16-le utf-16-be utf-32'.split(), 'utf-8'),
    'iso8859-9': 'cp1254',
    'iso8859-11': 'cp874',
    'tis-620': 'cp874',
    'gb2312': 'gb18030',
    'shift_jis': 'cp932',
    'euc_kr': 'cp949',
}
# windows-1252 as browsers define it: every byte is a character.
_WINDOWS = ''.join(
    bytes([i]).decode('cp1252', 'ignore') or chr(i) for i in range(256)
)


class NotDecoded(InputError):
  """Bytes that are not in the expected encoding."""


def check_size(where, size, max_bytes):
  """Raises an InputError for a size above max_bytes (None: no limit)."""
  if max_bytes is not None and size > max_bytes:
    raise InputError(
        f'{where}: holds {size:,} bytes, expected at most {max_bytes:,} '
        '(--max_document_bytes)'
    )


def decode(data, where, encoding='utf-8'):
  """Decodes bytes; a byte order mark overrides the encoding.

  Args:
    where: name of the file, for error messages.
    encoding: encoding without a byte order mark.

  Returns:
    str, with \\n as line end.

  Raises:
    InputError: binary data.
    NotDecoded: bytes that are not in the encoding.
  """
  for mark, name in _MARKS:
    if data.startswith(mark):
      data, encoding = data[len(mark) :], name
      break
  if data.startswith(b'\xd0\xcf\x11\xe0'):
    raise InputError(f'{where}: old Word format: save it as .docx')
  if b'\0' in data and not encoding.startswith(('utf-16', 'utf-32')):
    kind = 'binary data'
    if data.startswith(b'%PDF'):
      kind = 'a PDF (its name must end in .pdf)'
    elif data.startswith(b'PK\3\4'):
      kind = 'a zip archive'
    raise InputError(
        f'{where}: is {kind}, expected text (byte {data.index(0)} is zero)'
    )
  try:
    text = (
        codecs.charmap_decode(data, 'strict', _WINDOWS)[0]
        if encoding == 'cp1252'
        else data.decode(encoding)
    )
  except UnicodeDecodeError as error:
    name, hint = encoding.upper(), '; iconv -f CP1252 -t UTF-8 converts it'
    raise NotDecoded(
        f'{where}: not {name} (byte {error.start} is '
        f'0x{data[error.start]:02x}){hint * (name == "UTF-8")}'
    ) from None
  return text.replace('\r\n', '\n').replace('\r', '\n')


def html_headings(data, where, undeclared='cp1252'):
  """Returns the text of an HTML or XHTML page and its headings.

  Args:
    data: its bytes. A byte order mark, <meta> or the XML declaration gives the
      encoding.
    where: name of the page, for error messages.
    undeclared: the encoding of a page that declares none and is not UTF-8.

  Returns:
    (str, [(start, heading), ...]): blank lines between paragraphs, none at the
    ends; start is the index of a character.

  Raises:
    InputError: as `decode`, or an encoding that browsers do not know.
  """
  page = _Page()
  page.feed(_source_text(data, where, undeclared))
  return _take_marks(page.text())


def _take_marks(text):
  """Removes the \\4 marks of headings; returns as `html_headings`."""
  first, *rest = text.split('\4')
  parts, headings, at = [first], [], len(first)
  for part in rest:
    heading = ' '.join(part.strip().split('\n', 1)[0].split())
    if heading:
      headings.append((at + len(part) - len(part.lstrip()), heading))
    parts.append(part)
    at += len(part)
  return ''.join(parts), headings


def _source_text(data, where, undeclared):
  """Returns the source of a page as str."""
  found = _ENCODING.search(data[:2048])
  if found:
    declared = _declared((found[1] or found[2]).decode(), where)
    return decode(data, where, declared)
  try:
    return decode(data, where)
  except InputError:
    return decode(data, where, undeclared)


def _declared(encoding, where):
  """Returns Python's name of an encoding that a page declares."""
  try:
    known = codecs.lookup(encoding).name
  except LookupError:
    known = encoding
  known = _READ_AS.get(known, known)
  if known not in _KNOWN:
    raise InputError(
        f'{where}: declares the unknown encoding {encoding.lower()!r}; '
        'expected one that browsers know, such as utf-8'
    )
  return known


# A comment, CDATA, a declaration or a tag. An unclosed one reaches to the end
# of the page, as in browsers. So a match consumes all scanned characters, and
# the scan is linear.
_MARKUP = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z))
    |<!\[CDATA\[(?P<cdata>.*?)(?:\]\]>|\Z)
    |<(?:[!?]|/(?![a-zA-Z]))[^>]*+(?:>|\Z)
    |<(?P<end>/?)(?P<tag>[a-zA-Z][^\s/>]*+)
     (?:
       [\s/]++
       |(?:=[^\s/>=]*+|[^\s/>=]++)  # an attribute, perhaps with a value
        (?:\s*+=\s*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^\s>"'][^\s>]*+)?+)?+
     )*+(?:>|\Z)""",
    re.DOTALL | re.VERBOSE,
)
# Up to the end tag of these elements, nothing is markup.
_RAW = {
    tag: re.compile(rf'</{tag}(?=[\s/>])', re.IGNORECASE)
    for tag in ('script', 'style', 'title')
}
# Python refuses to parse numbers this long, which are no character.
_LONG_NUMBER = re.compile('&#[xX]?[0-9a-fA-F]{100,}+;?')


class _Page:
  """Collects the text of a page.

  While reading, \\0 marks the end of a paragraph, \\1 the end of a line, \\2
  and \\3 preserved newlines and spaces, and \\4 the beginning of a heading.
  """

  def __init__(self):
    self._parts, self._dropped, self._verbatim = [], [], 0

  def feed(self, text):
    """Reads the whole page."""
    at = 0
    while found := _MARKUP.search(text, at):
      self._add(unescape(text[at : found.start()]))
      at = found.end()
      if found['cdata'] is not None:
        self._add(found['cdata'])
      elif found['tag'] is not None and found[0].endswith('>'):
        tag, is_closed = found['tag'].lower(), found[0].endswith('/>')
        if not found['end']:
          self._start(tag)
        if found['end'] or is_closed:
          self._end(tag)
        elif tag in _RAW:
          end = _RAW[tag].search(text, at)
          at = end.start() if end else len(text)
    self._add(unescape(text[at:]))

  def _start(self, tag):
    if tag in _DROPPED and tag not in self._dropped:
      self._dropped.append(tag)
    self._break(tag)
    if tag in _HEADINGS and not self._dropped:
      self._parts.append('\4')
    if tag == 'br':  # two in a row end a paragraph
      self._parts.append('\2')
    self._verbatim += tag == 'pre'

  def _end(self, tag):
    if tag in self._dropped:  # also closes unclosed elements inside
      del self._dropped[self._dropped.index(tag) :]
    self._break(tag)
    self._verbatim = max(self._verbatim - (tag == 'pre'), 0)

  def _add(self, data):
    if data and not self._dropped:
      data = re.sub('[\0\1\2\3\4]', '', data)
      self._parts.append(
          data.replace('\n', '\2').replace(' ', '\3')
          if self._verbatim
          else re.sub(r'[ \t\n\f\xa0]+', ' ', data)
      )

  def _break(self, tag):
    self._parts.append(_BREAKS.get(tag, ''))

  def text(self):
    """Returns the text so far, with marks replaced by line breaks."""
    text = ''.join(self._parts)
    # Move the mark of a heading directly before its first character.
    text = re.sub('\4(?= *[\0\1])', '', text)  # an empty heading
    text = re.sub('\4([\2 ]+)', lambda found: found[1] + '\4', text)
    text = re.sub(' {2,}', ' ', text)
    text = re.sub(' ?([\0\1\2]) ?', r'\1', text)
    text = re.sub(
        '[\0\1]+', lambda run: '\n\n' if '\0' in run[0] else '\n', text
    )
    text = text.replace('\2', '\n').replace('\3', ' ')
    return re.sub(r'\n{3,}', '\n\n', text).strip()


def unescape(text):
  """Returns text with its character references replaced."""
  return (
      html.unescape(_LONG_NUMBER.sub('\ufffd', text)) if '&' in text else text
  )
