"""PDFs: pages, running heads, hyphens, paragraphs; scans and broken files."""

import sys
import zlib

import pytest

from locost_jax.documents import pdf
from locost_jax.documents import places
from locost_jax.documents import right_to_left
from locost_jax.errors import InputError
from tests.documents import made_pdf

LONG = 'The whale swam on through the cold grey water of the northern sea and'


def word(page):
  """Returns a different word for each page."""
  return 3 * chr(96 + page)


def story(pages):
  """Returns different pages with a title at the top and a number below."""
  return [
      [
          'THE WHALE' if page % 2 else f'CHAPTER {page // 8 + 1}',
          f'{LONG} {word(page)},',
          f'{LONG} so it went on with page number {word(page)}',
          f'it ended here as all of page {word(page)} did.',
          str(page),
      ]
      for page in range(1, pages + 1)
  ]


def test_pages_without_heads_and_numbers():
  found = pdf.read(made_pdf.make(story(20)), 'a.pdf')
  assert [place.label for place in found.places] == [
      f'page {number}' for number in range(1, 21)
  ]
  for number, place in enumerate(found.places, start=1):
    assert found.text[place.start :].startswith(f'{LONG} {word(number)},')
    at = found.text.index(f'page number {word(number)}')
    assert places.label_at(found.places, at) == f'page {number}'
  # All other words are there, in order.
  want = ' '.join(line for page in story(20) for line in page[1:-1])
  assert found.text.split() == want.split()


def test_lines_that_recur_elsewhere_stay():
  pages = [[f'First line {x},', 'the same.', f'last {x}.'] for x in 'abcdefghi']
  found = pdf.read(made_pdf.make(pages), 'a.pdf')
  assert found.text.count('the same.') == 9
  assert found.text.count('First line') == 9


LINES = {
    'a summary of the state-space': ['state-space. A summary', 'a sum-', 'mary '
                                     'of the state-space model'],
    'state-space models': ['the state-space model of state-', 'space models'],
    'full, not-Withstanding': ['in full, not-', 'Withstanding the rest.'],
    'state-of-the-art labs': ['COVID-19 in state-of-', 'the-art labs'],
    'the wind-driven mill': ['the wind-', 'driven mill, wind-driven'],
    '10-20 in the COVID-19': ['from 10-', '20 in the COVID-', '19 years'],
    'OPTIONAL or OPTIONAL': ['OPTIONAL or OP-', 'TIONAL'],
    'the Anglo-Saxon text': ['the Anglo-', 'Saxon text'],
    'first- and second-class': ['of first-', 'and second-class mail'],
    'an X-ray of twenty-one self-employed': ['an X-', 'ray of twenty-',
                                             'one self-', 'employed men'],
    'Another whale swam': 'BT /F1 40 Tf 72 700 Td (A) Tj /F1 11 Tf 28 20 Td '
                          '(nother whale) Tj 0 -14 Td (swam) Tj ET',
    'a 5 1/2 inch': 'BT /F1 11 Tf 72 700 Td (a 5) Tj 4 Ts /F1 6 Tf (1) Tj ET '
                    'BT /F1 11 Tf 88 700 Td (/2 inch) Tj ET',
    'Purpose … 12': ['1.1. Purpose ............ 12'],
    'More … 13': ['1.2. More . . . . . . . 13'],
    'Wait... no.': ['Wait... no.'],
    'was 10^-6 in 1990.^5': [(72, 700, 'was 10'), (108, 704, '-6'),
                           (120, 700, 'in 1990.'), (160, 704, '5')],
    '10^6 by 2': '.2 0 0 .2 0 0 cm BT /F1 55 Tf 300 2900 Td (10) Tj 20 Ts /F1 '
                 '35 Tf (6) Tj 0 Ts /F1 55 Tf ( by 2) Tj ET',
    '😀 b�x 10^6': 'BT /F1 11 Tf 72 700 Td (@ b#x 10) Tj 4 Ts /F1 7 Tf (6) Tj ET',
    'm/s^2, 2^n, end.^3 H2O': 'BT /F1 11 Tf 72 700 Td (m/s) Tj 4 Ts (2) Tj 0 Ts '
                              '(, 2) Tj 4 Ts (n) Tj 0 Ts (, end.) Tj 4 Ts (3) '
                              'Tj 0 Ts ( H) Tj -2 Ts (2) Tj 0 Ts (O) Tj ET',
    '1 2 3': [(72, 740 - 14 * i, str(i)) for i in (1, 2, 3)],
    'left 2 right 0': [(x, 740 - 14 * i, f'{side} {i}') for x, side in
                       ((72, 'left'), (330, 'right')) for i in range(3)],
}  # fmt: skip


@pytest.mark.parametrize('text', LINES)
def test_hyphens_dots_and_columns(text):
  found = pdf.read(made_pdf.make([LINES[text]]), 'a.pdf')
  assert text in ' '.join(found.text.split())


def test_no_blanks_between_lines_of_chinese():
  lines = [
      pdf._Line(text, 0.5, 0.01, False) for text in ('增', '长了', 'x', '年')
  ]
  assert pdf._join([lines]).text == '增长了 x 年'


def test_paragraphs_end_with_short_lines():
  lines = ['A Heading', LONG, 'and it ended.']
  lines += [f'Next {LONG}', f'{LONG} end.', f'{LONG} more.']
  text = pdf.read(made_pdf.make([lines]), 'a.pdf').text
  assert text.split('\n\n') == [
      'A Heading',
      f'{LONG} and it ended.',
      f'Next {LONG} {LONG} end. {LONG} more.',
  ]


# A line of each page with its number, parts at tabs; the points between it and
# the text above it (negative) or below it; and whether it is a head.
EDGES = [
    ('Section {}', 14, False),
    ('Section {}', 40, False),
    ('Penalty: {}00 euro.', -40, False),
    ('Ask the office.', -14, False),
    ('§ {}', 40, False),
    ('200{}', 40, False),
    ('{} yes, 4 no', -14, False),
    ('Annual Report', 40, True),
    ('Printed by us.', -40, True),
    ('Annual Report\t{}', 40, True),
    ('Annual Report | {}', 40, True),
    ('Page {} of 5', 14, True),
    ('- {} -', -14, True),
]


@pytest.mark.parametrize('line, gap, is_head', EDGES)
def test_heads_by_place_and_numbers_that_count(line, gap, is_head):
  """Words out, and those of the lines left out, are those of the file."""
  pages, edge, step = [], *((40, 14) if gap < 0 else (760, -14))
  for n in range(1, 6):
    parts = line.format(n).split('\t')
    texts = [f'{word(n)} {LONG} {i}' for i in range(8)]
    body = [(72, edge - gap + step * i, text) for i, text in enumerate(texts)]
    pages.append([(72 + 300 * i, edge, x) for i, x in enumerate(parts)] + body)
  found = pdf.read(made_pdf.make(pages), 'a.pdf')
  words = ' '.join(
      text for _, y, text in sum(pages, []) if not is_head or y != edge
  )
  assert sorted(found.text.split()) == sorted(words.split())
  note = 'a.pdf: 5 lines left out as running heads or page numbers, such as '
  note += repr(' '.join(line.format(1).split()))
  assert found.notes == (note,) * is_head


def test_what_is_typed_into_a_form_and_comments():
  notes = [
      f'<< /Type /Annot /Rect [150 {y} 350 {y + 15}] /Subtype /{kind} >>'
      for y, kind in (
          (735, 'Widget /FT /Tx /T (a) /V (Smith)'),
          (
              735,
              'Widget /FT /Ch /T (b) /Ff 2097152 /V [(x) (y)] /Opt '
              '[(o) [(x) (Red)] [(y) (Blue)]]',
          ),
          (600, 'FreeText /Contents (Typed)'),
          (600, 'Text /Contents (Really?)'),
      )
  ]
  data = made_pdf.make([['Name:', 'Read this.']], annotations=notes)
  found = pdf.read(data, 'a.pdf')
  assert found.text.split() == 'Name: Smith Red Blue Read this. Typed'.split()
  assert found.notes == ("a.pdf: 1 comment left out, such as 'Really?'",)
  data = made_pdf.make([['No form.']], annotations=notes[2:])
  file = b'2 0 R /Names << /EmbeddedFiles << /Names [(a) << /F (a) >>] >> >>'
  data = data.replace(b'2 0 R ', file, 1)
  note = "a.pdf: 1 attached file left out, such as 'a'"
  assert pdf.read(data, 'a.pdf')[::2] == (
      'No form. Typed',
      (note, *found.notes),
  )


# Characters from the left to the right, and in the order of reading.
ROWS = {
    '12.5 ב WHO 7 אשרתק': 'קתרשא WHO 7 ב 12.5',
    'the name םולש ןב is': 'the name בן שלום is',
    '%3 345 1948 תוק': 'קות 1948 345 3%',
}


@pytest.mark.parametrize('row', ROWS)
def test_rows_of_two_directions(row):
  glyphs = [
      right_to_left.Glyph(c, 6 * i, 0, 6 * i + 6, 12 * i + 6, i)
      for i, c in enumerate(row)
      if c != ' '
  ]
  order = right_to_left._in_order(f'{row} ', glyphs, 12)
  assert ''.join(f'{row} '[i] for i in order) == ROWS[row]


def test_a_paragraph_goes_on_over_a_page():
  pages = [[LONG, f'{LONG} and'], [f'more of it: {LONG}', LONG]]
  found = pdf.read(made_pdf.make(pages), 'a.pdf')
  assert '\n' not in found.text
  assert found.text[found.places[1].start :].startswith('more of it')
  span = (0, len(found.text))
  assert places.label_of(found.places, span) == 'page 1 to page 2'


def test_footnotes_follow_the_paragraph_that_goes_on_over_them():
  page = 'BT /F1 11 Tf 14 TL 72 700 Td ({}) Tj T* ({}) Tj /F1 8 Tf T* (x) Tj ET'
  pages = [page.format(*lines) for lines in ((LONG, 'it'), ('was.', LONG))]
  found = pdf.read(made_pdf.make(pages), 'a.pdf')
  assert found.text == f'{LONG} it was.\n\nx\n\n{LONG}\n\nx'
  labels = [places.label_at(found.places, i) for i in (0, 73, 80, 86)]
  assert labels == ['page 1', 'page 2', 'page 1', 'page 2']


def test_pages_without_text_are_counted():
  found = pdf.read(made_pdf.make([[LONG], [], [LONG + ' 2']]), 'a.pdf')
  assert found.notes == ('a.pdf: 1 of 3 pages have no text',)
  assert [place.label for place in found.places] == ['page 1', 'page 3']


@pytest.mark.parametrize(
    'program, line',
    [
        ('import os; os.abort()', 'its reader ended with status -6'),
        ('raise MemoryError("full")', 'a broken PDF: MemoryError: full'),
        ('import time; time.sleep(9)', 'not be read within 1 seconds'),
    ],
)
def test_a_reader_that_fails(program, line, monkeypatch):
  monkeypatch.setattr(pdf, '_COMMAND', (sys.executable, '-c', program))
  monkeypatch.setattr(pdf, '_SECONDS', 1)
  with pytest.raises(InputError, match=line):
    pdf.read(b'%PDF', 'a.pdf')


# A system that refuses every limit, as macOS does.
MACOS = """
import resource, runpy, sys
import pypdfium2  # a library of this system
def refuse(*_):
  raise ValueError('current limit exceeds maximum limit')
resource.setrlimit, sys.platform = refuse, 'darwin'
runpy.run_module('locost_jax.documents.pdf', run_name='__main__')
"""


def test_a_system_without_limits_of_memory(monkeypatch):
  monkeypatch.setattr(pdf, '_COMMAND', (sys.executable, '-c', MACOS))
  assert 'Some words' in pdf.read(made_pdf.make([['Some words.']]), 'a.pdf')[0]


def test_too_much_text():
  with pytest.raises(InputError, match='at most 100 .--max_document_bytes'):
    pdf.read(made_pdf.make([[LONG], [LONG]]), 'a.pdf', max_bytes=100)


def test_a_stream_that_unpacks_to_too_much():
  """300 MB of spaces in 300 KB: an error, with little memory."""
  bomb = zlib.compress(b' ' * 300_000_000, 9)
  data = made_pdf.assemble(
      [
          '<< /Type /Catalog /Pages 2 0 R >>',
          '<< /Type /Pages /Kids [3 0 R] /Count 1 >>',
          '<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>',
          (f'<< /Length {len(bomb)} /Filter /FlateDecode >>', bomb),
      ]
  )
  with pytest.raises(InputError, match='a.pdf: '):
    pdf.read(data, 'a.pdf', max_bytes=2**20)


def test_without_pypdfium2(monkeypatch):
  monkeypatch.setattr(pdf.importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(InputError, match=r'pip install "locost_jax\[documents'):
    pdf.read(made_pdf.make([[LONG]]), 'a.pdf')
