"""Position of the query, document_length, and texts that lose their page."""

import functools
import json

import jax
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.data import cache as cache_lib
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import inspect
from locost_jax.data import pages
from locost_jax.data import pipeline
from locost_jax.data import tasks
from locost_jax.errors import InputError
from locost_jax.models import parameters
from locost_jax.runs import checks
from tests.batches import BYTES
from tests.data.rows import paged
from tests.data.rows import tokenise
from tests.data.rows import write_jsonl
from tests.data.test_pages import WORDS

DOT = BYTES.encode('.') + [1]


def row_of(number, **fields):
  parts = [f'Part {i} of {number}.' for i in range(number)]
  return paged(number, parts, **fields)


def make_config(path, rows, **data):
  file = write_jsonl(path / 'a.jsonl', rows)
  config = default.get_config()
  config.data.update(
      train_files=file,
      validation_files=file,
      page_length=24,
      num_pages=3,
      max_target_length=16,
      **data,
  )
  return config


def open_records(config, path, split='train'):
  cache = cache_lib.open_cache(config, BYTES, split, path / 'cache')
  return {record['id']: record for record in cache.read(range(len(cache)))}


def pages_of(record):
  ends = np.cumsum(record['pages'])
  return [part.tolist() for part in np.split(record['inputs'], ends)[:-1]]


# --- The query ---------------------------------------------------------------


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
    whole = pages.pack(iter(lists), 8, most)
    assert whole == slow_packing(lists, 8, most)
    if lists and 0 < len(lists[0]) <= 8 - query:
      marks = [-1] * query
      expected = slow_packing([marks + lists[0], *lists[1:]], 8, most + query)
      assert [[i for i in x if i > 0] for x in expected if x != marks] == made


@pytest.mark.parametrize('form', pages.FORMS)
def test_records_follow_query_in(form, tmp_path):
  rows = [row_of(4, query='q?')]
  found = {}
  for where in '', 'every', 'first':
    config = make_config(tmp_path, rows, pages=form, query_in=where)
    tasks.check(config)
    found[where] = pages_of(open_records(config, tmp_path)['4'])
  query = BYTES.encode('q?\n\n')
  assert found[''] == found['every']
  assert all(page[: len(query)] == query for page in found['every'])
  assert found['first'][0][: len(query)] == query
  assert all(page[: len(query)] != query for page in found['first'][1:])


def test_a_query_of_one_sequence(tmp_path):
  """A document of one sequence begins with the query."""
  rows = [row_of(2, query='q?')]
  expected = BYTES.encode('q?\n\nPart 0 of 2. Part 1 of 2.') + [1]
  for where in '', 'first':
    config = make_config(tmp_path, rows, query_in=where)
    tasks.check(config)
    assert open_records(config, tmp_path)['2']['inputs'].tolist() == expected


# --- Keys of caches -----------------------------------------------------------


def key_of(path, **data):
  config = make_config(path, [row_of(2)], **data)
  found = corpus_lib.corpus(config)
  return cache_lib.locate(config, found, BYTES, 'train', 'caches')[1]['pages']


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


# --- Documents that are cut first ---------------------------------------------


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


# --- Texts without a page ------------------------------------------------------


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


@functools.cache
def make_model(padding):
  """Returns (jitted `apply`, parameters) of a PageSum."""
  model = models.build(
      dict(
          default.pagesum(),
          vocab_size=BYTES.size,
          pad_id=0,
          d_model=8,
          d_ff=8,
          decoder_d_ff=8,
          num_heads=2,
          num_layers=1,
          num_decoder_layers=1,
          max_positions=24,
          padding=padding,
      )
  )
  shapes = parameters.abstract_params(model)
  params = jax.tree.map(lambda x: np.full(x.shape, 0.1, x.dtype), shapes)
  return jax.jit(model.apply), {'params': params}


@pytest.mark.parametrize('empty_page', ['.', ''])
@pytest.mark.parametrize('form', pages.LOCALITIES)
def test_empty_pages_and_documents_in_a_model(form, empty_page, tmp_path):
  """A model's outputs for them are finite; training leaves them out."""
  rows = [row_of(1), row_of(0)]
  rows[1]['sections'], rows[1]['documents'] = [dict(heading='', text='')], ['']
  config = make_config(tmp_path, rows, pages=form, empty_page=empty_page)
  assert set(open_records(config, tmp_path)) == {'1'}
  found = open_records(config, tmp_path, 'validation')
  page = DOT if empty_page else []
  assert pages_of(found['0']) == [page] * 3
  assert page in pages_of(found['1'])
  cache = cache_lib.open_cache(config, BYTES, 'validation', tmp_path / 'cache')
  config.eval.batch_size = 2
  ((batch, _),) = pipeline.eval_batches(cache, BYTES, config)
  assert batch['encoder_input_tokens'].shape[:2] == (2, 3)
  for padding in 'tokens', 'release':
    apply, params = make_model(padding)
    read, written = batch['encoder_input_tokens'], batch['decoder_input_tokens']
    assert np.isfinite(apply(params, read, written)).all()


# --- Invalid settings ----------------------------------------------------------


@pytest.mark.parametrize(
    'data,message',
    [
        (dict(query_in='last'), "query_in=last: expected one of '', 'every'"),
        (dict(query_in='every'), 'a document of one sequence has no pages; '),
        (dict(document_length=9), 'document_length=9: expected 0, or with'),
    ],
)
def test_invalid_settings(tmp_path, data, message):
  config = make_config(tmp_path, [row_of(2)], **data)
  with pytest.raises(InputError, match=message):
    tasks.check(config)


@pytest.mark.parametrize(
    'name,data,message',
    [
        ('pagesum', dict(pages=''), "pages='': pagesum reads pages: expected"),
        ('pagesum', dict(pages='chunks'), 'pagesum reads pages: expected'),
        ('bart', {}, 'bart reads a document as one sequence'),
        ('pagesum', dict(page_length=1025), 'at most model.max_positions=1024'),
    ],
)
def test_models_and_data_that_do_not_match(name, data, message):
  config = default.get_config()
  config.model = getattr(default, name)()
  config.data.update(dict(dict(pages='spatial'), **data))
  with pytest.raises(InputError, match=message):
    checks.check_reading(config)
    checks.check_positions(config)


def test_unmasked_pages_have_tokens():
  """Attention over only padding depends on the amount of padding."""
  config = default.get_config()
  config.model = default.pagesum()
  config.data.update(dict(pages='spatial', empty_page=''))
  checks.check_reading(config)
  config.model.padding = 'release'
  with pytest.raises(InputError, match="empty_page='': with model.padding="):
    checks.check_reading(config)
  config.data.empty_page = '.'
  checks.check_reading(config)
