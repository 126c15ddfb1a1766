"""Reading documents from files, directories, web pages, books and rows."""

import codecs
import gzip
import html
import json
import zipfile

import pytest

from locost_jax.documents import markup
from locost_jax.summarizing import document_files
from locost_jax.summarizing import documents as documents_lib

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
    path,
    pages,
    order=None,
    encryption=None,
    drop=(),
    contents=None,
    kinds=None,
    how=zipfile.ZIP_STORED,
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
  with zipfile.ZipFile(path, 'w', how) as book:
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


ENCODINGS = [
    ('<meta charset="windows-1252">', 'cp1252'),
    ("<meta http-equiv='x' content='a; charset=iso-8859-1'>", 'cp1252'),
    ('<meta charset=shift_jis>', 'shift_jis'),
    ('<meta charset="utf-16">', 'utf-8'),
    *(('', x) for x in ('utf-8', 'cp1252', 'utf-32-le', 'utf-32-be')),
]


@pytest.mark.parametrize('declared, encoding', ENCODINGS)
def test_encodings(declared, encoding):
  """Pages without a declaration are read like browsers do."""
  text = '日本' if encoding == 'shift_jis' else '“naïve”'
  mark = '\ufeff' * encoding.startswith('utf-32')
  data = (mark + make_page([text], declared)).encode(encoding)
  assert markup.html_headings(data, 'x')[0] == text
  assert markup.html_headings(b'\x81x', 'x')[0] == '\x81x'


def test_a_directory_is_read_sorted_and_recursively(tmp_path):
  names = 'b/2.txt b/1.md a.TXT .hidden.txt .git/c.txt x.png b/y.doc'
  for name in names.split():
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(name)
  found, failures, lines = read(tmp_path)
  assert [d.text for d in found] == ['a.TXT', 'b/1.md', 'b/2.txt']
  assert failures == 0
  assert lines == [f'{tmp_path}: passed over 2 of other kinds: b/y.doc, x.png']


def test_bad_rows_do_not_stop_the_others(tmp_path):
  path = tmp_path / 'a.jsonl'
  path.write_bytes(
      b'{"text": "one"}\n{"text"\n\n{"document": "x"}\n'
      b'{"text": " "}\n{"text": "caf\xe9"}\n[]\n'
      b'{"text": "two"}'
  )
  fields = documents_lib.Fields('text')
  found, failures, lines = read(path, fields=fields)
  assert [d.id for d in found] == [f'{path}:1', f'{path}:8']
  assert failures == 5
  assert [line.split(':')[2] for line in lines] == list('24567')
  causes = 'not JSON', "no field 'text'", 'an empty document'
  causes += 'not UTF-8 (byte', 'expected a JSON object'
  for line, expected in zip(lines, causes, strict=True):
    assert expected in line and '\n' not in line


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
