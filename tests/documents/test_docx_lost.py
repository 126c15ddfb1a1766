"""Word documents: values of numbers, symbols, chunks, fields; what is lost."""

import collections
import random

import pytest

from locost_jax.documents import docx
from tests.documents import test_docx
from tests.documents.test_docx import paragraph

# Short names of elements in the cases below.
NAMES = {
    '<t>': '<w:r><w:t xml:space="preserve">',
    '<s>': '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>',
    '<b>': '<w:r><w:rPr><w:vertAlign w:val="subscript"/></w:rPr><w:t>',
    **dict.fromkeys(('</t>', '</s>', '</b>'), '</w:t></w:r>'),
    '<x>': '<m:r><m:t>',
    '</x>': '</m:t></m:r>',
    '<i ': '<w:sym w:font=',
    '<f ': '<w:r><w:rPr><w:rFonts w:ascii=',
    '</f>': '</w:rPr><w:t>',
    '<form>': '<w:fldChar><w:ffData>',
    '</form>': '</w:ffData></w:fldChar>',
}
MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


def read(xml, **files):
  """Returns the Placed of a body."""
  for short, long in NAMES.items():
    xml = xml.replace(short, long)
  return docx.read(
      test_docx.body(f'<w:body {MATH}>{xml}</w:body>', **files), 'a'
  )


@pytest.mark.parametrize(
    'xml, text',
    [
        ('<t>10</t><s>6</s><t> cells</t>', '10^6 cells'),
        ('<t>10</t><s>1</s><s>2</s><t>5</t>', '10^12 5'),
        ('<t>in 1990</t><s>5,6</s><t>.</t>', 'in 1990^5,6.'),
        ('<t>2</t><s>n</s><t>, the 1</t><s>st</s>', '2^n, the 1st'),
        ('<t>H</t><b>2</b><t>O, 10</t><b>2</b>', 'H2O, 10_2'),
        ('<t>2</t><s>1</s><t>/</t><b>3</b><t> cup</t>', '2 1/3 cup'),
        ('<t>log</t><b>2</b><t>8</t>', 'log2 8'),
        ('<t>a </t><s>1</s><t> See</t>', 'a 1 See'),
        ('<t>2</t><m:f><m:num><x>1</x></m:num><m:den><x>3</x></m:den></m:f>',
         '2 1/3'),
        ('<m:f><m:type m:val="noBar"/><m:num><x>n</x></m:num><m:den><x>2+k</x>'
         '</m:den></m:f>', 'n choose (2+k)'),
        ('<m:sSubSup><m:e><x>x</x></m:e><m:sub><x>1</x></m:sub><m:sup><x>2</x>'
         '</m:sup></m:sSubSup><x>3</x>', 'x_1^2 3'),
        ('<m:rad><m:deg><x>3</x></m:deg><m:e><x>16</x></m:e></m:rad>', '√[3]16'),
        ('<m:nary><m:chr m:val="∑"/><m:sub><x>i=1</x></m:sub><m:sup><x>n</x>'
         '</m:sup><m:e><x>i</x></m:e></m:nary>', '∑_(i=1)^n i'),
        ('<m:sSup><m:e><m:d><m:e><x>a+b</x></m:e></m:d></m:e><m:sup><x>2</x>'
         '</m:sup></m:sSup>', '(a+b)^2'),
        ('<m:m><m:mr><m:e><x>1</x></m:e><m:e><x>2</x></m:e></m:mr></m:m>', '1, 2'),
        ('<i "Symbol" w:char="F061"/><i "Symbol" w:char="00B3"/>', 'α≥'),
        ('<f "Symbol"/></f>a</t><f "Wingdings"/></f>\uf0fc</t>', 'α✓'),
        ('<f "Arial"/></f>a</t><i "Arial" w:char="00B0"/>', 'a°'),
        ('<w:ruby><w:rt><t>kan</t></w:rt><w:rubyBase><t>漢</t></w:rubyBase>'
         '</w:ruby><t>字</t>', '漢字'),
        ('<form><w:checkBox><w:checked/></w:checkBox></form><t>A</t>', '☒A'),
        ('<form><w:checkBox><w:default w:val="0"/></w:checkBox></form>', '☐'),
        ('<form><w:ddList><w:result w:val="1"/><w:listEntry w:val="a"/>'
         '<w:listEntry w:val="b"/></w:ddList></form>', 'b'),
    ],
)  # fmt: skip
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
  data = test_docx.body(f'<w:altChunk w:id="x"/>{paragraph("")}', x='')
  data = test_docx.change(data, 'word/x.xml', chunk.encode())
  found = docx.read(data, 'a')
  assert found.text == text
  note = "a: 1 left out as embedded files, such as 'word/x.xml'"
  assert found.notes == (note,) * lost


def test_no_word_is_lost_in_silence():
  """Words out, and texts that the notes count, are the words of the source."""
  rng, words, xml = random.Random(0), [], ''
  lost = collections.Counter(headers=1, footers=1, comments=1)
  forms = {
      'deleted text': '<w:del><w:r><w:delText>{}</w:delText></w:r></w:del>',
      'readings of ruby': '<w:ruby><w:rt><t>{}</t></w:rt></w:ruby>',
      'symbols': '<i "Unknown" w:char="F0E0"/>',
      '': '<t>{}</t>',
  }
  for i in range(300):
    text, kind = f'w{i} v{rng.random()}', rng.choice(list(forms))
    words += [] if kind else text.split()
    lost.update([kind] if kind else [])
    xml += paragraph(forms[kind].format(text))
  part = paragraph(test_docx.run('h'))
  found = read(xml, header=part, footer=part, comments=part)
  assert found.text.split() == words
  counts = [note.split(': ')[1].split(' left out as ') for note in found.notes]
  assert {kind.split(',')[0]: int(count) for count, kind in counts} == lost
