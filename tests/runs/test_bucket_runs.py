"""A run that reads from a bucket equals one that reads from a disk."""

import json
import os
from pathlib import Path
import re
import shutil
from unittest import mock

import jax
import numpy as np
import pytest

import locost_jax
from locost_jax import convert
from locost_jax import main
from locost_jax import summarize
from locost_jax.config import object_store
from locost_jax.data import blocks
from locost_jax.data import cache as cache_lib
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import pipeline
from locost_jax.data import records
from locost_jax.devices import collective
from locost_jax.errors import InputError
from locost_jax.models import parameters
from locost_jax.runs import convert_weights
from locost_jax.training import warm_start
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find
from tests import tiny_run
from tests.batches import BYTES
from tests.batches import take
from tests.bucket_server import TOKEN
from tests.hugging_face import converting
from tests.runs.test_main import CONFIG
from tests.runs.test_main import LOSS_ONLY
from tests.runs.test_main import pairs
from tests.runs.test_main import SMALL
from tests.runs.test_main import write_rows

HOME = 'gs://locost-test'
STEPS = [CONFIG, *SMALL, *LOSS_ONLY, *tiny_run.flags('train.steps=3')]


@pytest.fixture
def texts(tmp_path, bucket, monkeypatch):
  """Files of texts on disk and, without those, in the bucket."""
  monkeypatch.chdir(tmp_path)
  # The order of their generations is not that of their names.
  for i in (2, 0, 1):
    write_rows(Path(f'data/train-{i}.jsonl'), pairs(10 * i, 10 * i + 10))
    data = Path(f'data/train-{i}.jsonl').read_bytes()
    bucket.put(f'data/train-{i}.jsonl', data)
  write_rows(Path('data/valid.jsonl'), pairs(40, 46))
  bucket.put('data/valid.jsonl', Path('data/valid.jsonl').read_bytes())
  return bucket


def files_of(where):
  return tiny_run.flags(
      f'data.train_files={where}/train-*.jsonl '
      f'data.validation_files={where}/valid.jsonl'
  )


def outcome(workdir):
  """Returns the parameters, the records and the losses of a run, as bytes."""
  params = parameters.flatten(checkpoint.load_params(workdir))
  rows = map(json.loads, Path(workdir, 'metrics.jsonl').open())
  losses = [{k: row[k] for k in row if 'loss' in k} for row in rows]
  caches = sorted(Path(workdir, 'cache').glob(f'*/{records.RECORDS}'))
  return (
      {name: np.asarray(x).tobytes() for name, x in params.items()},
      losses,
      Path(workdir, 'vocabulary/spiece.model').read_bytes(),
      {x.parent.name.rpartition('-')[0]: x.read_bytes() for x in caches},
  )


def test_a_run_from_a_bucket_equals_one_from_a_disk(
    texts, run_command, succeed
):
  succeed(main, *STEPS, *files_of('data'), '--workdir=disk')
  expected = outcome('disk')
  assert len(expected[1]) > 1 and len(expected[3]) == 2
  bucket = files_of(f'{HOME}/data')
  _, err = succeed(main, *STEPS, *bucket, '--workdir=bucket')
  assert outcome('bucket') == expected
  assert TOKEN not in err + json.dumps(
      [x.read_text(errors='replace') for x in Path('bucket').rglob('*.json*')]
  )
  assert (
      f'"{HOME}/data/train-*.jsonl"' in Path('bucket/config.json').read_text()
  )
  # A cache that is made of the files in a bucket, and put there.
  succeed(cache_lib, *STEPS, *bucket, '--output=made')
  key = json.loads(next(Path('made').glob('*-train-*/key.json')).read_text())
  for i, row in enumerate(key['corpus']['files']):
    data, generation = texts.objects[f'data/train-{i}.jsonl']
    assert row == [f'{HOME}/data/train-{i}.jsonl', len(data), generation]
  texts.put_tree('made', 'caches')
  shutil.rmtree('made')
  cached = [*bucket, f'--config.data.cache_dir={HOME}/caches']
  # The texts need not be there.
  data = {x: texts.objects.pop(x) for x in list(texts.objects) if x[0] == 'd'}
  object_store.FOUND.clear()
  _, err = succeed(main, *STEPS, *cached, '--workdir=cached')
  texts.objects.update(data)
  object_store.FOUND.clear()
  assert 'tokenising' not in err, err
  assert outcome('cached')[:3] == expected[:3]
  assert not outcome('cached')[3]  # it has no caches of its own
  _check_caches(texts, run_command, cached)


def _check_caches(bucket, run_command, flags):
  """Checks what is said of a cache that cannot be used."""
  name = next(x for x in bucket.objects if re.search('-train-.*/records', x))
  whole, folder = dict(bucket.objects), name.rpartition('/')[0]
  command = 'locost_jax.data.cache` with the same --config and copied there'
  for change, expected in {
      lambda: bucket.put(name, whole[name][0][:-9]): (
          f'{HOME}/{folder}: is missing, or differs from its stats.json and '
      ),
      lambda: bucket.objects.pop(name): f'{HOME}/{folder}: is missing, or',
      lambda: [bucket.objects.pop(x) for x in whole if folder in x]: (
          f'{HOME}/{folder}: is missing, or differs'
      ),
      lambda: [bucket.objects.pop(x) for x in whole if 'caches/' in x]: (
          'or vocabulary-jsonl-230-'
      ),
  }.items():
    bucket.objects = dict(whole)
    change()
    object_store.forget(f'{HOME}/caches')
    status, out, err = run_command(main, *STEPS, *flags, '--workdir=new')
    last = err.splitlines()[-1]
    assert (status, out) == (2, '') and expected in last, err
    assert command in last or 'no object like' in last
    assert 'Traceback' not in err and not Path('new').exists()
  bucket.objects = dict(whole)
  object_store.forget(f'{HOME}/caches')
  other = '--config.data.max_target_length=15'
  status, _, err = run_command(main, *STEPS, *flags, other, '--workdir=new')
  assert status == 2 and 'was made with other settings: max_target' in err, err
  assert f'error: {HOME}/caches/jsonl-train-' in err
  assert f' --output=DIR, and copy DIR to {HOME}/caches/' in err


def test_shards_are_copied_window_by_window(bucket, tmp_path, monkeypatch):
  """Of a large corpus whose files are elsewhere, two windows are on the disk."""
  monkeypatch.setattr(cache_lib, 'STREAM_BYTES', 0)
  monkeypatch.chdir(tmp_path)
  for shard in range(6):
    rows = pairs(10 * shard, 10 * shard + 10 - shard)
    write_rows(Path(f'data/train-{shard}.jsonl'), rows)
  config = tiny_run.make_config()
  config.data.update(window_shards=1, train_files='data/train-*.jsonl')
  config.data.cache_dir = 'made'
  open_it = lambda: cache_lib.open_cache(config, BYTES, 'train', '', 1)

  def read(cache, start=0):
    batches = pipeline.train_batches(cache, BYTES, config, start)
    found = [x['decoder_target_tokens'] for x in take(batches, 90 - start)]
    return [x.tobytes() for x in found]

  cache = open_it()
  cache.wait()
  expected, total = read(cache), cache.total()
  cache.close()
  bucket.put_tree('made', 'caches')
  largest = sorted(x.stat().st_size for x in Path('made').rglob('*.array_rec*'))
  shutil.rmtree('data')
  shutil.rmtree(next(Path('made').glob('*/00001')))
  cache = open_it()
  with pytest.raises(InputError, match='whole, and its texts are not here'):
    cache.wait()
  cache.close()
  shutil.rmtree('made')
  config.data.cache_dir = f'{HOME}/caches'
  config.data.bucket_disk = (sum(largest[-2:]) + 1) / object_store.GIB
  less = (sum(largest[-2:]) - 1) / object_store.GIB
  before = config.data.to_dict()
  copies = lambda: [*Path(os.environ['XDG_CACHE_HOME']).rglob('*.array_record')]
  again = open_it()
  assert again.total() == total and not copies()
  assert read(again) == expected and 1 <= len(copies()) <= 3
  resumed = open_it()
  assert read(resumed, 75) == expected[75:]

  # What is not the cache of this text.
  for changes, message in (
      (dict(bucket_disk=less), r'shards have up to .* GiB; expected at most'),
      (dict(train_files='data/other-*.jsonl'), 'no file matches this pattern'),
      (dict(input_field='text'), 'no file matches this pattern'),
  ):
    config.data.update(changes)
    with pytest.raises(InputError, match=message):
      open_it()
    config.data.update(before)
  with pytest.raises(InputError, match='has no cache of the validation split'):
    cache_lib.open_cache(config, BYTES, 'validation', '', 1)
  gone = next(x for x in bucket.objects if x.endswith('/00001/stats.json'))
  del bucket.objects[gone]
  object_store.forget(f'{HOME}/caches')
  with pytest.raises(InputError, match=r'/00001/stats.json: No such file'):
    open_it()
  key = next(x for x in bucket.objects if re.search('-train-[^/]*/key.json', x))
  other = json.loads(bucket.objects[key][0])
  other['corpus']['held_out'] = 'other rows'
  bucket.put('caches/jsonl-train-other/key.json', json.dumps(other))
  object_store.forget(f'{HOME}/caches')
  with pytest.raises(InputError, match='has caches of several texts of jsonl'):
    open_it()


def test_processes_tokenise_what_the_run_found(texts):
  config = tiny_run.make_config()
  config.data.train_files = f'{HOME}/data/train-*.jsonl'
  corpus = corpus_lib.corpus(config)
  job = blocks.Job(config.to_dict(), BYTES, 'train')
  texts.put('data/train-0.jsonl', b'')
  texts.put('data/train-00.jsonl', b'')
  object_store.FOUND.clear()  # as in another process
  blocks.build(job, {}, Path('made'))
  assert len(records.Cache('made')) == 29
  assert corpus_lib.corpus(config).splits == corpus.splits


@pytest.fixture
def stored(tmp_path, bucket):
  """A run with three checkpoints, also in the bucket."""
  tiny_run.make(tmp_path / 'run', steps=3)
  (tmp_path / 'run/cache').mkdir()
  (tmp_path / 'run/cache/x.json').write_text('{}')
  bucket.put_tree(tmp_path / 'run', 'run')
  return tmp_path / 'run'


def test_a_checkpoint_in_a_bucket(stored, bucket, run_command, tmp_path):
  text = tmp_path / 'a.txt'
  text.write_text('A text to summarise.')
  bucket.put('docs/a.txt', 'A text to summarise.')
  steps = [x for x in os.listdir(stored / 'checkpoints') if x.isdigit()]
  for inner in '', f'/checkpoints/{max(steps)}':
    expected = run_command(summarize, f'--checkpoint={stored}{inner}', text)
    found = run_command(
        summarize, f'--checkpoint={HOME}/run{inner}', f'{HOME}/docs/a.txt'
    )
    assert expected[0] == 0 and found[:2] == expected[:2], found[2]
    assert TOKEN not in found[2] and f'{HOME}/docs/a.txt: ' in found[2]
    mine, theirs = (
        warm_start.read(f'{where}{inner}') for where in (stored, f'{HOME}/run')
    )
    assert theirs.where == f'{HOME}/run{inner}'
    jax.tree.map(np.testing.assert_array_equal, theirs.params, mine.params)
  names = {name for _, name, where in bucket.requests if where}
  assert not [x for x in names if '/cache/' in x]
  # What is not a parameter is large, and is not copied.
  stored_names = {
      x.split('/')[3] for x in bucket.objects if 'checkpoints/' in x
  }
  assert stored_names - {x.split('/')[3] for x in names if 'checkpoints/' in x}


@pytest.mark.parametrize('change', ['flipped', 'no manifest'])
def test_a_damaged_checkpoint(stored, bucket, change):
  name = max(
      (x for x in bucket.objects if '/params/' in x),
      key=lambda x: len(bucket.objects[x][0]),
  )
  data = bucket.objects[name][0]
  if change == 'flipped':
    bucket.put(name, bytes([data[0] ^ 1]) + data[1:])
  else:
    del bucket.objects[f'{name.partition("/params/")[0]}/manifest.json']
  step = name.split('/')[2]
  with pytest.raises(InputError, match=rf'/run/checkpoints/{step}: .*damaged'):
    locost_jax.load(f'{HOME}/run/checkpoints/{step}')


def test_a_new_checkpoint_is_loaded_by_the_same_process(stored, bucket, capfd):
  locost_jax.load(f'{HOME}/run')
  name = 'run/config.json'
  bucket.put(name, bucket.objects[name][0].replace(b'"bos"', b'"none"'))
  capfd.readouterr()
  locost_jax.load(f'{HOME}/run')
  assert ': copies ' in capfd.readouterr().err


def test_an_export_in_a_bucket(stored, bucket, tmp_path, succeed):
  convert_weights.export_run(
      *find.find_run(stored), tmp_path / 'out', 'float32'
  )
  converting.shard(tmp_path / 'out')
  bucket.put_tree(tmp_path / 'out', 'models/out')
  mine, theirs = (
      locost_jax.load(x) for x in (tmp_path / 'out', f'{HOME}/models/out')
  )
  jax.tree.map(np.testing.assert_array_equal, theirs.params, mine.params)
  assert theirs.vocabulary.fingerprint == mine.vocabulary.fingerprint
  succeed(convert, f'--source={HOME}/models/out', f'--target={tmp_path}/new')


def test_a_vocabulary_in_a_bucket(bucket, tmp_path):
  vocabulary_lib.save_vocabulary(
      byte_vocabulary.ByteVocabulary(7), tmp_path / 'v'
  )
  bucket.put_tree(tmp_path / 'v', 'v')
  bucket.put('v/model.safetensors', 'large')
  found = vocabulary_lib.load_vocabulary(f'{HOME}/v')
  assert found.extra_ids == 7
  assert not any('safetensors' in x for _, x, where in bucket.requests if where)
  with pytest.raises(InputError, match=f'^{HOME}/w: no object like '):
    vocabulary_lib.load_vocabulary(f'{HOME}/w')


@pytest.mark.parametrize(
    'key, value, expected',
    [
        ('data.train_files', f'{HOME}/none/*', 'no object like \\* is there'),
        ('data.train_files', f'{HOME}/data', 'no object is there, or'),
        ('data.train_files', 'gs://wrong/a', 'or there is no bucket wrong'),
        ('data.vocabulary', f'{HOME}/none', 'no object like .* is there'),
        ('data.cache_dir', f'{HOME}/none', 'no object like .*/key.json or'),
        ('train.init_from', f'{HOME}/none', 'no object like .* is there'),
        ('data.bucket_disk', '1e-7', 'bucket_disk=1e-07$'),
        ('data.bucket_disk', '-1', 'a finite number, bucket_disk >= 0'),
        ('data.corpora_dir', f'{HOME}/data', 'expected a local path$'),
    ],
)
def test_values_that_cannot_be_read(texts, run_command, key, value, expected):
  flags = [*files_of(f'{HOME}/data'), f'--config.{key}={value}']
  status, out, err = run_command(main, *STEPS, *flags, '--workdir=new')
  *notes, last = err.splitlines()
  assert (status, out) == (2, '') and re.search(expected, last), err
  assert all('copies ' in x or 'training a voc' in x for x in notes), err
  assert not Path('new').exists()


def test_hosts_that_find_different_objects(texts, run_command):
  other = {f'{HOME}/data\ntrain-*.jsonl': {'data/train-0.jsonl': 1}}
  gather = lambda rows: [*rows, *([other] if isinstance(rows[0], dict) else [])]
  with mock.patch.object(collective, 'gather_rows', gather):
    status, _, err = run_command(
        main, *STEPS, *files_of(f'{HOME}/data'), '--workdir=new'
    )
  assert status == 2 and 'was replaced while the hosts began to' in err, err
