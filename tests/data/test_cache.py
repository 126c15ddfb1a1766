"""data/records.py and data/cache.py: caches are complete and up to date."""

import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from configs import default
from locost_jax.data import cache as cache_lib
from locost_jax.data import order
from locost_jax.data import pipeline
from locost_jax.data import preprocessors
from locost_jax.data import records
from locost_jax.data import streamed
from locost_jax.errors import InputError
from locost_jax.vocabularies import byte_vocabulary
from tests.batches import BYTES
from tests.batches import take
from tests.data.rows import numbered
from tests.data.rows import write_jsonl

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def config(tmp_path):
  config = default.get_config()
  config.data.train_files = write_jsonl(tmp_path / 'a.jsonl', numbered(9))
  config.data.validation_files = write_jsonl(
      tmp_path / 'b.jsonl', numbered(3, 100)
  )
  config.data.max_input_length, config.data.max_target_length = 24, 10
  return config


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
  directory = tmp_path / 'cache'
  open_all(config, directory)
  before = names(directory)

  def changed(config, vocabulary=BYTES):
    nonlocal before
    cache_lib.open_cache(config, vocabulary, 'train', directory)
    found = names(directory)
    assert set(found) > set(before)
    before = found

  for data in (
      dict(max_input_length=23),
      dict(max_target_length=8),
      dict(input_field='summary'),
      dict(target_field='document'),
      dict(query_field='id'),
      dict(pages='chunks'),
      dict(pages='chunks', page_length=9),
  ):
    other = config.copy_and_resolve_references()
    other.data.update(data)
    changed(other)
  gap = config.copy_and_resolve_references()
  gap.gsg = dict(ratio=0.5)
  gap.data.train_files = write_jsonl(
      tmp_path / 'c.jsonl', [dict(document='One here. Two here. Three here.')]
  )
  changed(gap)
  gap.gsg = dict(ratio=0.4)
  changed(gap)
  changed(config, byte_vocabulary.ByteVocabulary(extra_ids=3))
  held = config.copy_and_resolve_references()
  held.data.validation_files = ''
  changed(held)
  write_jsonl(tmp_path / 'a.jsonl', numbered(8))
  changed(config)
  os.utime(tmp_path / 'a.jsonl', (1, 1))
  changed(config)


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


def run(code, *arguments, **keywords):
  return subprocess.Popen(
      [sys.executable, '-c', code, *map(str, arguments)],
      cwd=ROOT,
      text=True,
      stdout=subprocess.PIPE,
      **keywords,
  )


def test_killed_build_leaves_no_cache(tmp_path):
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
  with run(code, path) as process:
    assert process.wait() == -signal.SIGKILL
  assert names(tmp_path) == ['c.partial']
  assert not records.is_complete(path, {})
  rows = [dict(id='x', inputs=[1], targets=[1], reference='r')]
  with records.locked(path, wait=False) as held:
    assert held  # the killed process has released it
    records.write(path, {}, rows, 300)
  assert names(tmp_path) == ['c']
  assert records.is_complete(path, {}) and len(records.Cache(path)) == 1
  assert not records.is_complete(path, {'another': 'key'})


def test_only_one_process_builds(tmp_path):
  with records.locked(tmp_path / 'c'):
    with records.locked(tmp_path / 'c', wait=False) as held:
      assert not held
  with records.locked(tmp_path / 'c') as held:
    assert held


def test_bad_row_leaves_nothing(config, tmp_path):
  file = tmp_path / 'a.jsonl'
  file.write_text(file.read_text() + '{"document": "no summary"}\n')
  with pytest.raises(InputError, match=r"a\.jsonl:10: no field 'summary'"):
    open_all(config, tmp_path / 'cache')
  assert not names(tmp_path / 'cache')


def test_short_documents_are_skipped_and_counted(config, tmp_path, capsys):
  config.gsg = dict(ratio=0.2)
  config.data.input_field = 'text'
  long = 'A cat sat here. A dog ran there. ' * 3
  config.data.train_files = write_jsonl(
      tmp_path / 'g.jsonl',
      [
          dict(text=long + 'It is one.'),
          dict(text='Too short.'),
          dict(text=''),
          dict(text=long + 'It is two.'),
      ],
  )
  cache, rows = open_all(config, tmp_path / 'cache')
  assert [row['id'] for row in rows] == ['g.jsonl:0', 'g.jsonl:3']
  assert cache.stats['records'] == 2 and cache.stats['skipped'] == 2
  assert '2 records, 2 skipped' in capsys.readouterr().err


def test_rows_without_text_are_skipped_only_in_training(config, tmp_path):
  rows = [
      dict(document='a', summary=' '),
      dict(document='', summary='b'),
      dict(document='c', summary='d'),
  ]
  config.data.train_files = config.data.validation_files = write_jsonl(
      tmp_path / 'e.jsonl', rows
  )
  cache, found = open_all(config, tmp_path / 'cache')
  assert [row['reference'] for row in found] == ['d']
  assert cache.stats['skipped'] == 2
  cache, found = open_all(config, tmp_path / 'cache', 'validation')
  assert [row['reference'] for row in found] == [' ', 'b', 'd']


def test_no_record_at_all(config, tmp_path):
  config.gsg = dict(ratio=0.2)
  with pytest.raises(InputError, match='all 9 documents of the train split'):
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
  with run(code, job, tmp_path / 'cache') as process:
    assert process.stdout.read() == '[]\n'
    assert process.wait() == 0


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


def shards_there(directory):
  return [
      p
      for p in directory.glob('jsonl-train-*/*')
      if p.is_dir() and p.suffix == ''
  ]


def wait_for(condition, seconds=60):
  end = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < end, 'waited in vain'
    time.sleep(0.05)


@pytest.mark.slow
def test_large_corpus_is_cached_shard_by_shard(large, tmp_path, monkeypatch):
  directory = tmp_path / 'cache'
  growing = cache_lib.open_cache(large, BYTES, 'train', directory)
  assert isinstance(growing, streamed.StreamedCache)
  batches = take(pipeline.train_batches(growing, BYTES, large), 60)
  wait_for(lambda: growing.total() is not None)
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
  for shard in shards_there(directory)[1:3]:
    for file in shard.iterdir():
      file.unlink()
    shard.rmdir()
  again = cache_lib.open_cache(large, BYTES, 'train', directory)
  assert again.total() is None
  rest = take(pipeline.train_batches(again, BYTES, large, 7), 53)
  assert equal(rest, batches[7:])
  wait_for(lambda: again.total() is not None)
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
def test_training_starts_before_all_is_tokenised(large, tmp_path, monkeypatch):
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


@pytest.mark.faults
def test_background_process_ends_with_its_parent(large, tmp_path):
  code = """
import pickle, sys
from ml_collections import ConfigDict
from locost_jax.data import cache
from locost_jax.vocabularies import byte_vocabulary
cache.STREAM_BYTES = 0
config = ConfigDict(pickle.loads(bytes.fromhex(sys.argv[1])))
found = cache.open_cache(
    config, byte_vocabulary.ByteVocabulary(), 'train', sys.argv[2])
print(found._workers._processes[0].pid, flush=True)
sys.stdin.read()
"""
  job = pickle.dumps(large.to_dict()).hex()
  with run(code, job, tmp_path / 'c', stdin=subprocess.PIPE) as parent:
    child = int(parent.stdout.readline())
    os.kill(child, 0)  # it is running
    parent.kill()
    parent.wait()

    def gone():
      try:
        return pathlib.Path(f'/proc/{child}/stat').read_text().split()[2] == 'Z'
      except FileNotFoundError:
        return True

    wait_for(gone)
