"""`main --evaluate`: all documents, changed keys, tables."""

import json
import re

import pytest

from locost_jax import main
from locost_jax.runs import final_table
from tests import tiny_run
from tests.data import test_gsg
from tests.python import ROOT
from tests.runs import test_main

SMALL = [flag for flag in test_main.SMALL if 'eval.examples' not in flag]
EVALUATE = (
    '--config=few.py',
    '--config.data.train_files=train.jsonl',
    '--workdir=run',
    *SMALL,
    '--evaluate',
)
FEW = """
from configs import finetune


def get_config():
  config = finetune.get_config()
  config.eval.examples = 2
  return config
"""


@pytest.fixture(scope='module')
def pretrained(tmp_path_factory):
  """A run of gap-sentence pretraining, and documents with summaries."""
  directory = tmp_path_factory.mktemp('pretrained')
  rows = [row | {'text': row['document']} for row in test_main.pairs(0, 30)]
  test_main.write_rows(directory / 'train.jsonl', rows[:24])
  test_main.write_rows(directory / 'test.jsonl', rows[24:])
  (directory / 'few.py').write_text(FEW)
  return directory


def test_zero_shot_evaluation_of_a_pretraining_run(
    succeed, pretrained, monkeypatch
):
  """On the whole split, with other dropout, loss and optimiser keys."""
  monkeypatch.chdir(pretrained)
  succeed(
      main,
      f'--config={ROOT}/configs/pretrain.py',
      '--config.data.train_files=train.jsonl',
      '--workdir=run',
      '--config.train.steps=1',
      "--config.eval.metrics=('loss',)",
      '--config.checkpoint.metric=loss',
      *SMALL,
  )
  evaluate = [*EVALUATE, '--config.data.test_files=test.jsonl']
  out, err = succeed(main, *evaluate)
  assert 'jsonl, test, 6 documents' in out and ' R-L ' in out
  assert ' of 6 documents' not in out + err
  # Generated batches are removed once results exist.
  assert list((pretrained / 'run' / 'evaluations').iterdir()) == []
  out, err = succeed(
      main,
      *evaluate,
      *tiny_run.flags(
          'eval.examples=4 optim.label_smoothing=0.1 optim.z_loss=1e-4 '
          'train.remat=full train.batch_size=3 train.accumulate=2 '
          'train.lora.rank=500'
      ),
      '--format=json',
  )
  assert 'jsonl, test, 4 of 6 documents' in err
  report = json.loads(out)
  assert (report['documents'], report['tables'][0]['total']) == (4, 6)
  assert {'rougeL', 'rougeLsum'} <= report.keys()


def test_the_title_has_both_numbers_of_documents():
  rows = [
      final_table.Row('a' * 50, {'loss': 1.0, 'rougeL': 99.123, 'rouge1': 1.0})
  ]
  table = final_table.Table('arxiv', 'test', 500, rows, total=6440)
  text = final_table.format_text([table], [], 'runs/x')
  assert 'arxiv, test, 500 of 6,440 documents' in text
  assert all(len(line) <= final_table.WIDTH for line in text.splitlines())
  assert '99.12' in text and ' R-L' in text
  # A perfect score has no more characters than another one.
  best = dict.fromkeys(('rouge1', 'rouge2', 'rougeL'), 100.0) | {'loss': 99.99}
  perfect = table._replace(rows=[final_table.Row('lead', best)])
  text = final_table.format_text([perfect], [], 'runs/x')
  assert re.search('^lead  .* 99.99 100.0 100.0 100.0$', text, re.M), text
  whole = table._replace(documents=6440)
  text = final_table.format_text([whole], [], 'runs/x')
  assert 'arxiv, test, 6,440 documents' in text


def test_a_run_in_another_script(succeed, tmp_path, monkeypatch):
  """It is scored by the words of `unicode`, and says so."""
  monkeypatch.chdir(tmp_path)
  texts = [
      test_gsg.RUSSIAN.replace('2020', str(i)).replace('кот', f'кот{i}')
      for i in range(12)
  ]
  rows = [dict(document=text, summary=text.split('. ')[-1]) for text in texts]
  test_main.write_rows(tmp_path / 'train.jsonl', rows[:8])
  test_main.write_rows(tmp_path / 'test.jsonl', rows[8:])
  command = [
      test_main.CONFIG,
      '--workdir=run',
      *SMALL,
      *tiny_run.flags(
          'data.train_files=train.jsonl data.validation_files=test.jsonl '
          'train.steps=1 eval.baselines=True'
      ),
      '--format=json',
  ]
  reports = []
  for more in (
      [],
      ['--evaluate'],
      ['--evaluate', '--config.eval.protocol=locost'],
  ):
    out, err = succeed(main, *command, *more)
    assert 'cover less than half of the references' in err
    reports.append(json.loads(out))
  for report in reports[:2]:
    table = report['tables'][-1]
    assert table['signatures']['rouge'].startswith('rouge|unicode|')
    scores = {row['name'].split(':')[0]: row for row in table['rows']}
    for name in 'best constant', 'oracle':
      assert scores[name]['rouge1'] > 10, name
    assert scores['oracle']['rouge1'] >= scores['lead']['rouge1']
    assert 'recall' in scores['oracle']
  assert reports[2]['tables'][-1]['signatures']['rouge'].startswith(
      'rouge|locost'
  )
  common = json.loads((tmp_path / 'run' / 'common.json').read_text())
  assert common['protocol'] == 'unicode' and 'и' in common['words']
