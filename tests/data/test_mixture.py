"""data/mixture.py: shares and order of tasks; config.data.train_examples."""

import collections

import numpy as np
import pytest

from configs import default
from locost_jax.data import cache as cache_lib
from locost_jax.data import corpora
from locost_jax.data import mixture
from locost_jax.data import pipeline
from locost_jax.data import records
from locost_jax.data import tasks
from locost_jax.errors import InputError
from tests.batches import BYTES
from tests.batches import take
from tests.data.rows import own_files
from tests.data.rows import write_jsonl


def make_caches(directory, sizes):
  caches = []
  for task, size in enumerate(sizes):
    rows = [
        dict(
            id=f'{task}/{i}',
            inputs=[task + 2, i + 2, 1],
            targets=[3, 1],
            reference='',
        )
        for i in range(size)
    ]
    records.write(directory / str(task), {}, rows, 300)
    caches.append(records.Cache(directory / str(task)))
  return dict(zip('abcdefg', caches))


def make_config(batch_size):
  config = default.get_config()
  config.train.batch_size = batch_size
  config.data.max_input_length = config.data.max_target_length = 4
  return config


def read(mixed, batch_size, steps, start=0):
  """Returns (task, record) of every row of some batches."""
  batches = pipeline.train_batches(mixed, BYTES, make_config(batch_size), start)
  return [
      [(int(a) - 2, int(b) - 2) for a, b, *_ in batch['encoder_input_tokens']]
      for batch in take(batches, steps)
  ]


def test_an_epoch_has_each_task_up_to_the_cap(tmp_path):
  sizes, cap = (5, 40, 12), 16
  mixed = mixture.Mixture(make_caches(tmp_path, sizes), cap, seed=3)
  counted = [min(size, cap) for size in sizes]
  assert mixed.total() == sum(counted) == 33
  rows = [row for batch in read(mixed, 3, 16 * 11) for row in batch]
  assert len(rows) == 16 * 33  # groups of 48 records; 16 epochs in total
  seen = collections.Counter(rows)
  for task, (size, count) in enumerate(zip(sizes, counted)):
    reads = [seen[task, i] for i in range(size)]
    assert sum(reads) == 16 * count
    # Each record is read once before any is read again.
    assert max(reads) - min(reads) <= 1


def test_parts_of_a_task_are_consecutive(tmp_path):
  mixed = mixture.Mixture(make_caches(tmp_path, (7,)), 3, seed=0)
  stream = []
  for epoch in range(7):
    (part,) = mixed.window(epoch, 0)
    assert len(part) == 3
    ids = [part[i]['id'] for i in range(3)]
    assert [row['id'] for row in part.read([2, 0])] == [ids[2], ids[0]]
    np.testing.assert_array_equal(part.lengths, [[3, 2]] * 3)
    stream += ids
  for start in range(0, 21, 7):
    assert len(set(stream[start : start + 7])) == 7
  assert stream[:7] != stream[7:14]


@pytest.mark.parametrize('start', [1, 16, 23])
def test_a_resumed_run_has_the_same_batches(tmp_path, start):
  mixed = mixture.Mixture(make_caches(tmp_path, (9, 30)), 12, seed=1)
  unbroken = read(mixed, 2, 40)
  again = mixture.Mixture(
      {name: records.Cache(tmp_path / name) for name in '01'}, 12, seed=1
  )
  assert read(again, 2, 40 - start, start) == unbroken[start:]
  other = mixture.Mixture(make_caches(tmp_path, (9, 30)), 12, seed=2)
  assert read(other, 2, 40) != unbroken


@pytest.fixture
def config(tmp_path, monkeypatch):
  """A mixture of two named corpora in local files."""
  monkeypatch.setitem(corpora.MIXTURES, 'both', ('arxiv', 'xsum'))
  for task, count in (('arxiv', 20), ('xsum', 4)):
    for split, n in (('train', count), ('validation', 2)):
      rows = [
          dict(document=f'{task} {split} {i}.', summary=f'{task[0]}{i}')
          for i in range(n)
      ]
      write_jsonl(tmp_path / 'corpora' / task / f'{split}.jsonl', rows)
  config = default.get_config()
  config.data.update(
      task='both',
      corpora_dir=str(tmp_path / 'corpora'),
      check_sizes=False,
      mixture_cap=8,
      max_input_length=32,
      max_target_length=8,
  )
  config.train.batch_size = 4
  return config


@pytest.mark.runs
def test_a_mixture_by_its_name(config, tmp_path):
  tasks.check(config)
  assert tasks.name(config) == 'both'
  assert list(tasks.members(config)) == ['arxiv', 'xsum']
  assert len(list(tasks.training_texts(config))) == 2 * 24
  train = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  assert train.total() == 8 + 4
  batch = next(pipeline.train_batches(train, BYTES, config))
  assert batch['encoder_input_tokens'].shape[0] == 4
  found = cache_lib.open_cache(config, BYTES, 'validation', tmp_path / 'cache')
  sizes = {task: len(cache) for task, cache in found.items()}
  assert sizes == dict(arxiv=2, xsum=2)
  assert cache_lib.open_cache(config, BYTES, 'test', tmp_path / 'cache') is None
  config.data.train_examples = 4  # of each task
  few = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  assert list(map(len, few.tasks.values())) == [4, 4] and few.total() == 8


def test_a_task_of_a_mixture_is_missing(config, tmp_path):
  (tmp_path / 'corpora' / 'xsum' / 'train.jsonl').unlink()
  (tmp_path / 'corpora' / 'xsum' / 'validation.jsonl').unlink()
  with pytest.raises(InputError, match='^xsum: no '):
    tasks.check(config)


COUNT = 23


def few_config(path, **data):
  rows = [dict(document=f'Text {i}.', summary=f'{i}.') for i in range(COUNT)]
  config = own_files(path / 'a.jsonl', rows, **data)
  config.data.max_input_length, config.data.max_target_length = 16, 8
  config.train.batch_size = 4
  config.eval.examples = 0
  return config


def chosen(config, path, **data):
  """Returns the numbers of the examples, in the order of the cache."""
  config.data.update(data)
  cache = cache_lib.open_cache(config, BYTES, 'train', path / 'cache')
  return [int(cache[i]['reference'][:-1]) for i in range(len(cache))]


def test_the_choice_depends_only_on_the_seed(tmp_path):
  """A larger choice contains all smaller ones."""
  config = few_config(tmp_path)
  for seed in range(5):
    found = {}
    for n in 1, 5, 10, COUNT:
      found[n] = chosen(config, tmp_path, seed=seed, train_examples=n)
      tasks.check(config)
      assert len(set(found[n])) == n and found[n] == sorted(found[n])
      assert found[n] == chosen(config, tmp_path)
    assert set(found[1]) < set(found[5]) < set(found[10])
    assert found[COUNT] == chosen(config, tmp_path, train_examples=0)
    others = dict(seed=seed + 1, train_examples=10)
    assert found[10] != chosen(config, tmp_path, **others)


def test_all_numbers_and_seeds_share_a_cache(tmp_path, monkeypatch):
  """Nothing is tokenised again."""
  config = few_config(tmp_path)
  whole = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  monkeypatch.setattr(cache_lib, '_build', None)
  config.data.update(seed=3, train_examples=7)
  few = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  for i, number in enumerate(chosen(config, tmp_path)):
    assert few[i]['inputs'].tolist() == whole[number]['inputs'].tolist()
    assert few.lengths[i].tolist() == whole.lengths[number].tolist()
    assert few.shapes[i].tolist() == whole.shapes[number].tolist()
  with pytest.raises(IndexError):
    few[7]  # the end of an iteration over it
  monkeypatch.undo()
  # Other splits are whole.
  held = cache_lib.open_cache(config, BYTES, 'validation', tmp_path / 'cache')
  assert len(held) == COUNT


def test_corpora_tokenised_while_training_are_refused(
    config, tmp_path, monkeypatch
):
  monkeypatch.setattr(cache_lib, 'is_large', lambda config, found: True)
  few = few_config(tmp_path, train_examples=3)
  for given, message in (
      (config, 'arxiv: too large to be part of a mixture'),
      (few, 'jsonl: too large for config.data.train_examples=3'),
  ):
    with pytest.raises(InputError, match=message):
      cache_lib.open_cache(given, BYTES, 'train', tmp_path / 'cache')
  assert not (tmp_path / 'cache').exists()
