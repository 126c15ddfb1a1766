"""Word documents: headings, tables, hostile archives."""

import io
import zipfile

import docx as python_docx

from locost_jax.documents import docx
from locost_jax.documents import places
from locost_jax.documents import readers
from tests.deadline import within


def make():
  document = python_docx.Document()
  document.add_heading('The Sea', 0)
  document.add_paragraph('Whales sing. ').add_run('Loudly.').bold = True
  items = ('Bullet', 'bread'), ('Bullet', 'milk and\nhoney'), ('Number', 'One')
  for style, text in items:
    document.add_paragraph(text, style=f'List {style}')
  document.add_heading('Methods', 1)
  table = document.add_table(2, 2)
  for row, cells in zip(table.rows, [('a', 'b'), ('c', 'd e')]):
    for cell, text in zip(row.cells, cells):
      cell.text = text
  document.add_paragraph('The end,\there,\nand a line.')
  file = io.BytesIO()
  document.save(file)
  return file.getvalue()


def test_paragraphs_lists_tables_and_headings():
  found = docx.read(make(), 'a.docx')
  assert found.text == (
      'The Sea\n\nWhales sing. Loudly.\n\n- bread\n- milk and\nhoney\n1. One\n\n'
      'Methods\n\na | b\nc | d e\n\nThe end, here,\nand a line.'
  )
  label = lambda words: places.label_at(found.places, found.text.index(words))
  assert label('Loudly') == 'The Sea'
  assert label('d e') == label('The end') == 'Methods'


def body(xml, **files):
  """Returns a document with this body and these files in word/."""
  space = f'xmlns:w="{SPACE}"'
  data = change(make(), MAIN, f'<w:document {space}>{xml}</w:document>')
  links = ''
  for name, content in files.items():
    root = f'<w:{name} {space}>{content}</w:{name}>'
    data = change(data, f'word/{name}.xml', root)
    links += f'<Relationship Id="{name}" Type="x/{name}" Target="{name}.xml"/>'
  types = f'<Relationships xmlns="x">{links}</Relationships>'
  return change(data, 'word/_rels/document.xml.rels', types)


def paragraph(xml, properties=''):
  return f'<w:p><w:pPr>{properties}</w:pPr>{xml}</w:p>'


def run(text):
  return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def test_notes_follow_the_paragraph_that_cites_them():
  cite = lambda kind, i: f'<w:r><w:{kind}Reference w:id="{i}"/></w:r>'
  note = lambda kind, i, text: (
      f'<w:{kind} w:id="{i}">{paragraph(run(text))}</w:{kind}>'
  )
  data = body(
      paragraph(run('One') + cite('endnote', 7) + run(' and two'))
      + paragraph(run('Three') + cite('footnote', 7) + cite('footnote', 8)),
      footnotes=note('footnote', 7, 'Below.') + note('footnote', 9, 'Unused.'),
      endnotes=note('endnote', 7, 'At the end.'),
  )
  assert docx.read(data, 'a.docx').text.replace('\n\n', '|') == (
      'One[1] and two|[1] At the end.|Three[2]|[2] Below.'
  )


def test_changes_controls_and_boxes():
  fallback = (
      '<mc:Fallback xmlns:mc="http://schemas.openxmlformats.org/'
      'markup-compatibility/2006">{}</mc:Fallback>'
  )
  box = f'<w:txbxContent>{paragraph(run("In a box."))}</w:txbxContent>'
  data = body(
      f'<w:sdt><w:sdtContent>{paragraph(run("A control."))}</w:sdtContent>'
      '</w:sdt>'
      + paragraph(
          f'<w:ins>{run("New")}</w:ins><w:del><w:r><w:delText>old</w:delText>'
          f'</w:r></w:del><w:moveFrom>{run("moved")}</w:moveFrom>'
          f'<w:hyperlink>{run(" link")}</w:hyperlink>'
          '<w:r><w:instrText>PAGE</w:instrText></w:r>'
      )
      + paragraph(f'<w:r>{box}{fallback.format(box)}</w:r>{run("Around.")}')
  )
  text = docx.read(data, 'a.docx').text
  assert text == 'A control.\n\nNew link\n\nIn a box.\n\nAround.'


def test_headings_by_level_and_by_inherited_style():
  style = lambda name: f'<w:pStyle w:val="{name}"/>'
  data = body(
      paragraph(run('Level'), '<w:outlineLvl w:val="2"/>')
      + paragraph(run('Style'), style('Mine') + '<w:numId w:val="3"/>')
      + paragraph(run('Body'), '<w:outlineLvl w:val="9"/>')
      + paragraph(run('Circle'), style('Circle')),
      styles='<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/>'
      '</w:style><w:style w:styleId="Mine"><w:basedOn w:val="berschrift1"/>'
      '</w:style><w:style w:styleId="Circle"><w:basedOn w:val="Circle"/>'
      '</w:style>',
  )
  found = docx.read(data, 'a.docx')
  assert [place.label for place in found.places] == ['Level', 'Style']
  assert found.text == 'Level\n\nStyle\n\nBody\n\nCircle'


def test_a_long_chain_of_styles():
  styles = ''.join(
      f'<w:style w:styleId="{i}"><w:basedOn w:val="{i + 1}"/></w:style>'
      for i in range(50_000)
  )
  data = body(paragraph(run('One'), '<w:pStyle w:val="0"/>'), styles=styles)
  with within():
    assert docx.read(data, 'a.docx').text == 'One'


def test_a_table_in_a_table():
  cell = lambda xml: f'<w:tc>{xml}</w:tc>'
  table = lambda *cells: f'<w:tbl><w:tr>{"".join(cells)}</w:tr></w:tbl>'
  inner = table(cell(paragraph(run('x'))), cell(paragraph(run('y'))))
  data = body(
      table(cell(paragraph(run('a')) + inner), cell(paragraph(run('b'))))
      + paragraph(run('c'))
  )
  for kind in ('.docx', '.docm', '.dotx'):
    assert readers.read(kind, data, 'a').text == 'a x | y | b\n\nc'


def test_pictures_are_not_unpacked():
  data = change(make(), 'docProps/thumbnail.jpeg', bytes(2**24))
  assert docx.read(data, 'a.docx', max_bytes=2**20).text.startswith('The Sea')


def change(data, name, content):
  """Returns the archive with one file added or replaced."""
  file = io.BytesIO()
  with zipfile.ZipFile(io.BytesIO(data)) as old:
    with zipfile.ZipFile(file, 'w', zipfile.ZIP_DEFLATED) as new:
      for item in old.namelist():
        if item != name:
          new.writestr(item, old.read(item))
      new.writestr(name, content)
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
