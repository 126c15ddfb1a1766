"""Word documents: headings, tables, hostile archives."""

import io
import zipfile

import docx as python_docx
import pytest

from locost_jax.documents import docx
from locost_jax.documents import places
from locost_jax.errors import InputError


def make():
  document = python_docx.Document()
  document.add_heading('The Sea', 0)
  document.add_paragraph('Whales sing. ').add_run('Loudly.').bold = True
  document.add_heading('Methods', 1)
  table = document.add_table(2, 2)
  for row, cells in zip(table.rows, [('a', 'b'), ('c', 'd e')]):
    for cell, text in zip(row.cells, cells):
      cell.text = text
  document.add_paragraph('The end.')
  file = io.BytesIO()
  document.save(file)
  return file.getvalue()


def test_paragraphs_tables_and_headings():
  found = docx.read(make(), 'a.docx')
  assert found.text == (
      'The Sea\n\nWhales sing. Loudly.\n\nMethods\n\na | b\nc | d e\n\nThe end.'
  )
  label = lambda words: places.label_at(found.places, found.text.index(words))
  assert label('Loudly') == 'The Sea'
  assert label('d e') == label('The end') == 'Methods'


def change(data, name, content):
  """The archive with another file of this name."""
  file = io.BytesIO()
  with zipfile.ZipFile(io.BytesIO(data)) as old:
    with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as new:
      for item in old.namelist():
        new.writestr(item, content if item == name else old.read(item))
  return file.getvalue()


MAIN = 'word/document.xml'
SPACE = 'http://schemas.openxmlformats.org/wordprocessingml/2006/main'
LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE w [<!ENTITY a "ha ha ha ha">'
    + ''.join(
        f'<!ENTITY {b} "{10 * f"&{a};"}">'
        for a, b in zip('abcdefgh', 'bcdefghi')
    )
    + f']><w:document xmlns:w="{SPACE}"><w:body><w:p><w:r><w:t>&i;</w:t></w:r>'
    '</w:p></w:body></w:document>'
)


@pytest.mark.parametrize(
    'data, line',
    [
        (b'PK\3\4 nothing', 'a.docx: a broken Word document: '),
        (b'\xd0\xcf\x11\xe0 old', 'a.docx: is encrypted, or of an older Word'),
        (change(make(), MAIN, '<w:doc'), 'a.docx: a broken Word document: '),
        (change(make(), MAIN, ' ' * 2**24), 'a.docx: holds .* bytes, expected'),
    ],
    ids=['no archive', 'old', 'broken', 'bomb'],
)
def test_one_line_for_a_bad_file(data, line):
  with pytest.raises(InputError, match=line) as error:
    docx.read(data, 'a.docx', most=2**22)
  assert '\n' not in str(error.value)


def test_entities_are_not_expanded():
  """A billion laughs: refused, or read without the entity."""
  try:
    text = docx.read(change(make(), MAIN, LAUGHS), 'a.docx').text
  except InputError as error:
    text = str(error)
  assert len(text) < 1000
