"""The main command: phases, restarts, named corpora."""

import functools
import json
import re
import sys
from unittest import mock

import pytest

import locost_jax
from locost_jax import main
from locost_jax import models
from locost_jax.devices import sharding
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import phases as phases_lib
from tests import python
from tests import tiny_run
from tests.data.rows import read_jsonl as read_rows
from tests.data.rows import write_jsonl as write_rows
from tests.python import ROOT

TINY = tiny_run.flags(
    'model.d_model=16 model.d_state=4 model.d_ff=16 model.d_kv=8 '
    'model.num_heads=2 model.num_layers=1 model.num_decoder_layers=1'
)
SMALL = TINY + tiny_run.flags(
    'data.max_input_length=64 data.input_buckets=64 data.max_target_length=16 '
    'data.target_buckets=16 data.vocabulary_size=230 train.batch_size=4 '
    'eval.examples=4 eval.batch_size=4 decode.max_length=4'
)
LOSS_ONLY = tiny_run.flags(
    "eval.metrics=('loss',) checkpoint.metric=loss eval.baselines=False"
)


def story(i):
  names = 'ant bee cat dog elk fox gnu hen ibis jay koi lynx mole newt'.split()
  return '\n'.join(
      f'The {names[(i + j) % 14]} of day {i} met {names[(i * 3 + j) % 14]} '
      f'number {j} in the wood.'
      for j in range(5)
  )


def pairs(start, stop):
  """Returns rows of stories and their summaries."""
  return [
      dict(document=story(i), summary=f'A story of day {i}.')
      for i in range(start, stop)
  ]


@pytest.fixture
def call(run_command):
  return functools.partial(run_command, main)


CONFIG = f'--config={ROOT}/configs/finetune.py'


def test_without_the_train_extra(call, tmp_path, monkeypatch):
  """One line with the package to install."""
  monkeypatch.setitem(sys.modules, 'array_record', None)
  path = write_rows(tmp_path / 'a.jsonl', [dict(document='a', summary='b')])
  status, _, err = call(
      CONFIG,
      f'--config.data.train_files={path}',
      f'--workdir={tmp_path / "run"}',
  )
  assert status == 2 and err == (
      'error: training needs array_record: pip install "locost_jax[train]"\n'
  )


def test_the_real_command_line(tmp_path):
  """Runs it like a user; fails while tokenising, when WORKDIR exists."""
  rows = [dict(document=story(i), summary='Sum.') for i in range(39)]
  path = tmp_path / 'late.jsonl'
  write_rows(path, rows + [dict(document='x')])
  flags = tiny_run.flags('data.train_files=late.jsonl data.vocabulary=byte')
  done = python.run(
      *('-m', 'locost_jax.main', CONFIG, *flags),
      cwd=tmp_path,
      status=2,
      TF_CPP_MIN_LOG_LEVEL=None,  # JAX sets it in this process
  )
  assert done.stdout == ''
  assert done.stderr == (
      "error: late.jsonl:40: no field 'summary'; the row has 'document'\n"
  )
  assert list(tmp_path.iterdir()) == [path]


@pytest.fixture(scope='module')
def corpus(tmp_path_factory):
  directory = tmp_path_factory.mktemp('corpus')
  write_rows(
      directory / 'train.jsonl',
      [
          dict(text=story(i), document=story(i), summary=f'A story of day {i}.')
          for i in range(48)
      ],
  )
  write_rows(directory / 'test.jsonl', pairs(50, 55))
  return directory


PHASES = """
from ml_collections import ConfigDict
from configs import default


def get_config():
  config = default.get_config()
  config.data.train_files = %r
  config.eval.baselines = True
  config.phases = (
      ('first', {'data.input_field': 'text', 'train.steps': 2,
                 'gsg': ConfigDict(dict(ratio=0.3, strategy='independent',
                                        mask=''))}),
      ('second', {'train.steps': 3, 'model.dropout_rate': 0.1,
                  'train.lora.rank': 2, 'optim.warmup_steps': 4}))
  return config
"""


def test_phases_from_start_to_end(call, succeed, corpus, tmp_path):
  """Two phases: report, restart and evaluation."""
  config = tmp_path / 'two.py'
  config.write_text(PHASES % str(corpus / 'train.jsonl'))
  run = tmp_path / 'run'
  command = [f'--config={config}', f'--workdir={run}', *SMALL]
  out, err = succeed(main, *command, '--format=json')
  report = json.loads(out)
  assert ': 3 steps, fewer than optim.warmup_steps=4; the best' in err

  # The files in WORKDIR, and the start of each phase.
  stored = phases_lib.read_config(run / 'second')
  vocabulary = vocabulary_lib.load_vocabulary(run / 'vocabulary')
  assert vocabulary.size == stored['model']['vocab_size'] > 103
  assert (
      vocabulary_lib.load_vocabulary(run / 'second' / 'vocabulary').fingerprint
      == vocabulary.fingerprint
  )
  assert stored['train']['init_from'] == str(run / 'first')
  assert stored['model']['dropout_rate'] == 0.1
  # The command line overrides a phase's values.
  assert stored['train']['batch_size'] == 4 and stored['train']['steps'] == 3
  assert (run / 'first' / 'checkpoints' / '2' / 'params').is_dir()
  scale = lambda params: params['encoder']['norm']['scale']
  params = checkpoint.load_params(run / 'second')
  assert (scale(locost_jax.load(str(run)).params) == scale(params)).all()

  # With few documents, the best checkpoint is chosen by loss.
  assert stored['checkpoint']['metric'] == 'loss'
  assert re.search(r'second on .*; the best by loss of \d validation doc', err)
  kept = checkpoint.read_metrics(run / 'second' / 'checkpoints' / '3')
  assert kept[checkpoint.SCORE_OF] == 'loss'

  # The numbers in the report equal those that training logged.
  table = report['tables'][-1]
  rows = {row['name'].strip(): row for row in table['rows']}
  logged = read_rows(run / 'second' / 'metrics.jsonl')
  assert rows['after second, step 3']['loss'] == pytest.approx(
      logged[-1]['eval/jsonl/loss'], rel=1e-5
  )
  assert {
      'before training',
      'after first, step 2',
      'after second, step 3',
      "another document's input",
      'unigrams of the targets',
      'lead: first sentence',
      'oracle: chosen sentences',
  } <= set(rows)
  assert any(name.startswith('best constant: “A story') for name in rows)
  assert rows['lead: first sentence']['rouge1'] > 0
  predictions = read_rows(
      run / 'second' / 'predictions' / 'jsonl-validation-3.jsonl'
  )
  assert len(predictions) == table['documents'] >= 1
  for example in report['examples']:
    assert example['prediction'] in [p['prediction'] for p in predictions]
    assert example['source'].startswith('The ')

  # The same command again trains nothing and prints the same numbers, as text.
  before = (run / 'second' / 'metrics.jsonl').read_text()
  out, _ = succeed(main, *command)
  assert (run / 'second' / 'metrics.jsonl').read_text() == before
  assert f"{rows['after second, step 3']['loss']:.3f}" in out
  assert f'python -m locost_jax.summarize --checkpoint={run} FILE' in out
  assert all(
      len(line) <= 80 for line in out.splitlines() if str(run) not in line
  )

  # The run keeps its first metric, even if the default changes, unless the
  # user sets another.
  begun = run / 'second' / 'config.json'
  text = begun.read_text()
  begun.write_text(text.replace('"metric": "loss"', '"metric": "rouge_mean"'))
  for asked, metric in ((), 'rouge_mean'), (('=rouge2',), 'rouge2'):
    flags = [f'--config.checkpoint.metric{value}' for value in asked]
    status, out, err = call(*command, *flags)
    assert status == 0 and f'; the best by {metric} of' in err
    assert phases_lib.read_config(run / 'second')['checkpoint'] == (
        stored['checkpoint'] | {'metric': metric}
    )

  # Evaluation on the test split.
  out, _ = succeed(
      main,
      *command,
      '--evaluate',
      '--format=json',
      '--config.eval.baselines=False',
      f'--config.data.test_files={corpus / "test.jsonl"}',
  )
  report = json.loads(out)
  found = [report[key] for key in ('task', 'split', 'documents')]
  assert found == ['jsonl', 'test', 4]  # eval.examples
  assert 0 <= report['rouge1'] <= 100 and report['loss'] > 0

  # Baselines need training files.
  status, out, err = call(
      *command,
      '--evaluate',
      '--config.data.train_files=',
      f'--config.data.test_files={corpus / "test.jsonl"}',
  )
  assert status == 0 and 'no baselines: they need the training files' in err
  assert "another document's input" in out and 'unigram' not in out


@pytest.mark.slow
def test_a_named_corpus(call, succeed, tmp_path):
  """A wrong size is refused before anything is written, unless allowed."""
  place = tmp_path / 'corpora' / 'qmsum'
  for split, count in (('train', 12), ('validation', 3), ('test', 3)):
    rows = [row | dict(query='Who met whom?') for row in pairs(0, count)]
    if split == 'test':
      rows = [row | dict(summary='') for row in rows]
    write_rows(place / f'{split}.jsonl', rows)
  command = [
      CONFIG,
      f'--workdir={tmp_path / "run"}',
      *SMALL,
      '--config.data.task=qmsum',
      '--config.train.steps=2',
      f'--config.data.corpora_dir={tmp_path / "corpora"}',
  ]
  status, _, err = call(*command)
  assert status == 2 and 'qmsum: the train split has 12 rows, expected 1,2' in (
      err.splitlines()[-1]
  )
  assert not (tmp_path / 'run').exists()
  command.append('--config.data.check_sizes=False')
  out, _ = succeed(main, *command)
  assert 'qmsum, validation, 3 documents' in out
  out, err = succeed(main, *command, '--evaluate')
  assert 'the summaries of the test split are hidden' in err
  assert 'qmsum, validation, 3 documents' in out
  write_rows(place / 'test.jsonl', [dict(document=story(0), summary='Day 0.')])
  status, out, err = call(*command, '--evaluate')
  assert status == 0 and 'qmsum, test, 1 documents' in out


@pytest.mark.slow
def test_a_mixture_is_trained_and_reported_by_task(
    succeed, tmp_path, monkeypatch
):
  from locost_jax.data import corpora

  monkeypatch.setitem(corpora.MIXTURES, 'both', ('arxiv', 'xsum'))
  for task, count in (('arxiv', 12), ('xsum', 4)):
    for split in 'train', 'validation':
      path = tmp_path / 'corpora' / task / f'{split}.jsonl'
      write_rows(path, pairs(0, count))
  out, _ = succeed(
      main,
      CONFIG,
      f'--workdir={tmp_path / "run"}',
      *SMALL,
      '--config.data.task=both',
      '--config.train.steps=2',
      f'--config.data.corpora_dir={tmp_path / "corpora"}',
      '--config.data.check_sizes=False',
  )
  assert 'arxiv, validation, 4 of 12 documents' in out
  assert 'xsum, validation, 4 documents' in out
  *_, row = read_rows(tmp_path / 'run' / 'metrics.jsonl')
  for task in 'arxiv', 'xsum':
    assert f'eval/{task}/rouge_mean' in row
    assert list((tmp_path / 'run' / 'predictions').glob(f'{task}-val*'))


def test_token_caches_are_kept_after_an_error(call, tmp_path):
  """The training split's cache is kept if the validation split has an error."""
  train = write_rows(tmp_path / 't.jsonl', pairs(0, 20))
  rows = [dict(document=story(0), summary='s'), dict(document=1, summary='s')]
  held = write_rows(tmp_path / 'v.jsonl', rows)
  command = [
      CONFIG,
      f'--workdir={tmp_path / "run"}',
      *SMALL,
      f'--config.data.train_files={train}',
      '--config.train.steps=1',
      *LOSS_ONLY,
      f'--config.data.validation_files={held}',
  ]
  status, _, err = call(*command)
  assert status == 2 and 'v.jsonl:2' in err and '20 records' in err
  write_rows(tmp_path / 'v.jsonl', rows[:1])
  status, _, err = call(*command)
  assert status == 0 and '20 records' not in err and '1 records' in err


@pytest.mark.parametrize(
    'flags, models_made',
    [
        (('--config.optim.groups=()',), 1),
        # Paths are checked before the vocabulary and its size are known.
        (("--config.optim.groups=(('token_embedding/.*', 0.0),)",), 2),
    ],
)
def test_mesh_and_model_are_made_once(
    succeed, tmp_path, monkeypatch, flags, models_made
):
  """In the checks, training, evaluation and final table of a phase."""
  make_mesh = mock.Mock(wraps=sharding.make_mesh)
  build = mock.Mock(wraps=models.build)
  monkeypatch.setattr(sharding, 'make_mesh', make_mesh)
  monkeypatch.setattr(models, 'build', build)
  path = write_rows(tmp_path / 'a.jsonl', pairs(0, 40))
  succeed(
      main,
      CONFIG,
      f'--config.data.train_files={path}',
      f'--workdir={tmp_path / "run"}',
      '--config.data.vocabulary=byte',
      *SMALL,
      *LOSS_ONLY,
      '--config.train.steps=2',
      *flags,
  )
  assert (make_mesh.call_count, build.call_count) == (1, models_made)
