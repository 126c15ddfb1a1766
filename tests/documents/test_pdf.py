"""PDFs: pages, running heads, hyphens, paragraphs; scans and broken files."""

from pathlib import Path
import sys
import zlib

import pytest

from locost_jax.documents import pdf
from locost_jax.documents import places
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


@pytest.mark.parametrize('compress', [False, True])
def test_pages_without_heads_and_numbers(compress):
  found = pdf.read(made_pdf.make(story(20), compress), 'a.pdf')
  assert 'CHAPTER' not in found.text and 'THE WHALE' not in found.text
  assert ' '.join(found.text.split()).startswith(f'{LONG} aaa, {LONG} so it')
  assert [place.label for place in found.places] == [
      f'page {number}' for number in range(1, 21)
  ]
  for number, place in enumerate(found.places, start=1):
    assert found.text[place.start :].startswith(f'{LONG} {word(number)},')
    at = found.text.index(f'page number {word(number)}')
    assert places.label_at(found.places, at) == f'page {number}'
  # All other words are there, in order.
  want = [
      word for page in story(20) for line in page[1:-1] for word in line.split()
  ]
  assert found.text.split() == want


def test_lines_that_recur_elsewhere_stay():
  pages = [
      [f'First line {letter} of it,', 'the same.', f'last {letter} one.']
      for letter in 'abcdefghi'
  ]
  found = pdf.read(made_pdf.make(pages), 'a.pdf')
  assert found.text.count('the same.') == 9
  assert found.text.count('First line') == 9


@pytest.mark.parametrize(
    'lines, text',
    [
        ('COVID-19 in state-of-|the-art labs', 'state-of-the-art labs'),
        ('the wind-|driven mill, wind-driven', 'the wind-driven mill'),
        ('from 10-|20 in the COVID-|19 years', '10-20 in the COVID-19'),
        ('OPTIONAL or OP-|TIONAL', 'OPTIONAL or OPTIONAL'),
        ('the Anglo-|Saxon text', 'the Anglo-Saxon text'),
        ('of first-|and second-class mail', 'first- and second-class'),
        (f'{LONG} a sum-|mary of it. A summary.', 'a summary of it'),
        (
            f'state-space model, {LONG}|state-|space models',
            'state-space models',
        ),
        (f'{LONG}, not-|Withstanding the rest.', 'not-Withstanding'),
    ],
)
def test_hyphens_at_the_end_of_a_line(lines, text):
  data = made_pdf.make([lines.split('|')])
  assert text in pdf.read(data, 'a.pdf').text


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


def numbered(first, *, gap=14, wide=0, bottom=False):
  """Returns 5 pages of 8 lines, and a line `gap` points from them at an edge.

  In that line, {0} is the page's number; it stands `wide` points apart.
  """
  pages = []
  for n in range(1, 6):
    y = 40 if bottom else 760
    text = first.format(n)
    head = [(72, y, text)]
    if wide:
      words, number = text.rsplit(' ', 1)
      head = [(72, y, words), (72 + 6 * len(words) + wide, y, number)]
    body = 40 + gap + 14 * 7 if bottom else 760 - gap
    body = [(72, body - 14 * i, f'{word(n)} {LONG} {i}') for i in range(8)]
    pages.append(body + head if bottom else head + body)
  return pages


@pytest.mark.parametrize(
    'line, place, is_head',
    [
        ('Section {0}', {}, False),
        ('Section {0}', dict(gap=40), False),
        ('Penalty: {0}00 euro.', dict(bottom=True, gap=40), False),
        ('Ask the office.', dict(bottom=True), False),
        ('§ {0}', dict(gap=40), False),
        ('200{0}', dict(gap=40), False),
        ('{0} yes, 4 no', dict(bottom=True), False),
        ('Annual Report', dict(gap=40), True),
        ('Printed by us.', dict(gap=40, bottom=True), True),
        ('Annual Report {0}', dict(gap=40, wide=200), True),
        ('Annual Report | {0}', dict(gap=40), True),
        ('Page {0} of 5', {}, True),
        ('- {0} -', dict(bottom=True), True),
    ],
)
def test_heads_by_place_and_numbers_that_count(line, place, is_head):
  """Words out, and those of the lines left out, are those of the file."""
  pages = numbered(line, **place)
  found = pdf.read(made_pdf.make(pages), 'a.pdf')
  words = lambda lines: sorted(' '.join(lines).split())
  kept = [text for page in pages for _, y, text in page if y not in (40, 760)]
  heads = [line.format(n) for n in range(1, 6)]
  assert words([found.text]) == words(kept + heads * (not is_head))
  note = 'a.pdf: 5 lines left out as running heads or page numbers, such as '
  assert found.notes == (note + repr(heads[0]),) * is_head


def test_what_is_typed_into_a_form_and_comments():
  note = '<< /Type /Annot /Rect [150 {} 350 {}] /DA (/F1 9 Tf) {} >>'
  field = '/Subtype /Widget /FT /Tx /T ({0}) /V ({0})'
  notes = [
      note.format(735, 750, field.format('Smith')),
      note.format(600, 620, '/Subtype /FreeText /Contents (Typed)'),
      note.format(600, 620, '/Subtype /Text /Contents (Really?)'),
  ]
  data = made_pdf.make([['Name:', 'Read this.']], annotations=notes)
  found = pdf.read(data, 'a.pdf')
  assert found.text.split() == 'Name: Smith Read this. Typed'.split()
  assert found.notes == ("a.pdf: 1 comments left out, such as 'Really?'",)


def test_raised_digits_keep_their_value():
  raised = '10) Tj 4 Ts /F1 7 Tf (6) Tj 0 Ts /F1 11 Tf ( cells'
  data = made_pdf.make([['10+ cells']]).replace(b'10+ cells', raised.encode())
  assert pdf.read(data, 'a.pdf').text == '10^6 cells'


def test_a_paragraph_goes_on_over_a_page():
  pages = [[LONG, f'{LONG} and'], [f'more of it: {LONG}', LONG]]
  found = pdf.read(made_pdf.make(pages), 'a.pdf')
  assert '\n' not in found.text
  assert found.text[found.places[1].start :].startswith('more of it')
  span = (0, len(found.text))
  assert places.label_of(found.places, span) == 'page 1 to page 2'


def test_the_dots_of_a_table_of_contents():
  lines = ['1.1. Purpose ............ 12', '1.2. More . . . . . . . 13']
  lines.append('Wait... no.')
  text = pdf.read(made_pdf.make([lines]), 'a.pdf').text
  assert text.split() == '1.1. Purpose … 12 1.2. More … 13 Wait... no.'.split()


def test_columns_in_the_order_of_the_file():
  left = [(72, 740 - 14 * i, f'left column line {i} here') for i in range(5)]
  right = [(330, 740 - 14 * i, f'right column line {i} here') for i in range(5)]
  text = pdf.read(made_pdf.make([left + right]), 'a.pdf').text
  assert text.index('left column line 4') < text.index('right column line 0')


def test_pages_without_text_are_counted():
  found = pdf.read(made_pdf.make([[LONG], [], [LONG + ' 2']]), 'a.pdf')
  assert found.notes == ('a.pdf: 1 of 3 pages have no text',)
  assert [place.label for place in found.places] == ['page 1', 'page 3']


@pytest.mark.parametrize(
    'data, line',
    [
        (made_pdf.make([[], []]), 'a.pdf: none of its 2 pages has text, as'),
        (made_pdf.make([[LONG]])[:200], 'a.pdf: a broken PDF: '),
        (b'%PDF-1.4 nothing', 'a.pdf: a broken PDF: '),
    ],
    ids=['scan', 'cut', 'nothing'],
)
def test_a_bad_file_gives_one_line(data, line):
  with pytest.raises(InputError) as error:
    pdf.read(data, 'a.pdf')
  assert str(error.value).startswith(line) and '\n' not in str(error.value)


def test_a_password_is_needed():
  """The file is encrypted with 40-bit RC4; the password is `secret`."""
  data = (Path(__file__).parent / 'encrypted.pdf').read_bytes()
  with pytest.raises(InputError, match='is encrypted; expected a PDF without'):
    pdf.read(data, 'a.pdf')


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


@pytest.mark.parametrize('data', [b'', b'A text.'])
def test_another_file_is_no_pdf(data):
  with pytest.raises(InputError, match='a.pdf: is not a PDF; expected %PDF'):
    pdf.read(data, 'a.pdf')


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
