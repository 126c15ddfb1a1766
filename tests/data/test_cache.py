"""data/records.py and data/cache.py: caches are complete and up to date."""

import os
import pickle
import shutil
import signal

import numpy as np
import pytest

from locost_jax.data import cache as cache_lib
from locost_jax.data import order
from locost_jax.data import pipeline
from locost_jax.data import preprocessors
from locost_jax.data import records
from locost_jax.data import streamed
from locost_jax.errors import InputError
from locost_jax.vocabularies import byte_vocabulary
from tests import python
from tests.batches import BYTES
from tests.batches import take
from tests.data.rows import config_of
from tests.data.rows import locate
from tests.data.rows import numbered
from tests.data.rows import write_jsonl


@pytest.fixture
def config(tmp_path):
  return config_of(
      write_jsonl(tmp_path / 'a.jsonl', numbered(9)),
      write_jsonl(tmp_path / 'b.jsonl', numbered(3, 100)),
      max_input_length=24,
      max_target_length=10,
  )


def open_all(config, directory, split='train'):
  cache = cache_lib.open_cache(config, BYTES, split, directory)
  return cache, [cache[i] for i in range(len(cache))]


def names(directory):
  return sorted(
      p.name for p in directory.iterdir() if not p.name.endswith('.lock')
  )


def test_records_are_the_rows_tokenised(config, tmp_path, capsys):
  cache, rows = open_all(config, tmp_path / 'cache')
  assert '9 records, 0 skipped' in capsys.readouterr().err
  for row, given in zip(rows, numbered(9), strict=True):
    inputs = BYTES.encode(given['document'])[:23] + [1]
    targets = BYTES.encode(given['summary'])[:9] + [1]
    assert row['inputs'].dtype == row['targets'].dtype == np.int32
    assert row['inputs'].tolist() == inputs
    assert row['targets'].tolist() == targets
    assert row['id'] == given['id']
    assert row['reference'] == given['summary']  # not cut
  np.testing.assert_array_equal(
      cache.lengths, [[len(r['inputs']), len(r['targets'])] for r in rows]
  )
  assert cache.lengths.dtype == np.int32
  assert [r['id'] for r in cache.read([3, 1])] == ['row 3', 'row 1']
  with pytest.raises(IndexError):
    cache[9]
  _, rows = open_all(config, tmp_path / 'cache', 'validation')
  assert [r['id'] for r in rows] == ['row 100', 'row 101', 'row 102']
  assert cache_lib.open_cache(config, BYTES, 'test', tmp_path / 'cache') is None


def test_reused_while_nothing_changed(config, tmp_path, monkeypatch):
  _, rows = open_all(config, tmp_path / 'cache')
  made = names(tmp_path / 'cache')
  monkeypatch.setattr(
      preprocessors, 'maker', None
  )  # fails if anything is tokenised
  config.train.batch_size = 99
  config.data.seed = 5
  _, again = open_all(config, tmp_path / 'cache')
  assert str(again) == str(rows)
  assert names(tmp_path / 'cache') == made


def test_every_change_makes_another_cache(config, tmp_path):
  def name(vocabulary=BYTES, **data):
    other = config.copy_and_resolve_references()
    other.data.update(data)
    return locate(other, tmp_path, vocabulary)[0].name

  found = [
      name(),
      name(max_input_length=23),
      name(max_target_length=8),
      name(input_field='summary'),
      name(target_field='document'),
      name(query_field='id'),
      name(pages='chunks'),
      name(pages='chunks', page_length=9),
      name(validation_files=''),
      name(byte_vocabulary.ByteVocabulary(extra_ids=3)),
  ]
  for settings in dict(ratio=0.5), dict(ratio=0.4), dict(seed=3):
    config.update(gsg=settings)
    found.append(name())
  config.gsg = dict(ratio=0.4, seed=3, strategy='independent')  # the default
  assert name() == found[-1]
  write_jsonl(tmp_path / 'a.jsonl', numbered(8))
  found.append(name())
  os.utime(tmp_path / 'a.jsonl', (1, 1))
  found.append(name())
  assert len(set(found)) == len(found)


def test_damaged_cache_is_made_again(config, tmp_path):
  _, rows = open_all(config, tmp_path / 'cache')
  (path,) = (tmp_path / 'cache').glob('jsonl-train-*[!k]')
  file = path / records.RECORDS
  for damage in (
      lambda: file.write_bytes(file.read_bytes()[:-1]),
      lambda: file.unlink(),
      lambda: (path / records.LENGTHS).write_bytes(b''),
      lambda: (path / records.STATS).unlink(),
      lambda: (path / records.KEY).write_text('{}'),
  ):
    damage()
    assert str(open_all(config, tmp_path / 'cache')[1]) == str(rows)


def test_killed_build_leaves_no_cache(tmp_path):
  """Only one process at a time builds; a killed one releases the lock."""
  path = tmp_path / 'c'
  code = """
import os, signal, sys
from locost_jax.data import records
def rows():
  for i in range(5):
    yield dict(id=str(i), inputs=[5, 1], targets=[6, 1], reference='')
  os.kill(os.getpid(), signal.SIGKILL)
with records.locked(sys.argv[1]):
  records.write(sys.argv[1], {}, rows(), 300)
"""
  python.run('-c', code, path, status=-signal.SIGKILL)
  assert names(tmp_path) == ['c.partial']
  assert not records.is_complete(path, {})
  rows = [dict(id='x', inputs=[1], targets=[1], reference='r')]
  with records.locked(path, wait=False) as held:
    assert held
    with records.locked(path, wait=False) as again:
      assert not again
    records.write(path, {}, rows, 300)
  assert names(tmp_path) == ['c']
  assert records.is_complete(path, {}) and len(records.Cache(path)) == 1
  assert not records.is_complete(path, {'another': 'key'})


@pytest.mark.parametrize(
    'gsg, message',
    [
        (None, r"a\.jsonl:10: no field 'summary'"),
        (dict(ratio=0.2), 'all 10 documents of the train split'),
    ],
)
def test_an_error_leaves_nothing(config, tmp_path, gsg, message):
  file = tmp_path / 'a.jsonl'
  file.write_text(file.read_text() + '{"document": "no summary"}\n')
  config.gsg = gsg
  with pytest.raises(InputError, match=message):
    open_all(config, tmp_path / 'cache')
  assert not names(tmp_path / 'cache')


def test_checking_and_reading_need_no_tensorflow(config, tmp_path):
  open_all(config, tmp_path / 'cache')
  code = """
import pickle, sys
from ml_collections import ConfigDict
from locost_jax.data import cache, pipeline, tasks
from locost_jax.vocabularies import byte_vocabulary
config = ConfigDict(pickle.loads(bytes.fromhex(sys.argv[1])))
tasks.check(config)
assert len(list(tasks.training_texts(config))) == 18
tokens = byte_vocabulary.ByteVocabulary()
found = cache.open_cache(config, tokens, 'train', sys.argv[2])
batch = next(pipeline.train_batches(found, tokens, config))
assert batch['encoder_input_tokens'].shape[0] == 2
config.data.update(train_files='', validation_files='', task='python_docs_gsg')
tasks.check(config)
print(sorted(set(sys.modules) & {'tensorflow', 'seqio', 'jax', 'flax'}))
"""
  config.train.batch_size = 2
  job = pickle.dumps(config.to_dict()).hex()
  assert python.run('-c', code, job, tmp_path / 'cache').stdout == '[]\n'


SHARDS = 5


@pytest.fixture
def large(config, tmp_path, monkeypatch):
  """A config with five shards that are cached one by one."""
  for shard in range(SHARDS):
    write_jsonl(tmp_path / f's{shard}.jsonl', numbered(6 + shard, 50 * shard))
  config.data.train_files = str(tmp_path / 's?.jsonl')
  config.data.window_shards = 2
  config.train.batch_size = 2
  monkeypatch.setattr(cache_lib, 'STREAM_BYTES', 0)
  return config


def equal(a, b):
  return len(a) == len(b) and all(
      np.array_equal(x[k], y[k]) for x, y in zip(a, b) for k in x
  )


@pytest.mark.slow
def test_large_corpus_is_cached_shard_by_shard(large, tmp_path, monkeypatch):
  directory = tmp_path / 'cache'
  growing = cache_lib.open_cache(large, BYTES, 'train', directory)
  assert isinstance(growing, streamed.StreamedCache)
  batches = take(pipeline.train_batches(growing, BYTES, large), 60)
  growing.wait()
  growing.close()
  assert growing.total() == sum(range(6, 6 + SHARDS))

  # The records equal those of the corpus tokenised as a whole.
  monkeypatch.setattr(cache_lib, 'STREAM_BYTES', 10**9)
  _, whole = open_all(large, tmp_path / 'whole')
  found = {}
  for window in range(growing.windows):
    for part in growing.window(0, window):
      found.update({part[i]['id']: part[i] for i in range(len(part))})
  assert len(found) == len(whole)
  for row in whole:
    assert str(found[row['id']]) == str(row)
  # An epoch is 40 records, 20 batches; but groups of 16 batches cross epochs.
  assert {len(b['encoder_input_tokens']) for b in batches} == {2}

  # Existing shards do not change the batches: remove two.
  monkeypatch.setattr(cache_lib, 'STREAM_BYTES', 0)
  for shard in directory.glob('jsonl-train-*/0000[13]'):
    shutil.rmtree(shard)
  again = cache_lib.open_cache(large, BYTES, 'train', directory)
  assert again.total() is None
  rest = take(pipeline.train_batches(again, BYTES, large, 7), 53)
  assert equal(rest, batches[7:])
  again.wait()
  again.close()

  # All shards exist: no process is started, and nothing is tokenised.
  monkeypatch.setattr(streamed.workers, '_start', None)
  third = cache_lib.open_cache(large, BYTES, 'train', directory)
  assert equal(
      take(pipeline.train_batches(third, BYTES, large, 35), 25),
      batches[35:],
  )


def test_validation_of_a_large_corpus_uses_the_first_rows(large, tmp_path):
  large.eval.examples = 2
  _, rows = open_all(large, tmp_path / 'cache', 'validation')
  assert [row['id'] for row in rows] == ['row 100', 'row 101']


@pytest.mark.slow
def test_training_starts_before_all_is_tokenised(large, tmp_path):
  """An invalid row in the last shard stops only readers of that shard."""
  last = order.window_shards(SHARDS, 2, 0, 0, 2)
  file = tmp_path / f's{last[0]}.jsonl'
  file.write_text('{"document": 1, "summary": "x"}\n')
  growing = cache_lib.open_cache(large, BYTES, 'train', tmp_path / 'c')
  assert growing.sizes(0, 0) and growing.sizes(0, 1)
  batches = pipeline.train_batches(growing, BYTES, large)
  with pytest.raises(InputError, match=rf"s{last[0]}\.jsonl:1: field 'docum"):
    take(batches, 99)
  growing.close()
