"""config.data.train_examples: the choice of a few training examples."""

import pytest

from configs import default
from locost_jax.data import cache as cache_lib
from locost_jax.data import corpora
from locost_jax.data import order
from locost_jax.data import pipeline
from locost_jax.data import records
from locost_jax.data import tasks
from locost_jax.errors import InputError
from locost_jax.runs import resume
from locost_jax.workdir import phases as phases_lib
from tests import tiny_run
from tests.batches import BYTES
from tests.batches import take
from tests.data.rows import write_jsonl

COUNT = 23


def make_config(path, **data):
  file = path / 'a.jsonl'
  if not file.exists():
    rows = [dict(document=f'Text {i}.', summary=f'{i}.') for i in range(COUNT)]
    write_jsonl(file, rows)
  config = default.get_config()
  config.data.update(
      train_files=str(file),
      validation_files=str(file),
      max_input_length=16,
      max_target_length=8,
      **data,
  )
  config.train.batch_size = 4
  config.eval.examples = 0
  return config


def chosen(config, path):
  """Returns the numbers of the examples, in the order of the cache."""
  cache = cache_lib.open_cache(config, BYTES, 'train', path / 'cache')
  return [int(cache[i]['reference'][:-1]) for i in range(len(cache))]


def test_the_choice_depends_only_on_the_seed(tmp_path):
  """A larger choice contains all smaller ones."""
  for seed in range(5):
    found = {}
    for n in 1, 5, 10, COUNT:
      config = make_config(tmp_path, seed=seed, train_examples=n)
      tasks.check(config)
      found[n] = chosen(config, tmp_path)
      assert len(set(found[n])) == n and found[n] == sorted(found[n])
      assert found[n] == chosen(config, tmp_path)
    assert set(found[1]) < set(found[5]) < set(found[10])
    assert found[COUNT] == chosen(make_config(tmp_path, seed=seed), tmp_path)
    others = make_config(tmp_path, seed=seed + 1, train_examples=10)
    assert found[10] != chosen(others, tmp_path)


def test_all_examples_are_equally_likely():
  counts = [0] * COUNT
  for seed in range(400):
    for i in order.permutation(COUNT, seed, 4)[:5]:
      counts[i] += 1
  mean = 400 * 5 / COUNT
  # 5 standard deviations of a count
  assert all(
      abs(n - mean) < 5 * (mean * (1 - 5 / COUNT)) ** 0.5 for n in counts
  )


def test_all_numbers_and_seeds_share_a_cache(tmp_path, monkeypatch):
  """Nothing is tokenised again."""
  whole = cache_lib.open_cache(
      make_config(tmp_path), BYTES, 'train', tmp_path / 'cache'
  )

  def build(*args):
    raise AssertionError('tokenised again')

  monkeypatch.setattr(cache_lib, '_build', build)
  config = make_config(tmp_path, seed=3, train_examples=7)
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


def epochs(config, cache, start, steps, hosts=1):
  """Returns the texts of the rows of some batches, host by host."""
  parts = [
      take(pipeline.train_batches(cache, BYTES, config, start, host, hosts), n)
      for host, n in enumerate([steps] * hosts)
  ]
  return [
      [
          BYTES.decode(row.tolist())
          for batch in step
          for row in batch['encoder_input_tokens']
      ]
      for step in zip(*parts)
  ]


def test_batches_are_those_of_a_corpus_of_these_examples(tmp_path):
  """Each is read once per epoch; hosts and resumed runs change no batch."""
  config = make_config(tmp_path, seed=2, train_examples=6)
  few = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  alone = tmp_path / 'alone'
  records.write(alone, {}, [few[i] for i in range(6)], BYTES.size)
  made = epochs(config, few, 0, 32)
  assert made == epochs(config, records.Cache(alone), 0, 32)
  assert made[20:] == epochs(config, few, 20, 12)
  assert made == epochs(config, few, 0, 32, hosts=2)
  # The 64 rows of a group of 16 batches: 10 epochs, and 4 rows of the next.
  rows = sorted(sum(made[:16], []))
  texts = {few[i]['reference'] for i in range(6)}
  assert {row.removeprefix('Text ') for row in rows} == texts
  assert all(rows.count(row) in (10, 11) for row in rows)


def test_examples_of_each_task_of_a_mixture(tmp_path, monkeypatch):
  monkeypatch.setitem(corpora.MIXTURES, 'both', ('arxiv', 'xsum'))
  for task in 'arxiv', 'xsum':
    rows = [dict(document=f'{task} {i}', summary=str(i)) for i in range(9)]
    write_jsonl(tmp_path / 'corpora' / task / 'train.jsonl', rows)
  config = make_config(tmp_path, train_examples=4, check_sizes=False)
  config.data.update(
      train_files='',
      validation_files='',
      task='both',
      corpora_dir=str(tmp_path / 'corpora'),
  )
  mixed = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  assert mixed.total() == 8
  assert {task: len(cache) for task, cache in mixed.tasks.items()} == dict(
      arxiv=4, xsum=4
  )
  expected = [
      BYTES.decode(cache[i]['inputs'])
      for cache in mixed.tasks.values()
      for i in range(4)
  ]
  # The 64 rows of 16 batches are 8 epochs.
  assert set(sum(epochs(config, mixed, 0, 16), [])) == set(expected)


def test_corpora_tokenised_while_training_are_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(cache_lib, 'is_large', lambda config, found: True)
  config = make_config(tmp_path, train_examples=3)
  with pytest.raises(
      InputError, match='jsonl: too large for config.data.train_examples=3'
  ):
    cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  assert not (tmp_path / 'cache').exists()


@pytest.mark.parametrize('key', ['train_examples', 'seed'])
def test_a_resumed_run_keeps_its_examples(key, tmp_path):
  """An older run, whose config lacks the key, uses all examples."""
  stored = phases_lib.to_dict(tiny_run.make_config())
  del stored['data']['train_examples']
  config = tiny_run.make_config()
  assert not resume.list_differences(stored, config)
  config.data[key] = 10
  assert resume.list_differences(stored, config) == {f'data.{key}': (0, 10)}
