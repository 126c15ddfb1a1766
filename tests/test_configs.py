"""The configs: complete, documented, and what the paper says."""

import math
from pathlib import Path
import re

import jax
import pytest

from configs import default
from locost_jax import commands
from locost_jax import main
from locost_jax import models
from locost_jax import optim
from locost_jax import pretrained
from locost_jax import workdir

ROOT = Path(__file__).parent.parent
NAMES = sorted(path.stem for path in (ROOT / 'configs').glob('*.py')
               if path.stem not in ('__init__', 'default'))


def load(name):
  return commands.load_config(str(ROOT / 'configs' / f'{name}.py'))


@pytest.mark.parametrize('name', NAMES)
def test_config_can_run(name):
  config = load(name)
  main.check_keys(workdir.make_phases(config, {}, 'somewhere'))
  known = set(dict(commands.config_items(default.get_config())))
  # The keys of gsg are the one section that default.py has as None.
  for key, _ in commands.config_items(config):
    assert key in known or key.startswith('gsg.')
  doc = (ROOT / 'configs' / f'{name}.py').read_text()
  assert f'python -m locost_jax.main --config=configs/{name}.py' in doc
  assert 'ardware' in doc and 'xpected' in doc


def test_default_explains_every_key():
  lines = (ROOT / 'configs' / 'default.py').read_text().split('\n')
  found = {}
  for i, line in enumerate(lines):
    match = re.match(r'      (\w+)=', line)
    if match:
      found.setdefault(match[1], []).append(line)
    match = re.match(r'  config\.(gsg|phases) = ', line)
    if match:
      found.setdefault(match[1], []).append(line + lines[i - 1])
  for key, value in commands.config_items(default.get_config()):
    last = key.rsplit('.', 1)[-1]
    if not hasattr(value, 'items'):
      assert all('#' in line for line in found[last]), key


def test_pretrain_c4_is_the_paper():
  """spec: 4096 in, 910 out, 1M steps of 256, AdamW .9 .999, clip 1, bf16."""
  config = load('pretrain_c4')
  data, train = config.data, config.train
  assert (data.task, data.max_input_length, data.max_target_length) == (
      'c4_gsg', 4096, 910)
  assert (train.steps, train.batch_size, train.dtype) == (
      1_000_000, 256, 'bfloat16')
  assert (config.optim.name, config.optim.b1, config.optim.b2,
          config.optim.weight_decay, config.optim.clip) == (
              'adamw', 0.9, 0.999, 0.0, 1.0)
  assert config.model.dropout_rate == 0.0 and config.gsg is None
  model = models.build(dict(config.model, vocab_size=32100))
  leaves = jax.tree.leaves(pretrained.abstract_params(model))
  assert sum(math.prod(leaf.shape) for leaf in leaves) == 234_724_224


@pytest.mark.parametrize('step', [0, 9_999, 10_000, 10_001, 40_000, 999_999])
def test_learning_rates_of_pretraining(step):
  config = load('pretrain_c4')
  rate = optim.make_schedule(config.optim, config.train.steps)(step)
  expected = 0.02 * math.sqrt(10001) / math.sqrt(max(step + 1, 10001))
  assert float(rate) == pytest.approx(expected, rel=1e-6)
  config = load('pretrain_c4_adafactor')
  assert config.optim.name == 'adafactor'
  rate = optim.make_schedule(config.optim, config.train.steps)(step)
  expected = 1 / math.sqrt(max(step, 10_000))
  assert float(rate) == pytest.approx(expected, rel=1e-4)


def test_finetuning_starts_from_pretraining():
  """The same model but for dropout; nothing to set but the files."""
  pretrain, finetune = load('pretrain'), load('finetune')
  assert dict(pretrain.model, dropout_rate=0.1) == dict(finetune.model)
  assert pretrain.gsg is not None and finetune.gsg is None
  for config in pretrain, finetune:
    assert config.data.vocabulary == 'train' and not config.data.task


def test_quickstart():
  for name in 'quickstart', 'quickstart_long':
    config = load(name)
    first, second = workdir.make_phases(config, {}, 'w')
    assert (first.name, second.name) == ('pretrain', 'finetune')
    assert first.config.data.task == 'python_docs_gsg'
    assert second.config.data.task == 'python_docs_summary'
    assert second.config.model.d_model <= 256
    assert second.config.eval.baselines
    assert second.config.decode.min_length >= 6  # five words and the end mark
