"""Word documents: values of numbers, symbols, chunks, fields; what is lost."""

import random
import re

import pytest

from locost_jax.documents import docx
from tests.documents import test_docx
from tests.documents.test_docx import paragraph

# Short names of the cases below: elements of formulas have no prefix.
NAMES = {
    '<t>': '<w:r><w:t xml:space="preserve">',
    '<s>': '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>',
    '<b>': '<w:r><w:rPr><w:vertAlign w:val="subscript"/></w:rPr><w:t>',
    '</[tsb]>': '</w:t></w:r>',
    '<i ': '<w:sym w:font=',
    '<(begin|separate|end)/>': '<w:fldChar w:fldCharType="\\1"/>',
    '<font (.*?)>': '<w:r><w:rPr><w:rFonts w:ascii=\\1/></w:rPr><w:t>',
    '</font>': '</w:t></w:r>',
    '<form>(.*)</form>': '<w:fldChar><w:ffData>\\1</w:ffData></w:fldChar>',
    '<(\\w+)>([^<]+)': '<\\1><t>\\2</t>',
    '(</?)(?=\\w+[ />])': '\\1m:',
}
MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
CASES = """
<t>10</t><s>6</s><t> cells</t> = 10^6 cells
<t>10</t><s>1</s><s>2</s><t>5</t> = 10^(12)5
<t>in 1990</t><s>5,6</s><t>.</t> = in 1990^5,6.
<t>2</t><s>n</s><t>, the 1</t><s>st</s> = 2^n, the 1st
<t>H</t><b>2</b><t>O, 10</t><b>2</b> = H2O, 10_2
<t>2</t><s>1</s><t>/</t><b>3</b><t> cup</t> = 2 1/3 cup
<t>log</t><b>2</b><t>8</t> = log_(2)8
<t>a </t><s>1</s><t> See</t> = a ^1 See
<t>2</t><f><num>1</num><den>3</den></f> = 2 1/3
<f><type m:val="noBar"/><num>n</num><den>2+k</den></f> = n choose (2+k)
<sSubSup><e>x</e><sub>1</sub><sup>2</sup></sSubSup><r>3</r> = x_1^(2)3
<rad><deg>3</deg><e>16</e></rad><rad><deg/><e>x</e></rad> = √[3]16√x
<nary><chr m:val="∑"/><sub>i:1</sub><sup>n</sup><e>i</e></nary> = ∑_(i:1)^n i
<sSup><e><d><e>a+b</e></d></e><sup>2</sup></sSup> = (a+b)^2
<f><num><bar><e>1</e></bar></num><den>2</den></f> = 1/2
<m><mr><e>1</e><e>2</e></mr><mr><e>3</e></mr></m> = 1, 2; 3
<i "Symbol" w:char="F061"/><i "Symbol" w:char="00B3"/> = α≥
<font "Symbol">a</font><font "Wingdings">\uf0fc</font> = α✓
<w:rStyle w:val="Sy"/><w:t>a</w:t><i "Arial" w:char="1F600"/> = α😀
<font "Arial">a</font><i "Arial" w:char="00B0"/> = a°
<w:ruby><w:rt><t>kan</t></w:rt><t>漢</t></w:ruby><t>字</t> = 漢字
<form><w:checkBox><w:checked/></w:checkBox></form><t>A</t> = ☒A
<form><w:checkBox><w:default w:val="0"/></w:checkBox></form> = ☐
<begin/><t>IF</t><begin/><separate/><t>1</t><end/><separate/><t>A</t><end/> = A
<w:vanish/><w:t>No</w:t><t>Yes</t> = Yes
<w:rStyle w:val="No"/><w:t>No</w:t><t>Yes</t> = Yes
<w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent><t>x</t></w:sdtContent> =
<w:AlternateContent><w:Fallback><t>😊</t></w:Fallback></w:AlternateContent> = 😊
<w:framePr w:dropCap="drop"/><t>O</t></w:p><w:p><t>nce</t> = Once
<w:rPr><w:del/></w:rPr><t>a </t></w:p><w:p><t>b</t> = a b
<form><w:result w:val="1"/><w:listEntry/><w:listEntry w:val="b"/></form> = b
"""


def read(xml, **files):
  """Returns the Placed of a body."""
  for short, long in NAMES.items():
    xml = re.sub(short, long, xml)
  xml = test_docx.body(f'<w:body {MATH}>{xml}</w:body>', **files)
  return docx.read(xml, 'a')


@pytest.mark.parametrize('case', CASES.strip().split('\n'))
def test_numbers_symbols_and_fields_keep_their_value(case):
  xml, text = case.split(' =')
  style = '<w:style w:styleId="Sy"><w:rFonts w:ascii="Symbol"/></w:style>'
  style += '<w:style w:styleId="No"><w:rPr><w:vanish/></w:rPr></w:style>'
  assert read(paragraph(xml), styles=style).text == text.lstrip()


MAIL = (
    'MIME-Version: 1.0\nContent-Type: multipart/related; boundary="b"\n\n--b\n'
    'Content-Type: text/html; charset="windows-1252"\n'
    'Content-Transfer-Encoding: quoted-printable\n\n<p>The caf=E9.\n--b--\n'
)
CHUNKS = {
    '<html><h1>A</h1><p>The café.': 'A\n\nThe café.',
    'The café,\n<b is less.': 'The café,\n<b is less.',
    MAIL: 'The café.',
    '{\\rtf1 The café.}': '',
    'PK\3\4': '',
}


@pytest.mark.parametrize('chunk', CHUNKS)
def test_embedded_files_are_read_or_named(chunk):
  data = test_docx.body(f'<w:altChunk w:id="x"/>{paragraph("")}', x='')
  data = test_docx.change(data, 'word/x.xml', chunk.encode())
  found = docx.read(data, 'a')
  assert found.text == CHUNKS[chunk]
  note = "a: 1 part left out as embedded files, such as 'word/x.xml'"
  assert found.notes == (note,) * (not found.text)


def test_texts_of_drawings():
  point = (
      '<a:t xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main">'
  )
  words = paragraph(f'{point}Plan</a:t>')
  xml = '<w:p/><x:relIds xmlns:x="x" dm="diagramData"/>'
  assert docx.read(test_docx.body(xml, diagramData=words), 'a').text == 'Plan'


def test_no_word_is_lost_in_silence():
  """Words out, and texts that the notes count, are the words of the source."""
  rng, words, xml = random.Random(0), [], ''
  lost = dict(header=1, footer=1, comments=1, charts=1)
  forms = {
      'deleted text': '<w:del><w:r><w:delText>{}</w:delText></w:r></w:del>',
      'readings of ruby': '<w:ruby><w:rt><t>{}</t></w:rt></w:ruby>',
      'images': '<wp:docPr xmlns:wp="x" descr="{}"/>',
      'fields': '<w:fldSimple w:instr="AUTONUM {}"/>',
      'symbols': '<i "Unknown" w:char="F0E0"/>',
      '': '<t>{}</t>',
  }
  for i in range(300):
    text, kind = f'w{i} v{rng.random()}', rng.choice(list(forms))
    words += [] if kind else text.split()
    lost |= {kind: lost.get(kind, 0) + 1} if kind else {}
    xml += paragraph(forms[kind].format(text))
  part = paragraph(test_docx.run('h'))
  found = read(xml, header=part, footer=part, comments=part, chart='')
  assert found.text.split() == words
  counts = re.findall(r'a: (\d+) parts? left out as ([^,]+),', str(found.notes))
  assert {kind: int(count) for count, kind in counts} == lost
