"""The text of a PDF, page by page (extra `documents`: pypdfium2).

PDFium returns the lines of each page in the order in which the file draws them.
For most files this is the reading order, even with columns. Then

- values of form fields, and texts typed on the page, join the lines beside;
- lines that recur at one place at the top or bottom of pages, apart from the
  text (running heads), and numbers that count with the pages are left out;
- words hyphenated at the end of a line, and their initials, are joined;
- lines are joined to paragraphs, also across pages and over footnotes.
"""

import collections
import ctypes
import functools
import importlib.util
import itertools
import json
import math
import re
import resource
import subprocess
import sys
from typing import NamedTuple

from locost_jax.documents import right_to_left
from locost_jax.documents.places import check_size
from locost_jax.documents.places import LeftOut
from locost_jax.documents.places import MARKS
from locost_jax.documents.places import Place
from locost_jax.documents.places import Placed
from locost_jax.errors import InputError

# PDFium is native code, and PDFs are untrusted: a crash ends only the process
# that reads one, not the one that summarises.
_COMMAND = (sys.executable, '-m', 'locost_jax.documents.pdf')
_MEMORY = 2 << 30  # bytes of address space of the process
_SECONDS = 600  # time limit of the process
_ENCRYPTED = 'is encrypted; expected a PDF without a password (qpdf --decrypt removes it)'
_XFA = 2  # FORMTYPE_XFA_FULL: its page asks to wait for Adobe Reader
_EDGE = 2  # rows at the top and at the bottom of a page that may be heads
_MARGIN = 0.15  # of a page's height, where a head of words may stand
_APART = 1.5  # times the distance of rows: the gap between a head and the text
# A line is a head if it recurs on at least _RECURS pages, two of them at most
# _NEAR pages apart.
_RECURS = 3
_NEAR = 4
# A line shorter than this share of a page's long lines may end a paragraph.
_SHORT = 0.8
_ENDS = re.compile(rf'[.!?:;{MARKS}]["\'”’)\]」』]*\Z')
_STARTS = re.compile(r'["“‘(\[]?[A-Z0-9•\-–—*§]')
# Scripts that write no blanks between words.
_UNSPACED = re.compile(
    '[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u3190-\u9fff'
    '\uf900-\ufaff\uff00-\uff9f\U00020000-\U0003ffff]'
)
# A line up to a newline or PDFium's mark for a hyphen at its end.
_LINE = re.compile('[^\\s\x02][^\n\x02]*\x02?')
_BESIDE_NUMBER = re.compile(r'(?<=\d)[ ]+(?=\D)|(?<=\D)[ ]+(?=\d+\s*\Z)')
# The pairs of a compound: 'end-to-end' has 'end-to' and 'to-end'.
_PAIR = re.compile(r'(?<!\w)(?=(\w+-\w+))')
# Of compounds: 'x-ray', 'twenty-one', 'self-made'. No word is parted there.
_FIRST = re.compile('.|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|self|well')
_DIGIT = re.compile(r'\d')
# A character, and digits or a letter after it that may be raised.
_MIXED = re.compile(
    r'\w(?:[.,;:!?)\]”"−–-]{0,2}\d)+(?:[^\W\d_](?!\w))?|\d[^\W\d_](?!\w)'
)
# Codes of glyphs without Unicode; in fonts of old TeX, some are ligatures.
_CODE = re.compile('[\0\1\3-\x08\x0b\x0c\x0e-\x1f\ufffe]')
_LIGATURES = dict(zip('\x0b\x0c\x0e\x0f\x02', 'ﬀﬁﬃﬄ\x02'))
_PAIRED = re.compile('[\ud800-\udfff]')
_UNKNOWN = re.compile('[\ufffd\ue000-\uf8ff]')
_CAPITALS = re.compile('[A-Z]')
# A word after an initial: of small letters, or of capitals.
_REST = re.compile(r'(?![A-Z][a-z])[^\W\d_]+')
_NUMERATOR = re.compile(r'\d+\s?[/⁄]')
# The dot leaders of a table of contents.
_LEADERS = re.compile(r'\.(?:\s*\.){4,}')
# A number alone, or of a number of pages: '- 3 -', '3 / 20'.
_ONLY_NUMBERS = re.compile(
    r'(?:\d+ ?/)?[\s/|·•–—-]*#[\s/|·•–—-]*(?:\d+[\s|·•–—-]*)?'
)
_PARTED = re.compile('# ?[|·•—–]|[|·•—–] ?#')
_ROMAN = re.compile(r'[ivxlc]+', re.IGNORECASE)
# Words of lines that count pages: 'Page 3 of 20'.
_PAGE_WORDS = frozenset(
    'p pp pg page pages of sur seite s von pagina página pág pag di de sida av '
    'side strona strana стр страница из 第 页 頁 页共 頁共 共 ページ 쪽'.split()
)


class _Line(NamedTuple):
  """A line; y and size are shares of the height of the page."""

  text: str
  y: float  # of its baseline, from the bottom
  size: float  # of the font of its first or last character, the larger one
  is_split: bool  # a wide gap parts a number at its end from the rest


def read(data, where, max_bytes=None):
  """Returns the text of a PDF with its pages as places: a Placed.

  Its text must have at most max_bytes (None: no limit). Raises an InputError if
  pypdfium2 is missing, or the file is broken, encrypted or without text.
  """
  if b'%PDF' not in data[:1024]:
    raise InputError(f'{where}: is not a PDF; expected %PDF at its beginning')
  pages, unread = _read_lines(data, where, max_bytes)
  left_out = LeftOut()
  empty = sum(not page for page in pages)
  if empty == len(pages):
    raise InputError(
        f'{where}: none of its {len(pages):,} pages has text, as in a scan; '
        'expected a PDF with text (ocrmypdf can add it)'
    )
  found = _join(_without_heads(pages, left_out))
  for unit, example in unread:
    left_out.add(unit, 'left out', example)
  unknown = [match.start() for match in _UNKNOWN.finditer(found.text)]
  size, capitals = len(found.text), len(_CAPITALS.findall(found.text))
  is_odd = len(unknown) > 0.01 * size and capitals > 0.4 * size  # '7KH', The
  if is_odd or len(unknown) > 0.3 * size:
    raise InputError(
        f'{where}: its fonts do not say which letters they show; expected a '
        'PDF with text (ocrmypdf --force-ocr can read its pages)'
    )
  if unknown:
    around = found.text[max(unknown[0] - 20, 0) : unknown[0] + 20]
    left_out.add('character', 'without Unicode', around, len(unknown))
  note = f'{where}: {empty:,} of {len(pages):,} pages have no text'
  notes = (note,) * bool(empty) + left_out.notes(where)
  return found._replace(notes=notes)


def _load_lines(data, max_size):
  """Reads a PDF in the process that does only this.

  Returns:
    {'pages': [[_Line, ...], ...], 'unread': [(unit, example), ...]}; {'error': a
    message}; or {'too_large': characters read so far} above max_size (0: none).
  """
  import pypdfium2

  try:
    document = pypdfium2.PdfDocument(data)
  except pypdfium2.PdfiumError as error:
    if 'password' in str(error).lower():
      return {'error': _ENCRYPTED}
    return {'error': 'a broken PDF: PDFium cannot load it'}
  if document.get_formtype() == _XFA:
    return {'error': 'an XFA form; expected a PDF printed from Adobe Reader'}
  if document.get_formtype():
    document.init_forms()
  files = [
      document.get_attachment(i) for i in range(document.count_attachments())
  ]
  unread = [('attached file', file.get_name()[:80]) for file in files]
  pages, size = [], 0
  for page in document:
    _, bottom, _, top = page.get_cropbox()
    height = top - bottom or 1
    share = lambda y: min(9, max(-9, (y - bottom) / height))  # also of a NaN
    lines = _page_lines(page, share, height)
    for text, box in _annotations(document.formenv, page):
      if box:
        _add_typed(lines, text, share(box.bottom), share(box.top))
      else:
        unread.append(('comment', text[:80]))
    size += sum(len(line.text) + 1 for line in lines)
    if max_size and size > max_size:
      return {'too_large': size}
    pages.append(lines)
    page.close()
  if not pages:
    return {'error': 'a PDF without pages'}
  return {'pages': pages, 'unread': unread}


def _page_lines(page, share, height):
  """Returns the _Lines of a page."""
  import pypdfium2.raw as pdfium

  reader = page.get_textpage()
  x, y, box = ctypes.c_double(), ctypes.c_double(), pdfium.FS_RECTF()
  matrix = pdfium.FS_MATRIX()

  def size_of(at):
    pdfium.FPDFText_GetMatrix(reader.raw, at, matrix)
    scale = math.hypot(matrix.c, matrix.d)
    return scale * pdfium.FPDFText_GetFontSize(reader.raw, at)

  def place(at):
    pdfium.FPDFText_GetCharOrigin(reader.raw, at, x, y)
    return x.value, y.value

  def glyph(at):
    pdfium.FPDFText_GetLooseCharBox(reader.raw, at, box)
    return right_to_left.Glyph(
        text[at], *place(at), box.right, box.left + box.right, at
    )

  def is_wide(gap):
    start, end = order[gap.start() - 1], order[gap.end()]
    return abs(place(end)[0] - place(start)[0]) > 3 * size

  lines, text, size = [], _characters(reader), 0
  orders = [range(*found.span()) for found in _LINE.finditer(text)]
  if right_to_left.WORD.search(text):
    orders = right_to_left.rows(text, orders, glyph, size_of)
  for order in orders:
    start = order[0]
    if isinstance(order, list):
      line = right_to_left.with_brackets(''.join([text[i] for i in order]))
    else:
      line = text[start : order.stop]
    before, size = size, size_of(start)
    if size != before:
      size = max(size, size_of(order[len(line.rstrip()) - 1]))
    at = share(place(start)[1])
    is_split = min(at, 1 - at) < _MARGIN and any(
        map(is_wide, _BESIDE_NUMBER.finditer(line))
    )
    after = text[order[-1] + 1 : order[-1] + 4]
    if _DIGIT.search(line):
      line = _with_heights(line, after, order, place, size_of)
    line = line.replace('\x02', '-')
    line = _LEADERS.sub(' … ', line)
    words = line.replace('\uf0b7', '•').split()  # of symbol fonts
    line = ' '.join(words)
    if _PAIRED.search(line):
      line = line.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')
    lines.append(_Line(line, at, size / height, is_split))
  return lines


def _characters(reader):
  """Returns one character for each of PDFium's, and a blank, which is at -1."""
  import pypdfium2.raw as pdfium

  count = reader.count_chars()
  text = reader.get_text_range() if count else ''
  character = lambda at: chr(pdfium.FPDFText_GetUnicode(reader.raw, at))
  if len(text) != count:  # it has pairs of surrogates
    text = ''.join(map(character, range(count)))
  # U+FFFE is a hyphen at the end of a line, \2, or a glyph without Unicode.
  code = lambda m: character(m.start()) if m[0] == '\ufffe' else m[0]
  return _CODE.sub(lambda m: _LIGATURES.get(code(m), '\ufffd'), text) + ' '


def _with_heights(line, after, order, place, size_of):
  """Returns a line whose raised digits follow '^', and lowered ones '_'.

  Args:
    after: what follows the line.
    order: the index of each character.
    place, size_of: functions of an index: (x, y), and the size of the font.
  """
  for found in reversed([*_MIXED.finditer(line)]):
    first, last = found.start(), found.end() - 1
    left, base = place(order[first])
    ends = last, last - line[last].isalpha()
    if all(place(order[i])[1] == base for i in ends):
      continue
    large = size_of(order[first])
    x_of_next, y_of_next = place(order[first + 1])
    if abs(x_of_next - left) < 0.2 * large:  # below it, or turned
      if abs(y_of_next - base) > 0.9 * large and found[0].isdigit():
        line = line[:first] + ' '.join(found[0]) + line[last + 1 :]
      continue
    is_moved = lambda i: (  # raised or lowered
        size_of(order[i]) < 0.9 * large
        or abs(place(order[i])[1] - base) > 0.2 * large
    )
    if any(map(is_moved, ends)):
      small = next(filter(is_moved, range(first, last + 1)))
      mark = '^' if place(order[small])[1] > base else '_'
      is_fraction = re.match(r'\s*[/⁄]', line[last + 1 :] + after)
      mark = ' ' if is_fraction else mark
      mark *= mark != '_' or line[small - 1].isdigit()  # H2O
      line = line[:small] + mark + line[small:]
  return line


def _annotations(form, page):
  """Yields (text, its box if it was typed on the page) of annotations."""
  import pypdfium2.raw as pdfium

  box = pdfium.FS_RECTF()
  buttons = pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON
  for i in range(pdfium.FPDFPage_GetAnnotCount(page)):
    note = pdfium.FPDFPage_GetAnnot(page, i)
    kind = pdfium.FPDFAnnot_GetSubtype(note)
    get = functools.partial(pdfium.FPDFAnnot_GetStringValue, note, b'Contents')
    if kind == pdfium.FPDF_ANNOT_WIDGET and form:
      get = functools.partial(pdfium.FPDFAnnot_GetFormFieldValue, form, note)
    chosen = form and [  # entries of a list
        functools.partial(pdfium.FPDFAnnot_GetOptionLabel, form, note, entry)
        for entry in range(pdfium.FPDFAnnot_GetOptionCount(form, note))
        if pdfium.FPDFAnnot_IsOptionSelected(form, note, entry)
    ]
    text = ' '.join(map(_string, chosen or [get]))
    if form and pdfium.FPDFAnnot_GetFormFieldType(form, note) in buttons:
      text = '[x]' * pdfium.FPDFAnnot_IsChecked(form, note)
    pdfium.FPDFAnnot_GetRect(note, box)
    pdfium.FPDFPage_CloseAnnot(note)
    if text and kind not in (pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP):
      typed = pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_FREETEXT
      yield text, box if kind in typed else None


def _string(get):
  """Returns the string that a function of PDFium writes into a buffer."""
  import pypdfium2.raw as pdfium

  size = get(None, 0)
  text = (pdfium.FPDF_WCHAR * (size // 2))()
  get(text, size)
  return ' '.join(bytes(text).decode('utf-16-le', 'replace')[:-1].split())


def _add_typed(lines, text, low, high):
  """Adds a text to the row of its box, or as a line of its own."""
  at = next((i for i, line in enumerate(lines) if line.y < low), len(lines))
  if at and lines[at - 1].y <= high:
    row = lines[at - 1]
    lines[at - 1] = row._replace(text=f'{row.text} {text}')
  else:
    lines.insert(at, _Line(text, low, 0, False))


def _read_lines(data, where, max_bytes):
  """Returns the _Lines of each page, and [(unit, example)] of what is not read."""
  if importlib.util.find_spec('pypdfium2') is None:
    raise InputError(
        f'{where}: is a PDF, which needs pypdfium2: '
        'pip install "locost_jax[documents]"'
    )
  try:
    done = subprocess.run(
        [*_COMMAND, str(max_bytes or 0)],
        input=data,
        capture_output=True,
        timeout=_SECONDS,
    )
  except subprocess.TimeoutExpired:
    raise InputError(
        f'{where}: its text could not be read within {_SECONDS} seconds'
    ) from None
  if done.returncode:
    lines = done.stderr.decode('utf-8', 'replace').strip().splitlines()
    lines = lines or [f'its reader ended with status {done.returncode}']
    raise InputError(f'{where}: a broken PDF: {lines[-1]}')
  found = json.loads(done.stdout)
  if 'error' in found:
    raise InputError(f'{where}: {found["error"]}')
  check_size(where, found.get('too_large', 0), max_bytes)
  pages = [[_Line(*line) for line in page] for page in found['pages']]
  return pages, found['unread']


def _without_heads(pages, left_out):
  """Returns the pages without running heads and page numbers."""
  seen = collections.defaultdict(list)  # key -> [(page, index of the line)]
  apart = collections.defaultdict(list)  # key -> pages that part it from text
  for number, lines in enumerate(pages):
    for key, i, is_apart in _edges(lines, number):
      seen[key].append((number, i))
      apart[key] += [number] * is_apart
  heads = set()
  for key, found in seen.items():
    numbers, is_sure = dict.fromkeys(apart[key]), key[-1]
    step = min((b - a for a, b in itertools.pairwise(numbers)), default=0)
    # A title and a number that count on each page, such as 'Section 3', may be
    # the text's; on every second page they are a head.
    if len(numbers) >= _RECURS and step <= _NEAR and (is_sure or step > 1):
      heads.update(found)
  for number, i in sorted(heads):
    text = pages[number][i].text
    left_out.add('line', 'left out as running heads or page numbers', text)
  return [
      [line for i, line in enumerate(lines) if (number, i) not in heads]
      for number, lines in enumerate(pages)
  ]


def _edges(lines, page):
  """Yields (key, index, whether it is apart) of lines that may be heads.

  A key is (text, offset, place, is_sure).

  They are heads if this recurs: the text, with '#' for one number; that number
  less the page's, or None; and the place, in 1/400 of the height.
  """
  rows = sorted({round(line.y, 3) for line in lines})
  count = min(_EDGE, len(rows) // 2)
  gaps = [b - a for a, b in itertools.pairwise(rows)]
  size = sorted(line.size for line in lines)[len(lines) // 2] if lines else 0
  usual = sorted(gaps)[len(gaps) // 2] if len(gaps) > 3 else 1.2 * size
  # {y of a row: (whether it is at the top, the gaps between it and the text)}
  edges = {y: (False, gaps[i:count]) for i, y in enumerate(rows[:count])}
  for i, y in enumerate(rows[::-1][:count]):
    edges[y] = True, gaps[::-1][i:count]
  for i, line in enumerate(lines):
    is_top, inwards = edges.get(round(line.y, 3), (False, ()))
    if not inwards or line.size > 1.15 * size:  # a title of the page
      continue
    is_apart = max(inwards) > _APART * usual
    is_margin = min(line.y, 1 - line.y) < _MARGIN
    place = round(400 * line.y)
    if is_margin:
      is_head = is_apart or is_top and line.text.isupper()
      yield (line.text, None, place, True), i, is_head
    for text, number in _numbers(line.text):
      words = re.findall(r'[^\W\d_]+', text.lower())
      is_sure = (
          words
          and _PAGE_WORDS.issuperset(words)
          or (_ONLY_NUMBERS.fullmatch(text) and (is_apart or not is_top))
      )
      if is_sure or words and is_margin and is_apart:
        is_sure = bool(is_sure or line.is_split or _PARTED.search(text))
        yield (text, number - page, place, is_sure), i, True


def _numbers(line):
  """Yields (line with '#' for one number that is no year, that number)."""
  if _ROMAN.fullmatch(line):
    values = [dict(zip('ivxlc', (1, 5, 10, 50, 100)))[c] for c in line.lower()]
    yield '#', sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0]))
  for found in [*re.finditer(r'(?<!\d)\d{1,4}(?!\d)', line)][:4]:
    if not 1500 < int(found[0]) < 2100:
      yield f'{line[:found.start()]}#{line[found.end():]}', int(found[0])


def _join(pages):
  """Joins the lines of all pages to paragraphs; returns a Placed."""
  # Words, pairs, the last characters of lines, and, as None, the lines.
  known = collections.Counter()
  for lines in pages:
    text = '\n'.join(line.text for line in lines).lower()
    known.update(re.findall(r'\w+', text))
    known.update(_PAIR.findall(text) if '-' in text else ())
    known['\u2010'] += bool(re.search('\\w\u2010\\w', text))
    known.update((line.text[-1], 'last') for line in lines)
    known[None] += len(lines)
  parts, places, at, page = [], [], 0, 0
  for number, line, between in _in_reading_order(pages, known):
    if between is None:  # a hyphenated word
      parts[-1] = parts[-1][:-1]
      at -= 1
      between = ''
    parts += [between, line.text]
    at += len(between)
    if number != page:
      places.append(Place(at, f'page {number}'))
    at, page = at + len(line.text), number
  return Placed(''.join(parts), tuple(places))


def _in_reading_order(pages, known):
  """Yields (number of the page, line, separator before it).

  Footnotes, small lines at the end of a page, follow the paragraph that goes on
  over them.
  """
  before, notes = None, []
  for number, lines in enumerate(pages, start=1):
    lengths = sorted(len(line.text) for line in lines) or [0]
    long = lengths[len(lines) * 4 // 5]
    lines = _with_initials(lines, known)
    sizes = sorted(line.size for line in lines)
    is_body = lambda line: not line.text.isdigit() and (
        not 0 < line.size < 0.9 * sizes[len(lines) // 2]
    )
    end = len(lines)
    while end and not is_body(lines[end - 1]):
      end -= 1
    for line in lines[:end]:
      between = _between(before, line, long, known) if before else ''
      if notes and abs(line.size - before.size) > 0.1 * line.size:
        between = '\n\n'  # the small text goes on
      if between == '\n\n':
        yield from notes
        notes = []
      yield number, line, between
      before = line
    above = None
    for line in lines[end:]:
      between = _between(above, line, long, known) if above else '\n\n'
      notes.append((number, line, between))
      above = line
  yield from notes


def _with_initials(lines, known):
  """Returns lines with each initial, as high as some lines, before its word."""
  lines = [*lines]
  for at, initial in reversed([*enumerate(lines)]):
    if len(initial.text) > 1 or not initial.text.isupper():
      continue
    beside = [
        i
        for i, line in enumerate(lines[at : at + 100], at)
        if initial.y - 0.1 * initial.size < line.y < initial.y + initial.size
        and 0 < line.size < 0.5 * initial.size
        and _REST.match(line.text)
    ]
    if beside:
      i = max(beside, key=lambda i: lines[i].y)
      rest = _REST.match(lines[i].text)[0].lower()
      whole = known[initial.text.lower() + rest]
      is_word = initial.text in 'AIO' and known[rest] > whole + 1
      text = initial.text + ' ' * is_word + lines[i].text
      lines[i] = lines[i]._replace(text=text)
      del lines[at]
  return lines


def _between(before, line, long, known):
  """Returns the separator between two lines; None: remove the hyphen.

  `long` is the length of the page's long lines (80th percentile).
  """
  text = before.text
  if text[-1] in '-\u00ad\u2010\u2011':
    first = re.split(r'[^\w-]', text.rsplit(None, 1)[-1][:-1])[-1]
    rest = re.match(r'\w+(?:-\w+)*', line.text)
    if first[-1:].isalnum() and rest:
      return _hyphen(text[-1], first.lower(), rest[0], known)
  rise = (line.y - before.y) / (min(line.size, before.size) or 1)
  is_row = abs(rise) < 0.9
  if is_row and rise > 0.2 and text[-1].isdigit() and line.text[0].isalnum():
    return ' ' if _NUMERATOR.match(line.text) else '^'
  is_short = len(text) < _SHORT * long and not is_row
  is_resized = abs(line.size - before.size) > 0.1 * line.size
  if is_short and (
      _ENDS.search(text) or _STARTS.match(line.text) or is_resized
  ):
    return '\n\n'
  is_unspaced = _UNSPACED.match(text[-1]) and _UNSPACED.match(line.text)
  return '' if is_unspaced else ' '


def _hyphen(hyphen, first, rest, known):
  """Returns what replaces the end of a line in a word; None: no hyphen."""
  if hyphen == '\u00ad':
    return None
  if first[-1].isdigit() or rest[0].isdigit():
    return ''
  ends = first.rpartition('-')[2], rest.partition('-')[0].lower()
  compound, whole = known['-'.join(ends)], known[''.join(ends)]
  is_word = rest[0].islower() or rest[1:2].isupper()  # such as 'OP-TIONAL'
  if whole and is_word:
    return '' if compound > whole else None
  if rest in ('and', 'or', 'und', 'oder'):
    return ' '
  if hyphen == '\u2010' and not known[hyphen]:  # only at the end of lines
    return None
  # A text that is hyphenated is so often, and in one way.
  count = known[hyphen, 'last']
  is_rare = known[None] > 100 and 50 * count < known[None]
  is_other = known['\u2010', 'last'] and not known['\u2010']
  is_compound = (
      compound or '-' in first + rest or not rest[0].islower()
  ) or _FIRST.fullmatch(first)
  return '' if is_compound or is_rare or is_other else None


if __name__ == '__main__':
  if sys.platform == 'linux':  # macOS refuses any limit
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
  # Faster than json.dump, which encodes in Python.
  sys.stdout.write(
      json.dumps(_load_lines(sys.stdin.buffer.read(), int(sys.argv[1])))
  )
