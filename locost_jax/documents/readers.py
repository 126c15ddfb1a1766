"""The formats of documents: each reader gives a text and its places.

  .txt and anything else       a text, UTF-8 or with a byte order mark
  .md                          Markdown
  .html .htm .xhtml            a page
  .epub                        a book
  .pdf .docx                   extra `documents`
  .vtt .srt                    subtitles

A reader takes (bytes, name in errors, most bytes that a file may unpack to) and
returns a `places.Placed`.
"""

import re

from locost_jax.documents import docx
from locost_jax.documents import epub
from locost_jax.documents import markup
from locost_jax.documents import pdf
from locost_jax.documents import subtitles
from locost_jax.documents.places import with_headings

_HEADING = re.compile(r'^ {0,3}#{1,6}[ \t]+(.*)')
# Of a plain text: 'Chapter 12. A title', alone between blank lines.
_CHAPTER = re.compile(
    r'(?:\A\s*|\n[ \t]*\n)[ \t]*((?:chapter|book|part|act|scene|canto|letter)'
    r'[ \t]+(?:\d+|[ivxlc]+|one|two|three|four|five|six|seven|eight|nine|ten)\b'
    r'[^\n]{0,80})(?=\n[ \t]*\n)',
    re.IGNORECASE,
)
_CLOSING = re.compile(r'(?:^|[ \t])#+$')
_UNDERLINE = re.compile(r'^ {0,3}(=+|-{2,})[ \t]*$')
_FENCE = re.compile(r'^ {0,3}(```+|~~~+)')
# Marks that labels leave out: [text](target), emphasis and code.
_LINK = re.compile(r'!?\[([^\[\]]*)\]\([^()]*\)')
_EMPHASIS = re.compile(r'[*_`]+')
_MAX_HEADING = 1000  # characters; the rest of a heading is ignored


def read_text(data, where, most=None):
  """Reads a plain text; its places are lines such as "CHAPTER IV"."""
  del most
  text = markup.decode(data, where)
  found = _CHAPTER.finditer(text)
  return with_headings(text, [(match.start(1), match[1]) for match in found])


def read_markdown(data, where, most=None):
  """Reads Markdown: its text is unchanged, its headings are places."""
  del most
  text, headings = markup.decode(data, where), []
  at, fence, before = 0, None, None
  for line in text.split('\n'):
    opened = _FENCE.match(line)
    if fence:
      if opened and opened[1].startswith(fence):
        fence = None
    elif opened:
      fence = opened[1]
    elif found := _HEADING.match(line):
      headings.append((at, _plain(found[1])))
    elif before is not None and _UNDERLINE.match(line):
      headings.append((before[0], _plain(before[1])))
    is_text = line.strip() and not fence and not _HEADING.match(line)
    before = (at, line) if is_text else None
    at += len(line) + 1
  return with_headings(text, headings)


def _plain(heading):
  """Returns a heading without marks."""
  heading = _CLOSING.sub('', heading[:_MAX_HEADING].strip())
  return _EMPHASIS.sub('', _LINK.sub(r'\1', heading))


def _read_html(data, where, most):
  del most
  return with_headings(*markup.html_headings(data, where))


def _read_epub(data, where, most):
  return with_headings(*epub.read_headings(data, where, most))


def _read_vtt(data, where, most):
  del most
  return subtitles.read(markup.decode(data, where), where)


def _read_srt(data, where, most):
  """Reads SubRip, which declares no encoding: UTF-8, or else windows-1252."""
  try:
    return _read_vtt(data, where, most)
  except markup.NotDecoded:
    text = markup.decode(data, where, 'cp1252')
    note = f'{where}: not UTF-8; read as windows-1252'
    return subtitles.read(text, where)._replace(notes=(note,))


READERS = {
    '.md': read_markdown,
    **dict.fromkeys(('.html', '.htm', '.xhtml'), _read_html),
    '.epub': _read_epub,
    '.pdf': pdf.read,
    '.docx': docx.read,
    '.vtt': _read_vtt,
    '.srt': _read_srt,
}
_PACKED = ('.epub', '.pdf', '.docx')  # compressed by themselves
ENDINGS = (
    *('.txt', '.txt.gz'),
    *READERS,
    *(f'{kind}.gz' for kind in READERS if kind not in _PACKED),
)
