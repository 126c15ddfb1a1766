"""data/blocks.py, workers.py: processes and interruptions change no cache."""

import os
import time

import pytest

from locost_jax.data import blocks
from locost_jax.data import cache as cache_lib
from locost_jax.data import records
from locost_jax.data import tasks
from locost_jax.data import workers
from locost_jax.errors import InputError
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests import products
from tests.batches import BYTES
from tests.data.rows import config_of
from tests.data.rows import numbered
from tests.data.rows import write_jsonl

KEY = dict(a='key')


def make_rows(n, start=0):
  """Every seventh row has no or a blank summary, and is skipped in training."""
  return [
      row if i % 7 else dict(row, summary=' ' * (i % 2))
      for i, row in enumerate(numbered(n, start), start)
  ]


@pytest.fixture
def config(tmp_path):
  """Two shards of 23 and 10 rows."""
  write_jsonl(tmp_path / 'a0.jsonl', make_rows(23))
  write_jsonl(tmp_path / 'a1.jsonl', make_rows(10, 23))
  files = str(tmp_path / 'a?.jsonl'), str(tmp_path / 'a1.jsonl')
  return config_of(*files, max_input_length=24, max_target_length=10)


def build(config, path, show=lambda records: None, **keywords):
  job = blocks.Job(config.to_dict(), BYTES, 'train', **keywords)
  blocks.build(job, KEY, path, show)
  return contents(path)


def contents(path):
  cache = records.Cache(path)
  stats = dict(cache.stats, bytes=0)
  return [str(cache[i]) for i in range(len(cache))], stats


@pytest.fixture
def whole(config, tmp_path):
  """The result of one block for each shard."""
  return build(config, tmp_path / 'whole')


def test_records_and_stats(whole):
  rows, stats = whole
  assert len(rows) == stats['records'] == 28 and stats['skipped'] == 5
  assert [row.split("'")[3] for row in rows[:7]] == [
      f'row {i}' for i in range(1, 9) if i != 7
  ]


@products.few('size', [4, 23], [1])
def test_blocks_change_nothing(config, tmp_path, whole, size, monkeypatch):
  monkeypatch.setattr(blocks, 'ROWS', size)
  assert build(config, tmp_path / 'c') == whole
  monkeypatch.setattr(blocks, 'ROWS', 5000)
  monkeypatch.setattr(blocks, 'CHARACTERS', 40 * size)
  assert build(config, tmp_path / 'd') == whole
  found = sorted(p.name for p in tmp_path.iterdir() if p.is_dir())
  assert found == ['c', 'd', 'whole']


@pytest.mark.slow
def test_processes_change_nothing(config, tmp_path, whole):
  """More processes than shards; progress never falls."""
  shown = []
  assert build(config, tmp_path / 'c', shown.append, processes=3) == whole
  assert shown == sorted(shown) and shown[-1] <= 28
  assert not list(tmp_path.glob('*.parts'))


@pytest.mark.slow
def test_processes_report_lone_surrogates_once(config, tmp_path, capfd):
  config.data.train_files = path = str(tmp_path / 'b.jsonl')
  write_jsonl(tmp_path / 'b.jsonl', [dict(make_rows(2)[1], id='\ud800')] * 2)
  build(config, tmp_path / 'c', processes=2)
  said = f'{path}: 2 lone surrogates in JSON, replaced by U+FFFD\n'
  assert capfd.readouterr().err == said


def test_some_shards_or_the_first_records(config, tmp_path, whole):
  """An empty shard is one of them."""
  (tmp_path / 'a2.jsonl').write_text('')
  for name, given, expected in (
      ('a', {}, whole[0]),
      ('b', dict(shards=[1]), whole[0][19:]),
      ('c', dict(shards=[2]), []),
      ('d', dict(limit=5), whole[0][:5]),
  ):
    assert build(config, tmp_path / name, **given)[0] == expected


def test_a_stopped_build_resumes(config, tmp_path, whole, monkeypatch):
  """Finished blocks are not made again."""
  monkeypatch.setattr(blocks, 'ROWS', 4)
  make_block, made = blocks._make_block, []

  def stop(job, found, rows, *others):
    made.append(rows[0]['id'])
    if made[4:] == ['row 16']:
      raise KeyboardInterrupt
    make_block(job, found, rows, *others)

  monkeypatch.setattr(blocks, '_make_block', stop)
  path = tmp_path / 'c'
  with pytest.raises(KeyboardInterrupt):
    build(config, path)
  assert not path.exists()
  assert build(config, path) == whole
  numbers = 0, 4, 8, 12, 16, 16, 20, 23, 27, 31
  assert made == [f'row {i}' for i in numbers]


@pytest.mark.faults
def test_blocks_of_another_size_are_not_reused(
    config, tmp_path, whole, monkeypatch
):
  monkeypatch.setattr(blocks, 'ROWS', 4)
  parts = tmp_path / 'c.parts'
  job = blocks.Job(config.to_dict(), BYTES, 'train', parts=str(parts))
  parts.mkdir()
  blocks.tokenise(job)
  monkeypatch.setattr(blocks, 'ROWS', 3)
  assert build(config, tmp_path / 'c') == whole


@pytest.mark.faults
def test_an_input_error_of_one_process_ends_all(config, tmp_path):
  file = tmp_path / 'a1.jsonl'
  file.write_text(file.read_text() + '{"document": "no summary"}\n')
  with pytest.raises(InputError, match=r"a1\.jsonl:11: no field 'summary'"):
    build(config, tmp_path / 'c', processes=2)
  assert not (tmp_path / 'c').exists()


def test_a_process_that_dies_is_reported(tmp_path):
  team = workers.Workers(os.kill, [9], [tmp_path / 'log'])
  with pytest.raises(RuntimeError, match=f'see {tmp_path}/log'):
    while team.running():
      time.sleep(0.05)
    raise AssertionError('it ended well')
  team.close()


@pytest.mark.slow
def test_the_command_and_then_a_run(config, tmp_path, succeed):
  """A run with cache_dir uses the caches of the command and makes none."""
  keys = 'train_files validation_files max_input_length max_target_length'
  arguments = [
      *(f'--config.data.{key}={config.data[key]}' for key in keys.split()),
      f'--output={tmp_path / "caches"}',
      '--processes=2',
      '--config.data.vocabulary=byte',
  ]
  _, err = succeed(cache_lib, *arguments)
  assert '28 records, 5 skipped' in err and 'jsonl has no test split' in err
  _, err = succeed(cache_lib, *arguments)
  assert 'records' not in err  # there already
  config.data.cache_dir = str(tmp_path / 'caches')
  made = sorted((tmp_path / 'caches').iterdir())
  cache = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'elsewhere')
  assert len(cache) == 28 and sorted((tmp_path / 'caches').iterdir()) == made
  # A cache of another text is not one with other settings.
  config.data.train_files = str(tmp_path / 'a0.jsonl')
  other = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'elsewhere')
  assert len(other) == 19
  config.data.train_files = str(tmp_path / 'a?.jsonl')
  # Other settings are refused and named: another cache may take hours.
  config.data.max_input_length = 30
  with pytest.raises(InputError, match='max_input_length 24, not 30; to make'):
    cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'elsewhere')
  other = byte_vocabulary.ByteVocabulary(extra_ids=3)
  with pytest.raises(InputError, match='other settings: vocabulary, max_input'):
    cache_lib.open_cache(config, other, 'train', tmp_path / 'elsewhere')
  changed = '--processes=1', '--config.data.max_input_length=30'
  succeed(cache_lib, *arguments, *changed)
  assert len(cache_lib.open_cache(config, BYTES, 'train', '')) == 28


def test_the_command_trains_a_vocabulary_once(config, tmp_path, succeed):
  flags = [
      f'--config.data.train_files={config.data.train_files}',
      '--config.data.vocabulary_size=260',
      f'--output={tmp_path / "caches"}',
      '--split=train',
      '--processes=1',
  ]
  for count in 1, 0:
    _, err = succeed(cache_lib, *flags)
    assert err.count('training a vocabulary of 260') == count
    assert f'vocabulary: {tmp_path / "caches"}/vocabulary-jsonl-260-' in err
  (home,) = (tmp_path / 'caches').glob('vocabulary-jsonl-260-*')
  assert vocabulary_lib.load_vocabulary(home).encode('Document')
  # A run finds it; a run on other texts trains its own.
  config.data.update(
      cache_dir=str(tmp_path / 'caches'),
      vocabulary='train',
      vocabulary_size=260,
      validation_files='',
  )
  assert tasks.find_vocabulary(config).fingerprint == (
      vocabulary_lib.load_vocabulary(home).fingerprint
  )
  assert tasks.vocabulary_home(config, tmp_path / 'caches') == home
  config.data.seed = 1
  assert tasks.vocabulary_home(config, tmp_path / 'caches') != home
