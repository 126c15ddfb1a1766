"""data/tasks.py and data/preprocessors.py: corpora, checks, SeqIO tasks."""

import pytest

from locost_jax.data import cache as cache_lib
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows
from locost_jax.data import gsg
from locost_jax.data import preprocessors
from locost_jax.data import sources
from locost_jax.data import tasks
from locost_jax.errors import InputError
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import sentencepiece_training
from tests import python
from tests.batches import BYTES
from tests.data.rows import config_of
from tests.data.rows import read_all
from tests.data.rows import story
from tests.data.rows import write_jsonl


def test_check_passes(tmp_path):
  shown = write_jsonl(tmp_path / 's.jsonl', [dict(document='a', summary='b')])
  hidden = write_jsonl(tmp_path / 'h.jsonl', [dict(document='a', summary='')])
  tasks.check(config_of(shown, shown, test_files=hidden))
  rows = [dict(text=story(i)) for i in range(9)]
  packed = write_jsonl(tmp_path / 'a.jsonl.gz', rows)
  tasks.check(config_of(packed, gaps=True, vocabulary='byte'))
  tasks.check(config_of(task='python_docs_summary'))


@pytest.mark.parametrize(
    'data,message',
    [
        (dict(), 'nothing to train on.*python_docs_summary, c4_gsg, arxiv'),
        (dict(task='c4'), "'c4' is none of the tasks python_docs_gsg, python"),
        (dict(validation_files='nowhere'), 'nowhere: no such'),
        (dict(target_field='title'), "ok.jsonl:1: no field 'title'"),
        (dict(vocabulary='no/spiece.model'), "'no/spiece.model': no such file"),
        (dict(vocabulary='ok'), 'ok.jsonl: not a Sentence'),
        (dict(train_files='empty'), 'empty.jsonl: the train split is empty'),
        (dict(train_files='blank'), 'all 1 rows of the train split have an em'),
        (dict(train_files='one'), 'too few rows to hold some back'),
    ],
)
def test_check_names_the_error(tmp_path, data, message):
  row = dict(document='A b.', summary='C.')
  files = dict(
      ok=[row, dict(row, document='D e.')],
      empty=[],
      one=[row],
      blank=[dict(document=' ', summary='')],
  )
  paths = {
      name: write_jsonl(tmp_path / f'{name}.jsonl', rows)
      for name, rows in files.items()
  }
  if data and 'task' not in data:
    data = dict(dict(train_files='ok'), **data)
  data = {key: paths.get(value, value) for key, value in data.items()}
  with pytest.raises(InputError, match=message) as error:
    tasks.check(config_of(**data))
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
    'files', [('validation',), ('test',), ('test', 'validation')]
)
@pytest.mark.parametrize('task', ['', 'govreport'])
def test_training_needs_training_files(tmp_path, files, task):
  path = write_jsonl(tmp_path / 'a.jsonl', [dict(document='A.', summary='B.')])
  config = config_of(task=task, cache_dir=str(tmp_path))
  config.data.update({f'{split}_files': path for split in files})
  tasks.check(config)  # an evaluation needs no more
  for check in (tasks.check_training, tasks.find_vocabulary):
    with pytest.raises(InputError, match="train_files='': nothing") as error:
      check(config)
    assert (task in str(error.value)) and '\n' not in str(error.value)


@pytest.mark.parametrize(
    'settings,message',
    [
        (dict(ratio=0.2), 'all 3 documents .* too short for gap sentences: ra'),
        (dict(ratio=2.0), 'ratio=2.0 must lie'),
        (dict(strategy='sequential'), "'sequential' must be one of indep"),
        (dict(share=1), 'unknown keys share; expected ratio'),
    ],
)
def test_check_of_gap_sentences(tmp_path, settings, message):
  rows = [dict(text='Too short.')] * 3
  config = config_of(write_jsonl(tmp_path / 'a.jsonl', rows), gaps=True)
  config.gsg = settings
  with pytest.raises(InputError, match=message):
    tasks.check(config)


def test_settings_that_contradict_the_task():
  config = config_of(task='python_docs_summary')
  config.gsg = dict()
  with pytest.raises(InputError, match='python_docs_summary summarises'):
    tasks.check(config)


def test_held_out_rows_are_never_trained_on(tmp_path):
  # Every document is also in a second file with another query and summary.
  for name in 'ab':
    rows = [
        dict(document=f'Text {i}.', summary=f'{name} {i}', query=name)
        for i in range(500)
    ]
    write_jsonl(tmp_path / f'{name}.jsonl', rows)
  config = config_of(str(tmp_path / '?.jsonl'), query_field='query')
  config.data.test_files = str(tmp_path / 'a.jsonl')
  train, validation, test = (
      [row['inputs'] for row in read_all(config, split)]
      for split in ('train', 'validation', 'test')
  )
  assert len(train) + len(validation) == 1000
  held = {text.partition('\n\n')[2] for text in validation}
  assert not held & {text.partition('\n\n')[2] for text in train}
  assert 8 <= len(validation) <= 40
  assert len(held) == len(validation) / 2  # copies together
  assert len(test) == 500  # no rows of test files are held out
  texts = set(tasks.training_texts(config))
  assert not texts & set(validation) and texts > set(train)
  config.data.validation_files = str(tmp_path / 'b.jsonl')
  assert len(read_all(config, 'train')) == 1000
  assert len(read_all(config, 'validation')) == 500


@pytest.mark.parametrize('gaps', [False, True])
def test_a_small_corpus_holds_one_row_out(tmp_path, gaps):
  texts = [
      text for text in map(story, range(40)) if not sources.is_held_out(text)
  ][:6]
  rows = [dict(text='Too short.')] + [
      dict(text=text, document=text, summary='A cat.') for text in texts
  ]
  rows = rows if gaps else rows[1:]
  config = config_of(write_jsonl(tmp_path / 'a.jsonl', rows), gaps=gaps)
  tasks.check(config)
  train, validation = (read_all(config, s) for s in ('train', 'validation'))
  assert len(validation) == 1 and len(train) == len(rows) - 1
  assert validation[0] not in train
  assert corpus_rows.is_usable(validation[0], corpus_lib.corpus(config).gsg)


@pytest.fixture(scope='module')
def pieces(tmp_path_factory):
  path = tmp_path_factory.mktemp('v') / 'spiece.model'
  return sentencepiece_training.train(map(story, range(200)), str(path), 300)


def test_gap_sentence_task_equals_plain_python(tmp_path, pieces):
  texts = [story(i) for i in range(70)]
  texts += ['Too short.', 'Ünïcödé \u0085 one.']
  file = write_jsonl(
      tmp_path / 'a.jsonl',
      [dict(text=t, id=str(i)) for i, t in enumerate(texts)],
  )
  config = config_of(file, file, gaps=True)
  config.gsg = dict(ratio=0.4, strategy='lead')
  config.data.update(max_input_length=40, max_target_length=12)
  make = preprocessors.maker(corpus_lib.corpus(config), config.data, pieces)
  made = [make(row) for row in read_all(config, 'train')]
  assert made[70:] == [None, None]
  for row, text in zip(made[:70], texts):
    source, target = gsg.gap_sentences(text, 0.4, 'lead')
    lengths = preprocessors.trim(row, config.data, pieces)
    # The end mark is appended after trimming and never cut.
    assert row['inputs'] == pieces.encode(source)[:39] + [1]
    assert row['targets'] == pieces.encode(target)[:11] + [1]
    assert row['reference'] == target
    assert lengths == dict(
        inputs=len(pieces.encode(source)) + 1,
        targets=len(pieces.encode(target)) + 1,
    )
  assert any(len(row['targets']) == 12 for row in made[:70])


def test_shards_of_a_task_in_seqio(tmp_path, pieces):
  from locost_jax.data import seqio_tasks

  seqio = seqio_tasks.seqio

  for name in 'abc':
    write_jsonl(
        tmp_path / f'{name}.jsonl',
        [dict(document=f'{name} {i}', summary='s') for i in range(4)],
    )
  config = config_of(str(tmp_path / '?.jsonl'), str(tmp_path / 'a.jsonl'))
  task = seqio_tasks.task_of(config, 'jsonl', pieces)

  def shard(index, count):
    return [
        row['inputs_pretokenized'].decode()
        for row in task.get_dataset(
            None, shuffle=False, shard_info=seqio.ShardInfo(index, count)
        ).as_numpy_iterator()
    ]

  assert shard(1, 3) == [f'b {i}' for i in range(4)]
  assert shard(0, 2) == [f'{n} {i}' for n in 'ac' for i in range(4)]


def test_wrapped_vocabulary_equals_the_plain_one(pieces):
  from locost_jax.data import seqio_tasks

  tf = seqio_tasks.tf
  assert tf.config.get_visible_devices('GPU') == []  # JAX's
  for plain in pieces, BYTES:
    wrapped = seqio_tasks.Vocabulary(plain)
    assert wrapped.vocab_size == plain.size
    assert (wrapped.pad_id, wrapped.eos_id, wrapped.unk_id) == (0, 1, 2)
    for text in story(3), '', 'Ünïcödé\nand more':
      ids = plain.encode(text)
      assert wrapped.encode(text) == ids
      assert wrapped.encode_tf(tf.constant(text)).numpy().tolist() == ids
      decoded = plain.decode(ids)
      assert wrapped.decode(ids + [1, 5, 5]) == decoded
      batch = tf.constant([ids + [1, 7]] * 2, tf.int32)
      assert [t.decode() for t in wrapped.decode_tf(batch).numpy()] == (
          [decoded] * 2
      )
  assert seqio_tasks.Vocabulary(BYTES) == seqio_tasks.Vocabulary(
      byte_vocabulary.ByteVocabulary()
  )
  assert seqio_tasks.Vocabulary(BYTES) != seqio_tasks.Vocabulary(pieces)


def test_a_cache_of_the_installed_documentation_is_read_on(
    tmp_path, monkeypatch
):
  """Runs begun before the corpus was a file continue with their records."""
  config = config_of(task='python_docs_summary')
  rows = [dict(id='old', document='The old text of it.', summary='Old.')]
  read = lambda split, gap_sentences: [] if gap_sentences else rows
  monkeypatch.setattr(corpus_lib, 'built_in_rows', read)
  found = corpus_lib.corpus(config)
  made_of = dict(installed=dict(python='3.11', numpy=['numpy 1']), code='18f4')
  locate = cache_lib.locate

  def locate_raw(*given):
    path, key = locate(*given)
    del key['plain_text']
    return path.with_name('python_docs_summary-train-old'), key

  with monkeypatch.context() as patch:
    patch.setattr(cache_lib, 'locate', locate_raw)
    patch.setattr(
        corpus_lib,
        'corpus',
        lambda _: found._replace(made_of=lambda split: made_of),
    )
    old = cache_lib.open_cache(config, BYTES, 'train', tmp_path)
  rows = [dict(id='new', document='The new text of it.', summary='New.')]
  assert cache_lib.open_cache(config, BYTES, 'train', tmp_path).path == old.path
  # Another vocabulary, other lengths or another split have no such cache.
  config.data.max_target_length += 1
  new = cache_lib.open_cache(config, BYTES, 'train', tmp_path)
  assert new.path != old.path and new[0]['id'] == 'new'


@pytest.mark.runs
def test_tensorflow_is_loaded_quietly():
  """Its C++ code would print lines about GPUs that do not apply to JAX."""
  done = python.run(
      '-c',
      'from locost_jax.data import seqio_tasks',
      JAX_PLATFORMS='cpu',
      TF_CPP_MIN_LOG_LEVEL=None,
  )
  assert done.stderr == ''
