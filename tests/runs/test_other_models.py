"""Every model of configs/finetune.py:NAME, from rows to a summary."""

from configs import finetune
import locost_jax
from locost_jax import main
from locost_jax import models
from tests import products
from tests import tiny_run
from tests.python import ROOT
from tests.runs import test_main

SIZES = dict(
    d_model=16, d_ff=16, num_heads=2, num_layers=1, num_decoder_layers=1
)
MORE = dict(
    locost=dict(d_kv=8, d_state=4),
    t5=dict(d_kv=8, copy=True),
    longt5=dict(d_kv=8, local_radius=7, global_block_size=4),
    bart=dict(decoder_d_ff=16),
    led=dict(decoder_d_ff=16, attention_window=16),
    bigbird_pegasus=dict(decoder_d_ff=16, block_size=4),
    pagesum=dict(decoder_d_ff=16),
    simcas=dict(decoder_d_ff=16),
)


def tiny_flags(name):
  sizes = SIZES | MORE.get(name, {})
  return [f'--config.model.{key}={value}' for key, value in sizes.items()]


# Each of these also runs elsewhere: tests/runs/test_story.py, test_recipes.py.
ELSEWHERE = 'locost', 'pagesum', 'simcas'


@products.few(
    'name', [x for x in finetune.MODELS if x not in ELSEWHERE], ELSEWHERE
)
def test_trained_evaluated_loaded(name, succeed, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  text = 'The story of cat {}. It is short. ' * 3
  rows = [
      dict(document=text.format(*[i] * 3), summary='A cat.') for i in range(8)
  ]
  rows = test_main.write_rows(tmp_path / 'rows.jsonl', rows)
  succeed(
      main,
      f'--config={ROOT}/configs/finetune.py:{name}',
      *tiny_flags(name),
      *tiny_run.flags(
          f'data.train_files={rows} data.validation_files={rows} '
          'data.vocabulary=byte data.max_input_length=64 data.page_length=64 '
          'data.max_target_length=16 decode.max_length=8 '
          'decode.no_repeat_ngram_size=0 train.steps=80 train.batch_size=4 '
          'train.eval_every=0 train.log_every=40 eval.batch_size=4 '
          "eval.metrics=('loss',) checkpoint.metric=loss eval.baselines=False"
      ),
  )
  workdir = tmp_path / 'runs' / f'finetune-{name}'
  selects = name == 'simcas'
  rows = [
      row
      for phase in (['read', 'select'] if selects else ['.'])
      for row in test_main.read_rows(workdir / phase / 'metrics.jsonl')
  ]
  losses = [row['train/loss'] for row in rows if 'train/loss' in row]
  assert losses[-1] < 0.5 * losses[0]
  turns = [row['train/turns'] for row in rows if 'train/turns' in row]
  assert turns == ([10.0, 30.0] if selects else [])
  summarizer = locost_jax.load(workdir)
  assert type(summarizer.config) is models.MODELS[name][0]
  assert summarizer.summarize('The story of cat 3.')[0].startswith('A cat')
