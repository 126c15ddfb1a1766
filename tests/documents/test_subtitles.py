"""Subtitles: speakers, times, rolling captions, broken files."""

import pytest

from locost_jax.documents import places
from locost_jax.documents import subtitles
from locost_jax.errors import InputError
from locost_jax.summarizing import documents
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
SRT = """1
00:00:01,000 --> 00:00:02,000
>> JOHN: Good morning.

2
00:00:02,100 --> 00:00:03,000
{\\an8}It is cold.

3
00:00:09,000 --> 00:00:10,000
>> MARY: It is not.
"""


def test_webvtt():
  found = subtitles.read(VTT, 'a.vtt')
  assert found.text == (
      'PhD A: So, welcome & hello. Let us begin.\n\n'
      'Grad B: I have a question. What is it?'
  )
  label = lambda words: places.label_at(found.places, found.text.index(words))
  assert label('welcome') == '00:00:01, PhD A'
  assert label('begin') == '00:00:03, PhD A'
  assert label('question') == '00:41:07, Grad B'


def test_subrip():
  found = subtitles.read(SRT, 'a.srt')
  assert found.text == ('JOHN: Good morning. It is cold.\n\nMARY: It is not.')
  labels = '00:00:01, JOHN|00:00:02, JOHN|00:00:09, MARY'
  assert '|'.join(place.label for place in found.places) == labels


def test_without_speakers_pauses_end_paragraphs():
  times = [('00:01', '00:02'), ('00:02', '00:03'), ('00:07', '00:08')]
  words = ['One', 'two.', 'Three.']
  text = 'WEBVTT\n\n' + '\n\n'.join(
      f'{a}.000 --> {b}.000\n{word}' for (a, b), word in zip(times, words)
  )
  found = subtitles.read(text, 'a.vtt')
  assert found.text == 'One two.\n\nThree.'
  labels = [place.label for place in found.places]
  assert labels == ['00:00:01', '00:00:02', '00:00:07']


def test_repeated_lines_of_rolling_captions_are_read_once():
  text = 'WEBVTT\n\n' + '\n\n'.join(
      [
          '00:01.000 --> 00:02.000\nthe first line',
          '00:02.000 --> 00:03.000\nthe first line\nand the second',
          '00:03.000 --> 00:04.000\nand the second\nand the third',
          '00:04.000 --> 00:05.000\n ',
      ]
  )
  found = subtitles.read(text, 'a.vtt')
  assert found.text == 'the first line and the second and the third'


def test_several_voices_in_a_cue():
  text = 'WEBVTT\n\n' + '\n\n'.join(
      [
          '00:01.000 --> 00:02.000\n<v Al>Yes.</v> <v Bea>Yes.',
          '00:02.000 --> 00:03.000\n>> JOHN: So\nit is. >> MARY 2: No.',
          '00:09.000 --> 00:10.000\nThe answer is: 42. Who: me.',
      ]
  )
  found = subtitles.read(text, 'a.vtt')
  assert found.text == (
      'Al: Yes.\n\nBea: Yes.\n\nJOHN: So it is.\n\nMARY 2: No.\n\n'
      'MARY 2: The answer is: 42. Who: me.'
  )
  labels = (
      '00:00:01, Al|00:00:01, Bea|00:00:02, JOHN|00:00:02, MARY 2|'
      '00:00:09, MARY 2'
  )
  assert '|'.join(place.label for place in found.places) == labels


def test_a_blank_line_in_a_cue():
  text = '1\n00:00:01,000 --> 00:00:02,000\nOne,\n\nat 10:30\n\n\n2\n'
  text += '00:00:02,000 --> 00:00:03,000\ntwo.'
  assert subtitles.read(text, 'a.srt').text == 'One, at 10:30 two.'


@pytest.mark.parametrize(
    'text, line',
    [
        ('99:99:99.000 --> 99:99:99.500\nx', 'a.vtt:1: expected a time like'),
        ('WEBVTT\n\n\n', 'a.vtt: has no subtitles'),
        ('Once upon a time.', "a.vtt:1: expected a time like .* got 'Once up"),
        ('00:01.000 --> soon\nx', 'a.vtt:1: expected a time like'),
    ],
)
def test_a_bad_file_gives_one_line(text, line):
  with pytest.raises(InputError, match=line):
    subtitles.read(text, 'a.vtt')


@pytest.mark.parametrize(
    'words',
    [
        '<v ' * 10**6,
        '<v' + ' ' * 10**6,
        '&#' + '9' * 10**6 + ';',
        '\n'.join(map(str, range(10**5))),
    ],
    ids=['voices', 'spaces', 'number', 'lines'],
)
def test_subtitles_are_read_in_linear_time(words):
  text = f'WEBVTT\n\n00:01.000 --> 00:02.000\n{words}'
  text += f'\n\n00:02.000 --> 00:03.000\n{words}\nend'
  with within():
    assert subtitles.read(text, 'a.vtt').text.endswith('end')


def test_srt_in_windows_1252_is_read_with_a_note(tmp_path):
  """SubRip declares no encoding; WebVTT must be UTF-8."""
  text = '1\n00:00:01,000 --> 00:00:02,000\nCaf\xe9 \u201cau lait\u201d\n'
  for name in 'a.srt', 'a.vtt':
    (tmp_path / name).write_bytes(text.encode('cp1252'))
  lines = []
  found, failures = documents.read([str(tmp_path)], report=lines.append)
  assert [d.text for d in found] == ['Caf\xe9 \u201cau lait\u201d']
  assert len(failures) == 1 and len(lines) == 2
  assert lines[0] == f'{tmp_path}/a.srt: not UTF-8; read as windows-1252'
  assert 'a.vtt: not UTF-8 (byte' in lines[1]
