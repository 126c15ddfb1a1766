"""data/pages.py: pages and chunks, their records, batches and settings."""

import json

import numpy as np
import pytest

from configs import default
from locost_jax.data import buckets
from locost_jax.data import cache as cache_lib
from locost_jax.data import inspect
from locost_jax.data import pages
from locost_jax.data import pipeline
from locost_jax.data import tasks
from locost_jax.data import text as text_lib
from locost_jax.errors import InputError
from locost_jax.runs import checks
from tests.batches import BYTES
from tests.batches import take
from tests.data.rows import locate
from tests.data.rows import own_files
from tests.data.rows import paged
from tests.data.rows import tokenise
from tests.data.rows import write_jsonl


class Words:
  """A vocabulary with two marks, like BART's; a word's id is its length."""

  bos_id, eos_id, pad_id, size = 90, 91, 99, 100

  def encode(self, text):
    return [len(word) for word in text.split()]


WORDS = Words()
DOT = BYTES.encode('.') + [1]


def row_of(number, **fields):
  parts = [f'Part {i} of {number}.' for i in range(number)]
  return paged(number, parts, **fields)


def make_config(path, rows, **data):
  sizes = dict(page_length=24, num_pages=3, max_target_length=16)
  return own_files(path / 'a.jsonl', rows, **sizes, **data)


def open_records(config, path, split='train'):
  cache = cache_lib.open_cache(config, BYTES, split, path / 'cache')
  return {record['id']: record for record in cache.read(range(len(cache)))}


def pages_of(record):
  ends = np.cumsum(record['pages'])
  return [part.tolist() for part in np.split(record['inputs'], ends)[:-1]]


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
    assert len(pages.pack(iter(lists), 8, 99, 8)) <= pages.max_chunks(data)
  halves = [[1] * (1 + 7 * (i % 2)) for i in range(99)]  # 1, 8, 1, 8 ...
  assert len(pages.pack(iter(halves), 8, 99, 8)) > 99 / 8 * 1.5


def make_rows():
  text = 'Part {} of {}. It has {} words.'
  return [
      paged(i, [text.format(j, i, j) for j in range(i + 1)], query=f'q{i}')
      for i in range(6)
  ]


@pytest.fixture
def config(tmp_path):
  rows = make_rows()
  config = make_config(tmp_path, rows, query_field='query', max_input_length=60)
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


@pytest.mark.parametrize('empty_page', ['.', ''])
@pytest.mark.parametrize('form', pages.FORMS)
def test_rows_without_text(form, empty_page, tmp_path):
  """Training skips them; other splits keep them as pages without text."""
  rows = [row_of(1), row_of(0)]
  rows[1]['sections'], rows[1]['documents'] = [dict(heading='', text='')], ['']
  config = make_config(tmp_path, rows, pages=form, empty_page=empty_page)
  assert set(open_records(config, tmp_path)) == {'1'}
  found = open_records(config, tmp_path, 'validation')
  if form in pages.CHUNKS:
    assert pages_of(found['0']) == [[1]]
    return
  page = DOT if empty_page else []
  assert pages_of(found['0']) == [page] * 3
  assert page in pages_of(found['1'])


def test_a_vocabulary_is_trained_on_the_text_of_pages(config):
  config, rows = config
  config.data.pages = 'discourse'
  texts = list(tasks.training_texts(config))
  assert texts[0] == 'q0\n\nH0\nPart 0 of 0. It has 0 words.'
  assert texts[1] == rows[0]['summary']


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


@pytest.mark.parametrize('form', pages.LOCALITIES)
def test_a_query_only_in_the_first_page(form):
  """The other pages are as without a query."""
  parts = ['a bb ccc dddd', '', 'eeeee f gg']
  cut = lambda query, where: tokenise(
      parts, query, form, 6, 99, WORDS, query_in=where
  )
  assert cut('why so', 'first') == [[90, 3, 2, 1, 2, 91], *cut('', 'every')[1:]]
  assert cut('why so', 'every')[1:] == [[90, 3, 2, 1, 91], [90, 3, 2, 5, 1, 91]]
  assert cut('', 'first') == cut('', 'every')


def test_the_first_page_is_the_first_with_tokens():
  """A short text is only in the last page, so the query is too."""
  parts = pages.spatial('One. Two.', 3)
  assert parts[:2] == ['', '']
  made = tokenise(
      parts, 'why', 'spatial', 9, 99, WORDS, empty_page='', query_in='first'
  )
  assert made == [[], [], [90, 3, 4, 4, 91]]
  made = tokenise(parts, 'why', 'spatial', 9, 99, WORDS, query_in='first')
  assert made == [[90, 3, 1, 91], [90, 1, 91], [90, 4, 4, 91]]


def test_chunks_after_the_query_are_full():
  ids = list(range(1, 12))
  text = ' '.join('x' * i for i in ids)
  made = tokenise([text], 'why so', 'chunks', 6, 99, WORDS, query_in='first')
  assert made == [
      [90, 3, 2, 1, 2, 91],
      [90, 3, 4, 5, 6, 91],
      [90, 7, 8, 9, 10, 91],
      [90, 11, 99, 99, 99, 91],
  ]
  assert tokenise(['a'], 'why', 'chunks', 6, 99, WORDS, query_in='first') == [
      [90, 3, 1, 91]
  ]


def slow_packing(lists, size, most):
  """Packs one sentence at a time; cuts those longer than a chunk."""
  chunks, kept = [], 0
  for ids in lists:
    ids = ids[: most - kept]
    kept += len(ids)
    if chunks and len(chunks[-1]) + len(ids) <= size:
      chunks[-1] += ids
      continue
    while ids:
      chunks.append(ids[:size])
      ids = ids[size:]
  return chunks


def test_sentences_are_packed_while_they_fit():
  """As if a query were the beginning of the first sentence."""
  rng = np.random.default_rng(0)
  for _ in range(200):
    lists = [
        rng.integers(1, 50, rng.integers(0, 15)).tolist()
        for _ in range(rng.integers(0, 20))
    ]
    most, query = int(rng.integers(1, 150)), int(rng.integers(0, 7))
    made = pages.pack(iter(lists), 8, most, 8 - query)
    assert [i for chunk in made for i in chunk] == (
        [i for ids in lists for i in ids][:most]
    )
    sizes = [8 - query] + [8] * len(made)
    assert all(0 < len(x) <= size for x, size in zip(made, sizes))
    whole = pages.pack(iter(lists), 8, most, 8)
    assert whole == slow_packing(lists, 8, most)
    if lists and 0 < len(lists[0]) <= 8 - query:
      marks = [-1] * query
      expected = slow_packing([marks + lists[0], *lists[1:]], 8, most + query)
      assert [[i for i in x if i > 0] for x in expected if x != marks] == made


def test_a_query_of_one_sequence(tmp_path):
  """A document of one sequence begins with the query."""
  rows = [row_of(2, query='q?')]
  expected = BYTES.encode('q?\n\nPart 0 of 2. Part 1 of 2.') + [1]
  for where in '', 'first':
    config = make_config(tmp_path, rows, query_in=where)
    tasks.check(config)
    assert open_records(config, tmp_path)['2']['inputs'].tolist() == expected


def key_of(path, **data):
  return locate(make_config(path, [row_of(2)], **data))[1]['pages']


def test_caches_made_before_these_keys_stay_valid(tmp_path):
  """The key equals that of commit f76f397; only new values extend it."""
  assert key_of(tmp_path) == key_of(tmp_path, query_in='first') == ''
  old = ['spatial', 3, 24, '.']
  assert key_of(tmp_path, pages='spatial') == old
  assert key_of(tmp_path, pages='spatial', query_in='every') == old
  found = [
      key_of(tmp_path, pages='spatial', **data)
      for data in (
          dict(query_in='first'),
          dict(document_length=5),
          dict(document_length=6),
          dict(query_in='first', document_length=6),
      )
  ]
  assert all(key[:4] == old and len(key) > 4 for key in found)
  assert len({json.dumps(key) for key in found}) == 4


def test_documents_are_cut_before_paging(tmp_path):
  text = 'One is here. Two is here. Three is here. Four is here.'
  row = dict(id='a', document=text, summary='Numbers.')
  config = make_config(tmp_path, [row], pages='spatial', document_length=30)
  config.data.num_pages = 2
  tasks.check(config)
  expected = [
      BYTES.encode(page)[:23] + [1] for page in pages.spatial(text[:30], 2)
  ]
  assert pages_of(open_records(config, tmp_path)['a']) == expected
  assert BYTES.decode(expected[1]) == 'Two is here. Thre'
  shown, length, lost = inspect.read_pages(
      json.dumps(dict(query='', document=text)), BYTES, config.data
  )
  assert shown == 'One is here.\nTwo is here. Thre'
  assert (length, lost) == (12 + 17 + len(text) - 30 + 1, len(text) - 30)
  # A length beyond the document changes nothing.
  config.data.document_length = 500
  whole = pages_of(open_records(config, tmp_path)['a'])
  config.data.document_length = 0
  assert pages_of(open_records(config, tmp_path)['a']) == whole


@pytest.mark.parametrize(
    'form, processes', [('discourse', 1), ('document', 1), ('discourse', 2)]
)
def test_pages_that_are_dropped_are_counted(form, processes, tmp_path, capfd):
  rows = [row_of(number) for number in (1, 3, 4, 8)]
  config = make_config(tmp_path, rows, pages=form)
  cache = cache_lib.open_cache(
      config, BYTES, 'train', tmp_path / 'cache', processes
  )
  assert (cache.stats['dropped_in'], cache.stats['dropped_pages']) == (2, 6)
  said = capfd.readouterr().err
  assert (
      'jsonl train: 2 documents have more than config.data.num_pages=3 '
      f'{pages.FIELDS[form]}: 6 of these are dropped\n'
  ) in said
  config.data.num_pages = 8
  open_records(config, tmp_path)
  assert 'dropped' not in capfd.readouterr().err


def test_inspect_counts_texts_without_a_page(tmp_path):
  config = make_config(tmp_path, [row_of(5)], pages='document')
  row = json.dumps(dict(query='', documents=row_of(5)['documents']))
  shown, length, lost = inspect.read_pages(row, BYTES, config.data)
  assert shown == '\n'.join(f'Part {i} of 5.' for i in range(3))
  assert (length, lost) == (5 * 12 + 1, 2 * 12)
  config.data.update(query_in='first', page_length=13)
  row = json.dumps(dict(query='qq', documents=row_of(5)['documents']))
  assert inspect.read_pages(row, BYTES, config.data)[1:] == (
      5 * 12 + 1,
      2 * 12 + 4,
  )


@pytest.mark.parametrize('sections', [None, [], [dict(heading=' ', text='')]])
def test_without_sections_pages_are_spatial(sections, tmp_path, capfd):
  """Only rows without sections; one line reports their number."""
  rows = [row_of(3), row_of(4), row_of(5)]
  for row in rows[1:]:
    row['sections'] = sections
    if sections is None:
      del row['sections']
  config = make_config(tmp_path, rows, pages='discourse')
  found = open_records(config, tmp_path)
  said = capfd.readouterr().err
  assert said.count('have no sections') == 1
  assert "2 documents have no sections, which config.data.pages='disc" in said
  assert pages_of(found['3'])[0] == BYTES.encode('H0\nPart 0 of 3.') + [1]
  assert pages_of(found['4']) == [
      BYTES.encode(page)[:23] + [1]
      for page in pages.spatial(rows[1]['document'], 3)
  ]


@pytest.mark.parametrize(
    'data,message',
    [
        (dict(query_in='every'), 'a document of one sequence has no pages; '),
        (dict(document_length=9), 'document_length=9: expected 0, or with'),
        (
            dict(pages='chunks', task='python_docs_gsg'),
            "'chunks': gap sentences are not cut",
        ),
    ],
)
def test_invalid_settings(tmp_path, data, message):
  config = make_config(tmp_path, [row_of(2)])
  if 'task' in data:
    config.data.update(train_files='', validation_files='')
  config.data.update(data)
  with pytest.raises(InputError, match=message):
    tasks.check(config)


SPATIAL, CHUNKS = {'data.pages': 'spatial'}, {'data.pages': 'chunks'}
# Attention over only padding depends on the amount of padding.
EMPTY = SPATIAL | {'data.empty_page': ''}
RELEASE = SPATIAL | {'model.padding': 'release'}
LONG = {'data.page_length': 1025}
ONE = {'model.chunk': 'one', 'data.max_input_length': 1025}


@pytest.mark.parametrize(
    'name, keys, expected',
    [
        ('pagesum', {}, "pages='': pagesum reads pages: expected"),
        ('pagesum', CHUNKS, 'pagesum reads pages: expected'),
        ('bart', SPATIAL, 'bart reads a document as one sequence'),
        ('pagesum', SPATIAL | LONG, 'at most model.max_positions=1024'),
        ('pagesum', EMPTY, 7),
        ('pagesum', RELEASE, 7),
        ('pagesum', EMPTY | RELEASE, "empty_page='': with model.padding="),
        ('simcas', ONE | {'data.max_input_length': 1024}, 0),
        ('simcas', ONE, 'max_input_length=1025: .* at most'),
        ('simcas', ONE | CHUNKS, "data.pages='chunks': simcas reads a"),
        ('simcas', CHUNKS | LONG, 'page_length=1025: expected at most'),
    ],
)
def test_models_and_data(name, keys, expected):
  """Pages of a document, or why the model cannot read them."""
  config = default.get_config()
  config.model = getattr(default, name)()
  config.update_from_flattened_dict(keys)

  def check():
    checks.check_reading(config)
    checks.check_positions(config)
    return checks.pages_of(config)

  if isinstance(expected, int):
    assert check() == expected
  else:
    with pytest.raises(InputError, match=expected):
      check()
