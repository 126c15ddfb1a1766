"""Reading documents from files, directories, web pages, books and rows."""

import codecs
import gzip
import html
import io
import json
import sys
import types
import zipfile

import docx as python_docx
import pytest

from locost_jax.documents import markup
from locost_jax.documents import places
from locost_jax.errors import InputError
from locost_jax.summarizing import document_files
from locost_jax.summarizing import documents as documents_lib
from tests.documents import made_pdf

PARAGRAPHS = ['The first & foremost.', 'Second: “é” <b> is text.', 'The third.']


def read(*names, **options):
  """Returns (documents, failures, lines reported)."""
  lines = []
  found, failures = document_files.read_all(
      list(map(str, names)), report=lines.append, **options
  )
  return found, len(failures), lines


def make_page(paragraphs, head=''):
  body = ''.join(f'<p>{html.escape(p)}</p>\n' for p in paragraphs)
  return f'<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>'


def make_book(
    path, pages, order=None, encryption=None, drop=(), contents=None, kinds=None
):
  """Writes an EPUB whose spine names the pages in `order`."""
  names = list(pages)
  items = ''.join(
      f'<item id="i{i}" href="{name}" media-type="{kind}"/>'
      for i, (name, kind) in enumerate(
          zip(names, kinds or len(names) * ['application/xhtml+xml'])
      )
  )
  refs = '<itemref idref="n"/>' * ('<ncx' not in (contents or ''))
  refs += ''.join(
      f'<itemref idref="i{names.index(name)}"/>' for name in order or names
  )
  files = {
      'mimetype': 'application/epub+zip',
      'META-INF/container.xml': '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
      '<rootfiles><rootfile full-path="O/p.opf"/></rootfiles></container>',
      'O/p.opf': '<package xmlns="http://www.idpf.org/2007/opf"><manifest>'
      '<item id="n" href="toc.xhtml" properties="nav" '
      f'media-type="application/xhtml+xml"/>{items}</manifest>'
      f'<spine>{refs}</spine></package>',
      'O/toc.xhtml': contents or '<nav>Table of contents</nav>',
      **{f'O/{name.replace("%20", " ")}': page for name, page in pages.items()},
  }
  if encryption:
    files['META-INF/encryption.xml'] = (
        '<encryption xmlns:e="http://www.w3.org/2001/04/xmlenc#">'
        f'<e:CipherReference URI="{encryption}"/></encryption>'
    )
  with zipfile.ZipFile(path, 'w') as book:
    for name, text in files.items():
      if name not in drop:
        book.writestr(name, text)


def test_all_formats_give_the_same_text(tmp_path):
  """Text, Markdown, web page, book and row, compressed or not."""
  text = '\n\n'.join(PARAGRAPHS)
  page = make_page(PARAGRAPHS, '<meta charset="utf-8"><title>T</title>')
  (tmp_path / 'a.txt').write_text(text)
  (tmp_path / 'b.md').write_bytes(text.replace('\n', '\r\n').encode())
  (tmp_path / 'c.txt').write_bytes(
      codecs.BOM_UTF16_LE + text.encode('utf-16-le')
  )
  (tmp_path / 'd.html').write_text(page)
  (tmp_path / 'e.htm').write_bytes(codecs.BOM_UTF8 + page.encode())
  (tmp_path / 'f.html.gz').write_bytes(gzip.compress(page.encode()))
  (tmp_path / 'g.txt.gz').write_bytes(gzip.compress(text.encode()))
  (tmp_path / 'h.jsonl').write_text(json.dumps({'document': text, 'id': 3}))
  pages = {'c%202.xhtml': PARAGRAPHS[1:], 'c1.xhtml': PARAGRAPHS[:1]}
  pages = {name: make_page(pages[name]) for name in pages}
  make_book(tmp_path / 'i.epub', pages, order=['c1.xhtml', 'c%202.xhtml'])
  found, failures, lines = read(tmp_path)
  assert failures == 0 and lines == [
      f'{tmp_path}/i.epub: 3 words left out as navigation, such as '
      "'Table of contents'"
  ]
  assert [d.source for d in found] == sorted(map(str, tmp_path.iterdir()))
  assert {d.text for d in found} == {text}
  assert [d.id for d in found if d.id != d.source] == ['3']


def test_reading_order_of_a_page():
  page = """<?xml version="1.0"?><html><head><title>T</title>
      <style>p { color: red }</style><script>if (a < b) x = "</p>"</script>
      <body><nav><ul><li>Home</ul></nav><h1>The  <i>great</i>
      thing</h1><p>A&amp;B&nbsp;&eacute;<br/>next<p>Unclosed
      <ul><li>one</li><li>two
      </ul><pre>a  b\n   c</pre><table><tr><td>1<td>2<tr><td>3</table>
      <![CDATA[raw]]>end<template>no</template><script src="x"/>
      <svg><text>no</text></svg></body>"""
  assert markup.html_headings(page.encode(), 'x')[0] == (
      'The great thing\n\nA&B é\nnext\n\nUnclosed\n\none\ntwo\n\na  b\n   c\n\n'
      '1 2\n3\n\nrawend'
  )


@pytest.mark.parametrize(
    'declared, encoding',
    [
        ('<meta charset="windows-1252">', 'cp1252'),
        ("<meta http-equiv='x' content='a; charset=iso-8859-1'>", 'cp1252'),
        ('<meta charset=shift_jis>', 'shift_jis'),
        ('<meta charset="utf-16">', 'utf-8'),
        ('', 'utf-8'),
    ],
)
def test_declared_encodings(declared, encoding):
  text = '日本' if encoding == 'shift_jis' else '“naïve”'
  data = make_page([text], declared).encode(encoding)
  assert markup.html_headings(data, 'x')[0] == text


def test_a_directory_is_read_sorted_and_recursively(tmp_path):
  names = 'b/2.txt b/1.md a.TXT .hidden.txt .git/c.txt x.png b/y.doc'
  for name in names.split():
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(name)
  found, failures, lines = read(tmp_path)
  assert [d.text for d in found] == ['a.TXT', 'b/1.md', 'b/2.txt']
  assert failures == 0
  assert lines == [f'{tmp_path}: passed over 2 of other kinds: b/y.doc, x.png']


def test_all_kinds_have_places(tmp_path):
  word, file = python_docx.Document(), io.BytesIO()
  word.add_heading('Chapter', 1)
  word.add_paragraph('Whales sing.')
  word.save(file)
  page = b'<h1>Chapter</h1><p>Whales sing.'
  kinds = {
      'a.md': (b'# Chapter\nWhales sing.', 'Chapter'),
      'b.html': (page, 'Chapter'),
      'c.pdf': (made_pdf.make([['One.'], ['Whales sing.']]), 'page 2'),
      'd.docx': (file.getvalue(), 'Chapter'),
      'e.vtt': (b'00:01.000 --> 00:02.000\n<v A>Whales sing.', '00:00:01, A'),
      'f.srt': (b'1\n00:00:01,000 --> 00:00:02,000\nWhales sing.', '00:00:01'),
      'g.html.gz': (gzip.compress(page), 'Chapter'),
  }
  for name, (data, _) in kinds.items():
    (tmp_path / name).write_bytes(data)
  found, failures, lines = read(tmp_path)
  assert (failures, lines) == (0, []) and len(found) == len(kinds)
  for document, (_, label) in zip(found, kinds.values()):
    at = document.text.index('Whales')
    assert places.label_at(document.places, at) == label, document.id


def test_standard_input_and_fields(tmp_path, monkeypatch):
  monkeypatch.setattr(
      sys,
      'stdin',
      types.SimpleNamespace(buffer=io.BytesIO(b'\xef\xbb\xbfFrom stdin.')),
  )
  (tmp_path / 'a.jsonl').write_text('{"text": "A row."}\n')
  found, failures, _ = read(
      '-', tmp_path / 'a.jsonl', fields=documents_lib.Fields('text')
  )
  assert failures == 0 and [document[:3] for document in found] == [
      ('-', 'From stdin.', '-'),
      (f'{tmp_path}/a.jsonl:1', 'A row.', f'{tmp_path}/a.jsonl'),
  ]


def test_bad_rows_do_not_stop_the_others(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_bytes(
      b'{"document": "one"}\n{"document"\n\n{"text": "x"}\n'
      b'{"document": " "}\n{"document": "caf\xe9"}\n[]\n'
      b'{"document": "two"}'
  )
  found, failures, lines = read(path)
  assert [d.id for d in found] == [f'{path}:1', f'{path}:8']
  assert failures == 5
  assert [line.split(':')[2] for line in lines] == list('24567')
  causes = 'not JSON', "no field 'document'", 'an empty document'
  causes += 'not UTF-8 (byte', 'expected a JSON object'
  for line, expected in zip(lines, causes, strict=True):
    assert expected in line and '\n' not in line


BAD = {
    'empty.txt': (b' \n\n', 'an empty document'),
    'empty.html': (b'<p></p><script>x</script>', 'an empty document'),
    'latin.txt': (b'caf\xe9 au', 'not UTF-8 (byte 3 is 0xe9); iconv '),
    'old.doc': (
        b'\xd0\xcf\x11\xe0 \0',
        'is an old Word file, expected text; save it as .docx',
    ),
    'binary.txt': (b'ab\0c', 'is binary data, expected text (byte 2 is zero)'),
    'a.pdf': (b'%PDF-1.7\n\0', 'a broken PDF: '),
    'b.pdf.txt': (b'%PDF-1.7\n\0', 'is a PDF, expected text; name it .pdf'),
    'a.docx': (b'PK\3\4\0', 'a broken Word document: '),
    'a.odt': (b'PK\3\4\0', 'is a zip archive'),
    'wrong.html': (b'<meta charset=utf-8><p>caf\xe9', 'not UTF-8 (byte 26'),
    'cut.txt.gz': (gzip.compress(b'x' * 999)[:-9], 'cannot be read'),
    'plain.txt.gz': (b'no gzip', 'cannot be read'),
    'none.jsonl': (b'\n', 'holds no document'),
    'no.epub': (b'no zip', 'a broken EPUB'),
}


@pytest.mark.parametrize('name', BAD)
def test_one_line_for_a_bad_file(tmp_path, name):
  data, expected = BAD[name]
  (tmp_path / name).write_bytes(data)
  (tmp_path / 'good.txt').write_text('Good.')
  found, failures, lines = read(tmp_path / name, tmp_path / 'good.txt')
  assert [d.text for d in found] == ['Good.'] and failures == 1
  (line,) = lines
  assert line.startswith(f'error: {tmp_path / name}: ')
  assert expected in line and '\n' not in line


@pytest.mark.parametrize(
    'changes, expected',
    [
        (dict(drop=['O/p.opf']), 'a broken EPUB: There is no item'),
        (dict(drop=['O/a.xhtml']), 'a broken EPUB: There is no item'),
        (dict(pages={}, contents='<ncx/>'), 'O/p.opf lists no page'),
        (dict(encryption='O/a.xhtml'), 'an encrypted EPUB (DRM)'),
        (dict(pages={'a.xhtml': b'caf\xe9'}), 'a.xhtml: not UTF-8 (byte 3'),
        (dict(pages={'a.xhtml': ' '}), 'an empty document'),
    ],
)
def test_broken_books(tmp_path, changes, expected):
  path = tmp_path / 'a.epub'
  make_book(path, **{'pages': {'a.xhtml': make_page(['x'])}, **changes})
  found, failures, lines = read(path)
  assert (found, failures) == ([], 1)
  assert expected in lines[0] and '\n' not in lines[0]


NAV = """<html xmlns="http://www.w3.org/1999/xhtml"
xmlns:epub="http://www.idpf.org/2007/ops"><body>
<nav epub:type="page-list"><ol><li><a href="b.xhtml">214</a></li></ol></nav>
<nav epub:type="toc"><ol><li><a href="c%201.xhtml#x">One,
<i>begun</i></a></li><li><a href="a.xhtml">A title</a></li></ol></nav>
</body></html>"""
NCX = """<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint>
<navLabel><text>One, begun</text></navLabel><content src="c%201.xhtml"/>
<navPoint><navLabel><text>Inside</text></navLabel><content src="c%201.xhtml#2"/>
</navPoint></navPoint><navPoint><navLabel><text>A title</text></navLabel>
<content src="a.xhtml"/></navPoint></navMap></ncx>"""


@pytest.mark.parametrize(
    'contents, expected',
    [
        (NAV, ['One, begun', 'Heading']),
        (NCX, ['One, begun', 'Heading']),
        (None, ['section 1', 'section 2', 'Heading']),
        ('<nav', ['section 1', 'section 2', 'Heading']),
    ],
)
def test_pages_of_a_book_have_places(tmp_path, contents, expected):
  """A heading, else the table of contents, else the number of the page."""
  pages = {
      'c%201.xhtml': make_page(['First.']),
      'b.xhtml': make_page(['Second.', 'It goes on.']),
      'a.xhtml': '<h2>Heading</h2><p>Third.</p>',
  }
  make_book(tmp_path / 'a.epub', pages, contents=contents)
  (book,), _, _ = read(tmp_path)
  assert book.text.replace('\n\n', '|') == (
      'First.|Second.|It goes on.|Heading|Third.'
  )
  assert [place.label for place in book.places] == expected
  begins = dict(zip(expected, book.places))
  assert begins['Heading'].start == book.text.index('Heading')
  if 'section 2' in begins:
    assert begins['section 2'].start == book.text.index('Second.')


def test_books_with_obfuscated_fonts_are_read(tmp_path):
  pages = {'a.xhtml': make_page(['x'])}
  make_book(tmp_path / 'a.epub', pages, encryption='O/font.otf')
  assert read(tmp_path)[0][0].text == 'x'


def test_missing_files_and_unreadable_directories(tmp_path):
  (tmp_path / 'x.png').write_bytes(b'')
  with pytest.raises(InputError, match='a directory with nothing readable'):
    document_files.find(str(tmp_path))
  found, failures, lines = read(tmp_path, tmp_path / 'missing.txt')
  assert (found, failures) == ([], 2)
  assert lines[1] == f'error: {tmp_path}/missing.txt: no such file'
