"""Copied words: found, located in the document, linked on the page."""

import numpy as np
import pytest

from locost_jax.attribution import attribution
from locost_jax.attribution import page as page_lib
from locost_jax.attribution import words as words_lib
from locost_jax.summarizing import documents as documents_lib
from tests.attribution import test_page
from tests.batches import BYTES
from tests.summarizing.summarize_command import random_model

TEXT = '\n\n'.join(
    [
        'The  whale <swam> north of the ice.',
        'It was\ncold there. Nobody saw it go, or so "they" said.',
        'The crew & the cook slept.',
    ]
)
SUMMARY = 'They slept north. ¿Qué? <swam>'
PAGES = {
    'pagesum': documents_lib.Pages('spatial', 3, 60, ''),
    'simcas': documents_lib.Pages('chunks', 1, 14, ''),
}


def make_summarizer(name):
  """Makes a small model with random weights that nearly always copies."""
  keys = dict(copy=True, copy_dim=4, copy_ngram=2)
  if name != 'locost':
    keys['max_positions'] = 128
  made = random_model(name, BYTES, PAGES.get(name), **keys)
  made.params['copy_head']['gate']['bias'] -= 30
  return made


@pytest.mark.parametrize('name', ('locost', 'bart', 'pagesum', 'simcas'))
def test_the_place_of_each_token(name):
  """The token's character is at its place; bos and eos have none."""
  summarizer = make_summarizer(name)
  tokens = [*BYTES.encode(SUMMARY), BYTES.eos_id]
  _, read, places = summarizer.locate(TEXT)
  memory = summarizer.memory_of(read.pages)
  traced = attribution.trace(summarizer, memory, tokens, places)

  is_read = np.asarray(memory['mask']).ravel()
  seen = set(np.asarray(memory['tokens']).ravel()[is_read].tolist())
  found = [token in seen for token in tokens]
  assert 10 < sum(found) < len(tokens)
  np.testing.assert_array_equal(traced.share > 0.5, found)
  np.testing.assert_array_equal(traced.weight > 0, found)
  for token, end, is_found in zip(tokens[:-1], traced.end, found):
    if is_found and not BYTES.decode([token]).isspace():
      assert BYTES.encode(TEXT[end - 1]) == [token]
  if found[-1]:
    assert traced.end[-1] == -1


def make_traced(shares, ends, weights=None):
  weights = np.ones(len(ends)) if weights is None else np.array(weights)
  return words_lib.Traced(np.array(shares), weights, np.array(ends))


def test_words():
  """Words with a mean share of at least half; placed at the heaviest token."""
  text, summary = 'One two-fold\n\nthree', 'a bc two'
  find = lambda *given: words_lib.find_copied(
      summary, text, [1, 3, 4, 8], make_traced(*given)
  )
  assert find([0.9, 0.7, 0.3, 0.49], [3, 6, 6, 6]) == [
      ((0, 1), (0, 3), 0.9),
      ((2, 4), (4, 12), 0.5),
  ]
  assert [w.place for w in find([0, 1, 1, 0], [3, 3, 16, 3], [1, 1, 2, 1])] == [
      (14, 19)
  ]
  assert [w.span for w in find([1, 1, 1, 1], [-1, 3, 3, 13])] == [(2, 4)]


def test_the_page_links_words_to_their_places():
  words = 'The cook slept where the ice was cold', 'the cook'
  summary = f'{words[0]}.  {words[1]}.'
  source = test_page.make_source(TEXT, summary, (2, 0))
  spans = [(0, 38), (40, len(summary))]
  sentences = [s._replace(span=p) for s, p in zip(source.sentences, spans)]
  place = lambda word: (TEXT.index(word), TEXT.index(word) + len(word))
  copied = [
      words_lib.Copied((4, 8), place('cook'), 0.93),
      words_lib.Copied((33, 37), place('cold'), 1.0),
      words_lib.Copied((44, 48), place('cook'), 0.5),
  ]
  page = page_lib.render(
      'name', source._replace(sentences=sentences, copied=copied), {}
  )
  assert not test_page.Reader(page).missing
  assert '3 of 10 words copied' in page
  first, second = (
      page.split(f'id="s{i}"')[1].split('</h3>')[0] for i in (1, 2)
  )
  assert (
      'The <a class="copied" href="#c1" title="copied: 93\u202f% of its '
      'probability">cook</a> slept'
  ) in first
  assert '>cold</a>.' in first and 'href="#c2"' in first
  assert 'href="#c1"' in second and '>cook</a>.' in second
  document = page[page.index('class="document"') :]
  assert (
      '<a class="copied" id="c1" href="#s1" title="Copied into sentence 1">'
      'cook</a> slept'
  ) in document
  assert 'It was <a class="copied" id="c2"' in document
