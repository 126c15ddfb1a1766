"""A model that reads pages: texts, summaries, attribution and report."""

import dataclasses
import re
import types

import jax
import numpy as np
import pytest

import locost_jax
from locost_jax import models
from locost_jax.attribution import attribution
from locost_jax.attribution import page as page_lib
from locost_jax.attribution import passages as passages_lib
from locost_jax.attribution import words as words_lib
from locost_jax.config import decode_settings
from locost_jax.data import pages as pages_lib
from locost_jax.errors import InputError
from locost_jax.summarizing import batch_memory
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing import page_reading
from locost_jax.summarizing import reading
from locost_jax.summarizing import stream
from locost_jax.summarizing import token_places
from tests import products
from tests.batches import BYTES
from tests.data.rows import write_jsonl
from tests.hugging_face.converting import GOLDEN
from tests.models.test_bart import SMALL
from tests.summarizing.summarize_command import changed
from tests.summarizing.summarize_command import random_model
from tests.summarizing.summarize_command import read_and_locate
from tests.summarizing.summarize_command import use
from tests.summarizing.summarize_command import with_config

SENTENCES = [
    'The whale swam north.',
    'It  was\ncold there.',
    'Nobody saw it go, or so they said.',
    'The crew slept.',
    'In the morning the ice had closed.',
]
TEXT = '\n\n'.join([' '.join(SENTENCES[:2]), '  '.join(SENTENCES[2:])])
SECTIONS = [
    {'heading': 'Ships', 'text': 'The Pequod sailed. It is lost.'},
    {'heading': '', 'text': 'Whales rose.'},
    {'heading': 'Crew', 'text': 'Ishmael lived to tell it.'},
]


@pytest.fixture(scope='module')
def summarizer():
  """A small PageSum with random weights that reads bytes."""
  pages = documents_lib.Pages('spatial', 3, 80, '')
  return random_model('pagesum', BYTES, pages, max_positions=96)


@pytest.mark.parametrize('form', pages_lib.FORMS)
@pytest.mark.parametrize('empty_page', ('', '.'))
@pytest.mark.parametrize('page_length', (80, 14))
def test_pages_are_read_as_in_training_and_located(
    form, empty_page, page_length
):
  """A byte vocabulary: each token is a letter of the text or a space."""
  row = {
      'document': TEXT + ' ¿Qué? 鯨は歌う。海は広い。',
      'sections': SECTIONS,
      'documents': ['One. Two.', ' ', 'Three  à la. Mode.'],
  }
  pages = documents_lib.Pages(form, 4, page_length, empty_page)
  text = documents_lib.text_of(row, pages)
  read, places = read_and_locate(BYTES, text, pages)
  parts = pages_lib.pieces(row, form, 4)
  trained = pages_lib.tokenise(parts, '', pages, 10**6, BYTES)
  assert read.pages == [page for page in trained if page]
  assert read.dropped == 0
  is_cut = page_length == 14 and not pages.are_chunks
  assert (read.tokens > sum(map(len, read.pages))) == is_cut
  assert all(ends[-1] == -1 for ends in places)
  assert sum((ends >= 0).sum() for ends in places) > 15


def test_a_document_is_cut_before_paging(summarizer):
  reader = changed(summarizer, document_length=30)
  read, whole = reader.read(TEXT), summarizer.read(TEXT)
  first = TEXT[:30]
  assert read.pages == summarizer.read(first).pages
  assert read.dropped == 0 and read.tokens > sum(map(len, read.pages))
  assert abs(read.tokens - whole.tokens) < 10  # white space between pages
  places = token_places.places(BYTES, documents_lib.Text(TEXT), reader.pages)
  assert max(ends.max() for ends in places) == len(first.rstrip())


def test_dropped_parts_are_counted(summarizer):
  sections = SECTIONS * 2
  read = changed(summarizer, pages='discourse').read({'sections': sections})
  assert len(read.pages) == 3 and read.dropped == 3
  assert read.tokens - sum(map(len, read.pages)) == sum(
      len(BYTES.encode(text)) for text in pages_lib.discourse(SECTIONS, 3)
  )


@products.few(
    'options',
    [{'num_beams': 2, 'encoder_no_repeat_ngram_size': 1}],
    [{'temperature': 1}],
)
def test_a_batch_equals_single_documents(options, summarizer):
  """Documents of 1, 2 and 40 pages; checks how they are grouped."""
  generator = np.random.default_rng(0)

  def text(sentences):
    return ' '.join(
        ''.join(chr(97 + i) for i in generator.integers(0, 26, 9)).title() + '.'
        for _ in range(sentences)
    )

  reader = changed(summarizer, num_pages=40)
  documents = [text(40), 'One.', text(80), '1. 2.', text(40)]
  options = dict(options, max_length=8)
  together = reader.summarize(documents, **options)
  alone = [reader.summarize(document, **options)[0] for document in documents]
  assert together == alone and len(set(alone)) > 1
  shapes = {
      reading.padded_shape(reader.config, reader.tokenize(document), True)
      for document in documents
  }
  assert {P for P, _ in shapes} == {40, 1}


def direct_mass(summarizer, pages, owners, P, tokens):
  """Loops over pages, each read alone; sums mass times page weight."""
  model, params = summarizer.model, summarizer.params
  targets = np.array([[summarizer.settings.start_id, *tokens[:-1]]])
  total = np.zeros((len(tokens), P))
  inputs, _ = reading.pad([pages], (len(pages), 96), BYTES.pad_id)
  memory = jax.device_get(summarizer.memory(inputs))
  weights = np.asarray(
      attribution.apply(model, params, 'page_weights', (), memory, targets)
  )[0]
  for p in range(len(pages)):
    one = {key: x[:, p : p + 1] for key, x in memory.items()}
    for passage in range(P):
      # Segments: up to the passage and after it; differences give its own mass.
      rows = np.full((1, 1, 96), 2 * P, int)
      rows[0, 0, : len(owners[p])] = np.where(owners[p] < 0, 2 * P, owners[p])
      order = np.argsort(rows[0, 0], kind='stable')
      shuffled = {
          'states': one['states'][:, :, order],
          'mask': one['mask'][:, :, order],
      }
      given = shuffled, targets, rows[:, :, order]
      mass = attribution.apply(
          model, params, 'cross_mass', (2 * P + 1,), *given
      )
      total[:, passage] += weights[p] * np.asarray(mass)[0, :, passage]
  return total


def test_attention_on_passages_is_weighted_by_page(summarizer):
  tokens = [70, 80, 90, 75, BYTES.eos_id]
  source = attribution.attribute(summarizer, TEXT, tokens)
  read = summarizer.read(TEXT)
  places = token_places.places(
      BYTES, documents_lib.Text(TEXT), summarizer.pages
  )
  P = len(source.passages)
  owners = [passages_lib.owners(ends, source.passages) for ends in places]
  expected = direct_mass(summarizer, read.pages, owners, P, tokens)[:-1]
  np.testing.assert_allclose(source.mass, expected.mean(0), atol=2e-6)
  weights = source.pages.weights
  assert weights.shape == (4, 3)
  np.testing.assert_allclose(weights.sum(1), 1, atol=1e-6)
  assert weights.std() > 1e-3
  assert source.tokens.sum() == sum((e >= 0).sum() for e in places)
  # Page 2 begins in the second paragraph, like its first sentence.
  assert source.pages.begins == [0, 0, 1] and P == 2
  memory = summarizer.memory_of(read.pages)
  kept = attribution.attribute(summarizer, TEXT, tokens, memory=memory)
  np.testing.assert_allclose(kept.mass, source.mass, atol=1e-6)


def test_global_decoding_has_attention_and_no_page_weights(summarizer):
  params = {k: v for k, v in summarizer.params.items() if k != 'confidence'}
  reader = with_config(summarizer, params, decoding='global')
  source = attribution.attribute(reader, TEXT, [70, 80, 90])
  assert source.pages is None
  marks = 1 - source.mass.sum()
  assert 0 < marks < 1 and (source.mass > 0).all()


def test_the_weights_of_a_word_are_the_mean_of_its_tokens():
  weights = np.array([[1, 0], [0, 1], [0.25, 0.75], [1, 0.0]])
  pages = attribution.PageWeights(
      weights, np.array([2, 4, 5, 9]), np.zeros(4, int), [0, 1]
  )
  spans, found = words_lib.page_weights('ab cd  ef', pages)
  # 'ab'; ' c' and 'd'; '  ef'
  assert spans == [(0, 2), (3, 5), (7, 9)]
  np.testing.assert_allclose(found, [[1, 0], [0.125, 0.875], [1, 0]])


def test_the_report_shows_which_page_each_word_came_from(summarizer):
  tokens = BYTES.encode('Whales <swam>. The crew slept.')
  source = attribution.attribute(summarizer, TEXT, tokens)
  html = page_lib.render('a', source, {})
  _, weights = words_lib.page_weights(source.summary, source.pages)
  spoken = html[html.index('class="spoken"') : html.index('class="heat"')]
  found = re.findall(r'<span style="--hue:\d+" title="page (\d)', spoken)
  assert [int(p) - 1 for p in found] == weights.argmax(1).tolist()
  assert '&lt;swam&gt;.' in spoken and html.count('<rect x=') >= 3 * 5
  for page in (1, 2, 3):
    assert f'id="page{page}"' in html and f'href="#page{page}"' in html
  assert html.index('id="page3"') < html.index('id="p2"')
  assert '3 pages' in html and html.count('Weight of the pages: ') == 2


def test_page_options_come_from_the_run_and_the_caller():
  config = models.make_config(dict(SMALL, name='pagesum'))
  stored = dict(
      pages='discourse', num_pages=8, page_length=12, empty_page='', other=1
  )
  assert page_reading.choose_pages(config, stored, {}) == documents_lib.Pages(
      'discourse', 8, 12, ''
  )
  given = {'num_pages': 3, 'pages': None, 'page_length': None}
  assert page_reading.choose_pages(config, stored, given).num_pages == 3
  most = config.max_positions
  assert page_reading.choose_pages(config, None, {}) == documents_lib.Pages(
      'spatial', 7, most, ''
  )
  release = dataclasses.replace(config, padding='release')
  assert page_reading.choose_pages(release, None, {}).empty_page == '.'
  bart = models.make_config(SMALL)
  assert page_reading.choose_pages(bart, stored, {}) is None
  golden = locost_jax.load(GOLDEN / 'pagesum', num_pages=2, page_length=20)
  assert golden.pages == documents_lib.Pages('spatial', 2, 20, '')
  with pytest.raises(
      InputError, match='num_pages=3: this model reads no pages'
  ):
    page_reading.choose_pages(bart, None, {'num_pages': 3})


def test_bad_inputs_are_refused(summarizer):
  with pytest.raises(InputError, match='max_input_length=9: .*3 pages of 80'):
    summarizer.summarize(TEXT, max_input_length=9)
  with pytest.raises(InputError, match=r'batch, pages, length\]'):
    summarizer.encode(np.zeros((1, 1, 1, 1), int))
  with pytest.raises(InputError, match='97 tokens, but the model reads'):
    summarizer.encode(np.full((1, 2, 97), 5))


def test_memory_is_estimated_for_all_pages(summarizer):
  """Eight pages need eight times the states, keys and caches of one."""
  settings = decode_settings.Settings(num_beams=2, max_length=8)
  parts = {
      P: batch_memory.needed_bytes(
          summarizer.model, summarizer.params, 1, (P, 64), settings
      )
      for P in (1, 8)
  }
  logits = 16 * 2 * summarizer.config.vocab_size
  assert parts[8]['decoding'] - logits == 8 * (parts[1]['decoding'] - logits)
  assert 6 < parts[8]['encoding'] / parts[1]['encoding'] < 10
  available = batch_memory.peak_of(parts[8]) - 1
  given = summarizer, stream.Options(settings, available=available)
  assert batch_memory.most_rows(*given, (8, 64)) == 0
  assert batch_memory.most_rows(*given, (7, 64)) == 1
  job = types.SimpleNamespace(document=types.SimpleNamespace(id='a'), read=512)
  assert str(batch_memory.too_large(*given, job, (8, 64))).endswith(
      '--num_pages lowers the need'
  )
  reader = changed(summarizer, pages='chunks')
  assert batch_memory.limiting_flag(reader) == 'max_input_length'


def test_the_command_reads_pages(tmp_path, summarizer, monkeypatch, call_json):
  """Reads sections of JSONL rows; reports missing and unread parts."""
  use(monkeypatch, summarizer)
  rows = [
      {'id': 'a', 'sections': SECTIONS + SECTIONS[:1]},
      {'id': 'b', 'document': TEXT},
      {'id': 'c', 'sections': 'no list'},
  ]
  path = write_jsonl(tmp_path / 'rows.jsonl', rows)
  command = f'--checkpoint={tmp_path}', path
  report = f'--report={tmp_path}/report.html'
  status, found, err = call_json(*command, '--pages=discourse', report)
  assert status == 2
  assert [row['id'] for row in found] == ['a', 'b']
  reader = changed(summarizer, pages='discourse')
  for row, given in zip(found, rows):
    (want,) = reader.summarize(given)
    assert row['prediction'] == want
  assert 'the last part not read' in err
  assert "b: no sections, which 'discourse' pages are made of" in err
  assert "field 'sections' must be a list of objects" in err
  pages = sorted(tmp_path.glob('report*.html'))
  assert len(pages) == 3
  status, _, err = call_json(*command, '--max_input_length=9')
  assert status == 2 and 'expected --num_pages or --page_length' in err
