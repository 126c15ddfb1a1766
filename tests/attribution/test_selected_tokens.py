"""Selected tokens: counts, columns and highlights."""

import functools
import html as html_lib
import re

import jax
import numpy as np
import pytest

from locost_jax.attribution import attribution
from locost_jax.attribution import page as page_lib
from locost_jax.attribution import selected_tokens
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing import token_places
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests import bart_files
from tests import browser
from tests import browser_driver
from tests.attribution import test_page
from tests.summarizing.summarize_command import random_model
from tests.summarizing.summarize_command import use
from tests.summarizing.summarize_command import with_config
from tests.summarizing.summarize_command import write_documents

TEXT = '\n\n'.join(
    [
        'The  whale <swam> north of the ice.',
        'It was\ncold there. ¿Qué? 鯨は歌う。',
        'Nobody saw it go, or so "they" said. The crew & the cook slept.',
    ]
)


@pytest.fixture(scope='module', params=('marks', 'bytes'))
def summarizer(request, tmp_path_factory):
  """A small SimCAS with random weights, with and without a start mark."""
  vocabulary = byte_vocabulary.ByteVocabulary()
  if request.param == 'marks':
    directory = tmp_path_factory.mktemp('vocabulary')
    vocabulary = vocabulary_lib.load_vocabulary(bart_files.write(directory))
  made = random_model(
      'simcas', vocabulary, documents_lib.Pages('chunks', 1, 14, '')
  )
  # Small logits, so that the selector keeps about half.
  output = made.params['selector']['actor']['output']
  output['kernel'], output['bias'] = 0.1 * output['kernel'], 0 * output['bias']
  return made


only = functools.partial(pytest.mark.parametrize, 'summarizer', indirect=True)


def tokens_of(summarizer):
  return summarizer.vocabulary.encode('Whales swam. The cook slept.')


def read_mask(summarizer, text):
  """Returns (pages, memory, its mask [C, L])."""
  pages = summarizer.tokenize(text)
  memory = summarizer.memory(np.array([pages]))
  return pages, memory, np.asarray(memory['mask'])[0]


def is_text(summarizer, token):
  vocabulary = summarizer.vocabulary
  marks = vocabulary.bos_id, vocabulary.eos_id, vocabulary.pad_id
  return token not in marks


@pytest.mark.parametrize(
    'text, padding', ((TEXT, 'tokens'), ('A whale.', 'release'))
)
def test_selected_tokens_equal_a_loop(text, padding, summarizer):
  reader = with_config(summarizer, padding=padding)
  pages, _, mask = read_mask(reader, text)
  found = attribution.attribute(reader, text, tokens_of(reader)).selection
  ends = token_places.places(
      reader.vocabulary, documents_lib.Text(text), reader.pages
  )
  selected, total, letters = 0, 0, set()
  before = 0
  for c, page in enumerate(pages):
    for j, token in enumerate(page):
      end = int(ends[c][j])
      if is_text(reader, token) and (c, j) != (0, 0):
        total += 1
        if mask[c, j]:
          selected += 1
          letters |= set(range(min(before, end - 1), end))
      before = max(before, end)
  assert (found.selected, found.total) == (selected, total)
  shown = {i for span in found.spans for i in range(*span)}
  assert shown == letters
  assert all(a[1] < b[0] for a, b in zip(found.spans, found.spans[1:]))
  if text == TEXT:
    assert 0.2 * total < selected < 0.8 * total


def test_columns_are_sums_of_the_model_s_attention(summarizer):
  reader = summarizer
  text, tokens = TEXT * 3, tokens_of(reader)
  pages, memory, mask = read_mask(reader, text)
  found = attribution.attribute(reader, text, tokens).selection
  targets = np.array([[reader.settings.start_id, *tokens[:-1]]])
  written = np.ones(targets.shape, bool)
  attend = jax.jit(functools.partial(reader.model.apply, method='attention'))
  attention = attend({'params': reader.params}, memory, targets, written)
  attention = np.asarray(attention)[0]
  own = [
      (c, j)
      for c, page in enumerate(pages)
      for j, token in enumerate(page)
      if is_text(reader, token) and (c, j) != (0, 0)
  ]
  assert len(own) > selected_tokens.COLUMNS == len(found.mass)
  mass, chosen, sizes = np.zeros((3, len(found.mass)))
  for number, place in enumerate(own):
    column = number * len(mass) // len(own)
    mass[column] += attention[place]
    chosen[column] += mask[place]
    sizes[column] += 1
  np.testing.assert_allclose(found.mass, mass, atol=1e-6)
  np.testing.assert_allclose(found.columns, chosen / sizes)
  assert found.front == pytest.approx(attention[0, 0], abs=1e-6) != 0
  rest = 1 - sum(attention[place] for place in own) - attention[0, 0]
  assert found.marks == pytest.approx(rest, abs=1e-6)


@only(argvalues=['bytes'])
def test_padding_chunks_change_nothing(summarizer):
  """Nor does a memory that was computed before."""
  tokens = tokens_of(summarizer)
  want = attribution.attribute(summarizer, TEXT, tokens)
  pages = np.array([summarizer.tokenize(TEXT)])
  pad = summarizer.settings.pad_id
  wide = np.pad(pages, ((0, 0), (0, 3), (0, 4)), constant_values=pad)
  memory = summarizer.memory(wide)
  found = attribution.attribute(summarizer, TEXT, tokens, memory=memory)
  assert found.selection.spans == want.selection.spans
  np.testing.assert_allclose(found.mass, want.mass, atol=1e-6)
  np.testing.assert_allclose(
      found.selection.mass, want.selection.mass, atol=1e-6
  )


def test_the_page_highlights_selected_tokens(summarizer):
  source = attribution.attribute(summarizer, TEXT, tokens_of(summarizer))
  page, found = page_lib.render('a', source, {}), source.selection
  assert f'{found.selected} of {found.total} tokens selected' in page
  document = page[page.index('id="document"') :]
  for number, (start, end) in enumerate(source.passages, start=1):
    text = document.split(f'id="p{number}"')[1].split('<span>')[1]
    text = text.split('</span>')[0]
    plain = html_lib.unescape(re.sub('</?mark>', '', text))
    assert plain == ' '.join(TEXT[start:end].split())
    inside = {i for span in found.spans for i in range(*span)}
    letters = [i for i in range(start, end) if not TEXT[i].isspace()]
    # The letters of the passages in order, and whether each is highlighted.
    marked, is_in = [], False
    for part in re.split('(</?mark>)', text):
      is_in = part == '<mark>' if 'mark>' in part else is_in
      if 'mark>' not in part:
        marked += [is_in for x in html_lib.unescape(part) if not x.isspace()]
    assert marked == [i in inside for i in letters]
    assert not re.search('<mark>\\s|\\s</mark>|</mark>\\s*<mark>', text)
  charts = page.split('class="charts"')[1].split('</svg>')[0]
  assert charts.count('<title>') == len(found.columns)
  assert not test_page.Reader(page).missing


@only(argvalues=['bytes'])
def test_a_model_that_keeps_every_token_has_no_highlights(summarizer):
  reader = with_config(summarizer, select='none')
  source = attribution.attribute(reader, TEXT, tokens_of(reader))
  assert source.selection is None
  page = page_lib.render('a', source, {})
  assert 'id="selection"' not in page and 'id="show-selected"' not in page
  assert '<mark>' not in page[page.index('id="document"') :]


@only(argvalues=['marks'])
def test_an_empty_document_and_an_empty_summary(summarizer):
  for text in ('', ' \n', TEXT):
    source = attribution.attribute(summarizer, text, [])
    assert source.selection.mass.sum() == source.selection.marks == 0
    assert 'tokens selected' in page_lib.render('a', source, {})


@only(argvalues=['bytes'])
def test_the_command_counts_selected_tokens(
    tmp_path, summarizer, monkeypatch, call_json
):
  """In JSON and on stderr: alone, and in batches with a report."""
  use(monkeypatch, summarizer)
  documents = [TEXT, TEXT[::-1], 'A whale.']
  path = write_documents(tmp_path / 'rows.jsonl', documents)
  command = f'--checkpoint={tmp_path}', path
  report = f'--report={tmp_path / "out.html"}'
  for more in (('--batch_size=1',), ('--batch_size=4', report)):
    status, rows, err = call_json(*command, *more)
    assert not status, err
    for i, (row, text) in enumerate(zip(rows, documents, strict=True), start=1):
      found = attribution.attribute(summarizer, text, [5]).selection
      assert row['tokens_selected'] == found.selected <= row['tokens_read']
      assert f', {found.selected} selected, ' in err
      if report in more:
        page = (tmp_path / f'out-{i}.html').read_text()
        assert f'{found.selected} of {found.total} tokens selected' in page


@only(argvalues=['bytes'])
@browser.needed
def test_the_switch_hides_the_highlights(summarizer, tmp_path):
  """In a browser; the page's style does it without scripts."""
  path = tmp_path / 'page.html'
  source = attribution.attribute(summarizer, TEXT, tokens_of(summarizer))
  page = page_lib.render('a', source, {})
  page = re.sub('<script>.*?</script>', '', page, flags=re.S)
  rest = 'body > :not(main), main > :not(.document), label'
  page = page.replace('</style>', f'{rest} {{display: none}} </style>')
  switch = 'id="show-selected" '
  with browser_driver.open_page(tmp_path / 'profile') as tab:
    tab.emulate()
    for state in ('checked', ''):
      path.write_text(page.replace(f'{switch}checked', switch + state))
      tab.open(f'{path.as_uri()}?{state}')
      blue = (tab.screenshot() == [0xCF, 0xE2, 0xF6]).all(-1).sum()
      assert blue > 500 if state else blue == 0
