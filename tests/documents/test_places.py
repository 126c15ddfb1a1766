"""Places of characters, and headings of Markdown, pages and books."""

import pytest

from locost_jax.documents import markup
from locost_jax.documents import places
from locost_jax.documents import readers
from locost_jax.documents.places import Place
from tests.deadline import within


def test_the_place_of_a_character():
  found = (Place(3, 'a'), Place(7, 'b'))
  labels = [places.label_at(found, i) for i in (0, 3, 6, 7, 99)]
  assert labels == ['', 'a', 'a', 'b', 'b']
  assert places.label_at((), 5) == ''
  assert places.label_of(found, (3, 7)) == 'a'
  assert places.label_of(found, (4, 8)) == 'a to b'
  assert places.label_of(found, (0, 8)) == ''
  names = '00:17:44, Grad B', '00:17:48, Grad B', '00:17:50, PhD A', '00:18:00'
  found = [Place(i, name) for i, name in enumerate(names)]
  labels = [places.label_of(found, (i, i + 2)) for i in range(3)]
  assert labels == [
      '00:17:44 to 00:17:48, Grad B',
      '00:17:48, Grad B to 00:17:50, PhD A',
      '00:17:50, PhD A to 00:18:00',
  ]


def test_the_label_of_a_heading():
  assert places.of_heading(4, ' 6.1.\n Rules¶') == (4, '6.1. Rules')
  assert places.of_heading(4, 99 * 'a') == (4, 79 * 'a' + '…')


def test_chapters_of_a_plain_text():
  text = (
      'CHAPTER I.\r\n\r\nOne. In Chapter 2 more.\n\nPart of it.\n\n  Book Two: War'
      '\n\nText.\nChapter 9\n\nChapter III\nno blank line\n\nLetter 4'
  )
  found = readers.read_text(text.encode(), 'x')
  text = found.text
  shown = [(place.label, text[place.start :][:4]) for place in found.places]
  assert shown == [('CHAPTER I.', 'CHAP'), ('Book Two: War', 'Book')]


def test_markdown_headings():
  text = (
      'intro\n\n# The *first* one #\ntext\n```\n# no heading\n```\nSecond\n'
      '------\nmore\n\n---\n## [Third](http://x)\nend'
  )
  found = readers.read_markdown(text.encode(), 'x')
  assert found.text == text
  labels = [place.label for place in found.places]
  assert labels == ['The first one', 'Second', 'Third']
  assert [text[p.start :][:3] for p in found.places] == ['# T', 'Sec', '## ']


def test_html_headings():
  page = (
      b'<body> <h1> Big <b>Title</b></h1><p>One  two<h2></h2><h2>\n Second\n'
      b' part</h2>text<script><h1>no</h1></script><h3><br>third</h3><pre> a\n'
      b'<h4>  b</h4></pre><nav><h2>menu</h2></nav><h5><div>in</div></h5>'
  )
  text, headings = markup.html_headings(page, 'x')
  titles = [heading for _, heading in headings]
  assert titles[:3] == ['Big Title', 'Second part', 'third']
  for at, heading in headings:
    assert text[at:].startswith(heading)


@pytest.mark.parametrize(
    'heading',
    ['a' + ' ' * 10**5 + 'b', '[' * 10**5, '*[](' * 10**5, ' #' * 10**5 + 'a'],
    ids=['spaces', 'brackets', 'links', 'signs'],
)
def test_markdown_is_read_in_linear_time(heading):
  with within():
    found = readers.read_markdown(
        f'# {heading}\n{heading}\n---\nend'.encode(), 'x'
    )
  assert all(len(place.label) <= 80 for place in found.places)
