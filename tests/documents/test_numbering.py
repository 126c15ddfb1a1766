"""Numbers of ordered lists, of pages and of Word, are text."""

import pytest

from locost_jax.documents import docx
from locost_jax.documents import markup
from locost_jax.documents import numbering
from tests.deadline import within
from tests.documents.test_docx import body
from tests.documents.test_docx import paragraph
from tests.documents.test_docx import run

PAGES = {
    '<ol><li>a<li>b<ul><li>x</ul></li><li>c</ol>': '1. a|2. b||x||3. c',
    '<ol type=a start=26><li>x<li><p>y</p></ol>z': 'z. x|aa. y||z',
    '<ol TYPE="I" start=" 4"><li>x<li value=9>y<li>z': 'IV. x|IX. y|X. z',
    '<ol reversed><li>a<li>b<ol><li>x</ol><li>c</ol>': (
        '3. a|2. b||1. x||1. c'
    ),
    '<ol reversed><li>a<li value=7>b<li>c</ol>': '3. a|7. b|6. c',
    '<ol start=1 reversed><li>a<li>b<li>c': '1. a|0. b|-1. c',
    '<ol><li><ol type="a"><li>x<li>y</ol><li>z': '1. a. x|b. y||2. z',
    '<ol><li></li><li><p></p></li></ol><p>x': '1.|2.||x',
    '<ol><li><h2></h2>x<li><sup>1</sup>/<sub>3</sub>': '1. x|2. 1/3',
    '<ol start=2><li>x<ul></ol><li>y</ul>z</ol>': '2. x||y||z',
    '<ol style="list-style: none"><li>(a) x': '(a) x',
    '<ol data-start=5 style="list-style-type:upper-latin"><li>x': 'A. x',
    f'<ol start={9**99}><li>x<li value={"0" * 9999}7>y': '1. x|7. y',
    '<style>.a{list-style: none}</style><ol class="a"><li>(i) x': '(i) x',
    '<nav><ol><li>x</nav><ol><li>y': '1. y',
    '<ol><li hidden>x</li><li>y</li></ol>': '1. y',
    '<style>.a>li:before{content:counter(n, lower-latin) ". "}.a{list-style:none}'
    '</style><ol class="a"><li>x': 'a. x',
}


@pytest.mark.parametrize('page', PAGES)
def test_items_of_pages(page):
  text, _ = markup.html_headings(page.encode(), 'x')
  assert text.replace('\n', '|') == PAGES[page]
  assert '. ' not in markup.html_headings(page.encode(), 'x', is_plain=True)[0]


def test_a_heading_in_a_list_has_its_number():
  page = b'<ol start=3><li>\n<h2>Costs</h2><p>x<li>y</ol>'
  text, headings = markup.html_headings(page, 'x')
  assert text == '3. Costs\n\nx\n4. y'
  assert headings == [(0, '3. Costs')]


def test_letters_and_roman_digits():
  """Against their values, added up."""
  value = dict(M=1000, D=500, C=100, L=50, X=10, V=5, I=1)
  for n in range(1, 4000):
    digits = [value[x] for x in numbering.written(n, 'upperRoman')]
    signs = [-1 if x < y else 1 for x, y in zip(digits, [*digits[1:], 0])]
    assert sum(x * y for x, y in zip(digits, signs)) == n
    assert numbering.written(n, 'upper-roman').lower() == numbering.written(
        n, 'lowerRoman'
    )
    letters = numbering.written(n, 'lower-alpha')
    assert sum((ord(x) - 96) * 26**i for i, x in enumerate(letters[::-1])) == n
  written = [numbering.written(n, 'lowerLetter') for n in (26, 27, 28, 53, 781)]
  assert written == ['z', 'aa', 'bb', 'aaa', '781']
  kinds = ('lowerRoman', 'upperLetter', 'upper-alpha', 'ordinal', 'bullet')
  assert [numbering.written(0, kind) for kind in kinds] == [*'0000', '']
  assert numbering.written(4000, 'lower-roman') == '4000'


@pytest.mark.parametrize(
    'kind, numbers',
    [
        ('ordinal', '1st 2nd 3rd 11th 22nd 112th'),
        ('ordinalText', 'First Second Third Eleventh 22 112'),
        ('cardinalText', 'One Two Three Eleven 22 112'),
        ('decimalZero', '01 02 03 11 22 112'),
        ('chineseCountingThousand', '一 二 三 十一 二十二 112'),
        ('koreanCounting', '일 이 삼 십일 이십이 112'),
        ('ideographTraditional', '甲 乙 丙 11 22 112'),
        ('decimalEnclosedCircle', '① ② ③ ⑪ 22 112'),
        ('russianUpper', 'А Б В Л Ц 112'),
    ],
)
def test_formats_of_word(kind, numbers):
  found = [numbering.written(n, kind) for n in (1, 2, 3, 11, 22, 112)]
  assert ' '.join(found) == numbers


def level(i, kind, text, start=1, more=''):
  return (
      f'<w:lvl w:ilvl="{i}"><w:start w:val="{start}"/><w:numFmt w:val="{kind}"/>'
      f'{more}<w:lvlText w:val="{text}"/></w:lvl>'
  )


def abstract(i, *levels):
  return (
      f'<w:abstractNum w:abstractNumId="{i}">{"".join(levels)}</w:abstractNum>'
  )


def num(i, name, starts=''):
  overrides = ''.join(
      f'<w:lvlOverride w:ilvl="{i}"><w:startOverride w:val="{start}"/>'
      '</w:lvlOverride>'
      for i, start in enumerate(starts)
  )
  return f'<w:num w:numId="{i}"><w:abstractNumId w:val="{name}"/>{overrides}</w:num>'


NUMBERING = (
    abstract(
        0,
        level(0, 'decimal', '%1.', more='<w:pStyle w:val="One"/>'),
        level(1, 'decimal', '%1.%2', more='<w:pStyle w:val="Two"/>'),
        level(2, 'lowerLetter', '(%3)'),
        level(3, 'lowerRoman', '%4)'),
    )
    + abstract(
        1,
        level(0, 'upperRoman', 'Article %1.'),
        level(1, 'decimal', '§ %1.%2', more='<w:isLgl/>'),
        level(2, 'upperLetter', '%3.', start=3),
        level(3, 'bullet', '•'),
    )
    + num(1, 0)
    + num(2, 1)
    + num(3, 1, (1, 5))
    + num(4, 77)
    + abstract(5, level(0, 'upperLetter', '%1' * 99, 10**12))
    + num(5, 5)
    + abstract(6, '<w:numStyleLink w:val="L"/>')
    + abstract(7, '<w:styleLink w:val="L"/>', level(0, 'decimal', '§ %1'))
    + num(6, 6)
    + abstract(
        8,
        level(0, 'decimal', '%1.'),
        level(1, 'decimal', '%1.%2', more='<w:lvlRestart w:val="0"/>'),
    )
    + num(8, 8)
)
STYLES = ''.join(
    f'<w:style w:styleId="{name}"><w:name w:val="{label}"/><w:basedOn w:val='
    f'"{base}"/><w:pPr><w:numPr>{xml}</w:numPr></w:pPr></w:style>'
    for name, label, base, xml in (
        ('One', 'heading 1', '', '<w:numId w:val="1"/>'),
        ('Two', 'heading 2', 'One', '<w:ilvl w:val="1"/>'),
        ('Mine', 'mine', 'Two', ''),
    )
)


def item(text, number, depth=0):
  xml = (
      f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="{number}"/></w:numPr>'
  )
  return paragraph(run(text), xml)


def styled(text, style, xml=''):
  return paragraph(run(text), f'<w:pStyle w:val="{style}"/>{xml}')


def read(xml):
  return docx.read(body(xml, styles=STYLES, numbering=NUMBERING), 'x')


# What Word shows; LibreOffice ignores isLgl.
BODIES = {
    styled('A', 'One')
    + styled('B', 'Two')
    + styled('C', 'Mine')
    + ''.join(item('d', 1, depth) for depth in (2, 2, 3))
    + styled('E', 'One')
    + item('f', 1, 2)
    + styled('G', 'Two', '<w:numPr><w:numId w:val="0"/></w:numPr>'): (
        '1. A||1.1 B||1.2 C||(a) d|(b) d|i) d||2. E||(a) f||G'
    ),
    ''.join(item('x', 2, depth) for depth in (0, 1, 1, 2, 2, 3, 0, 1, 2)): (
        'Article I. x|§ 1.1 x|§ 1.2 x|C. x|D. x|- x|Article II. x|§ 2.1 x|C. x'
    ),
    item('x', 2)
    + item('y', 3, 1) * 2
    + item('z', 2)
    + item('w', 3) * 2
    + item('v', 2): (
        'Article I. x|§ 1.5 y|§ 1.6 y|Article II. z|Article I. w'
        '|Article II. w|Article III. v'
    ),
    (item('x', 8) + item('y', 8, 1)) * 2: '1. x|1.1 y|2. x|2.2 y',
    item('x', 6) * 2: '§ 1 x|§ 2 x',
    item('x', 4) + item('y', 99) + item('z', 1, 999): '- x|- y|- z',
    f'<w:tbl><w:tr><w:tc>{item("", 1)}</w:tc><w:tc>{paragraph(run("x"))}</w:tc>'
    f'</w:tr></w:tbl>{item("", 1)}': '1. | x||2.',
    item('x', 5): f'{"0" * 40} x',
}


@pytest.mark.parametrize('xml', BODIES, ids=range(len(BODIES)))
def test_paragraphs_of_word(xml):
  found = read(xml)
  assert found.text.replace('\n', '|') == BODIES[xml]
  for place in found.places:
    assert found.text[place.start :].startswith(place.label)
    assert place.label[-1].isupper()


def test_many_items_of_word():
  with within():
    text = read(item('a', 1) * 10**4).text
  assert text.endswith('\n10000. a')
