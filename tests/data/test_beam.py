"""data/beam.py on Beam's local runner makes the same shards as a run."""

import sys

import numpy as np
import pytest

from configs import default
from locost_jax.data import beam
from locost_jax.data import cache as cache_lib
from locost_jax.data import pipeline
from locost_jax.data import records
from locost_jax.data import streamed
from locost_jax.data import workers
from locost_jax.errors import InputError
from tests.batches import BYTES
from tests.batches import take
from tests.data.rows import numbered
from tests.data.rows import write_jsonl

SHARDS = 3


@pytest.fixture
def config(tmp_path, monkeypatch):
  """A config with three shards that are cached one by one."""
  for shard in range(SHARDS):
    write_jsonl(tmp_path / f's{shard}.jsonl', numbered(5 + shard, 50 * shard))
  config = default.get_config()
  config.data.update(
      train_files=str(tmp_path / 's?.jsonl'),
      window_shards=2,
      validation_files=str(tmp_path / 's0.jsonl'),
      max_input_length=24,
      max_target_length=10,
      vocabulary='byte',
  )
  config.train.batch_size = 2
  monkeypatch.setattr(cache_lib, 'STREAM_BYTES', 0)
  return config


def first_batches(cache, config):
  return take(pipeline.train_batches(cache, BYTES, config), 20)


def test_direct_runner(config, tmp_path, monkeypatch):
  pytest.importorskip('apache_beam')
  path = beam.run(
      config, BYTES, str(tmp_path / 'beam'), ['--runner=DirectRunner']
  )
  # A run finds every shard and starts no process.
  start = workers._start
  monkeypatch.setattr(workers, '_start', None)
  config.data.cache_dir = str(tmp_path / 'beam')
  made = cache_lib.open_cache(config, BYTES, 'train', '')
  assert made.total() == 5 + 6 + 7
  monkeypatch.setattr(workers, '_start', start)
  config.data.cache_dir = ''
  own = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'own')
  for a, b in zip(first_batches(made, config), first_batches(own, config)):
    for key in a:
      np.testing.assert_array_equal(a[key], b[key])
  own.close()
  # A second job makes only the missing shard.
  shard = streamed.shard_path(tmp_path / 'beam' / path.rpartition('/')[2], 1)
  (shard / records.STATS).unlink()
  made = []
  build = beam.blocks.build

  def counted(job, *arguments):
    made.append(job.shards)
    return build(job, *arguments)

  monkeypatch.setattr(beam.blocks, 'build', counted)
  job = beam.blocks.Job(config.to_dict(), BYTES, 'train')
  for number in range(SHARDS):
    beam.tokenise_shard(job, path, number)
  assert made == [(1,)]
  assert (shard / records.STATS).exists()


def test_small_corpora_need_no_cluster(config, monkeypatch):
  pytest.importorskip('apache_beam')
  monkeypatch.setattr(cache_lib, 'STREAM_BYTES', 10**9)
  with pytest.raises(InputError, match='small enough for one machine'):
    beam.run(config, BYTES, 'nowhere')


def test_wrong_flags(run_command, tmp_path, config):
  files = f'--config.data.train_files={config.data.train_files}'
  for arguments, message in (
      ((files,), '--output=DIR is missing'),
      (
          ('--config=configs/default.py', files, '--output=x'),
          "vocabulary='train': expected a SentencePiece file or 'byte'",
      ),
  ):
    status, _, err = run_command(beam, *arguments)
    assert status == 2 and message in err and err.count('\n') == 1


def test_beam_may_be_missing(config, monkeypatch):
  monkeypatch.setitem(sys.modules, 'apache_beam', None)
  with pytest.raises(InputError, match='apache-beam is not installed: pip'):
    beam.run(config, BYTES, 'nowhere')
