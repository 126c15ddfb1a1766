"""Odd, damaged or far too large documents fail without affecting others."""

import bz2
import gzip
import io
import os
from pathlib import Path
import socket
import zipfile

import pytest

from locost_jax.documents import markup
from tests import deadline
from tests.documents import made_pdf
from tests.documents import test_docx
from tests.summarizing.summarize_command import write_documents
from tests.summarizing.test_documents import make_book
from tests.summarizing.test_documents import read

pytestmark = pytest.mark.usefixtures('guard')

MOST = 2**20  # limit of a document, in bytes


def expect_only(path, expected, **options):
  """Reads a bad document and a good one: one line for the bad one."""
  good = path.parent / 'good.txt'
  good.write_text('Good.')
  found, failures, lines = read(path, good, **options)
  assert [document.text for document in found] == ['Good.'], lines
  assert failures == 1 and len(lines) == 1
  assert lines[0].startswith((f'error: {path}:', f'error: {path}, ')), lines
  assert expected in lines[0] and '\n' not in lines[0]


def book(page='x', more=None, **options):
  """Returns the bytes of a book of one page, with more files."""
  file = io.BytesIO()
  pages = {'a.xhtml': page} if page else {}
  make_book(file, pages | (more or {}), **options)
  return file.getvalue()


def damaged():
  """Returns a book with a page that bzip2 cannot unpack."""
  data = bytearray(book('x' * 9000, how=zipfile.ZIP_BZIP2))
  at = data.index(bz2.compress(b'x' * 9000))
  data[at + 12 : at + 20] = bytes(8)
  return bytes(data)


def word(xml):
  return test_docx.change(test_docx.make(), test_docx.MAIN, xml)


SPACES = gzip.compress(b' ' * MOST) * 64
GOOD_PDF = made_pdf.make([['A text.']])
TOO_LARGE = '(--max_document_bytes)'
BAD = {
    'empty.txt': (b' \n\n', 'an empty document'),
    'empty.html': (b'<p></p><script>x</script>', 'an empty document'),
    'latin.txt': (b'caf\xe9 au', 'not UTF-8 (byte 3 is 0xe9); iconv '),
    'old.doc': (
        b'\xd0\xcf\x11\xe0 \0',
        'is an old Word file, expected text; save it as .docx',
    ),
    'binary.txt': (b'ab\0c', 'is binary data, expected text (byte 2 is zero)'),
    'b.pdf.txt': (b'%PDF-1.7\n\0', 'is a PDF, expected text; name it .pdf'),
    'a.odt': (b'PK\3\4\0', 'is a zip archive'),
    'wrong.html': (b'<meta charset=utf-8><p>caf\xe9', 'not UTF-8 (byte 26'),
    'cut.txt.gz': (gzip.compress(b'x' * 999)[:-9], 'cannot be read'),
    'plain.txt.gz': (b'no gzip', 'cannot be read'),
    'none.jsonl': (b'\n', 'holds no document'),
    # Too large when unpacked.
    **dict.fromkeys(
        ('a.txt.gz', 'a.html.gz', 'a.jsonl.gz'), (SPACES, TOO_LARGE)
    ),
    # Formats without a reader.
    'rtf.txt': (b'{\\rtf1\\ansi x}', 'is RTF, expected text; '),
    'book.txt': (
        '\ufeff<?xml version="1.0"?>\n<FictionBook>'.encode('utf-16'),
        'is FB2, expected text; ',
    ),
    'times.txt': (
        b'<tt xmlns="http://www.w3.org/ns/ttml">',
        'is TTML, expected text; ',
    ),
    'mail.txt': (
        b'From: a@b\r\nX: y\r\n z\r\nMIME-Version: 1.0\r\n\r\nx',
        'is a mail, expected text; ',
    ),
    'box.txt': (
        b'From x\nDate: Thu, 1 Jan 2026 10:00\n\nx',
        'is a mail, expected text; ',
    ),
    'a.eml': (b'From: a@b\nSubject: x\n\nx', 'is a mail, expected text; '),
    'a.lrc': (b'[00:12]x', 'them to .srt with Subtitle Edit'),
    'a.json': (b'[1, 2]', 'is JSON, expected text; '),
    'a.xml': (b'<a><b>x</b></a>', 'is XML, expected text; '),
    'piece.txt': (b'<p>x</p>', 'is a web page, expected text; '),
    'paper.txt': (b'% x\n\\documentclass{a}', 'is LaTeX, expected text; '),
    'man.txt': (b'.TH LS 1\nx', 'is troff, expected text; '),
    'rows.txt': (b'[{"a": 1}]', 'is JSON, expected text; '),
    'root.txt': (b'<TEI xmlns="x"><p>x', 'is XML, expected text; '),
    'ps.txt': (b'%!PS-Adobe-3.0', 'is PostScript, expected text; '),
    'box2.txt': (b'From a@b Thu Jan 1 2026\nX: y\n', 'is a mail, expected t'),
    'cue.txt': (b'1\n00:00:01,0 --> 00:00:02,0\nA.', 'is subtitles, expecte'),
    **{
        f'times{i}.srt': (text.encode(), 'them to .srt with Subtitle Edit')
        for i, text in enumerate(
            (
                ';\n[Script Info]\nx',
                '<sami>x',
                '[ti:x]\n',
                '[00:01.20]x',
                '{1}{9}x',
            )
        )
    },
    'cyrillic.srt': (
        '1\n00:01 --> 00:02\nПривет, мир.'.encode('cp1251'),
        'not UTF-8, nor windows-1252',
    ),
    'chinese.html': ('<p>你好，世界'.encode('gbk'), 'nor windows-1252'),
    'page.txt': (b'<!DOCTYPE html>\n<html><p>x', 'is a web page, expected te'),
    # Encodings that no browser reads.
    **{
        f'{name}.html': (
            f'<meta charset="{name}"><p>.\\x '.encode() + b'.' * 999,
            f"declares the unknown encoding '{name}'",
        )
        for name in 'idna unicode_escape rot13 utf-7 klingon x.y:z'.split()
    },
    'no.epub': (b'no zip', 'a broken EPUB'),
    'package.epub': (book(drop=['O/p.opf']), 'a broken EPUB: There is no item'),
    'drop.epub': (
        book(drop=['O/a.xhtml']),
        'document; 1 page left out (missing), su',
    ),
    'drm.epub': (book(encryption='O/a.xhtml'), 'an encrypted EPUB (DRM)'),
    'bytes.epub': (book(b'caf\xe9'), 'a.xhtml: not UTF-8 (byte 3'),
    'damaged.epub': (damaged(), 'a broken EPUB'),
    # Another encoding of the package.
    **{
        f'{name}.epub': (
            book(
                more={'p.opf': f'<?xml version="1.0" encoding="{name}"?><p/>'}
            ),
            'a broken EPUB',
        )
        for name in ('cp037', 'utf-7', 'shift_jis', 'nope')
    },
    # One page is too large, or all pages together.
    'zeros.epub': (book(b' ' * 2**26, how=zipfile.ZIP_DEFLATED), TOO_LARGE),
    'pages.epub': (
        book(
            more={f'{i}.xhtml': b' ' * 2**16 for i in range(40)},
            how=zipfile.ZIP_DEFLATED,
        ),
        TOO_LARGE,
    ),
    'blank.epub': (book(' '), 'an empty document'),
    'none.epub': (book('', contents='<ncx/>'), 'O/p.opf lists no page'),
    'range.vtt': (
        b'99:99:99.000 --> 99:99:99.500\nx',
        ':1: expected a time like',
    ),
    'head.vtt': (b'WEBVTT\n\n\n', 'has no subtitles'),
    'story.vtt': (b'Once upon a time.', "got 'Once upon a time.'"),
    'soon.vtt': (b'00:01.000 --> soon\nx', ':1: expected a time like'),
    'no.docx': (b'PK\3\4 nothing', 'a broken Word document: '),
    'old.docx': (b'\xd0\xcf\x11\xe0 old', 'is encrypted or in an older Word'),
    'cut.docx': (word('<w:doc'), 'a broken Word document: '),
    'large.docx': (word(' ' * 2**24), 'word/document.xml: holds '),
    'tables.docx': (
        test_docx.body('<w:tbl><w:tr><w:tc>' * 9999),
        'more than 64 nested tables',
    ),
    'deep.docx': (test_docx.body('<w:p>' * 99999), 'a broken Word document: '),
    'laughs.docx': (word(test_docx.LAUGHS), 'its XML declares a document type'),
    'none.pdf': (b'', 'is not a PDF; expected %PDF at its beginning'),
    'text.pdf': (b'A text.', 'is not a PDF; expected %PDF at its beginning'),
    'scan.pdf': (made_pdf.make([[], []]), 'none of its 2 pages has text, as'),
    'fonts.pdf': (
        made_pdf.make(['BT /F1 9 Tf 9 9 Td (7EO#) Tj ET']),
        'its fonts do not say which letters they show; expected a PDF with',
    ),
    'xfa.pdf': (
        made_pdf.make([['Please wait...']]).replace(
            b'2 0 R ',
            b'2 0 R /NeedsRendering true /AcroForm << /XFA (x) >>',
            1,
        ),
        'an XFA form; expected a PDF printed from Adobe Reader',
    ),
    'cut.pdf': (GOOD_PDF[:200], 'a broken PDF: PDFium'),
    'head.pdf': (b'%PDF-1.4 nothing', 'a broken PDF: '),
    # The password (40-bit RC4) is `secret`.
    'drm.pdf': (
        Path(test_docx.__file__).with_name('encrypted.pdf').read_bytes(),
        'is encrypted; expected a PDF without',
    ),
}


@pytest.mark.parametrize('name', BAD)
def test_one_line_for_a_bad_file(tmp_path, name):
  data, expected = BAD[name]
  (tmp_path / name).write_bytes(data)
  expect_only(tmp_path / name, expected, most=MOST)


def test_any_exception_fails_only_its_document(tmp_path, monkeypatch):
  def fail(*_, **__):
    raise ZeroDivisionError('of the\nparser')

  monkeypatch.setattr(markup, 'html_headings', fail)
  (tmp_path / 'a.html').write_text('x')
  expect_only(
      tmp_path / 'a.html', 'cannot be read: ZeroDivisionError: of the parser'
  )


# --- Sizes -------------------------------------------------------------------


def test_too_large_files_are_not_read(tmp_path):
  path = tmp_path / 'a.txt'
  path.write_text('x')
  os.truncate(path, 2**42)  # sparse
  expect_only(path, '(--max_document_bytes)', most=MOST)
  # By default:
  expect_only(path, 'holds 4,398,046,511,104 bytes, expected at most')


def test_a_long_row_fails_only_its_file(tmp_path):
  path = tmp_path / 'a.jsonl'
  write_documents(path, ['One.', 'x' * MOST, 'Two.'])
  other = write_documents(tmp_path / 'b.jsonl', ['Three.'])
  found, failures, lines = read(path, other, most=MOST)
  assert [d.text for d in found] == ['One.', 'Three.'] and failures == 1
  assert lines[0].startswith(f'error: {path}:2: a row has more than 1,048,576')


def test_total_size_of_all_documents(tmp_path):
  path = write_documents(tmp_path / 'a.jsonl', ['x' * 999] * 99)
  found, failures, lines = read(path, held=10_000)
  assert len(found) == 10 and failures == 1 and len(lines) == 1
  assert 'a.jsonl:11: ' in lines[0] and 'more than memory' in lines[0]


# --- Kinds of files ----------------------------------------------------------


def test_only_regular_files_are_opened(tmp_path):
  os.mkfifo(tmp_path / 'pipe.txt')
  os.mkfifo(tmp_path / 'pipe.jsonl')
  listening = socket.socket(socket.AF_UNIX)
  listening.bind(str(tmp_path / 'socket.txt'))
  for name, kind in (
      ('pipe.txt', 'a named pipe'),
      ('pipe.jsonl', 'a named pipe'),
      ('socket.txt', 'a socket'),
  ):
    expect_only(tmp_path / name, f'is {kind}, expected a regular file')
  listening.close()
  for name in '/dev/zero', '/dev/null':
    found, failures, lines = read(name)
    assert (found, failures) == ([], 1)
    assert lines[0].startswith(f'error: {name}: is a device, expected')


# --- Linear time -------------------------------------------------------------

SLOW = {
    'tags': '<a ' * 200_000,
    'tags, closed': '<a ' * 200_000 + '>',
    'end tags': '</a ' * 200_000,
    'quotes': '<a b="' * 200_000,
    'quotes, closed': '<a b="\'' * 200_000 + '>',
    'spaces in a tag': '<a' + ' ' * 10**6,
    'equal signs': '<a ' + 'b=' * 10**6,
    'comments': '<!--' * 200_000,
    'declarations': '<!' * 200_000,
    'instructions': '<?' * 200_000,
    'cdata': '<![CDATA[' * 200_000,
    'marked sections': '<![x[' * 200_000,
    'scripts': '<script>' * 200_000,
    'titles': '<title></titl' * 100_000,
    'open navigation': '<nav>' * 100_000 + '</template>' * 100_000,
    'items': '<li>' * 200_000,
    'items at the end': '<li>' * 200_000 + '<p>',
    'spaces': ' ' * 10**6,
    'breaks': '<br>' * 200_000,
    'angles': '<' * 10**6,
    'references': '&' * 10**6,
    'numbers': '&#' + '9' * 10**6,
    'images': '<img alt=' + ' ' * 10**5 + 'class="' * 10**5 + '>',
    'heights': '<i vertical-align' + ' : vertical-align' * 10**5 + '>',
    'accents': 'é' * 10**6,
    'a declaration': '<![foo[ bar ]]>',
    'a condition': '<![if !IE]>',
    'a doctype': '<!DOCTYPE html [<!ENTITY a "b">]>',
    'ordered items': '<ol>' + '<li>a' * 10**5,
    'lists in lists': '<ol reversed><li>' * 10**4,
    'mismatched lists': '<ul>' * 10**5 + '</ol>' * 10**5,
    'spaces in a list': '<ol start=' + ' ' * 10**5 + 'x><li>a',
    'names in a list': '<ol' + ' start= type= list-style:' * 10**4 + '><li>a',
    'a long start': '<ol start=' + '0' * 10**5 + '1' * 20 + '><li>a',
}


@pytest.mark.parametrize('name', SLOW)
def test_a_page_is_read_in_linear_time(name):
  text = f'<p>Read.</p>{SLOW[name]}'
  with deadline.within(20):
    assert markup.html_headings(text.encode(), 'x')[0].startswith('Read.')


def test_a_name_without_letters(tmp_path):
  found, failures, lines = read('')
  assert (found, failures) == ([], 1)
  assert lines == ["error: '': no such file"]
  assert 'no such file' in read(tmp_path / ('x' * 300))[2][0]
