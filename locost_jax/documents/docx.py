"""The text of a Word document, .docx, in reading order.

Headings are places. A list item is a line that begins with '- '. A table row is
a line with ' | ' between its cells. A note follows the paragraph that refers to
it. Deleted text, comments, headers and footers are left out.

Uses only the standard library; XML entities are not expanded.
"""

import posixpath
from typing import NamedTuple
from xml.etree import ElementTree

from locost_jax.documents import archive
from locost_jax.documents import places
from locost_jax.errors import InputError

_ELEMENTS = (
    'http://schemas.openxmlformats.org/wordprocessingml/2006/main',
    'http://purl.oclc.org/ooxml/wordprocessingml/main',  # ISO 29500 Strict
)
_MATH = (
    'http://schemas.openxmlformats.org/officeDocument/2006/math',
    'http://purl.oclc.org/ooxml/officeDocument/math',
)
# Deleted or moved text; a Fallback repeats content for older programs.
_SKIPPED = frozenset('del moveFrom Fallback pPrChange'.split())
_CHARACTERS = {'tab': ' ', 'br': '\n', 'cr': '\n', 'noBreakHyphen': '-'}
_DEPTH = 64  # of nested tables; each level copies its text


class _Block(NamedTuple):
  """A paragraph, a table or a note."""

  text: str
  kind: str = ''  # 'heading', 'item' or ''


def read(data, where, max_bytes=None):
  """Returns the text of a .docx with its headings as places: a Placed.

  Args:
    where: name of the file, for error messages.
    max_bytes: limit of the unpacked size of its files with text; None: no
      limit.

  Raises:
    InputError: a broken, encrypted or too large file.
  """
  if data.startswith(b'\xd0\xcf\x11\xe0'):
    raise InputError(
        f'{where}: is encrypted or in an older Word format; expected a .docx '
        'without a password'
    )
  with archive.open_archive(data, where, 'Word document', max_bytes) as file:
    return _join(_blocks(file))


def _blocks(file):
  """Returns the list of _Block of the body."""
  main = _related(file, '').get('officeDocument', 'word/document.xml')
  related, styles, notes = _related(file, main), _Styles(), {}
  if related.get('styles') in file:
    _parse(file, related['styles'], styles)
  for kind in ('footnote', 'endnote'):
    if related.get(f'{kind}s') in file:
      found = _Body(styles.kinds(), {})
      _parse(file, related[f'{kind}s'], found)
      notes |= {(kind, i): text for i, text in found.notes.items()}
  body = _Body(styles.kinds(), notes)
  _parse(file, main, body)
  return body.blocks


def _related(file, name):
  """Returns {kind: name} of the files that a file's .rels file lists."""
  folder, base = posixpath.split(name)
  relations = posixpath.join(folder, '_rels', f'{base}.rels')
  if relations not in file:
    return {}
  found = _Relations()
  _parse(file, relations, found)
  return {
      kind: posixpath.normpath(posixpath.join('/', folder, target))[1:]
      for kind, target in found.targets.items()
  }


def _parse(file, name, target):
  """Passes the elements of a file to target.start, .end and .data."""
  parser = ElementTree.XMLParser(target=target)
  parser.feed(file.read(name))
  parser.close()


class _Target:
  """Reads the elements of a file; names are '{namespace}tag'."""

  def doctype(self, *unused):
    raise ValueError('its XML declares a document type, which Word never does')


class _Relations(_Target):
  """Collects the targets of a .rels file by their kinds."""

  def __init__(self):
    self.targets = {}  # the last part of the type -> path

  def start(self, name, attributes):
    if name.endswith('}Relationship') and 'Target' in attributes:
      kind = attributes.get('Type', '').rpartition('/')[2]
      if attributes.get('TargetMode') != 'External':
        self.targets.setdefault(kind, attributes['Target'])


class _Styles(_Target):
  """Collects the paragraph styles that are headings or list items."""

  def __init__(self):
    self._kinds, self._based, self._id = {}, {}, None

  def start(self, name, attributes):
    tag, value = _tag(name), _value(attributes, 'val')
    if tag == 'style':
      self._id = _value(attributes, 'styleId')
    elif tag == 'basedOn':
      self._based[self._id] = value
    elif tag == 'name' and value.lower().startswith(('heading ', 'title')):
      self._kinds[self._id] = 'heading'
    elif tag in ('outlineLvl', 'numId'):
      self._kinds.setdefault(self._id, _kind(tag, value))

  def kinds(self):
    """Returns {style: 'heading', 'item' or ''}, as inherited."""
    for style in self._based:
      above = set()  # styles without their own kind; stops at a cycle
      while style and style not in self._kinds and style not in above:
        above.add(style)
        style = self._based.get(style)
      self._kinds |= dict.fromkeys(above, self._kinds.get(style, ''))
    return self._kinds


class _Paragraph:
  """A paragraph during parsing."""

  def __init__(self):
    self.pieces, self.kind = [], ''


class _Body(_Target):
  """Collects the blocks of a body, or of each note.

  Attributes:
    blocks: list of _Block.
    notes: {id: text}, for a file of notes.
  """

  def __init__(self, kinds, notes):
    self.blocks, self.notes = [], {}
    self._kinds, self._known = kinds, notes
    self._paragraphs = []  # a stack, because text boxes nest paragraphs
    self._tables = []  # a stack of (blocks around the table, rows)
    self._pending = []  # notes to add after the next block
    self._cited, self._note = {}, None
    self._skipped, self._is_text = 0, False

  def start(self, name, attributes):
    tag = _tag(name)
    if self._skipped or tag in _SKIPPED:
      self._skipped += 1
    elif tag == 'p':
      self._paragraphs.append(_Paragraph())
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
    elif self._paragraphs:
      self._add(tag, attributes)

  def _add(self, tag, attributes):
    """Reads an element of a paragraph."""
    paragraph = self._paragraphs[-1]
    self._is_text = tag == 't'
    if tag in _CHARACTERS:
      paragraph.pieces.append(_CHARACTERS[tag])
    elif tag == 'pStyle':
      style = _value(attributes, 'val')
      paragraph.kind = paragraph.kind or self._kinds.get(style, '')
    elif tag in ('outlineLvl', 'numId') and paragraph.kind != 'heading':
      paragraph.kind = _kind(tag, _value(attributes, 'val'))
    elif tag in ('footnoteReference', 'endnoteReference'):
      self._cite(tag.removesuffix('Reference'), _value(attributes, 'id'))

  def _cite(self, kind, number):
    """Adds a reference to a note, such as '[1]'."""
    if (kind, number) in self._known:
      key = kind, number
      if key not in self._cited:
        self._cited[key] = len(self._cited) + 1
        self._pending.append(f'[{self._cited[key]}] {self._known[key]}')
      self._paragraphs[-1].pieces.append(f'[{self._cited[key]}]')

  def data(self, data):
    if self._is_text and not self._skipped:
      self._paragraphs[-1].pieces.append(data.replace('\n', ' '))

  def end(self, name):
    tag = _tag(name)
    self._is_text = False
    if self._skipped:
      self._skipped -= 1
    elif tag == 'p' and self._paragraphs:
      paragraph = self._paragraphs.pop()
      lines = ''.join(paragraph.pieces).split('\n')
      lines = filter(None, (' '.join(line.split()) for line in lines))
      self._close(_Block('\n'.join(lines), paragraph.kind))
    elif tag == 'tc' and self._tables and self._tables[-1][1]:
      cell = ' '.join(' '.join(block.text.split()) for block in self.blocks)
      self._tables[-1][1][-1].append(cell)
    elif tag == 'tbl' and self._tables:
      self.blocks, rows = self._tables.pop()
      self._close(_Block('\n'.join(map(' | '.join, filter(any, rows)))))
    elif tag in ('footnote', 'endnote'):
      text = ' '.join(block.text for block in self.blocks)
      if text:
        self.notes[self._note] = text

  def _close(self, block):
    """Adds a block and, outside tables, the notes that it refers to."""
    if block.text:
      self.blocks.append(block)
    if not self._tables and not self._paragraphs:
      self.blocks += map(_Block, self._pending)
      self._pending = []


def _tag(name):
  """Returns the tag of a Word element or of math text ('t'), else ''."""
  space, _, tag = name[1:].rpartition('}')
  if space in _ELEMENTS or tag == 'Fallback':
    return tag
  return 't' if tag == 't' and space in _MATH else ''


def _value(attributes, name):
  """Returns an attribute by its local name, in any namespace, or ''."""
  local = {key.rpartition('}')[2]: attributes[key] for key in attributes}
  return local.get(name, '')


def _kind(tag, value):
  """Returns the kind of a paragraph with an outline level or a list number."""
  if tag == 'outlineLvl':  # 9 is body text
    return '' if value == '9' else 'heading'
  return '' if value == '0' else 'item'  # 0: not in a list


def _join(blocks):
  """Joins blocks to a Placed, with blank lines except between list items."""
  pieces, headings, at, before = [], [], 0, None
  for block in blocks:
    text = f'- {block.text}' if block.kind == 'item' else block.text
    if before:
      is_list = before == block.kind == 'item'
      pieces.append('\n' if is_list else '\n\n')
      at += len(pieces[-1])
    if block.kind == 'heading':
      headings.append((at, block.text))
    pieces.append(text)
    at += len(text)
    before = block.kind or 'text'
  return places.with_headings(''.join(pieces), headings)
