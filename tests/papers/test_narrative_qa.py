"""NarrativeQA for SimCAS: from the authors' files to chunks of tokens."""

import csv
import itertools

import pytest

from configs import default
from locost_jax.data import cache as cache_lib
from locost_jax.data import pipeline
from locost_jax.data import tasks
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import rouge
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from papers import prepare
from tests import bart_files

QUESTIONS = [
    ('Where does the miller live?', 'By the river.', 'At the mill'),
    ('Who is old?', 'The dog', 'The dog and the cat'),
]
PLOT = 'The miller has the dog. They grow old.'
STORY = ' '.join(f'The day {i} is here, and the dog sleeps.' for i in range(30))


@pytest.fixture(scope='module')
def bart(tmp_path_factory):
  return vocabulary_lib.load_vocabulary(
      bart_files.write(tmp_path_factory.mktemp('bart'))
  )


@pytest.fixture
def config(tmp_path):
  """A config of the prepared corpus, in chunks of 64."""
  raw = tmp_path / 'raw'
  (raw / 'tmp').mkdir(parents=True)
  (raw / 'third_party' / 'wikipedia').mkdir(parents=True)

  def write(name, head, rows):
    with open(raw / name, 'w', encoding='utf-8', newline='') as f:
      csv.writer(f).writerows([head.split(), *rows])

  books = {'b0': 'train', 'b1': 'valid', 'b2': 'test'}.items()
  rows = [(*book, 'movie') for book in books]
  write('documents.csv', 'document_id set kind', rows)
  rows = [(*book, PLOT) for book in books]
  head = 'document_id set summary'
  write('third_party/wikipedia/summaries.csv', head, rows)
  rows = [(*book, *question) for book in books for question in QUESTIONS]
  write('qaps.csv', 'document_id set question answer1 answer2', rows)
  for name, _ in books:
    (raw / 'tmp' / f'{name}.content').write_text(STORY)
  for task in 'narrativeqa', 'narrativeqa_plot':
    prepare.prepare(task, str(raw), str(tmp_path / 'corpora'))
  config = default.get_config()
  config.data.update(task='narrativeqa_plot', check_sizes=False, pages='chunks')
  config.data.update(page_length=64, max_input_length=600, max_target_length=16)
  config.data.corpora_dir = str(tmp_path / 'corpora')
  config.data.targets_start = 'bos'
  config.eval.batch_size = 2
  return config


def chunks_of(record):
  ids = iter(record['inputs'].tolist())
  return [list(itertools.islice(ids, size)) for size in record['pages']]


def contains(chunk, ids):
  return any(chunk[i : i + len(ids)] == ids for i in range(len(chunk)))


def test_chunks_equal_a_cut_text(config, bart, tmp_path):
  """Like the release: one text's tokens, cut every page_length - 2."""
  tasks.check(config)
  cache = cache_lib.open_cache(config, bart, 'train', tmp_path / 'cache')
  assert len(cache) == 2
  for (question, *_), record in zip(QUESTIONS, cache.read([0, 1])):
    text = (
        f'Answer the question: {question}\n\nSummary: {PLOT}\n\nSource: {STORY}'
    )
    ids = bart.encode(text)
    assert len(ids) > 600
    expected = []
    for start in range(0, 600, 62):
      part = ids[start : min(start + 62, 600)]
      padding = [bart.pad_id] * (62 - len(part))
      expected.append([bart.bos_id, *part, *padding, bart.eos_id])
    assert chunks_of(record) == expected
    # Only the first chunk has the question.
    asked = bart.encode(question)
    found = [contains(chunk, asked) for chunk in expected]
    assert found == [True, *[False] * (len(expected) - 1)]


def test_all_answers_are_references(config, bart, tmp_path):
  """Training uses the first answer; scores use the better one."""
  train = cache_lib.open_cache(config, bart, 'train', tmp_path / 'cache')
  for (_, *answers), record in zip(QUESTIONS, train.read([0, 1])):
    assert record['reference'] == answers[0]
    assert record['references'] == answers
    assert record['targets'].tolist() == (
        [bart.bos_id, *bart.encode(answers[0])][:15] + [bart.eos_id]
    )
  test = cache_lib.open_cache(config, bart, 'test', tmp_path / 'cache')
  ((_, info),) = pipeline.eval_batches(test, bart, config)
  found = dict(zip(info['id'], info['reference']))
  assert sorted(found.values()) == sorted(list(x[1:]) for x in QUESTIONS)
  metrics, references = [rouge.of_protocol()], list(found.values())
  scores = [
      metric.score(metrics, [x[i] for x in references], references)
      for i in (0, 1)
  ]
  assert scores[0] == scores[1]
  assert scores[0]['rouge1'] == pytest.approx(100)


def test_the_story_alone_is_another_corpus(config, bart, tmp_path):
  """The question is a query, and the plot summary is not read."""
  config.data.update(task='narrativeqa', query_in='first')
  cache = cache_lib.open_cache(config, bart, 'train', tmp_path / 'cache')
  question = QUESTIONS[0][0]
  chunks = chunks_of(cache[0])
  asked = bart.encode(f'{question}\n\n')
  assert chunks[0][1 : 1 + len(asked)] == asked
  assert not any(contains(chunk, bart.encode('They')) for chunk in chunks)
  assert not any(contains(chunk, bart.encode('Summary')) for chunk in chunks)
