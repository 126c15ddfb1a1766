"""The configs are complete and documented, and match the papers."""

import math
import re

from absl import flags
import pytest

from configs import default
from configs import finetune_arxiv
from configs import pagesum
from configs import pretrain
from configs import pretrain_c4
from configs import simcas
from locost_jax import main
from locost_jax import models
from locost_jax.config import commands
from locost_jax.config import schema
from locost_jax.data import corpora
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import checks
from locost_jax.training import objectives
from locost_jax.training import optim
from locost_jax.workdir import phases as phases_lib
from tests.python import ROOT

NAMES = sorted(
    path.stem
    for path in (ROOT / 'configs').glob('*.py')
    if path.stem not in ('__init__', 'default')
)


def check_keys(config):
  setups = [
      assemble.Setup(phase)
      for phase in phases_lib.make_phases(config, {}, 'somewhere')
  ]
  for setup in setups:
    checks.check_keys(setup, setups[0])


def load(name, word=''):
  """Loads configs/NAME.py:WORD."""
  path = str(ROOT / 'configs' / f'{name}.py')
  return commands.load_config(f'{path}:{word}' if word else path)


def count_parameters(config, vocabulary, left_out=()):
  model = models.build(dict(config, vocab_size=vocabulary))
  leaves = parameters.flatten(parameters.abstract_params(model))
  return sum(
      math.prod(leaf.shape)
      for path, leaf in leaves.items()
      if not path.startswith(left_out)
  )


def table(text):
  """Returns {first word of a line: its other words}."""
  rows = map(str.split, text.strip().splitlines())
  return {name: row for name, *row in rows}


def check_values(config, expected, but=()):
  """Every key has the expected value, or that of default.py."""
  defaults = dict(schema.leaves(default.get_config()))
  for key, value in schema.leaves(config):
    if not key.startswith(but):
      assert value == expected.get(key, defaults[key]), key


@pytest.mark.parametrize('name', NAMES)
def test_config_can_run(name):
  config = load(name)
  check_keys(config)
  doc = (ROOT / 'configs' / f'{name}.py').read_text()
  assert f'python -m locost_jax.main --config=configs/{name}.py' in doc
  assert 'ardware' in doc and 'xpected' in doc
  # Each value in it alone, but for the ablations, which are several keys.
  several = [row for own in simcas.ABLATIONS.values() for row in own.items()]
  for word in re.findall(r'--config\.([\w.]+=[\w./:-]*\w)', doc):
    if tuple(word.split('=')) not in several:
      values = flags.FlagValues()
      words = ['main', f'--config=configs/{name}.py', f'--config.{word}']
      main.define_flags(values, words)
      commands.parse_flags(values, words)
      check_keys(values.config)


def test_pretrain_c4_matches_the_paper():
  """Inputs 4096, targets 910, 1M steps of 256, AdamW .9 .999, clip 1, bf16."""
  config = load('pretrain_c4')
  found = dict(schema.leaves(config))
  expected = {
      'data.task': 'c4_gsg',
      'data.max_input_length': 4096,
      'data.max_target_length': 910,
      'train.steps': 1_000_000,
      'train.batch_size': 256,
      'train.dtype': 'bfloat16',
      'optim.name': 'adamw',
      'optim.b1': 0.9,
      'optim.b2': 0.999,
      'optim.weight_decay': 0.0,
      'optim.clip': 1.0,
      'model.dropout_rate': 0.0,
  }
  assert {key: found[key] for key in expected} == expected
  assert config.gsg is None
  assert count_parameters(config.model, 32100) == 234_724_224


@pytest.mark.parametrize('step', [0, 9_999, 10_000, 10_001, 40_000, 999_999])
def test_learning_rates_of_pretraining(step):
  config = load('pretrain_c4')
  rate = optim.make_schedule(config.optim, config.train.steps)(step)
  expected = 0.02 * math.sqrt(10001) / math.sqrt(max(step + 1, 10001))
  assert float(rate) == pytest.approx(expected, rel=1e-6)
  config.optim.update(dict(name='adafactor', learning_rate=0.01))
  rate = optim.make_schedule(config.optim, config.train.steps)(step)
  expected = 1 / math.sqrt(max(step, 10_000))
  assert float(rate) == pytest.approx(expected, rel=1e-4)


def test_finetuning_starts_from_pretraining():
  """The models differ only in dropout; users set only the files."""
  pretrain, finetune = load('pretrain'), load('finetune')
  assert dict(pretrain.model, dropout_rate=0.1) == dict(finetune.model)
  assert pretrain.gsg is not None and finetune.gsg is None
  for config in pretrain, finetune:
    assert config.data.vocabulary == 'train' and not config.data.task


# Lengths, documents and epochs of each corpus.
RECIPES = {
    'finetune_arxiv': ('arxiv', 4096, 512, 203_037, 60),
    'finetune_pubmed': ('pubmed', 4096, 512, 119_924, 60),
    'finetune_govreport': ('govreport', 16384, 1024, 17_457, 60),
    'finetune_summscreenfd': ('summscreenfd', 16384, 512, 3_673, 60),
    'finetune_booksum_chapter': ('booksum_chapter', 8192, 512, 9_600, 60),
    'finetune_booksum_book': ('booksum_book', 32768, 1024, 314, 100),
}


@pytest.mark.parametrize('name', RECIPES)
def test_finetuning_matches_the_paper(name):
  """Checks every key: from the paper's tables, or the default."""
  task, inputs, targets, documents, epochs = RECIPES[name]
  config, steps = load(name), -(-documents // 128)
  expected = {
      'data.task': task,
      'data.max_input_length': inputs,
      'data.max_target_length': targets,
      'decode.max_length': targets,
      'model.dropout_rate': 0.1,
      'optim.name': 'adamw',
      'optim.schedule': 'constant',
      'optim.learning_rate': 5e-4,
      'optim.b1': 0.9,
      'optim.b2': 0.999,
      'optim.weight_decay': 0.0,
      'optim.clip': 1.0,
      'optim.flat_steps': 0,
      'optim.warmup_steps': 0,
      'optim.cooldown_steps': 0,
      'train.batch_size': 128,
      'train.dtype': 'bfloat16',
      'train.steps': epochs * steps,
      'train.init_from': 'runs/pretrain_c4',
      # Checkpoints are chosen on 500 validation documents, decoded greedily.
      'eval.examples': 500,
      'eval.metrics': ('loss', 'rouge', 'recall'),
      'checkpoint.metric': 'rouge_mean',
      'decode.num_beams': 1,
      'decode.method': '',
      'decode.no_repeat_ngram_size': 0,
      # Our choices; not in the paper.
      'train.remat': 'full',
      'train.log_every': 50,
      'eval.batch_size': 64,
      'train.eval_every': max(steps, 25),
      'train.checkpoint_every': max(steps, 25),
  }
  check_values(config, expected)
  assert corpora.TABLE[task].splits['train'] == documents
  pretrain = load('pretrain_c4')
  assert dict(config.model, dropout_rate=0.0) == dict(pretrain.model)


def test_quickstart():
  for name in 'quickstart', 'quickstart_long':
    config = load(name)
    first, second = phases_lib.make_phases(config, {}, 'w')
    assert (first.name, second.name) == ('pretrain', 'finetune')
    assert first.config.data.task == 'python_docs_gsg'
    assert second.config.data.task == 'python_docs_summary'
    assert second.config.model.d_model <= 256
    assert second.config.eval.baselines
    assert second.config.decode.min_length >= 6  # five words and the end mark


SIZES = dict(tiny=14_782_080, small=68_906_176, base=234_724_224)
SIZES |= dict(large=775_510_528, xl=2_784_146_432)


@pytest.mark.parametrize('size', pretrain_c4.SIZES)
def test_sizes_have_the_documented_numbers_of_parameters(size):
  config, count = load('pretrain_c4', size), SIZES[size]
  assert count_parameters(config.model, 32100) == count
  assert re.search(rf'\n  {size} +{count:,} ', pretrain_c4.__doc__)
  if size == 'base':
    assert config == load('pretrain_c4')


@pytest.mark.parametrize('name', RECIPES)
def test_baselines_by_suffix(name):
  """Corpora and lengths are the same; BART is limited by its positions."""
  task, inputs, targets, documents, epochs = RECIPES[name]
  for model in finetune_arxiv.BASELINES:
    config = load(name, model)
    most = config.model.get('max_positions', math.inf)
    check_keys(config)
    assert config.model.name == model.partition('_')[0]
    assert config.data.task == task
    assert config.data.max_input_length == min(inputs, most)
    assert config.data.max_target_length == min(targets, most)
    assert config.train.steps == epochs * -(-documents // 128)
    assert '/' in config.train.init_from
    if model in ('bart', 'led'):
      assert most == dict(bart=1024, led=16384)[model]


# Of PageSum's and SimCAS's recipes, both from a BART: </s> is read first and
# <s> is forced.
OF_BART = {
    'data.targets_start': 'bos',
    'optim.schedule': 'inverse_sqrt',
    'optim.b1': 0.9,
    'optim.b2': 0.999,
    'optim.eps': 1e-8,
    'optim.weight_decay': 0.0,
    'optim.clip': 0.0,
    'optim.label_smoothing': 0.1,
    'optim.groups': (('logits_bias', 0.0),),
    'train.log_every': 50,
    'decode.length_penalty_form': 'hugging_face',
    'decode.no_repeat_ngram_size': 3,
    'decode.start': 'start_id',
    'decode.forced_first_token': 0,
}
# PageSum's recipe: corpus, locality, P, tokens of a page, batch x accumulation,
# target, generated min and max, optimiser, remat; tokens kept of a document.
PAGESUM = table("""
arxiv              arxiv spatial 7 1024 1x16 400 100/350 adamw none 0
arxiv_discourse    arxiv discourse 8 1024 1x16 400 100/350 adamw none 0
arxiv_128x32       arxiv spatial 32 128 1x16 400 100/350 adamw none 4096
arxiv_256x16       arxiv spatial 16 256 1x16 400 100/350 adamw none 4096
arxiv_512x8        arxiv spatial 8 512 1x16 400 100/350 adamw none 4096
arxiv_1024x4       arxiv spatial 4 1024 1x16 400 100/350 adamw none 4096
arxiv_global       arxiv spatial 4 1024 1x16 400 100/350 adamw none 4096
pubmed             pubmed spatial 7 1024 1x16 400 150/400 adamw none 0
govreport govreport_authors spatial 20 1024 2x8 1024 500/900 adafactor full 0
govreport_7 govreport_authors spatial 7 1024 1x16 1024 500/900 adafactor full 0
multinews          multinews spatial 7 1024 1x16 400 150/400 adamw none 0
multinews_document multinews document 7 1024 1x16 400 150/400 adamw none 0
multinews_global   multinews document 7 1024 1x16 400 150/400 adamw none 0
""")


def test_pagesum_has_every_row():
  assert list(PAGESUM) == list(pagesum.RECIPES)
  for name in PAGESUM:
    assert f'\n  {name} ' in pagesum.__doc__
  assert load('pagesum') == load('pagesum', 'arxiv')


@pytest.mark.parametrize('name', PAGESUM)
def test_pagesum_matches_the_paper(name):
  """Every key: those of the recipe, the others as by default."""
  task, form, pages, size, batch, target, written, optimiser, remat, cut = (
      PAGESUM[name]
  )
  config = load('pagesum', name)
  check_keys(config)
  rows, accumulate = map(int, batch.split('x'))
  fewest, most = map(int, written.split('/'))
  epoch = -(-corpora.TABLE[task].splits['train'] // 16)
  expected = OF_BART | {
      'data.task': task,
      'data.pages': form,
      'data.num_pages': int(pages),
      'data.page_length': int(size),
      'data.document_length': int(cut),
      'data.max_target_length': int(target),
      'optim.name': optimiser,
      'optim.scale_by_parameter': optimiser == 'adamw',
      'optim.learning_rate': 2e-5,
      'optim.flat_steps': 9999,
      'optim.warmup_steps': 10000,
      'train.init_from': 'hf://facebook/bart-large-cnn',
      'train.batch_size': rows * accumulate,
      'train.accumulate': accumulate,
      'train.remat': remat,
      'train.steps': 10 * epoch,
      'train.eval_every': epoch,
      'train.checkpoint_every': epoch,
      'eval.examples': 0,
      'eval.batch_size': rows,
      'eval.metrics': ('loss',),
      'checkpoint.metric': 'loss',
      'decode.num_beams': 4,
      'decode.length_penalty': 2.0,
      'decode.early_stopping': False,
      'decode.max_length': most + 1,
      'decode.min_length': fewest + 1,
  }
  check_values(config, expected, 'model.')
  decoding = 'global' if name.endswith('_global') else 'pages'
  assert config.model.decoding == decoding
  # facebook/bart-large-cnn: 406,290,432 parameters, 50,264 rows of 1,024.
  new = 'logits_bias', 'confidence/'
  assert count_parameters(config.model, 50264, new) == 406_290_432
  assert config.model.max_positions == 1024 and config.model.pad_id == 1


# SimCAS's recipes: corpus, training documents, epochs, warm-up, accumulation,
# most and fewest tokens in Hugging Face's counts (start and end mark included),
# beams, length penalty, updates per turn of the selector, and per evaluation.
SIMCAS = table("""
arxiv         arxiv 203037 10 10000 8 302 51 4 5 50 1000
pubmed        pubmed 119924 10 10000 16 402 41 4 4 50 1000
govreport     govreport_authors 17519 20 1600 8 742 51 4 2 50 500
summscreen    summscreen 22588 20 6400 8 752 51 4 4 50 1000
multinews     multinews 44972 20 6400 16 402 151 4 2 50 1000
wcep          wcep 8158 100 1600 8 42 16 4 2 100 400
narrativeqa   narrativeqa_plot 32747 10 1600 4 20 1 4 3 50 1000
cnn_dailymail cnn_dailymail 287113 10 10000 8 142 56 4 2 50 1000
xsum          xsum 204045 10 10000 8 62 11 6 1 50 1000
""")


def test_simcas_has_every_row():
  names = [*SIMCAS, *(f'{name}_large' for name in SIMCAS)]
  assert names == list(simcas.EXPERIMENTS)
  for name in SIMCAS:
    assert f'\n  {name} ' in simcas.__doc__
  assert load('simcas') == load('simcas', 'arxiv')
  for word, keys in simcas.ABLATIONS.items():
    assert f'\n  {word}_arxiv' in simcas.__doc__ or word == 'bart'
    check_keys(load('simcas', f'{word}_wcep'))
    expected = load('simcas', 'wcep_large')
    expected.update_from_flattened_dict(keys)
    assert load('simcas', f'{word}_wcep_large') == expected


@pytest.mark.parametrize('size', ['', '_large'])
@pytest.mark.parametrize('name', SIMCAS)
def test_simcas_matches_the_paper(name, size):
  """Every key: those of the recipe, the others as by default."""
  task, *numbers = SIMCAS[name]
  documents, epochs, w, batch, most, fewest, beams, penalty, every, measured = (
      map(int, numbers)
  )
  assert corpora.TABLE[task].splits['train'] == documents
  config = load('simcas', name + size)
  check_keys(config)
  objectives.check(config)
  expected = OF_BART | {
      'data.task': task,
      'data.pages': 'chunks',
      'data.page_length': 512,
      # The release's 16,384 and 8,192 count <s> and </s>.
      'data.max_input_length': 8190 if size else 16382,
      'data.max_target_length': 1024,
      'optim.name': 'adamw',
      'optim.learning_rate': 1e-4,
      'optim.flat_steps': w - 1,
      'optim.warmup_steps': w,
      'train.objective': 'simcas',
      'train.init_from': f'hf://facebook/bart-{"large" if size else "base"}',
      'train.batch_size': batch,
      'train.accumulate': batch,
      'train.steps': epochs * -(-documents // batch),
      'train.eval_every': measured,
      'train.checkpoint_every': measured,
      'selector.every': every,
      'selector.epochs': 2,
      'selector.minibatch': 512,
      'selector.learning_rate': 1e-4,
      'selector.gamma': 0.998,
      'selector.lambda': 0.95,
      'selector.clip': 0.2,
      'selector.entropy': 0.1,
      'selector.kl': 0.1,
      'selector.limit': 2048,
      'selector.reward_scale': 1e4,
      'selector.skip': 'release',
      'eval.batch_size': 1,
      'checkpoint.metric': 'rouge_mean',
      'decode.num_beams': beams,
      'decode.length_penalty': penalty,
      'decode.early_stopping': True,
      # Our lengths exclude the first </s>. The release's minimum is the length
      # before the end mark.
      'decode.forced_last_token': 2,
      'decode.max_length': most - 1,
      'decode.min_length': fewest,
  }
  check_values(config, expected, 'model.')


@pytest.mark.parametrize(
    'name, bart, selector',
    [
        ('arxiv', 139_420_416, 9_451_011),
        ('arxiv_large', 406_291_456, 16_795_651),
    ],
)
def test_models_of_simcas(name, bart, selector):
  """facebook/bart-base or bart-large (50,265 rows), and a selector."""
  config = load('simcas', name)
  count = lambda *left_out: count_parameters(config.model, 50265, left_out)
  assert count('selector/') == bart + 50265
  assert count('logits_bias') == bart + selector
  assert count() == bart + selector + 50265
  rates = 'dropout_rate attention_dropout_rate activation_dropout_rate'
  expected = dict(default.simcas()) | dict.fromkeys(rates.split(), 0.1)
  sizes = 'd_model d_ff decoder_d_ff num_heads num_layers num_decoder_layers'
  for key, value in config.model.items():
    assert value == expected[key] or key in sizes.split(), key
  assert (config.model.align, config.model.select) == ('shift', 'ppo')
  assert (config.model.padding, config.model.selection) == ('release', 'sample')


@pytest.mark.parametrize(
    'name, word, g, w',
    [
        ('pagesum', 'arxiv', 2e-3, 10_000),
        ('simcas', 'arxiv', 1e-2, 10_000),
        ('simcas', 'summscreen', 8e-3, 6400),
        ('simcas', 'wcep', 4e-3, 1600),
    ],
)
@pytest.mark.parametrize(
    'step', [1, 2, 1599, 1600, 1601, 6400, 9_999, 10_000, 10_001, 100_000]
)
def test_learning_rate_of_simcas_and_of_pagesum(name, word, g, w, step):
  """PageSum, equation 11, and SimCAS, appendix I, with n from 1.

  SimCAS's factors g are the release's.
  """
  config = load(name, word)
  rate = optim.make_schedule(config.optim, config.train.steps)(step - 1)
  expected = g * min(step**-0.5, step * w**-1.5)
  assert float(rate) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    'word, vocabulary, count',
    [
        ('longt5', 32128, 247_587_456),
        ('t5', 32128, 247_577_856),
        ('t5_large', 32128, 737_668_096),
        ('bart', 50265, 406_291_456 + 50265),
        ('bart_base', 50265, 139_420_416 + 50265),
        ('led', 50265, 161_844_480 + 50265),
    ],
)
def test_baselines_have_the_sizes_of_their_releases(word, vocabulary, count):
  """LOCOST's table 7: 247M, 737M, 406M; logits_bias is extra.

  The base sizes are also those of default.py.
  """
  config = finetune_arxiv.get_config(word)
  assert count_parameters(config.model, vocabulary) == count
  if not word.endswith('large') and word != 'bart':
    own = getattr(default, word.removesuffix('_base'))()
    assert count_parameters(own, vocabulary) == count


@pytest.mark.parametrize('name', ['pretrain', 'finetune'])
@pytest.mark.parametrize('model', pretrain.MODELS)
def test_small_models_by_suffix(name, model):
  config = load(name, model)
  check_keys(config)
  assert config.model.name == model
  if model == 'locost':
    assert config == load(name)
