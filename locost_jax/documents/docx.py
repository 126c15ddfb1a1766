"""The text of a Word document, .docx, in reading order.

Headings are places. A list item is a line that begins with its number or '- '.
A table row is a line with ' | ' between its cells. A note follows the paragraph
that refers to it. Raised digits and formulas keep their value: '10^6', '1/12
x^2'. SmartArt and embedded HTML, MHT and text files are read where they stand.
What is left out is counted: hidden and deleted text, placeholders, and more.

Uses only the standard library; XML entities are not expanded.
"""

import email
import posixpath
import re
from typing import NamedTuple
from xml.etree import ElementTree

from locost_jax.documents import archive
from locost_jax.documents import equations
from locost_jax.documents import markup
from locost_jax.documents import numbering
from locost_jax.documents import places
from locost_jax.errors import InputError

_ELEMENTS = (
    'http://schemas.openxmlformats.org/wordprocessingml/2006/main',
    'http://schemas.openxmlformats.org/drawingml/2006/main',  # p, r, t as well
    'http://purl.oclc.org/ooxml/wordprocessingml/main',  # ISO 29500 Strict
)
_MATH = (
    'http://schemas.openxmlformats.org/officeDocument/2006/math',
    'http://purl.oclc.org/ooxml/officeDocument/math',
)
# Elements whose content is left out, and what a note calls their text. Without
# a name, the text is elsewhere too: a Fallback repeats it for older programs.
_SKIPPED = {
    'del': 'deleted text',
    'rt': 'readings of ruby',
    'sdtContent': 'placeholders',  # if the control shows one
    **dict.fromkeys('moveFrom Fallback pPrChange rPrChange'.split()),
}
# Files that are left out: types of relations, and their name in notes. Of those
# in _TEXTS the text is counted.
_TEXTS = ('header', 'footer', 'comments')
_UNREAD = dict(chart='charts', control='controls')
_UNREAD |= dict.fromkeys(('oleObject', 'package'), 'embedded objects')
# Properties that make a paragraph a heading or an item, or raise a run.
_KINDS = {
    'vertAlign': lambda value: _HEIGHTS.get(value, ''),
    'position': lambda value: (  # in half points
        value.strip('+0') and (equations.UP, equations.DOWN)['-' in value]
    ),
    'outlineLvl': lambda value: 'heading' * (value != '9'),  # 9: body text
    'numId': lambda value: 'item' * (value != '0'),  # 0: not in a list
}
# Before an item: the sign of a bullet; a number is in the text.
_SIGNS = dict(item='- ', number='')
_HEIGHTS = dict(superscript=equations.UP, subscript=equations.DOWN)
# Elements that stand for a file, and the attribute with its id.
_CHUNKS = dict(altChunk='id', subDoc='id', relIds='dm')
# Elements of drawings whose words are not read, and the attribute with them.
_DRAWN = dict(docPr='descr', textpath='string')
# Fields that show words without a result in the file.
_FIELDS = re.compile(r'\s*(?:EQ|SYMBOL|LISTNUM|AUTONUM|MACROBUTTON|GOTOBUTTON)')
_CHARACTERS = dict(tab=' ', ptab=' ', br='\n', cr='\n', noBreakHyphen='-')
_OFF = ('0', 'false', 'off')
_DEPTH = 64  # of nested tables; each level copies its text


class _Block(NamedTuple):
  """A paragraph, a table or a note."""

  text: str
  kind: str = ''  # 'heading', 'item', 'number' or ''
  goes_on: bool = False  # in the next paragraph


def _leave_out(left_out, kind, text):
  """Counts a text, unless it is empty."""
  if text.strip():
    left_out.add('part', f'left out as {kind}', ' '.join(text.split()))


def read(data, where, max_bytes=None):
  """Returns the text of a .docx with its headings as places: a Placed.

  Its files with text must unpack to at most max_bytes (None: no limit). Raises
  an InputError for a broken, encrypted or too large file.
  """
  if data.startswith(b'\xd0\xcf\x11\xe0'):
    raise InputError(
        f'{where}: is encrypted or in an older Word format; expected a .docx '
        'without a password'
    )
  left_out = places.LeftOut()
  with archive.open_archive(data, where, 'Word document', max_bytes) as file:
    found = _join(_blocks(file, left_out))
  return found._replace(notes=left_out.notes(where))


def _blocks(file, left_out):
  """Returns the list of _Block of the body."""
  main = file.find('word/document.xml')
  for kind, name in _related(file, '').values():
    main = name if kind == 'officeDocument' else main
  related, styles, lists, notes = _related(file, main), {}, {}, {}
  first = ('styles', 'numbering')
  files = sorted(related.values(), key=lambda found: found[0] not in first)
  for kind, name in [found for found in files if found[1] in file]:
    if kind == 'styles':
      styles = _styles(_parse(file, name, _Elements()).found)
    elif kind == 'numbering':
      lists = numbering.word_lists(_parse(file, name, _Elements()).found)
    elif kind in ('footnotes', 'endnotes'):
      found = _parse(file, name, _Body(styles, lists, {}, left_out))
      notes |= {(kind[:-1], i): text for i, text in found.notes.items()}
    elif kind in _TEXTS:
      found = _parse(file, name, _Body(styles, lists, {}, places.LeftOut()))
      for block in found.blocks:
        _leave_out(left_out, kind, block.text)
    elif kind in _UNREAD:
      _leave_out(left_out, _UNREAD[kind], name)

  def read_chunk(number):
    kind, name = related.get(number, ('', number))
    try:
      if kind == 'diagramData':
        return _parse(file, name, _Body(styles, {}, {}, left_out)).blocks
      return _chunk_blocks(file.read(name), name)
    except (InputError, LookupError):  # binary, unknown encoding, no such file
      _leave_out(left_out, 'embedded files', name)
      return []

  body = _parse(file, main, _Body(styles, lists, notes, left_out, read_chunk))
  for key in [key for key in notes if key not in body.cited]:
    _leave_out(left_out, 'notes without a reference', notes[key])
  return body.blocks


def _chunk_blocks(data, name):
  """Returns the blocks of an embedded file.

  Raises:
    InputError, LookupError: a format or an encoding that cannot be read.
  """
  parts = {'text/html': [], 'text/plain': []}
  if re.search(rb'^(?:MIME-Version|Content-Type):', data[:2000], re.I | re.M):
    for part in email.message_from_bytes(data.lstrip()).walk():
      encoding = part.get_content_charset('utf-8')
      found = part.get_payload(decode=True), encoding
      parts.get(part.get_content_type(), []).append(found)
  texts = parts['text/html'] or parts['text/plain'] or [(data, 'cp1252')]
  return [block for text in texts for block in _text_blocks(name, *text)]


def _text_blocks(name, data, encoding):
  """Returns the blocks of a page or a plain text, in an encoding or UTF-8."""
  if data.startswith((b'{\\rtf', b'PK')) or b'/officeDocument/' in data[:5000]:
    raise InputError(f'{name}: RTF or a file of Word')
  is_page = re.match(rb'[\xef\xbb\xbf\xff\xfe\s\0]*<\0?[a-zA-Z!?]', data)
  headings = ()
  if is_page or name.lower().endswith(('.htm', '.html', '.xhtml')):
    text, headings = markup.html_headings(data, name, encoding)
  else:
    ignored = places.LeftOut()  # the encoding is declared, or UTF-8
    text = markup.decode_undeclared(data, name, ignored, encoding)
  starts = {start for start, _ in headings}
  return [
      _Block(found[0].strip(), 'heading' * (found.start() in starts))
      for found in re.finditer(r'\S(?:.|\n(?!\n))*', text)
  ]


def _related(file, name):
  """Returns {id: (kind, name)} of the files that a file's .rels file lists."""
  folder, base = posixpath.split(name)
  relations = posixpath.join(folder, '_rels', f'{base}.rels')
  if relations not in file:
    return {}
  return {
      found.get('Id'): (
          found.get('Type', '').rpartition('/')[2],
          file.resolve(name, found['Target']),
      )
      for tag, found in _parse(file, relations, _Elements()).found
      if tag.endswith('}Relationship')
      and 'Target' in found
      and found.get('TargetMode') != 'External'
  }


def _styles(elements):
  """Returns {style: properties}, as inherited.

  They are its kind: 'heading', 'item' or a mark of `markup`; and, for
  `numbering`, numId, ilvl and the style that has them.
  """
  own, based, found, style = {}, {}, {}, None
  for name, attributes in elements:
    tag, value = _tag(name), _value(attributes, 'val')
    if tag == 'style':
      style = _value(attributes, 'styleId')
    elif tag == 'basedOn':
      based[style] = value
    properties = own.setdefault(style, {})
    if tag == 'name' and value.lower().startswith(('heading ', 'title')):
      properties['kind'] = 'heading'
    elif tag in _KINDS:
      properties.setdefault('kind', _KINDS[tag](value))
    if tag == 'rFonts':
      properties['font'] = _value(attributes, 'ascii')
    elif tag == 'vanish':
      properties['hidden'] = value not in _OFF
    elif tag in ('numId', 'ilvl'):
      properties |= {tag: value, 'style': style}
  for style in own:
    above = {}  # styles that are not known yet; stops at a cycle
    while style and style not in found and style not in above:
      above[style] = own.get(style, {})
      style = based.get(style)
    properties = found.get(style, {})
    for style in reversed(above):
      found[style] = properties = properties | above[style]
  return found


def _parse(file, name, target):
  """Passes the elements of a file to an _Elements, and returns it."""
  parser = ElementTree.XMLParser(target=target)
  parser.feed(file.read(name))
  parser.close()
  return target


class _Elements:
  """Collects [(name, attributes)] of a small file; names: '{namespace}tag'."""

  def __init__(self):
    self.found = []

  def doctype(self, *unused):
    raise ValueError('its XML declares a document type, which Word never does')

  def start(self, name, attributes):
    self.found.append((name, attributes))


class _Body(_Elements):
  """Collects the blocks of a body, or of each note.

  Attributes:
    blocks: list of _Block.
    notes: {id: text}, for a file of notes.
    cited: {(kind, id): number} of the notes that the text refers to.
  """

  def __init__(self, styles, lists, notes, left_out, read_chunk=None):
    self.blocks, self.notes, self.cited = [], {}, {}
    self._styles, self._known, self._left_out = styles, notes, left_out
    self._numbers = numbering.WordNumbers(lists)
    self._read_chunk = read_chunk  # a function from an id to blocks
    self._paragraphs = []  # a stack, because text boxes nest paragraphs
    self._tables = []  # a stack of (blocks around the table, rows)
    self._pending = []  # notes to add after the next block
    self._skipped, self._unread = [], []  # open elements, and their text
    self._note, self._tag, self._font, self._form = None, '', '', None
    self._fields = []  # a stack of instructions; None: its result has begun
    self._choices = []  # a stack of what was read before alternatives
    self._is_hidden = self._is_placeholder = False

  def start(self, name, attributes):
    above, tag, drawn = self._tag, _tag(name), name.rpartition('}')[2]
    self._tag = tag
    if drawn in _DRAWN and not self._skipped:
      words = _value(attributes, _DRAWN[drawn])
      _leave_out(self._left_out, 'images', words)
    if above == 'rPr' and tag == 'del' and self._paragraphs:
      self._paragraphs[-1].goes_on = True  # the paragraph's end is deleted
    if self._skipped or tag in _SKIPPED and self._skips(tag):
      self._skipped.append(tag)
    elif tag == 'AlternateContent':
      self._choices.append(self._read_so_far())
    elif tag == 'p':
      self._paragraphs.append(equations.Pieces())
    elif tag == 'tbl':
      if len(self._tables) == _DEPTH:
        raise ValueError(f'more than {_DEPTH} nested tables')
      self._tables.append((self.blocks, []))
    elif tag == 'tr' and self._tables:
      self._tables[-1][1].append([])
    elif tag == 'tc' and self._tables:
      self.blocks = []
    elif tag in ('footnote', 'endnote'):
      self._note, self.blocks = _value(attributes, 'id'), []
    elif drawn in _CHUNKS and self._read_chunk:
      self.blocks += self._read_chunk(_value(attributes, _CHUNKS[drawn]))
    elif tag == 'showingPlcHdr':
      self._is_placeholder = _value(attributes, 'val') not in _OFF
    elif self._paragraphs and self._form is not None:
      self._form.setdefault(tag, []).append(_value(attributes, 'val'))
    elif self._paragraphs:
      self._add(tag, attributes)

  def _read_so_far(self):
    return [len(self.blocks), *map(len, self._paragraphs)]

  def _skips(self, tag):
    """Returns whether an element of _SKIPPED is left out."""
    if tag == 'Fallback':  # of a choice with text
      return self._choices[-1:] != [self._read_so_far()]
    if tag == 'sdtContent':
      is_placeholder, self._is_placeholder = self._is_placeholder, False
      return is_placeholder
    return True

  def _add(self, tag, attributes):
    """Reads an element of a paragraph."""
    pieces, value = self._paragraphs[-1], _value(attributes, 'val')
    if tag in _CHARACTERS:
      pieces.append(_CHARACTERS[tag])
    elif tag.startswith('m:'):
      pieces.open(tag[2:], value)
    elif tag == 'r':
      pieces.raised, self._font, self._is_hidden = '', '', False
    elif tag == 'framePr':
      pieces.goes_on |= _value(attributes, 'dropCap') in ('drop', 'margin')
    elif tag == 'vanish':
      self._is_hidden = value not in _OFF
    elif tag in ('vertAlign', 'position'):
      pieces.raised = _KINDS[tag](value)
    elif tag == 'rStyle':
      kind = self._kind(value)
      pieces.raised = kind if kind in _HEIGHTS.values() else pieces.raised
      style = self._styles.get(value, {})
      self._font = style.get('font', '') or self._font
      self._is_hidden |= style.get('hidden', False)
    elif tag == 'rFonts':
      self._font = _value(attributes, 'ascii')
    elif tag == 'pStyle':
      pieces.kind = pieces.kind or self._kind(value)
      pieces.list = self._styles.get(value, {}) | pieces.list
    elif tag in ('outlineLvl', 'numId', 'ilvl'):
      if tag != 'ilvl' and pieces.kind != 'heading':
        pieces.kind = _KINDS[tag](value)
      if tag != 'outlineLvl':
        pieces.list |= {tag: value, 'style': ''}
    elif tag in ('footnoteReference', 'endnoteReference'):
      self._cite((tag.removesuffix('Reference'), _value(attributes, 'id')))
    elif tag == 'sym' and _value(attributes, 'char'):  # of Word
      code = re.match('[0-9a-fA-F]{1,5}|', _value(attributes, 'char'))[0]
      self._add_text(chr(int(code or 'F000', 16)), _value(attributes, 'font'))
    elif tag in ('fldSimple', 'fldChar'):
      kind = _value(attributes, 'fldCharType')
      field = [_value(attributes, 'instr')]
      if kind and kind != 'begin':
        field = self._fields.pop() if self._fields else None
      if kind in ('begin', 'separate'):
        self._fields.append([] if kind == 'begin' else None)
      elif field and _FIELDS.match(''.join(field)):
        _leave_out(self._left_out, 'fields', ''.join(field))
    elif tag == 'ffData':
      self._form = {}

  def _kind(self, style):
    return self._styles.get(style, {}).get('kind', '')

  def _add_text(self, text, font):
    """Adds a text in a font; counts hidden text and unknown symbols."""
    if self._is_hidden:
      return _leave_out(self._left_out, 'hidden text', text)
    text, unknown = equations.in_unicode(text, font)
    for code in unknown:
      _leave_out(
          self._left_out,
          'symbols',
          f'{ord(code) - 0xF000:X} of {font or "an unknown font"}',
      )
    self._paragraphs[-1].add_text(text)

  def _cite(self, key):
    """Adds a reference to a note, such as '[1]'."""
    if key in self._known:
      if key not in self.cited:
        self.cited[key] = len(self.cited) + 1
        self._pending.append(f'[{self.cited[key]}] {self._known[key]}')
      self._paragraphs[-1].append(f'[{self.cited[key]}]')

  def data(self, data):
    if self._skipped and self._tag in ('t', 'm:t', 'delText'):
      self._unread.append(data)
    elif self._tag in ('t', 'm:t', 'instrText') and self._paragraphs:
      open_fields = [field for field in self._fields if field is not None]
      if open_fields:
        open_fields[-1].append(data)
      elif self._tag != 'instrText':
        self._add_text(data.replace('\n', ' '), self._font)

  def end(self, name):
    tag, self._tag = _tag(name), ''
    if self._skipped:
      self._skipped.pop()
      if not self._skipped:
        if _SKIPPED[tag]:
          _leave_out(self._left_out, _SKIPPED[tag], ''.join(self._unread))
        self._unread.clear()
    elif tag == 'AlternateContent' and self._choices:
      self._choices.pop()
    elif tag == 'pPr':  # of the end of the paragraph
      self._is_hidden = False
    elif tag == 'p' and self._paragraphs:
      self._end_paragraph(self._paragraphs.pop())
    elif tag == 'ffData' and self._form is not None and self._paragraphs:
      self._paragraphs[-1].append(_typed(self._form))
      self._form = None
    elif tag.startswith('m:') and self._paragraphs:
      self._paragraphs[-1].close(tag[2:])
    elif tag == 'tc' and self._tables and self._tables[-1][1]:
      cell = ' '.join(' '.join(block.text.split()) for block in self.blocks)
      self._tables[-1][1][-1].append(cell)
    elif tag == 'tbl' and self._tables:
      self.blocks, rows = self._tables.pop()
      self._close(_Block('\n'.join(map(' | '.join, filter(any, rows)))))
    elif tag in ('footnote', 'endnote'):
      if self.blocks:
        self.notes[self._note] = ' '.join(block.text for block in self.blocks)

  def _end_paragraph(self, paragraph):
    text = paragraph.text()
    for field in filter(None, self._fields):  # without an end
      _leave_out(self._left_out, 'fields', ''.join(field))
    self._fields = []
    if self.blocks and self.blocks[-1].goes_on:
      text = self.blocks.pop().text + text
    if paragraph.goes_on:  # the next one has the number
      self.blocks += [_Block(text, '', True)] * bool(text.strip())
      return
    number = self._numbers.following(paragraph.list)
    lines = f'{number} {text}'.split('\n')
    lines = filter(None, (' '.join(line.split()) for line in lines))
    if number and paragraph.kind == 'item':
      paragraph.kind = 'number'
    self._close(_Block('\n'.join(lines), paragraph.kind))

  def _close(self, block):
    """Adds a block and, outside tables, the notes that it refers to."""
    if block.text:
      self.blocks.append(block)
    if not self._tables and not self._paragraphs:
      self.blocks += map(_Block, self._pending)
      self._pending = []


def _tag(name):
  """Returns the tag of an element of Word, 'm:' and that of a formula, or ''."""
  space, _, tag = name[1:].rpartition('}')
  if space in _ELEMENTS or tag in ('AlternateContent', 'Fallback'):
    return tag
  return f'm:{tag}' if space in _MATH else ''


def _value(attributes, name):
  """Returns an attribute by its local name, in any namespace, or ''."""
  for key, value in attributes.items():
    if key.rpartition('}')[2] == name:
      return value
  return ''


def _typed(form):
  """Returns the mark of a check box, or the chosen entry of a list."""
  chosen = form.get('checked') or form.get('result') or form.get('default')
  chosen = (chosen or ['0'])[0]
  if 'checkBox' in form:
    return '☐' if chosen in _OFF else '☒'
  entries = form.get('listEntry', ())
  return (*entries[int(chosen) if chosen.isdecimal() else 0 :], '')[0]


def _join(blocks):
  """Joins blocks to a Placed, with blank lines except between list items."""
  pieces, headings, at, between = [], [], 0, ''
  for before, block in zip([None, *blocks], blocks):
    if before:
      are_items = {before.kind, block.kind} <= {*_SIGNS}
      between = '\n' if are_items else '\n\n'
    if block.kind == 'heading':
      headings.append((at + len(between), block.text))
    pieces.append(between + _SIGNS.get(block.kind, '') + block.text)
    at += len(pieces[-1])
  return places.with_headings(''.join(pieces), headings)
