"""Passages of a page, in several scripts and of subtitles."""

import pytest

from locost_jax.attribution import passages as passages_lib
from locost_jax.data import text as text_lib


def words_of(text, spans):
  """Asserts that spans are in order and without white space at their ends."""
  parts = [text[start:end] for start, end in spans]
  assert all(part == part.strip() and part for part in parts)
  assert ''.join(''.join(parts).split()) == ''.join(text.split())
  return parts


def test_passages_cover_the_text_and_are_short():
  sentence = 'This is a sentence of a long paragraph. '
  text = f'  A heading\n\n{sentence * 100}\n\n\tOne\nmore line. \n'
  parts = words_of(text, passages_lib.cut(text))
  assert parts[0] == 'A heading' and len(parts) >= 5
  sizes = [len(part) for part in parts[1:5]]
  assert 900 < min(sizes) and max(sizes) <= passages_lib.LONGEST
  assert all(part.endswith('.') for part in parts[1:])


@pytest.mark.parametrize(
    'sentence',
    [
        '\u6628\u65e5\u3001\u96e8\u304c\u964d\u308a\u307e\u3057\u305f\u3002',
        '\u4f55\uff01\uff1f',
        '\u300c\u672c\u5f53\uff1f\u300d',
        '\u534a\u89d2\u3067\u3059\uff61',
        '\u5186\u5468\u7387\u306f\uff13\uff0e\uff11\u3067\u3059\uff0e',
        '\u0647\u0644 \u0647\u0630\u0627 \u0635\u062d\u064a\u062d\u061f ',
        '\u06cc\u06c1 \u0627\u06cc\u06a9 \u062c\u0645\u0644\u06c1 \u06c1\u06d2\u06d4 ',
        '\u092f\u0939 \u0935\u093e\u0915\u094d\u092f \u0939\u0948\u0964 ',
        '\u0936\u094d\u0932\u094b\u0915\u0903 \u0965 ',
    ],
)
def test_sentence_ends_of_other_scripts(sentence):
  text = (sentence * 400).strip()
  parts = words_of(text, text_lib.sentence_spans(text))
  assert parts == [sentence.strip()] * 400
  parts = words_of(text, passages_lib.cut(text))
  assert max(map(len, parts)) <= passages_lib.LONGEST
  assert all(part.endswith(sentence.strip()) for part in parts)


@pytest.mark.parametrize(
    'words',
    [
        ' '.join(f'Chapter {i} with a title' for i in range(200)),
        ''.join(f'{i}\u6628\u65e5\u96e8\u304c\u964d' for i in range(400)),
        'x' * 2000,
    ],
)
def test_a_text_without_sentences_is_cut_between_words(words):
  text = f'A heading.\n\n{words}'
  parts = words_of(text, passages_lib.cut(text))
  assert parts[0] == 'A heading.' and len(parts) > 5
  sizes = list(map(len, parts[1:]))
  assert 150 < min(sizes) and max(sizes) <= 330
  assert ' '.join(parts[1:]).split() == words.split() or ' ' not in words


def test_the_page_of_subtitles_without_sentences(run, call, tmp_path):
  cues = (f'00:{i:02} --> 00:{i:02}\n{i} {"words " * 9}' for i in range(40))
  (tmp_path / 'a.vtt').write_text('WEBVTT\n\n' + '\n\n'.join(cues))
  page = tmp_path / 'page.html'
  status, _, err = call(
      '--checkpoint', run, tmp_path / 'a.vtt', f'--report={page}'
  )
  assert status == 0, err
  assert page.read_text().count('<p id="p') == 8
  assert '00:00:05 to 00:00:10' in page.read_text()
