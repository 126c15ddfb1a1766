"""The text of an HTML page, in reading order.

Blank lines separate paragraphs. Scripts, styles and <title> are not part of the
text; navigation, images, frames, readings of ruby, deleted text and page
numbers are left out and counted. Raised digits, formulas and note marks keep
their value: 10^6, x_(10), 1/3, rained [4]. An item of an ordered list has its
number: 2. a. Uses only the standard library.

Pages are untrusted: any page is read in linear time (html.parser takes
quadratic time for unclosed tags).
"""

import codecs
import contextlib
import dataclasses
import html
import itertools
import re

from locost_jax.documents import numbering
from locost_jax.documents import page_styles
from locost_jax.documents import places
from locost_jax.errors import InputError

# Elements without text to read: what is counted of them, and why. <title>
# repeats the heading; <svg> contains the labels of a drawing.
_READING = ('reading', 'left out (ruby)')
_REPEATS = ('word', 'left out as other forms of formulas')
_DROPPED = {
    **dict.fromkeys('script style template title'.split(), ()),
    'nav': ('word', 'left out as navigation'),
    'svg': ('word', 'left out as labels of drawings'),
    'del': ('word', 'left out as deleted text'),
    'epub:default': _REPEATS,  # what old programs show for a formula
    **dict.fromkeys(('rt', 'rp', 'rtc'), _READING),
}
_RUBY = frozenset('ruby rt rp rtc rb'.split())
_PREFIX = re.compile('(?:m|mml|h|x?html|svg):')  # of tags in XML
# Elements whose words are elsewhere: the attribute that names them.
_ELSEWHERE = dict(img='alt', frame='src', iframe='src(?:doc)?', input='value')
_UNSEEN_INPUT = re.compile(
    r'type\s*=\s*["\']?(?:hidden|checkbox|radio|image|password)', re.I
)
# Boxes in a line, which are apart from the words around them.
_BOXES = frozenset(
    'audio button canvas input legend meter noframes noscript object optgroup '
    'output progress select textarea video xmp listing'.split()
)
_PAGE = ('page number', 'left out')
_PAGE_NUMBER = re.compile(r'(?i)\W*(?:[a-z]*\W*\d+|(?:p\w*\W+)?[ivxlc]+)?\W*')
# Elements with a blank line before and after, and on a line of their own.
_BLOCKS = (
    'address article aside blockquote body center dd details dialog div dl dt '
    'fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr '
    'html main ol p pre section summary table tbody tfoot thead ul'
)
_BREAKS = {
    **dict.fromkeys(_BLOCKS.split(), '\0'),
    **dict.fromkeys(('li', 'option', 'tr'), '\1'),
    **dict.fromkeys(('td', 'th'), '\5'),
}
_HEADINGS = frozenset('h1 h2 h3 h4 h5 h6'.split())
_LISTS = ('ol', 'ul', 'menu', 'dir')
_ENCODING = re.compile(
    rb'<meta[^>]{0,200}?charset\s*=\s*["\']?\s*([\w.:-]+)'
    rb'|<\?xml[^>]{0,200}?encoding\s*=\s*["\']([\w.:-]+)',
    re.IGNORECASE,
)
# UTF-32 is before UTF-16, whose mark is the beginning of UTF-32's.
_BOMS = [
    ('\ufeff'.encode(name), name)
    for name in 'utf-8 utf-32-le utf-32-be utf-16-le utf-16-be'.split()
]
# Encodings that browsers read (the Encoding Standard), by Python's names.
_KNOWN = re.compile(
    'utf-8|cp(?:866|874|932|949|125[0-8])|iso8859-(?:[2-8]|1[03-6])|gb(?:k|18030)'
    '|koi8-[ru]|mac-(?:roman|cyrillic)|big5(?:hkscs)?|euc_jp|iso2022_jp'
)
# Browsers read these as larger encodings, so this module does too. A page whose
# declaration of UTF-16 could be read as ASCII is not UTF-16.
_READ_AS = dict(
    pair.split('=')
    for pair in (
        'ascii=cp1252 iso8859-1=cp1252 iso8859-9=cp1254 iso8859-11=cp874 '
        'tis-620=cp874 gb2312=gb18030 shift_jis=cp932 euc_kr=cp949 '
        'utf-16=utf-8 utf-16-le=utf-8 utf-16-be=utf-8 utf-32=utf-8'
    ).split()
)
_ONE_BYTE = re.compile('cp(?:866|874|125)|iso8859|koi8|mac')
# windows-1252 as browsers define it: every byte is a character.
_WINDOWS = ''.join(
    bytes([i]).decode('cp1252', 'ignore') or chr(i) for i in range(256)
)


# Words of other encodings: of letters with accents alone.
_MISREAD = re.compile(
    r'(?:[À-ÿ]{3,}\W+){2}|(?:[À-ÿ][¡-ÿ]|[¡-ÿ][À-ÿ]){4}|(?:‚.){3}'
)


class NotDecoded(InputError):
  """Bytes that are not in the expected encoding."""


def decode(data, where, encoding='utf-8'):
  """Returns bytes as str with \\n as line end; a byte order mark is obeyed.

  Raises:
    InputError: binary data.
    NotDecoded: bytes that are not in the encoding.
  """
  for mark, name in _BOMS:
    if data.startswith(mark):
      data, encoding = data[len(mark) :], name
      break
  if b'\0' in data and not encoding.startswith(('utf-16', 'utf-32')):
    raise InputError(
        f'{where}: is binary data, expected text (byte {data.index(0)} is zero)'
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


def decode_undeclared(data, where, left_out, otherwise='cp1252'):
  """Returns bytes without a declared encoding as str: UTF-8, or `otherwise`.

  That it is not UTF-8 is added to left_out, with the first word that shows it.

  Raises:
    NotDecoded: windows-1252 that would be words of no language.
  """
  with contextlib.suppress(NotDecoded):
    return decode(data, where)
  text = decode(data, where, otherwise)
  found = otherwise == 'cp1252' and _MISREAD.search(text, 0, 1 << 20)
  if found:
    raise NotDecoded(
        f'{where}: not UTF-8, nor windows-1252 ({found[0][:20]!r}); expected '
        'UTF-8; iconv -f ENCODING -t UTF-8 converts it'
    )
  word = re.search(r'\w{,20}[^\0-\x7f]\w{,20}', text)
  left_out.add('file', f'not UTF-8 (read as {otherwise})', word[0])
  return text


def html_headings(
    data, where, undeclared='cp1252', left_out=None, is_plain=False, styles=()
):
  """Returns the text of an HTML page and its [(start, heading), ...].

  Args:
    undeclared: the encoding of a page that declares none and is not UTF-8.
    left_out: `places.LeftOut` to add to.
    is_plain: as corpora have the text, without signs for raised digits.
    styles: those of `class_styles`, besides the page's own.

  Raises:
    InputError: as `decode`, or an encoding that browsers do not know.
  """
  left_out = places.LeftOut() if left_out is None else left_out
  source = _source_text(data, where, undeclared, left_out)
  first, *rest = _Page(source, left_out, is_plain, styles).text().split('\4')
  starts = itertools.accumulate(map(len, [first, *rest]))
  headings = zip(starts, (part.partition('\n')[0] for part in rest))
  return first + ''.join(rest), [x for x in headings if x[1].strip()]


def _source_text(data, where, undeclared, left_out):
  """Returns the source of a page as str."""
  found = _ENCODING.search(data[:2048])
  if not found:
    return decode_undeclared(data, where, left_out, undeclared)
  encoding = known = (found[1] or found[2]).decode().lower()
  with contextlib.suppress(LookupError):
    known = codecs.lookup(encoding).name
  known = _READ_AS.get(known, known)
  if not _KNOWN.fullmatch(known):
    raise InputError(
        f'{where}: declares the unknown encoding {encoding!r}; expected one '
        'that browsers know, such as utf-8'
    )
  with contextlib.suppress(NotDecoded):
    text = decode(data, where) if _ONE_BYTE.match(known) else ''
    # No text in these looks so; windows-1252 is often declared for UTF-8.
    if len(text.encode()) > len(text) + (known != 'cp1252'):
      why = 'not followed (the page is UTF-8)'
      left_out.add('declared encoding', why, encoding)
      return text
  return decode(data, where, known)


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
_RAW = ('script', 'style', 'title')
# Python refuses to parse numbers this long, which are no character.
_LONG_NUMBER = re.compile('&#[xX]?[0-9a-fA-F]{100,}+;?')
MARKS = page_styles.MARKS
_UP, _DOWN, _LINK, _GROUP, _OVER, _BY, _END, _TOKEN = MARKS
_INNERMOST = re.compile(
    '[\x0e-\x12]([^\x0e-\x14]*)(?:\x13([^\x0e-\x14]*))?\x14'
)
_FRACTION = re.compile(
    '\x0e([^\x0e-\x15]*)\x14\\s?[/\u2044]\\s?\x0f([^\x0e-\x15]*)\x14'
)
# Words are kept apart, and digits: 'sin x' and '2 1/2', but '2x'.
_APART = re.compile(
    '(?<=\\w\\w)\x15+(?=\\w)|(?<=\\w)\x15+(?=\\w\\w)|(?<=\\d)\x15+(?=\\d)'
)
_MARK = re.compile('[\0-\x08\x0e-\x15]')
_STRAY = {_UP: '^', _DOWN: '_', _BY: '/'}  # the others are removed
_DEPTH = 8  # of nested marks; deeper ones are written as _STRAY has them
_ATOM = re.compile(r'[\w.,′]*|.|\([^()]*\)|\[[^\[\]]*\]')
_POINTS = tuple('.,:;!?"”’»…。、，')
_STARTS = '\0\1\2\4\7' + _LINK  # before the first character of a line or a link
# {element of a formula: (before it, before each child)}; the last repeats.
_MATH = {
    'mfrac': (_OVER, '', _BY),
    'msqrt': ('√' + _GROUP, ''),
    'mroot': (_GROUP, '', _END + _UP + '1/'),
    'mfenced': ('(', '', ', '),
    **dict.fromkeys(('msup', 'mover'), (_GROUP, '', _END + _UP)),
    **dict.fromkeys(('msub', 'munder'), (_GROUP, '', _END + _DOWN)),
    **dict.fromkeys(
        ('msubsup', 'munderover'), (_GROUP, '', _END + _DOWN, _END + _UP)
    ),
    **dict.fromkeys(('mtable', 'mtr'), ('', '', ' ')),
    **dict.fromkeys('mi mn mo ms mtext'.split(), ('', '')),
}
_PAGED = re.compile(
    r'(?:type|role)\s*=\s*["\']?[^"\']{0,80}pagebreak'
    r'|class\s*=\s*["\']?(?:pb|page[-_]?(?:break|no|num(?:ber)?))["\'\s>]'
    '|<pagenum'
)
# What KaTeX and MathJax add to a formula for the eyes.
_REPEATED = re.compile(
    r'katex-html|<mjx-math|<nobr[^>]*aria-hidden|MathJax_Preview'
)
_CLASSES = re.compile(r'\sclass\s*+=\s*+["\']?([^"\'>]*+)')
_VOID = frozenset('area br col embed hr img input link meta source wbr'.split())
_BLANKS = re.compile('[ \t\f\xa0]+')


@dataclasses.dataclass
class _Element:
  """An open element whose end has a meaning."""

  tag: str
  start: int = 0  # index of its first part
  before_child: tuple = ('',)  # as in _MATH
  after: str = ''
  dropped: tuple | None = None  # as in _DROPPED
  children: int = 0
  nested: int = 0  # open elements of the same tag in it


class _Page:
  """Collects the text of a page.

  While reading, \\0 marks the end of a paragraph, \\1 the end of a line, \\2
  and \\3 preserved newlines and spaces, \\4 the beginning of a heading, \\5
  that of a cell, \\6 and \\7 are around the number of an item, \\x08 ends one.
  """

  def __init__(self, text, left_out, is_plain=False, styles=()):
    self._parts, self._open, self._verbatim = [], [_Element('')], 0
    self._left_out, self._is_plain = left_out, is_plain
    self._in_formula, self._styles = False, dict(styles)
    self._has_formulas = '<math' in text or ':math' in text
    self._has_tex = 'math/tex' in text and not (is_plain or self._has_formulas)
    self._lists = numbering.PageLists(self._parts)
    at, text = 0, _MARK.sub('', text)  # a reference has no mark either
    self._source, self._closed = text, {}
    while found := _MARKUP.search(text, at):
      self._add(unescape(text[at : found.start()]))
      at = found.end()
      self._add(found['cdata'] or '')
      if found['tag'] and found[0].endswith('>'):
        tag = found['tag'].lower()
        tag = _PREFIX.sub('', tag, 1) if ':' in tag else tag
        is_closed = found[0].endswith('/>')
        if not found['end']:
          self._start(tag, found[0])
        if found['end'] or is_closed:
          self._end(tag)
        elif tag in _RAW:
          end = re.compile(rf'(?i)</{tag}(?=[\s/>])').search(text, at)
          start, at = at, end.start() if end else len(text)
          if self._has_tex and 'math/tex' in found[0]:
            self._add(text[start:at])
          if tag == 'style' and not is_plain:
            self._styles |= page_styles.class_styles(text[start:at])
    self._add(unescape(text[at:]))
    self._close(1)
    self._lists.end()

  def _start(self, tag, source):
    if self._styles and (found := _CLASSES.search(source)):
      source += ''.join(self._styles.get(x, '') for x in found[1].split())
    self._interrupt(tag)
    self._verbatim += tag == 'pre'
    if tag in _BOXES and not self._is_plain:
      self._parts.append('\5')
    if tag in _BREAKS or tag == 'br':  # two in a row end a paragraph
      self._parts.append(_BREAKS.get(tag, '\2'))
    top = self._open[-1]
    is_hidden = self._is_hidden(tag, source)
    is_item = tag == 'li' and top.dropped is None and not is_hidden
    if not self._is_plain and (is_item or tag in _LISTS):
      self._lists.start(tag, source)
    element = None
    if top.dropped is None:
      top.children += 1
      i = min(top.children, len(top.before_child)) - 1
      self._parts += '\4' * (tag in _HEADINGS), top.before_child[i]
      element = self._element(tag, source, is_hidden)
    if element:
      self._open.append(element)
    else:
      top.nested += tag == top.tag

  def _element(self, tag, source, is_hidden):
    """Returns the _Element of a tag, or None; adds the mark before it."""
    start = len(self._parts)
    if len(self._open) > 64:
      return None
    if self._has_tex and 'math/tex' in source:
      return None
    if tag in _DROPPED and not (self._is_plain and tag in (*_RUBY, 'del')):
      return _Element(tag, start, dropped=_DROPPED[tag])
    if tag in _ELSEWHERE and not self._is_plain:
      self._add_elsewhere(tag, source)
    if self._is_plain or tag in _VOID:
      return None
    if is_hidden:
      return _Element(tag, start, dropped=('word', 'left out as hidden'))
    before, children, after = '', ('',), _END
    if self._in_formula:
      if tag.startswith('annotation') and self._open[-1].children > 1:
        return _Element(tag, start, dropped=_REPEATS)
      before, *children = _MATH.get(tag, ('', ''))
      token = _TOKEN * (tag in _MATH)
      after = ')' if before == '(' else _END * bool(before)
      before, after = token + before, after + token
    elif tag == 'math':
      self._in_formula, after = True, ''
    elif (self._has_formulas or self._has_tex) and _REPEATED.search(source):
      return _Element(tag, start, dropped=_REPEATS)
    elif tag == 'mjx-container' and not self._has_formulas:
      self._left_out.add('formula', 'left out (drawn by MathJax)', source[:80])
    elif 'noteref' in source:
      before, after = ' [', ']'
    elif ('page' in source or 'pb' in source) and _PAGED.search(source):
      return _Element(tag, start, dropped=_PAGE)
    elif tag in ('sup', 'sub'):
      before = _UP if tag == 'sup' else _DOWN
    elif tag not in _BREAKS and (found := page_styles.styled(source)):
      before, after = found
    elif tag == 'a' and '#' in source:
      before = _LINK
    elif tag == 'q':
      before, after = '“', '”'
    else:
      return None
    self._parts.append(before)
    return _Element(tag, start, children, after)

  def _is_hidden(self, tag, source):
    """Returns whether an element is hidden, and its end is known."""
    if self._is_plain or not page_styles.hides(source):
      return False
    if tag in _BREAKS and tag not in self._closed:
      count = lambda x: len(re.findall(rf'(?i){x}{tag}[\s/>]', self._source))
      self._closed[tag] = tag != 'body' and count('<') <= count('</')
    return self._closed.get(tag, True)

  def _add_elsewhere(self, tag, source):
    """Adds an image of a letter or a formula; counts other images, and frames."""
    named = (
        rf'(?is)\s{_ELSEWHERE[tag]}\s*+=\s*+(?:"([^"]*)|\'([^\']*)|([^\s>]+))'
    )
    found = re.search(named, source)
    text = ' '.join(unescape(found[found.lastindex]).split()) if found else ''
    is_formula = re.search(
        r'class=["\'][^"\']{0,80}(?:math|tex|equation)', source
    )
    if is_formula and self._has_formulas:
      self._left_out.add(*_REPEATS, text, len(text.split()))
    elif tag == 'input':
      self._add(f'{text} ' if not _UNSEEN_INPUT.search(source) else '')
    elif tag == 'img' and (is_formula or len(text) <= 2):
      self._add(text)
    elif any(map(str.isalnum, text)):
      unit = 'image' if tag == 'img' else 'frame'
      self._left_out.add(unit, 'left out', text)

  def _interrupt(self, tag):
    """Ends the elements that a tag ends: readings, or all at a new line."""
    dropped = self._open[-1].dropped
    if dropped == _READING and tag in _RUBY:
      self._close(len(self._open) - 1)
    elif tag in _BREAKS and dropped in (None, _READING):
      self._close(1)

  def _end(self, tag):
    self._interrupt(tag)
    found = [i for i, element in enumerate(self._open) if element.tag == tag]
    if found and self._open[found[-1]].nested:
      self._open[found[-1]].nested -= 1
    elif found:
      self._close(found[-1])
    if tag in _LISTS:
      self._lists.end(tag)
    if tag in _BOXES and not self._is_plain:
      self._parts.append('\5')
    if tag in _BREAKS:
      self._parts += '\x08' * (tag in ('li', *_LISTS)), _BREAKS[tag]
    self._verbatim = max(self._verbatim - (tag == 'pre'), 0)

  def _close(self, index):
    """Closes the open elements from an index on."""
    while len(self._open) > index:
      element = self._open.pop()
      self._in_formula &= element.tag != 'math'
      if element.dropped is None:
        self._parts.append(element.after)
        continue
      parts = self._parts[element.start :]
      words = _MARK.sub(' ', ' '.join(parts)).split()
      is_number = _PAGE_NUMBER.fullmatch(' '.join(words))
      if element.dropped == _PAGE and not is_number:
        continue  # the text after a page break
      self._parts[element.start :] = [x for x in parts if x in '\0\1\2']
      if element.dropped and any(map(str.isalnum, ''.join(words))):
        count = len(words) if element.dropped[0] == 'word' else 1
        self._left_out.add(*element.dropped, ' '.join(words), count)

  def _add(self, data):
    if not data:
      return
    if self._verbatim:
      data = data.replace('\n', '\2').replace(' ', '\3')
    elif self._in_formula:
      data = data.strip(' \t\n\f\xa0\u2061\u2062\u2063\u2064')
    else:
      data = _BLANKS.sub(' ', data)
    self._parts.append(data)

  def text(self):
    """Returns the text so far, with marks replaced by line breaks."""
    text = ''.join(self._parts)
    if not self._is_plain:
      text = places.WIDE_BREAK.sub('', text.replace(' \n', '\n'))
    text = write_marks(text.replace('\n', ' ').replace('\5', ' '))
    # Move the mark of a heading directly before its first character.
    text = re.sub('\4(?= *(?:[\0\1]|\\Z))', '', text)  # an empty heading
    text = re.sub('\4([\2\3 ]+)', '\\1\4', text)
    # And the number of an item, unless the item has no text.
    text = re.sub('\6([^\7]*)\7(?=[\0-\3 ]*\x08)', '\\1', text)
    text = text.replace('\x08', '')
    text = re.sub('\6([^\7]*)\7[\0\1 ]*(\4?) *', '\\2\\1 ', text)
    text = re.sub('  +', ' ', text)
    for mark in '\0\1\2':
      text = text.replace(f' {mark}', mark)
    text = re.sub('[\0-\2](?: ?[\0-\2])* ?', _break, text)
    return text.replace('\3', ' ').strip()


def _break(found):
  """Returns the line breaks that a run of marks stands for, at most two."""
  marks = re.sub('\1*\0[\0\1]*', '\n\n', found[0].replace(' ', ''))
  return re.sub('\1+|\2', '\n', marks)[:2]


def write_marks(text):
  """Returns a text with signs, such as '^6' or '1/3', for its MARKS."""
  text = _FRACTION.sub(f'{_OVER}\\1{_BY}\\2{_END}', text)
  for _ in range(_DEPTH):
    text, count = _INNERMOST.subn(_written, text)
    if not count:
      break
  text = _APART.sub(' ', text) if _TOKEN in text else text
  return re.sub('[\x0e-\x15]', lambda m: _STRAY.get(m[0], ''), text)


def _written(found):
  """Returns what a mark means, such as '^6', ' [4]' or '1/3'."""
  mark, text = found[0][0], _APART.sub(' ', found[1]).replace(_TOKEN, '')
  before = found.string[max(found.start() - 4, 0) : found.start()]
  before = before.rstrip(_TOKEN)[-1:]
  after = found.string[found.end() : found.end() + 4].lstrip(_TOKEN)[:1]
  bare, is_near = text.strip(), before.isalnum() or before in _POINTS
  if re.search('[\0\1\4]', text) or not any(map(str.isalnum, text)):
    return text
  if mark == _GROUP:
    return _grouped(bare)
  if mark == _OVER:
    below = _APART.sub(' ', found[2] or '1').replace(_TOKEN, '').strip()
    text = f'{_grouped(bare)}/{_grouped(below)}'
    return ' ' * before.isalnum() + text + ' ' * after.isalnum()
  if mark == _LINK and bare.isdigit() and (is_near or before == _UP):
    return f' [{bare}]' if is_near else f'[{bare}]'
  if mark == _LINK or before in (*_STARTS, _LINK):
    is_note = mark == _UP and before in [*_STARTS] and after.isalnum()
    return text + ' ' * is_note
  if mark == _DOWN:
    is_glued = bare.isdigit() and before.isalpha() and not after.isdigit()
    return bare if is_glued else f'_{_grouped(bare, after)}'
  if bare[0] == '[':
    return ' ' * is_near + bare
  is_ordinal = before.isdigit() and len(bare) > 1
  if bare.isalpha() and (is_ordinal or before.isalpha() and after.isalpha()):
    return bare  # 5th, McDonald
  if before in _POINTS and bare.isalnum():
    return f' [{bare}]'
  return f'^{_grouped(bare, after)}'


def _grouped(text, after=''):
  """Returns a text in brackets, unless it cannot be misread without them."""
  is_near = after.isalnum() and not places.WIDE.match(after)
  is_one = _ATOM.fullmatch(text) and not is_near
  return text if is_one else f'({text})'


def unescape(text):
  """Returns text with its character references replaced."""
  return (
      html.unescape(_LONG_NUMBER.sub('\ufffd', text)) if '&' in text else text
  )
