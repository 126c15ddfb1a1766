"""Odd, damaged or far too large documents fail without affecting others."""

import bz2
import codecs
import gzip
import os
import socket
import zipfile

import pytest

from locost_jax.documents import markup
from tests import deadline
from tests.summarizing.summarize_command import write_documents
from tests.summarizing.test_documents import make_book
from tests.summarizing.test_documents import make_page
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


ODD = {
    'declaration.html': b'<p>Read.</p><![foo[ bar ]]>',
    'marked.html': b'<p>Read.</p><![if !IE]>',
    'doctype.html': b'<!DOCTYPE html [<!ENTITY a "b"]><p>Read.</p>',
    'reference.html': b'<p>Read.&#' + b'1' * 9999 + b';</p>',
}


@pytest.mark.parametrize('name', ODD)
def test_odd_declarations_are_ignored(tmp_path, name):
  (tmp_path / name).write_bytes(ODD[name])
  found, failures, lines = read(tmp_path / name)
  assert (failures, lines) == (0, [])
  assert found[0].text.startswith('Read.')


@pytest.mark.parametrize(
    'charset', ['idna', 'unicode_escape', 'rot13', 'utf-7', 'klingon', 'x.y:z']
)
def test_an_encoding_that_no_browser_reads(tmp_path, charset):
  path = tmp_path / 'a.html'
  path.write_bytes(f'<meta charset="{charset}"><p>.\\x '.encode() + b'.' * 999)
  expect_only(path, f"declares the unknown encoding '{charset}'")


def repack(path, change, how=zipfile.ZIP_STORED):
  """Writes a book again, with the files that change(name, data) returns."""
  with zipfile.ZipFile(path) as book:
    files = {name: book.read(name) for name in book.namelist()}
  with zipfile.ZipFile(path, 'w', how) as book:
    for name, data in files.items():
      book.writestr(name, change(name, data))


@pytest.mark.parametrize('encoding', ['cp037', 'utf-7', 'shift_jis', 'nope'])
def test_a_book_whose_package_has_another_encoding(tmp_path, encoding):
  path = tmp_path / 'a.epub'
  make_book(path, {'a.xhtml': make_page(['x'])})
  head = f'<?xml version="1.0" encoding="{encoding}"?>'.encode()
  repack(path, lambda name, data: head * (name == 'O/p.opf') + data)
  expect_only(path, 'a broken EPUB')


def test_a_damaged_bzip2_member(tmp_path):
  page = make_page(['x' * 9000])
  path = tmp_path / 'a.epub'
  make_book(path, {'a.xhtml': page})
  repack(path, lambda name, data: data, zipfile.ZIP_BZIP2)
  data = bytearray(path.read_bytes())
  at = data.index(bz2.compress(page.encode()))
  data[at + 12 : at + 20] = bytes(8)
  path.write_bytes(data)
  expect_only(path, 'a broken EPUB')


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


@pytest.mark.parametrize('name', ['a.txt.gz', 'a.html.gz', 'a.jsonl.gz'])
def test_compressed_files_that_expand_too_much(tmp_path, name):
  path = tmp_path / name
  path.write_bytes(gzip.compress(b' ' * (64 * MOST)))
  expect_only(path, '(--max_document_bytes)', most=MOST)


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


@pytest.mark.parametrize('pages', [1, 40])
def test_a_book_of_zeros(tmp_path, pages):
  """One page is too large, or all pages together."""
  size = 64 * MOST // pages
  path = tmp_path / 'a.epub'
  make_book(path, {f'{i}.xhtml': '' for i in range(pages)})
  repack(path, lambda name, data: data or b' ' * size, zipfile.ZIP_DEFLATED)
  most = MOST if pages == 1 else 32 * MOST
  expect_only(path, '(--max_document_bytes)', most=most)


def test_a_large_package_of_a_book(tmp_path):
  path = tmp_path / 'a.epub'
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as book:
    book.writestr('META-INF/container.xml', b' ' * (64 * MOST))
  expect_only(path, '(--max_document_bytes)', most=MOST)


def test_a_page_listed_twice_in_the_spine_is_read_once(tmp_path):
  path = tmp_path / 'a.epub'
  make_book(
      path,
      {'a.xhtml': make_page(['One.']), 'b.xhtml': make_page(['Two.'])},
      order=['a.xhtml'] * 100_000 + ['b.xhtml', 'a.xhtml'],
  )
  found, failures, _ = read(path)
  assert failures == 0 and found[0].text == 'One.\n\nTwo.'


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
}


@pytest.mark.parametrize('name', SLOW)
def test_a_page_is_read_in_linear_time(name):
  text = f'<p>Read.</p>{SLOW[name]}'
  with deadline.within(20):
    assert markup.html_headings(text.encode(), 'x')[0].startswith('Read.')


# --- Encodings ---------------------------------------------------------------


def test_pages_without_a_declaration_are_read_like_browsers_do(tmp_path):
  path = tmp_path / 'a.html'
  path.write_bytes(b'<p>\x93caf\xe9\x94 \x81')
  found, failures, _ = read(path)
  assert failures == 0 and found[0].text == '“café” \x81'
  # Declared: browsers do the same with iso-8859-1.
  path.write_bytes(b'<meta charset=latin1><p>\x93caf\xe9\x94 \x81')
  assert read(path)[0][0].text == '“café” \x81'
  path.write_text('<p>“café”', encoding='utf-8')
  assert read(path)[0][0].text == '“café”'


@pytest.mark.parametrize('order', ['le', 'be'])
def test_utf_32_is_not_read_as_utf_16(tmp_path, order):
  mark = codecs.BOM_UTF32_LE if order == 'le' else codecs.BOM_UTF32_BE
  for name, text in (('a.txt', 'Read “this”.'), ('a.html', '<p>Read “this”.')):
    (tmp_path / name).write_bytes(mark + text.encode(f'utf-32-{order}'))
    found, failures, lines = read(tmp_path / name)
    assert failures == 0, lines
    assert found[0].text == 'Read “this”.'


def test_a_name_without_letters(tmp_path):
  found, failures, lines = read('')
  assert (found, failures) == ([], 1)
  assert lines == ["error: '': no such file"]
  assert 'no such file' in read(tmp_path / ('x' * 300))[2][0]
