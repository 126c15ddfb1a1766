"""configs/pagesum.py at a small size: from sections to a summary."""

import numpy as np
import pytest

from configs import pagesum
import locost_jax
from locost_jax import main
from tests import bart_files
from tests.data.rows import paged
from tests.runs import test_main

SMALL = (
    'model.d_model=16 model.d_ff=16 model.decoder_d_ff=16 model.num_heads=2 '
    'model.num_layers=1 model.num_decoder_layers=1 data.check_sizes=False '
    'data.page_length=32 data.max_target_length=24 decode.max_length=6 '
    'decode.min_length=0 train.batch_size=4 train.accumulate=2 train.steps=4 '
    'train.eval_every=2 train.checkpoint_every=2 eval.batch_size=2'
).split()


def small_recipes(config, small, rows, monkeypatch, folder):
  """Returns a function: name, *keys -> arguments of a recipe's command.

  In the folder are a small vocabulary and, as each split of each corpus, rows.
  """
  monkeypatch.chdir(folder)
  bart_files.write(folder / 'bart')
  for task in {recipe.task for recipe in config.RECIPES.values()}:
    for split in 'train', 'validation', 'test':
      path = folder / 'corpora' / task / f'{split}.jsonl'
      test_main.write_rows(path, rows)
  more = 'data.vocabulary=bart', 'train.init_from='
  return lambda name, *keys: [
      f'--config={config.__file__}:{name}',
      *(f'--config.{key}' for key in (*small, *keys, *more)),
  ]


@pytest.fixture
def command(tmp_path, monkeypatch):
  rows = [
      paged(number, [f'Part {i} of paper {number}.' for i in range(1 + number)])
      for number in range(8)
  ]
  return small_recipes(pagesum, SMALL, rows, monkeypatch, tmp_path)


def test_a_recipe_runs_from_sections_to_a_summary(command, succeed, tmp_path):
  arguments = command('arxiv_discourse', 'data.num_pages=6')
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
