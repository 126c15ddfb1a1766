"""The text of a PDF, page by page (extra `documents`: pypdfium2).

PDFium returns the lines of each page in the order in which the file draws them.
For most files this is the reading order, even with columns. Then

- lines that recur at the top or bottom of pages (running heads, page numbers)
  are left out;
- words hyphenated at the end of a line are joined;
- lines are joined to paragraphs, also across pages.
"""

import collections
import importlib.util
import json
import re
import resource
import subprocess
import sys

from locost_jax.documents import markup
from locost_jax.documents.places import Place
from locost_jax.documents.places import Placed
from locost_jax.errors import InputError

# PDFium is native code, and PDFs are untrusted: a crash ends only the process
# that reads one, not the one that summarises.
_COMMAND = (sys.executable, '-m', 'locost_jax.documents.pdf')
_MEMORY = 2 << 30  # bytes of address space of the process
_SECONDS = 600  # time limit of the process
_EDGE = 2  # lines at the top and at the bottom of a page that may be heads
# A line is a head if it recurs on at least _RECURS pages, two of them at most
# _NEAR pages apart.
_RECURS = 3
_NEAR = 4
# A line shorter than this share of a page's long lines may end a paragraph.
_SHORT = 0.8
_ENDS = re.compile(r'[.!?:;]["\'”’)\]]*\Z')
_STARTS = re.compile(r'["“‘(\[]?[A-Z0-9•\-–—*§]')
# PDFium's mark for a hyphen at the end of a line, where it drops the newline.
_CUT = re.compile('[\ufffe\x02](?:\r?\n)?')
_HYPHEN = re.compile(r'(\w+)[-\u00ad\u2010]\Z')
# The dot leaders of a table of contents.
_LEADERS = re.compile(r' ?(?:\. ?){5,}')
_ROMAN = re.compile(r'[ivxlcdm]+', re.IGNORECASE)


def read(data, where, max_bytes=None):
  """Returns the text of a PDF with its pages as places: a Placed.

  Args:
    where: name of the file, for error messages.
    max_bytes: limit of its text; None: no limit.

  Raises:
    InputError: pypdfium2 is missing; or the file is broken or encrypted, or has
      no text (a scan) or too much of it.
  """
  if b'%PDF' not in data[:1024]:
    raise InputError(f'{where}: is not a PDF; expected %PDF at its beginning')
  lines = _read_lines(data, where, max_bytes)
  empty = sum(not page for page in lines)
  if empty == len(lines):
    raise InputError(
        f'{where}: none of its {len(lines):,} pages has text, as in a scan; '
        'expected a PDF with text (ocrmypdf can add it)'
    )
  found = _join(_without_heads(lines))
  note = f'{where}: {empty:,} of {len(lines):,} pages have no text'
  return found._replace(notes=(note,)) if empty else found


def _load_lines(data, max_size):
  """Reads a PDF in the process that does only this.

  Returns:
    {'pages': [[line, ...], ...]}; {'error': 'encrypted' or a reason}; or
    {'too_large': characters read so far} above max_size (0: no limit).
  """
  import pypdfium2

  try:
    document = pypdfium2.PdfDocument(data)
  except pypdfium2.PdfiumError as error:
    is_password = 'password' in str(error).lower()
    return {'error': 'encrypted' if is_password else 'PDFium cannot load it'}
  pages, size = [], 0
  for page in document:
    text = page.get_textpage().get_text_bounded()
    text = _CUT.sub('-\n', text)
    size += len(text)
    if max_size and size > max_size:
      return {'too_large': size}
    lines = (' '.join(line.split()) for line in text.splitlines())
    pages.append([line for line in lines if line])
    page.close()
  return {'pages': pages}


def _read_lines(data, where, max_bytes):
  """Returns the lines of each page: a list of lists of str."""
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
        check=False,
        timeout=_SECONDS,
    )
  except subprocess.TimeoutExpired:
    raise InputError(
        f'{where}: its text could not be read within {_SECONDS} seconds'
    ) from None
  if done.returncode:
    last = done.stderr.decode('utf-8', 'replace').strip().splitlines()[-1:]
    reason = f'its reader ended with status {done.returncode}'
    reason = last[0] if last else reason
    raise InputError(f'{where}: a broken PDF: {reason}')
  found = json.loads(done.stdout)
  if found.get('error') == 'encrypted':
    raise InputError(
        f'{where}: is encrypted; expected a PDF without a password '
        '(qpdf --decrypt removes it)'
    )
  if 'error' in found:
    raise InputError(f'{where}: a broken PDF: {found["error"]}')
  markup.check_size(where, found.get('too_large', 0), max_bytes)
  if not found['pages']:
    raise InputError(f'{where}: a PDF without pages')
  return [
      [_LEADERS.sub(' … ', line) for line in page] for page in found['pages']
  ]


def _without_heads(pages):
  """Returns the pages without lines that recur at their edges."""
  seen = collections.defaultdict(list)  # (edge, line) -> pages
  for number, lines in enumerate(pages):
    for edge, line in _edges(lines):
      seen[edge, _shape(line)].append(number)
  heads = {
      key
      for key, found in seen.items()
      if len(found) >= _RECURS
      and min(b - a for a, b in zip(found, found[1:])) <= _NEAR
  }
  kept = []
  for lines in pages:
    drop = {
        edge % len(lines)
        for edge, line in _edges(lines)
        if (edge, _shape(line)) in heads
    }
    kept.append([line for i, line in enumerate(lines) if i not in drop])
  return kept


def _edges(lines):
  """Returns [(index, line)] of a page's first and last lines: 0, 1, -2, -1."""
  count = min(_EDGE, len(lines) // 2)
  return [(i, lines[i]) for i in [*range(count), *range(-count, 0)]]


def _shape(line):
  """Returns a line with '#' for numbers, and for a line of one roman number."""
  return '#' if _ROMAN.fullmatch(line) else re.sub(r'\d+', '#', line)


def _join(pages):
  """Joins the lines of all pages to paragraphs; returns a Placed."""
  known = collections.Counter(
      word for lines in pages for line in lines for word in _words(line)
  )
  parts, places, at, before = [], [], 0, ''
  for number, lines in enumerate(pages, start=1):
    long = sorted(map(len, lines))[len(lines) * 4 // 5] if lines else 0
    is_first = True
    for line in lines:
      between = _between(before, line, long, known) if before else ''
      if between is None:  # a hyphenated word
        parts[-1] = parts[-1][:-1]
        at -= 1
        between = ''
      parts += [between, line]
      at += len(between)
      if is_first:
        places.append(Place(at, f'page {number}'))
        is_first = False
      at += len(line)
      before = line
  return Placed(''.join(parts), tuple(places))


def _between(before, line, long, known):
  """Returns the separator between two lines; None: remove the hyphen.

  Args:
    long: the length of the page's long lines (80th percentile).
    known: Counter of the words of the document.
  """
  cut = _HYPHEN.search(before)
  if cut and line[:1].islower():
    rest = re.match(r'\w+', line)
    whole = cut[1] + rest[0] if rest else ''
    hyphenated = f'{cut[1]}-{rest[0]}' if rest else ''
    is_compound = before[-1] != '\u00ad' and (
        known[hyphenated.lower()] > known[whole.lower()]
    )
    return '' if is_compound else None
  is_short = len(before) < _SHORT * long
  if is_short and (_ENDS.search(before) or _STARTS.match(line)):
    return '\n\n'
  return ' '


def _words(line):
  """Returns the words of a line in lower case; 'state-space' is one word."""
  return re.findall(r'\w+(?:-\w+)*', line.lower())


if __name__ == '__main__':
  resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
  json.dump(_load_lines(sys.stdin.buffer.read(), int(sys.argv[1])), sys.stdout)
