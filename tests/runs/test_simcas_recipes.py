"""configs/simcas.py at a small size: from rows to a summary."""

import json

import numpy as np
import pytest

from configs import simcas
import locost_jax
from locost_jax import main
from tests.runs import test_main
from tests.runs import test_pagesum_recipes

SMALL = (
    'model.d_model=16 model.d_ff=16 model.decoder_d_ff=16 model.num_heads=2 '
    'model.num_layers=2 model.num_decoder_layers=1 data.check_sizes=False '
    'data.page_length=16 data.max_input_length=60 data.max_target_length=16 '
    'decode.max_length=6 decode.min_length=0 train.batch_size=4 '
    'train.accumulate=2 train.steps=2 train.eval_every=2 '
    'train.checkpoint_every=2 selector.every=2 eval.batch_size=2'
).split()


@pytest.fixture
def command(tmp_path, monkeypatch):
  rows = [
      dict(
          # Equal numbers of chunks, so that only one shape is compiled.
          document=' '.join(f'Part {i} of text {number}.' for i in range(4)),
          summary=f'Text {number}.',
          references=[f'Text {number}.', f'The text {number}'],
      )
      for number in range(6)
  ]
  return test_pagesum_recipes.small_recipes(
      simcas, SMALL, rows, monkeypatch, tmp_path
  )


def test_a_recipe_runs_from_rows_to_a_summary(
    command, run_command, succeed, tmp_path
):
  arguments = command('narrativeqa', 'data.train_examples=3')
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
