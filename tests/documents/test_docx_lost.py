"""Word documents: values of numbers, symbols, chunks, fields; what is lost."""

import collections
import random

import pytest

from locost_jax.documents import docx
from tests.documents import test_docx
from tests.documents.test_docx import paragraph
from tests.documents.test_docx import run


def read(xml, **files):
  """Returns the Placed of a body, which may hold formulas and chunks."""
  spaces = (
      '<w:p xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/'
      'math" xmlns:o="urn:schemas-microsoft-com:office:office"'
  )
  xml = xml.replace('<w:p', spaces, 1) if '<m:' in xml or '<o:' in xml else xml
  return docx.read(test_docx.body(xml, **files), 'a.docx')


def high(text, value='superscript'):
  return (
      f'<w:r><w:rPr><w:vertAlign w:val="{value}"/></w:rPr><w:t>{text}</w:t>'
      '</w:r>'
  )


def low(text):
  return high(text, 'subscript')


def symbol(font, code):
  return f'<w:r><w:sym w:font="{font}" w:char="{code}"/></w:r>'


def in_font(font, text):
  return f'<w:r><w:rPr><w:rFonts w:ascii="{font}"/></w:rPr>{run(text)[5:]}'


def math(tag, properties='', **arguments):
  inner = ''.join(
      f'<m:{name}>{part if part[:1] == "<" else mrun(part)}</m:{name}>'
      for name, part in arguments.items()
  )
  return f'<m:{tag}>{properties}{inner}</m:{tag}>'


def mrun(text):
  return f'<m:r><m:t>{text}</m:t></m:r>'


def form(xml):
  return (
      '<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:name w:val="n"/>'
      f'{xml}</w:ffData></w:fldChar></w:r>'
  )


@pytest.mark.parametrize(
    'xml, text',
    [
        (run('10') + high('6') + run(' cells'), '10^6 cells'),
        (run('10') + high('1') + high('2') + run('5'), '10^12 5'),
        (run('in 1990') + high('5,6') + run('.'), 'in 1990^5,6.'),
        (run('2') + high('n') + run(', the 1') + high('st'), '2^n, the 1st'),
        (run('H') + low('2') + run('O, 10') + low('2'), 'H2O, 10_2'),
        (run('log') + low('2') + run('8'), 'log2 8'),
        (run('a ') + high('1') + run(' See'), 'a 1 See'),
        (run('2') + math('f', num='1', den='3'), '2 1/3'),
        (math('f', num='1', den='n+1') + mrun('k'), '1/(n+1) k'),
        (
            math('f', '<m:type m:val="noBar"/>', num='n', den='2'),
            'n choose 2',
        ),
        (math('sSubSup', e='x', sub='1', sup='2') + mrun('3'), 'x_1^2 3'),
        (math('rad', deg='', e='16') + math('rad', deg='3', e='8'), '√16√[3]8'),
        (
            math('nary', '<m:chr m:val="∑"/>', sub='i=1', sup='n', e='i'),
            '∑_(i=1)^n i',
        ),
        (math('func', fName='sin', e='x+1'), 'sin (x+1)'),
        (math('sSup', e=math('d', e='a+b'), sup='2'), '(a+b)^2'),
        (symbol('Symbol', 'F061') + symbol('Symbol', '00B3'), 'α≥'),
        (in_font('Symbol', 'a = b') + in_font('Wingdings', '\uf0fc'), 'α = β✓'),
        (in_font('Arial', 'a') + symbol('Arial', '00B0'), 'a°'),
        (
            '<w:r><w:ruby><w:rt><w:r><w:t>kan</w:t></w:r></w:rt><w:rubyBase>'
            f'{run("漢")}</w:rubyBase></w:ruby></w:r>{run("字")}',
            '漢字',
        ),
        (form('<w:checkBox><w:checked/></w:checkBox>') + run('Yes'), '☒Yes'),
        (
            form('<w:checkBox><w:default w:val="0"/></w:checkBox>')
            + form(
                '<w:ddList><w:result w:val="1"/><w:listEntry w:val="a"/>'
                '<w:listEntry w:val="b"/></w:ddList>'
            ),
            '☐b',
        ),
    ],
)
def test_numbers_symbols_and_fields_keep_their_value(xml, text):
  assert read(paragraph(xml)).text == text


MAIL = (
    'MIME-Version: 1.0\nContent-Type: multipart/related; boundary="b"\n\n--b\n'
    'Content-Type: text/html; charset="windows-1252"\n'
    'Content-Transfer-Encoding: quoted-printable\n\n<p>The caf=E9.\n--b--\n'
)


@pytest.mark.parametrize(
    'chunk, text, lost',
    [
        ('<html><h1>A</h1><p>The café.', 'A\n\nThe café.', 0),
        ('The café,\n<b is less.', 'The café,\n<b is less.', 0),
        (MAIL, 'The café.', 0),
        ('{\\rtf1 The café.}', '', 1),
        ('PK\3\4', '', 1),
    ],
)
def test_embedded_files_are_read_or_named(chunk, text, lost):
  data = test_docx.body(
      paragraph(run('One.')) + '<w:altChunk w:id="chunk"/>',
      chunk='',
  )
  found = docx.read(
      test_docx.change(data, 'word/chunk.xml', chunk.encode()), 'a.docx'
  )
  assert found.text == f'One.\n\n{text}'.strip()
  note = "a.docx: 1 left out as embedded files, such as 'word/chunk.xml'"
  assert found.notes == (note,) * lost


def test_no_word_is_lost_in_silence():
  """Words out, and texts that the notes count, are the words of the source."""
  rng, words = random.Random(0), []
  lost = collections.Counter(headers=1, footers=1, comments=1)
  forms = {
      'deleted text': '<w:del><w:r><w:delText>{}</w:delText></w:r></w:del>',
      'readings of ruby': f'<w:r><w:ruby><w:rt>{run("{}")}</w:rt></w:ruby></w:r>',
      'symbols': symbol('Unknown', 'F0E0'),
      '': run('{}'),
  }
  xml = ''
  for i in range(300):
    text, kind = f'w{i} v{rng.random()}', rng.choice(list(forms))
    words += [] if kind else text.split()
    lost.update([kind] if kind else [])
    xml += paragraph(forms[kind].format(text))
  parts = dict.fromkeys(('header', 'footer', 'comments'), paragraph(run('h')))
  found = read(xml, **parts)
  assert found.text.split() == words
  counts = [note.split(': ')[1].split(' left out as ') for note in found.notes]
  assert {kind.split(',')[0]: int(count) for count, kind in counts} == lost
