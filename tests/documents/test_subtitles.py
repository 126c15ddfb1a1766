"""Subtitles: speakers, times, rolling captions, broken files."""

import pytest

from locost_jax.documents import places
from locost_jax.documents import readers
from locost_jax.documents import subtitles
from tests.deadline import within

VTT = """WEBVTT - a meeting

NOTE not read
at all

STYLE
::cue { color: red }

intro
00:01.000 --> 00:03.500 align:start
<v PhD A>So, <i>welcome</i> &amp; hello.

00:03.600 --> 00:05.000
<v PhD A>Let us begin.

00:41:07.000 --> 00:41:09.000
<v.loud Grad B>I have a question.
What is it?
"""

# (source, text, the label of each place)
CASES = [
    (
        VTT,
        'PhD A: So, welcome & hello. Let us begin.\n\n'
        'Grad B: I have a question. What is it?',
        '00:00:01, PhD A|00:00:03, PhD A|00:41:07, Grad B',
    ),
    (
        '1\n00:00:01,000 --> 00:00:02,000\n>> JOHN: Good morning.\n\n'
        '2\n00:00:02,100 --> 00:00:03,000\n{\\an8}It is cold.\n\n'
        '3\n00:00:09,000 --> 00:00:10,000\n>> MARY: It is not.\n',
        'JOHN: Good morning. It is cold.\n\nMARY: It is not.',
        '00:00:01, JOHN|00:00:02, JOHN|00:00:09, MARY',
    ),
    (  # without speakers, pauses end paragraphs
        '00:01 --> 00:02\nOne\n\n00:02 --> 00:03\ntwo.\n\n'
        '00:07 --> 00:08\nThree.',
        'One two.\n\nThree.',
        '00:00:01|00:00:02|00:00:07',
    ),
    (  # rolling captions
        '00:01 --> 00:02\na b\n\n00:02 --> 00:03\na b\nand c\n\n'
        '00:03 --> 00:04\nand c\nand d\n\n00:04 --> 00:05\n ',
        'a b and c and d',
        '00:00:01|00:00:02|00:00:03',
    ),
    (  # several voices in a cue
        '00:01 --> 00:02\n<v Al>Yes.</v> <v Bea>Yes.\n\n'
        '00:02 --> 00:03\n>> JOHN: So\nit is. >> MARY 2: No.\n\n'
        '00:09 --> 00:10\nThe answer is: 42. Who: me.',
        'Al: Yes.\n\nBea: Yes.\n\nJOHN: So it is.\n\nMARY 2: No.\n\n'
        'MARY 2: The answer is: 42. Who: me.',
        '00:00:01, Al|00:00:01, Bea|00:00:02, JOHN|00:00:02, MARY 2|'
        '00:00:09, MARY 2',
    ),
    (  # a blank line in a cue
        '1\n00:00:01,000 --> 00:00:02,000\nOne,\n\nat 10:30\n\n\n2\n'
        '00:00:02,000 --> 00:00:03,000\ntwo.',
        'One, at 10:30 two.',
        '00:00:01|00:00:02',
    ),
]


@pytest.mark.parametrize('source, text, labels', CASES)
def test_texts_and_places(source, text, labels):
  found = subtitles.read(source, 'a.vtt', places.LeftOut())
  assert found.text == text
  assert '|'.join(place.label for place in found.places) == labels
  assert not any(text[p.start - 1 : p.start].strip() for p in found.places)


LONG = {
    'voices': '<v ' * 10**6,
    'spaces': '<v' + ' ' * 10**6,
    'number': '&#' + '9' * 10**6 + ';',
    'lines': '\n'.join(map(str, range(10**5))),
}


@pytest.mark.parametrize('words', LONG.values(), ids=LONG)
def test_subtitles_are_read_in_linear_time(words):
  text = f'WEBVTT\n\n00:01.000 --> 00:02.000\n{words}'
  text += f'\n\n00:02.000 --> 00:03.000\n{words}\nend'
  with within():
    assert readers.read('.vtt', text.encode(), 'x').text.endswith('end')
