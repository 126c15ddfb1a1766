"""BART's ids in the whole package: `<s>` 0, `<pad>` 1, `</s>` and start 2."""

import shutil

import numpy as np
import pytest

from configs import default
import locost_jax
from locost_jax import main
from locost_jax import models
from locost_jax import summarize
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import preprocessors
from locost_jax.data import tasks
from locost_jax.errors import InputError
from locost_jax.models import model_config
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests import bart_files
from tests import tiny_run
from tests.data.rows import own_files
from tests.data.rows import write_jsonl
from tests.python import ROOT

SIZES = tiny_run.flags(
    'model.d_model=16 model.d_ff=16 model.num_heads=2 model.num_layers=1 '
    'model.num_decoder_layers=1 model.dropout_rate=0.0 eval.batch_size=4 '
    'train.batch_size=4 data.max_input_length=64 data.max_target_length=16 '
    'decode.max_length=6 decode.no_repeat_ngram_size=0 train.eval_every=0'
)
TINY = [
    f'--config={ROOT}/configs/finetune.py',
    *tiny_run.flags('model.d_state=4 model.d_kv=8'),
    *SIZES,
]
BART = """
from configs import default
from configs import finetune

def get_config():
  config = finetune.get_config()
  config.model = default.bart()
  config.model.update(dict(decoder_d_ff=16, max_positions=64))
  return config
"""


def rows(n):
  return [
      dict(
          id=str(i),
          document=f'The {"x" * i} of the {i}, the end. ' * 2,
          summary=f'the {i}',
      )
      for i in range(n)
  ]


@pytest.fixture(scope='module')
def files(tmp_path_factory):
  """A directory with a vocabulary."""
  return bart_files.write(tmp_path_factory.mktemp('tokens') / 'bart')


@pytest.fixture
def bart(tmp_path):
  """The flags of a small BART."""
  (tmp_path / 'bart.py').write_text(BART)
  return [
      f'--config={tmp_path / "bart.py"}',
      '--config.optim.groups=()',
      *SIZES,
  ]


def make_config(tmp_path, files):
  sizes = dict(max_input_length=40, max_target_length=7)
  return own_files(tmp_path / 'a.jsonl', rows(5), vocabulary=files, **sizes)


def test_padding_must_be_the_models(run_command, bart, files, tmp_path):
  data = write_jsonl(tmp_path / 'rows.jsonl', rows(90))
  own = f'--config.data.vocabulary={files}'
  # A vocabulary made for the run, which BART cannot use, is not trained.
  for flags, ids in ((*TINY, own), (1, 0)), (bart, (0, 1)):
    status, out, err = run_command(
        main,
        *flags,
        f'--config.data.train_files={data}',
        f'--workdir={tmp_path / "run"}',
    )
    assert (status, out) == (2, '') and err.count('\n') == 1
    assert "its padding is {}, the model's {}".format(*ids) in err
    assert not (tmp_path / 'run').exists()


@pytest.fixture
def plain(tmp_path):
  """A run with the byte vocabulary, whose model pads with 0."""
  tiny_run.make(tmp_path / 'plain')
  return tmp_path / 'plain'


@pytest.mark.runs
def test_loading_refuses_other_padding(plain):
  shutil.rmtree(plain / 'vocabulary')
  bart_files.write(plain / 'vocabulary')
  with pytest.raises(InputError, match="padding is 1, the model's 0"):
    locost_jax.load(str(plain))


def test_lengths_must_hold_the_marks(tmp_path, files):
  config = make_config(tmp_path, files)
  config.data.max_target_length = 2
  message = 'max_target_length=2 must be at least 3'
  with pytest.raises(InputError, match=message):
    tasks.check(config)


def test_gap_sentences_need_a_token_for_their_mask(tmp_path, files):
  config = make_config(tmp_path, files)
  config.data.input_field = 'document'
  config.gsg = dict(mask='<extra_id_0>', ratio=0.5)
  with pytest.raises(InputError, match="'<extra_id_0>': is no token of") as e:
    tasks.check(config)
  assert '\n' not in str(e.value)
  config.gsg = dict(mask='<mask>', ratio=0.5)
  tasks.check(config)
  tokens = vocabulary_lib.load_vocabulary(files)
  found = corpus_lib.corpus(config)
  make = preprocessors.maker(found, config.data, tokens)
  row = make(next(found.read('train', found.splits['train'][0])))
  assert row['inputs'].count(263) == 1


def test_ids_of_models():
  for name, facts in ('bart', (1, 1024)), ('locost', (0, None)):
    config = dict(getattr(default, name)(), vocab_size=60)
    config = models.make_config(config)
    assert (config.pad_id, config.max_positions) == facts


@pytest.mark.parametrize(
    'argument',
    [
        'data.max_input_length=65',
        'data.max_target_length=66',
        'decode.max_length=67',
    ],
)
def test_lengths_beyond_the_models_positions(
    run_command, bart, tmp_path, argument
):
  status, out, err = run_command(
      main, *bart, f'--config.{argument}', f'--workdir={tmp_path / "run"}'
  )
  assert (status, out) == (2, '') and err.count('\n') == 1
  assert f'config.{argument}: expected at most model.max_positions=64' in err


@pytest.mark.runs
def test_documents_beyond_the_models_positions(
    plain, run_command, monkeypatch, tmp_path
):
  monkeypatch.setattr(model_config.ModelConfig, 'max_positions', 60)
  (tmp_path / 'long.txt').write_text('x' * 60)  # and a mark
  (tmp_path / 'full.txt').write_text('x' * 59)

  def call(*arguments):
    return run_command(
        summarize,
        f'--checkpoint={plain}',
        '--program_cache=off',
        tmp_path / 'long.txt',
        tmp_path / 'full.txt',
        *arguments,
    )

  status, out, err = call()
  assert status == 2 and out.count('(left out: 61 tokens') == 1
  assert 'long.txt: 61 tokens, but the model reads and writes at most 60' in err
  assert call('--max_input_length=60')[0] == 0
  status, out, err = call('--max_input_length=61')
  assert (status, out) == (2, '') and '--max_input_length: 61 tokens' in err
  status, out, err = call('--max_length=61')
  assert (status, out) == (2, '') and '--max_length: 61 tokens' in err

  s = locost_jax.load(str(plain))
  for refused in (
      lambda: s.summarize('x' * 60),
      lambda: s.encode(np.full((1, 61), 5)),
      lambda: s.logits(np.full((1, 9), 5), np.full((1, 61), 5)),
      lambda: s.generate(np.full((1, 9), 5), max_length=61),
  ):
    with pytest.raises(InputError, match='61 tokens, but the model'):
      refused()
  assert len(s.summarize(['x' * 59, 'x'])) == 2
