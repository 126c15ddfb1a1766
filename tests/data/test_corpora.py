"""data/corpora.py, corpus.py: named corpora that are local, mocked, missing."""

import csv
import json
import pathlib
import shlex
import sys

import pyarrow
from pyarrow import parquet
import pytest

from locost_jax.data import cache as cache_lib
from locost_jax.data import corpora
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import prepared_corpora
from locost_jax.data import streamed
from locost_jax.data import tasks
from locost_jax.errors import InputError
from tests.batches import BYTES
from tests.data.rows import config_of
from tests.data.rows import read_all
from tests.data.rows import store_tfds
from tests.data.rows import write_jsonl

WITH_TFDS = [task for task, entry in corpora.TABLE.items() if entry.tfds]


@pytest.fixture
def config(tmp_path):
  corpora_dir, tfds_dir = str(tmp_path / 'corpora'), str(tmp_path / 'tfds')
  return config_of(corpora_dir=corpora_dir, tfds_dir=tfds_dir)


def row(i, **more):
  return dict(
      id=f'r{i}',
      document=f'Document {i}. It goes on.',
      summary=f'Summary {i}.',
      **more,
  )


def test_the_table_is_complete():
  assert set(corpora.TABLE) >= set("""
      c4_gsg arxiv pubmed govreport govreport_authors summscreenfd summscreen
      booksum_chapter booksum_book multinews wcep narrativeqa qmsum squality
      qasper cnn_dailymail xsum""".split())
  for task, entry in corpora.TABLE.items():
    assert entry.counted_by
    assert set(entry.splits) >= {'train', 'validation'}
    assert bool(entry.tfds) == bool(entry.download)
  for names in corpora.MIXTURES.values():
    assert set(names) <= set(corpora.TABLE) and len(set(names)) == len(names)
    assert not any(corpora.TABLE[name].gsg for name in names)


def test_sizes_of_the_paper():
  """LOCOST, table 9."""
  sizes = {
      task: tuple(corpora.TABLE[task].splits.values())
      for task in corpora.MIXTURES['locost_finetune']
  }
  assert sizes == {
      'arxiv': (203_037, 6_436, 6_440),
      'pubmed': (119_924, 6_633, 6_658),
      'govreport': (17_457, 972, 973),
      'summscreenfd': (3_673, 338, 337),
      'booksum_chapter': (9_600, 1_484, 1_431),
      'booksum_book': (314, 45, 46),
  }


@pytest.mark.parametrize('task', corpora.TABLE)
def test_missing_data_is_a_one_line_error(config, task, monkeypatch):
  """Without a slow import."""
  for slow in 'tensorflow', 'tensorflow_datasets', 'seqio', 'apache_beam':
    monkeypatch.setitem(sys.modules, slow, None)
  config.data.task = task
  entry = corpora.TABLE[task]
  with pytest.raises(InputError) as error:
    tasks.check(config)
  message = str(error.value)
  assert '\n' not in message
  assert f'no {config.data.corpora_dir}/{task}/train*.jsonl' in message
  if entry.tfds:
    name = entry.tfds[0].partition(':')[0]
    assert f'`tfds build {name} --data_dir={config.data.tfds_dir}`' in message
    assert entry.download in message
  if entry.raw:
    command = shlex.split(message.partition('`')[2].partition('`')[0])
    assert command[:3] == ['python', '-m', 'papers.prepare']
    assert f'--task={task}' in command and entry.raw in message


def find_mocked(name, where):
  """Replaces `find_tfds`: a directory with a file of each split."""
  found = pathlib.Path(where) / name
  found.mkdir(parents=True, exist_ok=True)
  for split in 'train', 'validation', 'test':
    (found / f'mock-{split}.tfrecord-00000-of-00001').touch()
  return found


def mocked(self, *args, **keywords):
  """Makes every text feature f of example i 'f i', a blank line, 'body i'."""
  import tensorflow as tf
  import tensorflow_datasets as tfds

  del args, keywords
  return tf.data.Dataset.from_tensor_slices(
      {
          name: [f'{name} {i}\n\nbody {i}' for i in range(3)]
          for name, feature in self.info.features.items()
          if isinstance(feature, tfds.features.Text)
      }
  )


MAPPED = {
    'arxiv': ('article 1\nbody 1', 'abstract 1\nbody 1'),
    'pubmed': ('article 1\nbody 1', 'abstract 1\nbody 1'),
    'govreport': ('input 1\n\nbody 1', 'output 1\n\nbody 1'),
    'summscreenfd': ('input 1\n\nbody 1', 'output 1\n\nbody 1'),
    'summscreen': ('transcript 1\n\nbody 1', 'recap 1\n\nbody 1'),
    'multinews': ('document 1\n\nbody 1', 'summary 1\n\nbody 1'),
    'qmsum': ('input 1\n\nbody 1', 'output 1\n\nbody 1'),
    'qasper': ('input 1\n\nbody 1', 'output 1\n\nbody 1'),
    'cnn_dailymail': ('article 1\n\nbody 1', 'highlights 1\n\nbody 1'),
}


@pytest.mark.parametrize('task', WITH_TFDS)
def test_tfds_mocked(config, task, monkeypatch):
  """Rows of mocked TFDS builders become rows of a Corpus."""
  import tensorflow_datasets as tfds

  asked = []

  def find(name, where):
    asked.append(name)
    return find_mocked(name, where)

  monkeypatch.setattr(prepared_corpora, 'find_tfds', find)
  config.data.task, config.data.check_sizes = task, False
  entry, place = corpora.TABLE[task], config.data.corpora_dir
  with tfds.testing.mock_data(as_dataset_fn=mocked):
    tasks.check(config)
    rows = read_all(config, 'train')
    if not entry.gsg:
      cache = cache_lib.open_cache(config, BYTES, 'validation', place)
  assert set(asked) == set(entry.tfds)
  assert len(rows) == 3 * len(entry.tfds)
  assert len({row['id'] for row in rows}) == len(rows)
  if entry.gsg:
    assert rows[1] == dict(id='url 1\n\nbody 1', text='text 1\n\nbody 1')
    return
  pair = rows[1]['inputs'], rows[1]['targets']
  assert all('body 1' in text for text in pair)
  assert pair == MAPPED.get(task, pair)
  assert len(cache) == len(rows)
  assert BYTES.decode(cache[1]['inputs']) == pair[0]


def test_prepared_by_a_tfds_that_is_not_installed(config, monkeypatch):
  monkeypatch.setattr(prepared_corpora, 'find_tfds', find_mocked)
  monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
  config.data.task = 'arxiv'
  with pytest.raises(InputError, match='arxiv: prepared by TFDS, which is not'):
    tasks.check(config)


@pytest.fixture
def prepared(tmp_path):
  """SCROLLS' QMSum in TFDS's format: seven rows in three shards."""

  def rows(count):
    return {
        'id': [f'q{i}' for i in range(count)],
        'pid': [f'q{i}_0' for i in range(count)],
        'input': [f'What is {i}?\n\nA: It is {i}.' for i in range(count)],
        'output': [f'It is {i}.' for i in range(count)],
    }

  splits = dict(train=rows(7), validation=rows(3), test=rows(3))
  store_tfds(tmp_path / 'tfds', 'scrolls', 'qmsum', '1.0.0', splits, 3)


def test_prepared_by_tfds(config, prepared, tmp_path):
  config.data.task = 'qmsum'
  tasks.check(config)
  assert len(corpus_lib.corpus(config).splits['train']) == 3
  rows = read_all(config, 'train')
  assert sorted(row['id'] for row in rows) == [f'q{i}' for i in range(7)]
  for row in rows:
    i = row['id'][1:]
    assert row['inputs'] == f'What is {i}?\n\nA: It is {i}.'
    assert row['targets'] == f'It is {i}.'
  # The size differs from the paper's, so the corpus is refused.
  with pytest.raises(
      InputError,
      match=r'qmsum: the train split has 7 rows, '
      r'expected 1,257 \(the authors. files.*check_sizes',
  ):
    cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  config.data.check_sizes = False
  cache = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  assert len(cache) == 7


def test_local_files_are_preferred(config, prepared, tmp_path):
  config.data.update(task='qmsum', check_sizes=False)
  place = tmp_path / 'corpora' / 'qmsum'
  write_jsonl(place / 'train-0.jsonl.gz', [row(0, query='Why?'), row(1)])
  write_jsonl(place / 'train-1.jsonl', [row(2)])
  write_jsonl(place / 'validation.jsonl', [row(3)])
  rows = read_all(config, 'train')
  assert [r['id'] for r in rows] == ['r0', 'r1', 'r2']
  assert rows[0]['inputs'] == 'Why?\n\nDocument 0. It goes on.'
  assert rows[1]['inputs'] == 'Document 1. It goes on.'
  assert 'test' not in corpus_lib.corpus(config).splits
  write_jsonl(place / 'validation.jsonl', [dict(document='a')])
  with pytest.raises(InputError, match=r"validation\.jsonl:1: no field 'summ"):
    read_all(config, 'validation')


def test_c4_in_the_files_of_allenai(config, tmp_path):
  config.data.task = 'c4_gsg'
  place = tmp_path / 'corpora' / 'c4_gsg'
  for split, count in (('train', 2), ('validation', 1)):
    for i in range(count):
      path = place / f'c4-{split}.0000{i}-of-0000{count}.json.gz'
      write_jsonl(path, [dict(text=f'{split} {i}', url='u', timestamp='t')])
  texts = lambda split: [row['text'] for row in read_all(config, split)]
  assert texts('train') == ['train 0', 'train 1']
  assert texts('validation') == ['validation 0']
  tasks.check_size(config, corpus_lib.corpus(config), 'train')  # not asserted


ASKED = dict(
    document=dict(id='d', text='A.', summary=dict(text=' P. ', title='T')),
    question=dict(text='Why? ', tokens=['Why', '?']),
    answers=[dict(text='B.', tokens=['B', '.']), dict(text='C.', tokens=['C'])],
)
# Columns as the Hub has them: of ccdv's arXiv, PubMed, GovReport and WCEP, of
# SCROLLS, kmfoda's BookSum, NarrativeQA, and of the news -> what a model reads
# and writes.
HUB = {
    'arxiv': (
        dict(article='one . \n two .', abstract=' we  \n show . '),
        ('one .\ntwo .', 'we\nshow .'),
    ),
    'pubmed': (dict(article='a\n', abstract='b'), ('a', 'b')),
    'govreport_authors': (dict(report='A.', summary='B.'), ('A.', 'B.')),
    'govreport': (
        dict(id='x', pid='x_0', input='A.\n\nB.', output='C.'),
        ('A.\n\nB.', 'C.'),
    ),
    'qmsum': (
        dict(id='x', pid='x_0', input='Why?\n\nA.', output=None),
        (dict(query='Why?', document='A.'), ''),
    ),
    'booksum_chapter': (
        dict(
            bid=1,
            book_id='Emma.ch',
            summary='{"name": "C."}',
            chapter='A "great",\n\nbook.',
            chapter_length=1.0,
            summary_text='B.',
        ),
        ('A "great",\n\nbook.', 'B.'),
    ),
    'narrativeqa': (ASKED, (dict(query='Why?', document='A.'), 'B.')),
    'narrativeqa_plot': (
        ASKED,
        ('Answer the question: Why?\n\nSummary: P.\n\nSource: A.', 'B.'),
    ),
    'multinews': (
        dict(document='A. ||||| B.', summary=' – C. '),
        (['A.', 'B.'], '– C.'),
    ),
    'wcep': (dict(document='A.</s>B.', summary='C.'), (['A.', 'B.'], 'C.')),
    'cnn_dailymail': (
        dict(article='A.', highlights='B.', id='x'),
        ('A.', 'B.'),
    ),
    'xsum': (dict(document='A.', summary='B.', id='x'), ('A.', 'B.')),
}


def write(path, columns):
  """Writes three equal rows in the format of a path."""
  path.parent.mkdir(parents=True, exist_ok=True)
  if path.suffix == '.jsonl':
    write_jsonl(path, [columns] * 3)
  elif path.suffix == '.csv':
    with open(path, 'w', newline='') as f:
      csv.writer(f).writerows([columns, *[columns.values()] * 3])
  else:
    types = {'output': pyarrow.string()}
    table = {
        k: pyarrow.array([x] * 3, types.get(k)) for k, x in columns.items()
    }
    parquet.write_table(pyarrow.table(table), path)


# Lists cannot be in CSV, and JSONL with these two names is prepared already.
FORMS = [
    (task, form)
    for task, (columns, _) in HUB.items()
    for form in ('parquet', 'jsonl', 'csv')
    if form != 'csv' or columns is not ASKED
    if form != 'jsonl' or not {'document', 'summary'} <= columns.keys()
]


@pytest.mark.parametrize('task,form', FORMS)
def test_files_of_the_hub(config, tmp_path, task, form):
  columns, (inputs, targets) = HUB[task]
  place = tmp_path / 'corpora' / task
  last = 'validation/0000' if form == 'parquet' else 'dev'
  for name in 'train-00000-of-00002', 'train-00001-of-00002', last:
    write(place / f'{name}.{form}', columns)
  config.data.task = task
  if isinstance(inputs, list):
    config.data.pages = 'document'
    inputs = dict(query='', documents=inputs)
  elif isinstance(inputs, dict):
    config.data.pages = 'chunks'
  tasks.check(config)
  found = corpus_lib.corpus(config)
  rows = read_all(config, 'train')
  assert len(rows) == 6 and len(read_all(config, 'validation')) == 3
  read = rows[4]['inputs']
  assert (json.loads(read) if config.data.pages else read) == inputs
  assert rows[4]['targets'] == targets
  references = ['B.', 'C.'] if columns is ASKED else None
  assert json.loads(rows[4]['references'] or 'null') == references
  first = 'x' if 'id' in columns else f'train-00001-of-00002.{form}:1'
  assert rows[4]['id'] == first
  with pytest.raises(
      InputError, match=f'{task}: the train split has 6 rows, exp'
  ):
    tasks.check_size(config, found, 'train')


def test_scrolls_and_squality_as_published(config, tmp_path):
  story = dict(
      metadata=dict(passage_id='7'),
      document=' A. ',
      questions=[
          dict(
              question_number=n,
              question_text='Why?',
              responses=[dict(response_text=f'{n}{x}') for x in 'abcd'],
          )
          for n in (1, 2)
      ],
  )
  config.data.task = 'squality'
  place = tmp_path / 'corpora' / 'squality'
  write_jsonl(place / 'train.jsonl', [story, story])
  write_jsonl(place / 'dev.jsonl', [story])
  made = dict(inputs='Why?\n\nA.', references='')
  assert read_all(config, 'train') == 2 * [
      dict(made, id=f'7/{n}/{i}', targets=f'{n}{x}')
      for n in (1, 2)
      for i, x in enumerate('abcd')
  ]
  several = json.dumps(['2a', '2b', '2c', '2d'])
  _, row = read_all(config, 'validation')
  assert row == dict(made, id='7/2', targets='2a', references=several)
  with pytest.raises(InputError, match='split has 16 rows, expected 1,000'):
    tasks.check_size(config, corpus_lib.corpus(config), 'train')
  columns, _ = HUB['qmsum']
  write_jsonl(tmp_path / 'corpora/narrativeqa/train.jsonl', [columns])
  config.data.task = 'narrativeqa'
  assert read_all(config, 'train')[0]['inputs'] == 'Why?\n\nA.'
  write_jsonl(tmp_path / 'corpora/narrativeqa_plot/train.jsonl', [columns])
  config.data.task = 'narrativeqa_plot'
  with pytest.raises(InputError, match="jsonl: row 1: not as p.*'answers'$"):
    tasks.check(config)
  rows = [dict(article='a', abstract=3)]
  write_jsonl(tmp_path / 'corpora/cnn_dailymail/train.jsonl', rows)
  config.data.task = 'cnn_dailymail'
  with pytest.raises(InputError, match="row 1: field 'summary' must be a str"):
    tasks.check(config)


def test_parquet_with_other_columns_is_refused(config, tmp_path):
  place = tmp_path / 'corpora' / 'arxiv'
  place.mkdir(parents=True)
  config.data.task = 'arxiv'
  path = place / 'train-0.parquet'
  parquet.write_table(pyarrow.table({'article': ['a'], 'body': ['b']}), path)
  with pytest.raises(InputError) as error:
    tasks.check(config)
  assert str(error.value) == (
      f"{path}: no field 'document'; the header has 'article', 'body'"
  )
  table = pyarrow.table({'article': ['a', None], 'abstract': ['b', 'c']})
  parquet.write_table(table, path)
  with pytest.raises(InputError, match="row 2: field 'article' must be a str"):
    read_all(config, 'train')
  path.rename(place / 'validation.parquet')
  with pytest.raises(InputError, match=r'arxiv: no train\*\.jsonl or train'):
    tasks.check(config)


def test_files_with_a_gap_sentence_task(config, tmp_path):
  """C4's task makes gap sentences from own files; config.gsg still applies."""
  path = tmp_path / 'a.jsonl'
  text = 'One. Two. One two. Four. Five.'
  row = dict(id=None, text=text, document='D.', summary='s')
  write_jsonl(path, [row] * 2)
  config.data.update(
      task='c4_gsg', train_files=str(path), validation_files=str(path)
  )
  row, _ = read_all(config, 'train')
  assert row == dict(id='a.jsonl:0', text=text)
  config.gsg = dict(ratio=0.4)
  config.data.input_field = 'document'
  assert read_all(config, 'train')[0]['text'] == 'D.'
  config.gsg, config.data.task = None, 'arxiv'
  assert read_all(config, 'train')[0]['inputs'] == 'D.'


def test_asserted_corpora_are_tokenised_as_a_whole(
    config, tmp_path, monkeypatch
):
  """At any size, so that sizes can be asserted and corpora mixed."""
  monkeypatch.setattr(cache_lib, 'STREAM_BYTES', 0)
  config.data.update(task='arxiv', check_sizes=False, window_shards=1)
  for i in range(3):
    write_jsonl(tmp_path / 'corpora' / 'arxiv' / f'train-{i}.jsonl', [row(i)])
    write_jsonl(
        tmp_path / 'corpora' / 'c4_gsg' / f'train-{i}.jsonl', [dict(text='a')]
    )
  cache = cache_lib.open_cache(config, BYTES, 'train', tmp_path / 'cache')
  assert len(cache) == 3 and not isinstance(cache, streamed.StreamedCache)
  config.data.task = 'c4_gsg'
  assert cache_lib.is_large(config, corpus_lib.corpus(config))


def read_own(tmp_path, row, **data):
  path = write_jsonl(tmp_path / 'rows.jsonl', [row])
  found = corpus_lib.corpus(config_of(test_files=path, **data))
  return next(found.rows('test'))['references'], found.made_of('test')


def test_references_under_another_name(tmp_path):
  row = {'document': 'a', 'summary': 'b', 'answers': ['b', 'c']}
  found, made_of = read_own(tmp_path, row, references_field='answers')
  assert found == '["b", "c"]' and made_of['references_field'] == 'answers'
  found, made_of = read_own(tmp_path, row)
  assert found == '' and 'references_field' not in made_of
  row['answers'] = ['b']
  assert read_own(tmp_path, row, references_field='answers')[0] == ''
  row['answers'] = 'b'
  with pytest.raises(InputError, match="'references' must be a list of str"):
    read_own(tmp_path, row, references_field='answers')
