"""data/pages.py: pages and chunks match their definitions and batches."""

import numpy as np
import pytest

from configs import default
from locost_jax.data import buckets
from locost_jax.data import cache as cache_lib
from locost_jax.data import pages
from locost_jax.data import pipeline
from locost_jax.data import tasks
from locost_jax.data import text as text_lib
from locost_jax.errors import InputError
from tests.batches import BYTES
from tests.batches import take
from tests.data.rows import paged
from tests.data.rows import tokenise
from tests.data.rows import write_jsonl


class Words:
  """A vocabulary with two marks, like BART's; a word's id is its length."""

  bos_id, eos_id, pad_id, size = 90, 91, 99, 100

  def encode(self, text):
    return [len(word) for word in text.split()]


WORDS = Words()


def sentences(n):
  return ' '.join(f'Sentence {"x" * i} ends.' for i in range(1, n + 1))


@pytest.mark.parametrize('count', [0, 1, 2, 3, 6, 7, 8, 20])
@pytest.mark.parametrize('num_pages', [1, 3, 7])
def test_spatial_pages_go_by_the_number_of_sentences(count, num_pages):
  """Sentence i < q P goes to page i // q, later ones to the last page."""
  text = sentences(count)
  split = text_lib.split_sentences(text)
  assert len(split) == count
  expected = [[] for _ in range(num_pages)]
  q = count // num_pages
  for i, sentence in enumerate(split):
    if q and i < q * num_pages:
      expected[i // q].append(sentence)
    else:
      expected[-1].append(sentence)
  assert pages.spatial(text, num_pages) == [' '.join(p) for p in expected]


def test_sections_and_documents():
  sections = [
      dict(heading='A', text='a.'),
      dict(heading='', text='b.'),
      dict(heading='C', text=''),
  ]
  assert pages.discourse(sections, 4) == ['A\na.', 'b.', 'C', '']
  assert pages.discourse(sections, 2) == ['A\na.', 'b.']
  assert pages.document(['a', 'b', 'c'], 2) == ['a', 'b']
  assert pages.document(['a'], 3) == ['a', '', '']


def test_every_page_is_cut_separately():
  made = tokenise(['a bb ccc dddd', '', 'a'], '', 'spatial', 5, 99, WORDS)
  assert made == [[90, 1, 2, 3, 91], [90, 1, 91], [90, 1, 91]]
  # An empty page is '.' in the release, or has no tokens.
  made = tokenise(['a', ''], '', 'spatial', 5, 99, WORDS, empty_page='')
  assert made == [[90, 1, 91], []]
  # T5's vocabularies have no start mark.
  assert tokenise(['abc'], '', 'document', 3, 99, BYTES) == [
      BYTES.encode('ab') + [1]
  ]


def test_chunks_are_full():
  ids = [f'{"x" * i}' for i in range(1, 12)]
  made = tokenise([' '.join(ids)], '', 'chunks', 6, 99, WORDS)
  assert made == [
      [90, 1, 2, 3, 4, 91],
      [90, 5, 6, 7, 8, 91],
      [90, 9, 10, 11, 99, 91],
  ]  # padded before the end mark
  made = tokenise([' '.join(ids)], '', 'chunks', 6, 5, WORDS)
  assert made == [[90, 1, 2, 3, 4, 91], [90, 5, 99, 99, 99, 91]]
  # A single chunk is not padded.
  assert tokenise(['a b'], '', 'chunks', 6, 99, WORDS) == [[90, 1, 1, 91]]
  assert tokenise([''], '', 'chunks', 6, 99, WORDS) == [[90, 91]]


def test_max_chunks():
  """Full chunks reach it; sentences just above half a chunk fill least."""
  data = default.get_config().data
  for size, most in ((8, 60), (8, 61), (8, 5), (20, 400)):
    data.update(pages='chunks', page_length=size, max_input_length=most)
    made = tokenise(['a ' * 500], '', 'chunks', size, most, WORDS)
    assert len(made) == pages.max_chunks(data)
  # Rows with max_chunks chunks are not filled up to a power of two.
  data.update(page_length=512, max_input_length=16_384)
  config = default.get_config()
  config.data = data
  assert pages.max_chunks(data) == 33
  pads = buckets.column_buckets(config)
  shapes = np.array([[33, 512, 9], [32, 512, 9], [27, 512, 9], [1, 512, 9]])
  assert buckets.pad_shapes(shapes, pads)[:, 0].tolist() == [33, 32, 32, 1]
  rng = np.random.default_rng(1)
  data.update(pages='sentence_chunks', page_length=10, max_input_length=99)
  for longest in (2, 5, 6, 9, 30):
    lists = [[1] * rng.integers(1, longest) for _ in range(99)]
    assert len(pages.pack(iter(lists), 8, 99)) <= pages.max_chunks(data)
  halves = [[1] * (1 + 7 * (i % 2)) for i in range(99)]  # 1, 8, 1, 8 ...
  assert len(pages.pack(iter(halves), 8, 99)) > 99 / 8 * 1.5


@pytest.mark.parametrize('form', pages.FORMS)
def test_every_page_begins_with_the_query(form):
  row = dict(
      document='aaa. ' * 30,
      sections=[dict(heading='A', text='a b c d e f g h')] * 2,
      documents=['a b'] * 2,
  )
  parts = pages.pieces(row, form, 2)
  made = tokenise(parts, 'why so', form, 9, 99, WORDS)
  assert len(made) >= 2
  for page in made:
    assert page[:3] == [90, 3, 2] and page[-1] == 91 and len(page) <= 9
  with pytest.raises(
      InputError, match='a query of 8 tokens leaves no room in a page of 9'
  ):
    tokenise(parts, 'a b c d e f g', form, 9, 99, WORDS)


# --- Batches -----------------------------------------------------------------


def make_rows():
  text = 'Part {} of {}. It has {} words.'
  return [
      paged(i, [text.format(j, i, j) for j in range(i + 1)], query=f'q{i}')
      for i in range(6)
  ]


@pytest.fixture
def config(tmp_path):
  config = default.get_config()
  rows = make_rows()
  file = write_jsonl(tmp_path / 'a.jsonl', rows)
  config.data.update(
      train_files=file,
      query_field='query',
      validation_files=file,
      page_length=24,
      num_pages=3,
      max_input_length=60,
      max_target_length=16,
  )
  config.eval.examples, config.eval.batch_size = 0, 4
  config.train.batch_size = 2
  return config, rows


@pytest.mark.parametrize('form', pages.FORMS)
def test_batches_hold_the_pages(config, form, tmp_path):
  config, rows = config
  config.data.pages = form
  tasks.check(config)
  cache = cache_lib.open_cache(config, BYTES, 'validation', tmp_path / 'cache')
  assert cache.shapes.shape == (6, 3)
  expected = {}
  for row, record in zip(rows, (cache[i] for i in range(6))):
    made = tokenise(
        pages.pieces(row, form, 3), row['query'], form, 24, 60, BYTES
    )
    assert record['pages'] == [len(page) for page in made]
    assert record['inputs'].tolist() == [i for page in made for i in page]
    assert record['reference'] == row['summary']
    expected[row['id']] = made
    shape = len(made), max(map(len, made)), len(record['targets'])
    assert tuple(cache.shapes[int(row['id'])]) == shape
  seen = []
  for batch, info in pipeline.eval_batches(cache, BYTES, config):
    inputs = batch['encoder_input_tokens']
    assert inputs.ndim == 3 and inputs.shape[0] == 4
    if form in pages.LOCALITIES:
      assert inputs.shape[1] == 3
    for i, name in enumerate(info['id']):
      for p in range(inputs.shape[1]):
        page = expected[name][p] if p < len(expected[name]) else []
        assert inputs[i, p, : len(page)].tolist() == page
        assert not inputs[i, p, len(page) :].any()
    assert not inputs[len(info['id']) :].any()
    seen += info['id']
  assert sorted(seen) == sorted(expected)
  cache = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  (batch,) = take(pipeline.train_batches(cache, BYTES, config), 1)
  assert batch['encoder_input_tokens'].shape[0] == 2
  assert batch['encoder_input_tokens'].ndim == 3


@pytest.mark.parametrize('sequence', [3, 5])
def test_chunks_are_filled_up_for_a_mesh(config, sequence, tmp_path):
  """Batches have the same documents plus some empty chunks."""
  config, _ = config
  config.data.pages = 'chunks'
  for split in 'validation', 'train':
    cache = cache_lib.open_cache(config, BYTES, split, tmp_path / 'cache')
    batches = []
    for config.mesh.sequence in (1, sequence):
      if split == 'validation':
        found = [
            batch for batch, _ in pipeline.eval_batches(cache, BYTES, config)
        ]
      else:
        found = take(pipeline.train_batches(cache, BYTES, config), 6)
      batches.append([batch['encoder_input_tokens'] for batch in found])
    grown = 0
    for plain, filled in zip(*batches, strict=True):
      count = plain.shape[1]
      grown += filled.shape[1] > count
      assert filled.shape[1] % sequence == 0
      assert filled.shape[1] - count < sequence
      np.testing.assert_array_equal(filled[:, :count], plain)
      assert not filled[:, count:].any()
    assert grown, split


@pytest.mark.parametrize('form', pages.FORMS)
def test_rows_without_text(config, form, tmp_path):
  """Training skips them; other splits keep them as pages without text."""
  config, rows = config
  config.data.pages = form
  rows[1].update(document='', sections=[], documents=[])
  write_jsonl(tmp_path / 'a.jsonl', rows)
  train = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  assert [train[i]['id'] for i in range(len(train))] == list('02345')
  cache = cache_lib.open_cache(config, BYTES, 'validation', tmp_path / 'cache')
  assert len(cache) == 6
  dot = BYTES.encode('.') + [1]
  assert cache[1]['inputs'].tolist() == (
      dot * 3 if form in pages.LOCALITIES else [1]
  )


def test_a_vocabulary_is_trained_on_the_text_of_pages(config):
  config, rows = config
  config.data.pages = 'discourse'
  texts = list(tasks.training_texts(config))
  assert texts[0] == 'q0\n\nH0\nPart 0 of 0. It has 0 words.'
  assert texts[1] == rows[0]['summary']


def test_invalid_settings(config):
  config, _ = config
  config.data.pages = 'sections'
  with pytest.raises(InputError, match='pages=sections: expected one of'):
    tasks.check(config)
  config.data.update(pages='chunks', train_files='', validation_files='')
  config.data.task = 'python_docs_gsg'
  with pytest.raises(InputError, match="'chunks': gap sentences are not cut"):
    tasks.check(config)


def test_rows_that_cannot_be_cut(config, tmp_path):
  config, rows = config
  config.data.pages = 'document'
  del rows[2]['documents']
  write_jsonl(tmp_path / 'a.jsonl', rows)
  with pytest.raises(InputError, match=r'a\.jsonl: row 3: no field .documents'):
    cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  config.data.update(pages='chunks', page_length=5)
  with pytest.raises(InputError, match='a query of 4 tokens leaves no room'):
    cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
