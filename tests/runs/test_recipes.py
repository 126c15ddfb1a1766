"""configs/pagesum.py and simcas.py at a small size: from rows to a summary."""

import json

import numpy as np
import pytest

from configs import pagesum
from configs import simcas
import locost_jax
from locost_jax import main
from tests import bart_files
from tests import tiny_run
from tests.data.rows import paged
from tests.runs import test_main

SMALL = (
    'model.d_model=16 model.d_ff=16 model.decoder_d_ff=16 model.num_heads=2 '
    'model.num_decoder_layers=1 data.check_sizes=False decode.max_length=6 '
    'decode.min_length=0 train.batch_size=4 train.accumulate=2 '
    'train.eval_every=2 train.checkpoint_every=2 eval.batch_size=2 '
    'data.vocabulary=bart train.init_from= '
)
PAGESUM = (
    'model.num_layers=1 data.page_length=32 data.max_target_length=24 '
    'data.num_pages=6 train.steps=4'
)
SIMCAS = (
    'model.num_layers=2 data.page_length=16 data.max_input_length=60 '
    'data.max_target_length=16 data.train_examples=3 train.steps=2 '
    'selector.every=2'
)


@pytest.fixture
def command(tmp_path, monkeypatch):
  """command(config, recipe, rows, keys) -> arguments of `main`.

  The rows are each split of the recipe's corpus, in the working directory.
  """
  monkeypatch.chdir(tmp_path)
  bart_files.write(tmp_path / 'bart')

  def command(config, name, rows, keys):
    folder = tmp_path / 'corpora' / config.RECIPES[name].task
    for split in 'train', 'validation', 'test':
      test_main.write_rows(folder / f'{split}.jsonl', rows)
    return [f'--config={config.__file__}:{name}', *tiny_run.flags(SMALL + keys)]

  return command


def test_a_recipe_of_pagesum(command, succeed, tmp_path):
  rows = [
      paged(number, [f'Part {i} of paper {number}.' for i in range(1 + number)])
      for number in range(8)
  ]
  arguments = command(pagesum, 'arxiv_discourse', rows, PAGESUM)
  _, err = succeed(main, *arguments)
  assert (
      'arxiv train: 2 documents have more than config.data.num_pages=6' in err
  )
  workdir = tmp_path / 'runs' / 'pagesum-arxiv_discourse'
  rows = test_main.read_rows(workdir / 'metrics.jsonl')
  assert sum('eval/arxiv/loss' in row for row in rows) == 2
  # As in the release: </s> is read and <s> is forced.
  s = locost_jax.load(workdir)
  assert (s.settings.start_id, s.settings.forced_first_token) == (2, 0)
  assert not np.any(s.params['logits_bias'])
  succeed(
      main, *arguments, '--evaluate', "--config.eval.metrics=('loss','rouge')"
  )
  (written,) = (workdir / 'predictions').glob('arxiv-test-*.jsonl')
  assert len(written.read_text().splitlines()) == 8


def test_a_recipe_of_simcas(command, run_command, succeed, tmp_path):
  rows = [
      dict(
          # Equal numbers of chunks, so that only one shape is compiled.
          document=' '.join(f'Part {i} of text {number}.' for i in range(4)),
          summary=f'Text {number}.',
          references=[f'Text {number}.', f'The text {number}'],
      )
      for number in range(6)
  ]
  arguments = command(simcas, 'narrativeqa', rows, SIMCAS)
  succeed(main, *arguments)
  workdir = tmp_path / 'runs' / 'simcas-narrativeqa'
  s = locost_jax.load(workdir)
  assert (s.settings.start_id, s.settings.forced_first_token) == (2, 0)
  assert s.settings.forced_last_token == 2 and s.settings.early_stopping
  assert not np.any(s.params['logits_bias'])
  losses, only_loss = {}, ()
  for length in 500, 1_000_000, 14:  # trained at 60, documents: at most 100
    out, _ = succeed(
        main,
        *arguments,
        '--evaluate',
        '--format=json',
        f'--config.data.max_input_length={length}',
        *only_loss,
    )
    losses[length] = json.loads(out)['loss']
    only_loss = test_main.LOSS_ONLY
  (written,) = (workdir / 'predictions').glob('narrativeqa_plot-test-*.jsonl')
  found = test_main.read_rows(written)
  assert len(found) == 6 and all(len(row['references']) == 2 for row in found)
  assert losses[14] != losses[500] == losses[1_000_000]
  # Another number of examples needs another run, and must exist.
  status, _, err = run_command(
      main, *arguments, '--config.data.train_examples=4'
  )
  assert status == 2 and err.count('\n') == 1
  assert 'config.data.train_examples was 3, now 4' in err
  status, _, err = run_command(
      main, *arguments, '--config.data.train_examples=7', '--workdir=other'
  )
  assert status == 2
  assert 'narrativeqa_plot has 6 training examples; expected at most 6' in err
