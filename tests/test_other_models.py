"""T5 and LongT5 from a config to a summary; BART is in test_token_ids."""

import json
from pathlib import Path

import pytest

import locost_jax
from locost_jax import main

ROOT = Path(__file__).parent.parent
CONFIG = """
from configs import default
from configs import finetune

def get_config():
  config = finetune.get_config()
  config.model = default.{}()
  config.model.update(dict(d_model=16, d_ff=16, d_kv=8, num_heads=2,
                           num_layers=1, num_decoder_layers=1))
  return config
"""


@pytest.mark.parametrize('name, flags', [
    pytest.param('t5', [], marks=pytest.mark.slow),
    ('longt5', ['--config.model.local_radius=7',
                '--config.model.global_block_size=4'])])
def test_trained_evaluated_loaded(name, flags, run_command, tmp_path):
  (tmp_path / 'config.py').write_text(CONFIG.format(name))
  rows = tmp_path / 'rows.jsonl'
  rows.write_text(''.join(json.dumps(dict(
      document=f'The story of cat {i}. It is short. ' * 3,
      summary='A cat.')) + '\n' for i in range(8)))
  status, _, err = run_command(
      main, f'--config={tmp_path / "config.py"}', *flags,
      f'--config.data.train_files={rows}',
      f'--config.data.validation_files={rows}', '--config.data.vocabulary=byte',
      '--config.data.max_input_length=64', '--config.data.max_target_length=16',
      '--config.decode.max_length=8', '--config.decode.no_repeat_ngram_size=0',
      '--config.train.steps=80', '--config.train.batch_size=4',
      '--config.train.eval_every=0', '--config.train.log_every=40',
      '--config.eval.batch_size=4', f'--workdir={tmp_path / "run"}')
  assert status == 0, err
  losses = [row['train/loss'] for row in map(json.loads, (
      tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines())
            if 'train/loss' in row]
  assert losses[-1] < 0.5 * losses[0]
  summarizer = locost_jax.load(tmp_path / 'run')
  assert type(summarizer.config).__name__.lower() == f'{name}config'
  assert summarizer.summarize('The story of cat 3.')[0].startswith('A cat')
