"""data/seqio_tasks.py registers all tasks and mixtures in SeqIO."""

import importlib
import itertools
import re
import sys

import pytest

from locost_jax import data
from locost_jax.data import cache as cache_lib
from locost_jax.data import corpora
from locost_jax.data import corpus as corpus_lib
from locost_jax.errors import InputError
from locost_jax.vocabularies import sentencepiece_training
from tests.batches import BYTES
from tests.data.rows import config_of
from tests.data.rows import store_tfds
from tests.data.rows import story
from tests.data.rows import write_jsonl
from tests.python import ROOT

NAME = 'locost_jax.data.seqio_tasks'
LENGTHS = dict(inputs=96, targets=24)
# Training rows of the mock corpora; the cap of mixtures is 4.
ROWS = dict(
    arxiv=9,
    pubmed=2,
    govreport=5,
    summscreenfd=3,
    booksum_chapter=1,
    booksum_book=6,
)
CAP = 4


@pytest.fixture
def load():
  """load() imports the module again; its names are unregistered at the end."""
  from locost_jax.data import prepared_corpora

  prepared_corpora.load_tensorflow()
  import seqio

  def forget():
    if sys.modules.pop(NAME, None):
      del data.seqio_tasks  # also as an attribute of the package
    for name in corpus_lib.names():
      seqio.TaskRegistry.remove(name)
      seqio.MixtureRegistry.remove(name)

  forget()
  yield lambda: importlib.import_module(NAME)
  forget()


@pytest.fixture
def seqio(load):
  del load
  import seqio

  return seqio


@pytest.fixture
def mock(tmp_path, monkeypatch):
  """Small corpora in corpora/ of the working directory, tmp_path."""
  monkeypatch.chdir(tmp_path)
  for task, count in dict(ROWS, c4_gsg=12).items():
    for split, rows in dict(train=count, validation=2).items():
      write_jsonl(
          tmp_path / 'corpora' / task / f'{split}.jsonl',
          [
              dict(
                  text=f'{story(i)} {split}.',
                  document=f'{task} {split} {i}: {story(i)}',
                  summary=f'{task[0]}{split[0]}{i}',
              )
              for i in range(rows)
          ],
      )
  return tmp_path


def make_config(task=''):
  return config_of(
      task=task,
      check_sizes=False,
      mixture_cap=CAP,
      max_input_length=LENGTHS['inputs'],
      max_target_length=LENGTHS['targets'],
  )


def tokens(rows):
  return [(row['inputs'].tolist(), row['targets'].tolist()) for row in rows]


def trained_on(task, split, directory, vocabulary=BYTES, gsg=None):
  """Returns the trainer's examples of a task: [(inputs, targets)]."""
  config = make_config(task)
  config.gsg = gsg
  cache = cache_lib.open_cache(config, vocabulary, split, directory)
  return tokens(cache.read(range(len(cache))))


def read(name, split, most=None, **keywords):
  import seqio

  dataset = seqio.get_mixture_or_task(name).get_dataset(
      LENGTHS, split=split, **keywords
  )
  return tokens(itertools.islice(dataset.as_numpy_iterator(), most))


def test_importing_registers_all_and_touches_no_data(
    load, seqio, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  asked, find = [], corpus_lib.corpus

  def counted(config):
    asked.append(config.data.task)
    return find(config)

  monkeypatch.setattr(corpus_lib, 'corpus', counted)
  load()
  for name in corpus_lib.names():
    found = seqio.get_mixture_or_task(name)
    is_mixture = name in corpora.MIXTURES
    assert isinstance(found, seqio.Mixture if is_mixture else seqio.Task)
    if is_mixture:
      assert {task.name for task in found.tasks} == set(corpora.MIXTURES[name])
  assert not asked
  for name in 'arxiv', 'locost_finetune':
    with pytest.raises(InputError, match=r'\w: no corpora/\w+/train\*\.jsonl'):
      seqio.get_mixture_or_task(name).get_dataset(LENGTHS, split='train')
  assert asked


@pytest.mark.parametrize('task', ['c4_gsg', 'arxiv', 'booksum_chapter'])
def test_examples_equal_those_of_the_trainer(load, mock, task):
  load().register(config=make_config())
  for split in 'train', 'validation':
    expected = trained_on(task, split, mock / 'cache')
    assert len(expected) >= 1
    assert read(task, split, shuffle=False) == expected
  assert sorted(read(task, 'train', shuffle=True)) == sorted(
      trained_on(task, 'train', mock / 'cache')
  )


def test_another_call_replaces_the_tasks(load, seqio, mock):
  path = mock / 'spiece.model'
  pieces = sentencepiece_training.train(map(story, range(200)), str(path), 300)
  module = load()
  seqio.TaskRegistry.remove('arxiv')  # like tests of other libraries
  config, gsg = make_config(), dict(ratio=0.4, strategy='lead', mask='')
  config.gsg = gsg  # other tasks make no gap sentences
  module.register(vocabulary=path, config=config)
  for task, own in ('c4_gsg', gsg), ('arxiv', None):
    expected = trained_on(task, 'train', mock / 'cache', pieces, own)
    assert read(task, 'train', shuffle=False) == expected
  features = seqio.get_mixture_or_task('locost_finetune').output_features
  assert features['inputs'].vocabulary.vocab_size == pieces.size


def test_a_mixture_has_the_trainer_s_rates_and_examples(load, seqio, mock):
  load().register(config=make_config())
  mixed = seqio.get_mixture_or_task('locost_finetune')
  ours = cache_lib.open_cache(
      make_config('locost_finetune'), BYTES, 'train', mock / 'cache'
  )
  expected = dict(zip(ours.tasks, ours.sizes(0, 0)))
  assert expected['arxiv'] == CAP and expected['pubmed'] == 2
  assert {task.name: mixed.get_rate(task) for task in mixed.tasks} == expected

  found = read('locost_finetune', 'train', most=400, shuffle=True, seed=0)
  known = {
      task: trained_on(task, 'train', mock / 'cache')
      for task in corpora.MIXTURES['locost_finetune']
  }
  counts = dict.fromkeys(known, 0)
  for example in found:
    (task,) = [task for task, rows in known.items() if example in rows]
    counts[task] += 1
  total = sum(expected.values())
  for task, count in counts.items():
    assert abs(count / 400 - expected[task] / total) < 0.08, counts


def test_a_corpus_in_tfds(load, seqio, tmp_path):
  """Its shards are also read in another order."""
  names = 'content-length content-type text timestamp url'.split()
  rows = {name: [f'{i}. {story(i)}' for i in range(12)] for name in names}
  splits = dict(train=rows, validation=rows)
  store_tfds(tmp_path, 'c4', 'en', '3.1.0', splits, 3)
  config = make_config('c4_gsg')
  config.data.tfds_dir = str(tmp_path)
  load().register(config=config)
  cache = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  expected = tokens(cache.read(range(12)))
  assert read('c4_gsg', 'train', shuffle=False) == expected
  assert sorted(read('c4_gsg', 'train', shuffle=True)) == sorted(expected)
  assert seqio.get_mixture_or_task('c4_gsg').splits == ('train', 'validation')


def test_a_corpus_of_another_size_is_refused(load, seqio, mock):
  load()
  message = 'arxiv: the train split has 9 rows, expected 203,037'
  with pytest.raises(InputError, match=message):
    seqio.get_mixture_or_task('arxiv').get_dataset(LENGTHS, split='train')


def test_a_name_of_another_library(load, seqio):
  """The other library's task is kept."""
  theirs = seqio.TaskRegistry.add(
      'xsum',
      source=seqio.FunctionDataSource(
          lambda split, shuffle_files: None, splits=('train',)
      ),
      output_features={},
  )
  with pytest.raises(ValueError, match='xsum'):
    load()
  assert seqio.get_mixture_or_task('xsum') is theirs


def test_the_snippet_of_the_documentation(load, mock, monkeypatch, capsys):
  page = (ROOT / 'docs' / 'data.md').read_text()
  (snippet,) = [
      block
      for block in re.findall(r'^```python\n(.*?)^```', page, re.M | re.S)
      if 'seqio_tasks' in block
  ]
  for task, rows in ROWS.items():
    entry = corpora.TABLE[task]._replace(splits=dict(train=rows, validation=2))
    monkeypatch.setitem(corpora.TABLE, task, entry)
  exec(snippet, {})
  assert len(capsys.readouterr().out.splitlines()) >= 2
