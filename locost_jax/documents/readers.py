"""The formats of documents: each reader gives a text and its places.

  .txt and anything else       a text, UTF-8 or with a byte order mark
  .md                          Markdown
  .html .htm .xhtml            a page
  .epub                        a book
  .pdf                         extra `documents`
  .docx .docm .dotx            a Word document
  .vtt .srt                    subtitles

A reader takes (bytes, name in errors, most bytes that a file may unpack to) and
returns a `places.Placed`; its notes say what is left out. `read` refuses other
formats that look like text, and cleans the text.
"""

import re

from locost_jax.documents import docx
from locost_jax.documents import epub
from locost_jax.documents import markup
from locost_jax.documents import pdf
from locost_jax.documents import places
from locost_jax.documents import subtitles
from locost_jax.errors import InputError

_HEADING = re.compile(r'^ {0,3}#{1,6}[ \t]+(.*)')
# Of a plain text: 'Chapter 12. A title', alone between blank lines.
_CHAPTER = re.compile(
    r'(?:\A\s*|\n[ \t]*\n)[ \t]*((?:chapter|book|part|act|scene|canto|letter)'
    r'[ \t]+(?:\d+|[ivxlc]+|one|two|three|four|five|six|seven|eight|nine|ten)\b'
    r'[^\n]{0,80})(?=\n[ \t]*\n)',
    re.IGNORECASE,
)
# What a terminal shows: letters typed over others, and colours.
_TYPED = re.compile('[^\n]\x08|\x1b\\[[\\d;]*[A-Za-z]')
_CLOSING = re.compile(r'(?:^|[ \t])#+$')
_UNDERLINE = re.compile(r'^ {0,3}(=+|-{2,})[ \t]*$')
_FENCE = re.compile(r'^ {0,3}(```+|~~~+)')
# Marks that labels leave out: [text](target), emphasis and code.
_LINK = re.compile(r'!?\[([^\[\]]*)\]\([^()]*\)')
_EMPHASIS = re.compile(r'[*_`]+')
_MAX_HEADING = 1000  # characters; the rest of a heading is ignored


def read_text(data, where, _most=None):
  """Reads a plain text; its places are lines such as "CHAPTER IV"."""
  text = _TYPED.sub('', markup.decode(data, where))
  found = _CHAPTER.finditer(text)
  return places.with_headings(
      text, [(match.start(1), match[1]) for match in found]
  )


def read_markdown(data, where, _most=None):
  """Reads Markdown: its text is unchanged, its headings are places."""
  text, headings = markup.decode(data, where), []
  at, fence, before = 0, None, None
  for line in text.split('\n'):
    opened, found = _FENCE.match(line), _HEADING.match(line)
    if fence:
      fence = None if opened and opened[1].startswith(fence) else fence
    elif opened:
      fence = opened[1]
    elif found:
      headings.append((at, _plain(found[1])))
    elif before and _UNDERLINE.match(line):
      headings.append((before[0], _plain(before[1])))
    before = None if fence or found or not line.strip() else (at, line)
    at += len(line) + 1
  return places.with_headings(text, headings)


def _plain(heading):
  """Returns a heading without marks."""
  heading = _CLOSING.sub('', heading[:_MAX_HEADING].strip())
  return _EMPHASIS.sub('', _LINK.sub(r'\1', heading))


def _read_html(data, where, _most):
  left_out = places.LeftOut()
  text, headings = markup.html_headings(data, where, left_out=left_out)
  return places.with_headings(text, headings, left_out.notes(where))


def _read_vtt(data, where, _most):
  return subtitles.read(markup.decode(data, where), where, places.LeftOut())


def _read_srt(data, where, _most):
  left_out = places.LeftOut()  # SubRip declares no encoding
  text = markup.decode_undeclared(data, where, left_out)
  return subtitles.read(text, where, left_out)


READERS = {
    '.md': read_markdown,
    **dict.fromkeys(('.html', '.htm', '.xhtml'), _read_html),
    '.epub': epub.read,
    '.pdf': pdf.read,
    **dict.fromkeys(('.docx', '.docm', '.dotx'), docx.read),
    '.vtt': _read_vtt,
    '.srt': _read_srt,
}
# Compressed by themselves.
_PACKED = ('.epub', '.pdf', '.docx', '.docm', '.dotx')
ENDINGS = (
    *('.txt', '.txt.gz'),
    *READERS,
    *(f'{kind}.gz' for kind in READERS if kind not in _PACKED),
)
# Other formats that look like text: what begins their files, their names and
# what to do; then the endings that a reader has for them. Files with the
# endings of _NAMED need not begin so.
_PROLOG = r'(?:<\?xml[^>]*>|<!--.*?-->|<!DOCTYPE[^>]*>|\s)*+'
_MAIL = (
    r'From \S+@\S+ [^\n]*\d{4}\n|(?:From [^\n]*\n)?'
    r'(?:[!-9;-~]+:[^\n]*\n(?:[ \t][^\n]*\n)*)*?(?:(?i:received'
    r'|message-id|return-path|mime-version|content-(?:type|transfer-encoding)):'
    r'|Date:\s+(?:\w{3},\s+)?\d{1,2} \w{3} \d{4} \d\d:\d\d)'
)
_JSON = (
    r'(?:\[\s*)*\{\s*"[^"\n]*"\s*:|[\[{]\s*[\]}]\s*\Z'
    r'|\[\s*"(?:[^"\\\n]|\\.)*"\s*(?:,\s*"|\]\s*\Z)'
)
_XML = r'<(?:\?xml|!DOCTYPE|transcript>\s*<text|[\w:]+(?:\s[^<>]*)?\sxmlns)\b'
# ASS, LRC, MicroDVD, SBV and SAMI; WebVTT and SubRip.
_TIMED = (
    r'(?:;[^\n]*\n\s*)*\[(?:Script Info|Events)\]|\[(?:(?:ar|al|by|ti):[^]\n]*'
    r'|\d\d:\d\d\.\d\d+)\]|\{\d+\}\{\d+\}|\d+:\d\d:\d\d\.\d{3},\d+:|<(?i:sami)>'
)
_CUE = r'WEBVTT|(?:\d+\s*\n)?\d+:\d\d:\d\d[,.]\d+\s*-->'
_WEB = ('.html', '.htm', '.xhtml')
_PIECE = r'<(?i:p|div|h[1-6]|table|article|section|meta|title|font)[\s>]'
_TEX = r'(?:\s|%[^\n]*\n)*+\\document(?:class|style)\b'
_NAMED = {
    'a mail': '.eml .mbox .mht .mhtml',
    'JSON': '.json .ndjson .ipynb',
    'XML': '.xml .opml .tei',
    'LaTeX': '.tex .latex',
    'subtitles': '.ass .dfxp .lrc .sbv .scc .smi .ssa .stl .sub .ttml',
}
_OTHERS = (
    ('%PDF', 'a PDF', 'name it .pdf'),
    ('PK\3\4', 'a zip archive', 'unpack it'),
    ('\xd0\xcf\x11\xe0', 'an old Word file', 'save it as .docx'),
    (r'\{\\rtf', 'RTF', 'convert it to .docx with LibreOffice'),
    (f'{_PROLOG}<FictionBook', 'FB2', 'convert it to .epub with pandoc'),
    (rf'{_PROLOG}<(?:\w+:)?tt[\s>]', 'TTML', 'convert it to .srt with ttconv'),
    (_MAIL, 'a mail', 'save it as .html with Thunderbird'),
    (_JSON, 'JSON', 'name rows .jsonl, or take the text out with jq'),
    (
        rf'{_PROLOG}<(?i:html|head|body)[\s>]',
        'a web page',
        'name it .html',
        *_WEB,
    ),
    (_PIECE, 'a web page', 'name it .html', *_WEB, '.md'),
    (_XML, 'XML', 'convert it to .html with pandoc', *_WEB),
    (_TEX, 'LaTeX', 'convert it to .html with pandoc'),
    (r'\.(?:TH|Dd|\\")[ \t]', 'troff', 'convert it to .html with pandoc'),
    ('%!PS', 'PostScript', 'convert it to .pdf with ps2pdf'),
    (_TIMED, 'subtitles', 'convert them to .srt with Subtitle Edit'),
    (_CUE, 'subtitles', 'name it .srt or .vtt', '.vtt', '.srt'),
)


def read(kind, data, where, most=None):
  """Reads a document as its ending says; returns a Placed of clean text.

  Raises:
    InputError: broken, too large, or of a format without a reader.
  """
  if kind not in _PACKED:
    # Also of UTF-16 and after a byte order mark.
    head = data[:100_000].replace(b'\0', b'').decode('latin-1')
    head = head.replace('\r\n', '\n').lstrip('\xef\xbb\xbf\xfe\xff \t\n')
    for begin, name, todo, *known in _OTHERS:
      is_named = kind in _NAMED.get(name, '').split()
      if is_named or (kind not in known and re.match(begin, head, re.DOTALL)):
        raise InputError(f'{where}: is {name}, expected text; {todo}')
  reader = READERS.get(kind, read_text)
  is_wrapped = reader in (read_text, read_markdown)
  return places.clean(reader(data, where, most), is_wrapped)
