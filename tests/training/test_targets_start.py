"""The first token that a decoder reads: the start token or the mark <s>."""

import types

import jax
import numpy as np
import pytest

from configs import default
import locost_jax
from locost_jax import convert
from locost_jax import main
from locost_jax.config import decode_settings
from locost_jax.data import buckets
from locost_jax.data import tasks
from locost_jax.errors import InputError
from locost_jax.training import step as step_lib
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests import bart_files
from tests import tiny_run
from tests.data.rows import read_jsonl
from tests.data.rows import write_jsonl
from tests.models import test_golden_pagesum as golden
from tests.python import ROOT

BYTES = byte_vocabulary.ByteVocabulary()
# BART's marks.
MARKS = types.SimpleNamespace(
    bos_id=0, pad_id=1, eos_id=2, start_id=2, sentinel_ids=()
)


@pytest.mark.parametrize(
    'padding, smoothing',
    [
        ('release', 0.1),
        pytest.param('release', 0.0, marks=pytest.mark.products),
        pytest.param('tokens', 0.1, marks=pytest.mark.products),
    ],
)
def test_losses_equal_the_release(padding, smoothing):
  """The training loss of the golden batch, in one piece and in two."""
  io = golden.arrays()
  rows = [
      dict(
          inputs=np.concatenate([page[page != 1] for page in document]),
          pages=[(page != 1).sum() for page in document],
          targets=target[target != 1],
      )
      for document, target in zip(io['input_ids'], io['tgt_input_ids'])
  ]
  batch = buckets.make_batch(
      rows, 2, (*io['input_ids'].shape[1:], 10), MARKS, 'bos'
  )
  np.testing.assert_array_equal(batch['encoder_input_tokens'], io['input_ids'])
  model, params = golden.golden_model('float32', padding)

  def sums_of(params, batch, rng):
    del rng
    return step_lib.token_sums(params, batch, model, None, smoothing)

  expected = (
      golden.arrays('corrected')['loss_ls']
      if padding == 'tokens'
      else io['f64/loss_ls' if smoothing else 'f64/loss_ce']
  )
  for accumulate in 1, 2:
    loss_of = jax.jit(
        lambda params, batch, n=accumulate: step_lib.loss_and_gradients(
            sums_of, params, batch, jax.random.key(0), n
        )[0][0]
    )
    np.testing.assert_allclose(loss_of(params, batch), expected, 0, 2e-4)
  # Negative control: Hugging Face's convention gives another loss.
  batch = buckets.make_batch(rows, 2, (*io['input_ids'].shape[1:], 10), MARKS)
  loss, _, weight = jax.jit(sums_of)(params, batch, None)
  assert abs(loss / weight - expected) > 1e-2


def settings_of(**changes):
  config = default.get_config()
  for key, value in changes.items():
    section, name = key.split('_', 1)
    config[section][name] = value
  return decode_settings.of_run(config)


def test_generation_starts_as_in_training_unless_set():
  start_of = lambda settings: decode_settings.with_ids(settings, MARKS).start_id
  assert start_of(settings_of()) == 2
  assert start_of(settings_of(data_targets_start='bos')) == 0
  assert start_of(settings_of(decode_start='bos')) == 0
  both = dict(data_targets_start='bos', decode_start='start_id')
  assert start_of(settings_of(**both)) == 2
  # The config.json of an older version, and of an imported model.
  decode = decode_settings.as_dict(decode_settings.Settings())
  del decode['start']
  for config in dict(decode=decode), dict(decode=decode, data=dict(task='')):
    assert start_of(decode_settings.of_run(config)) == 2


def test_a_vocabulary_without_the_mark_is_refused():
  config = default.get_config()
  config.data.vocabulary = 'byte'
  tasks.check_starts(config, BYTES)
  for section, key in ('data', 'targets_start'), ('decode', 'start'):
    changed = config.copy_and_resolve_references()
    changed[section][key] = 'bos'
    with pytest.raises(
        InputError, match=f"config.{section}.{key}='bos': the v"
    ):
      tasks.check_starts(changed, BYTES)
    tasks.check_starts(changed, MARKS)
  with pytest.raises(InputError, match="start='bos': the vocabulary has no"):
    decode_settings.with_ids(decode_settings.Settings(start='bos'), BYTES)


@pytest.mark.runs
def test_a_run_trains_and_generates_after_the_mark(
    succeed, tmp_path, monkeypatch
):
  """A loaded model starts texts as in training, or as in the release."""
  monkeypatch.chdir(tmp_path)
  home = bart_files.write(tmp_path / 'bart')
  rows = [
      dict(document=f'{name} sat. ' * 3, summary=f'{name}.')
      for name in ('Ann', 'Bob')
  ]
  write_jsonl(tmp_path / 'rows.jsonl', rows)
  command = [
      f'--config={ROOT}/configs/finetune.py:pagesum',
      *tiny_run.flags(
          'data.train_files=rows.jsonl data.validation_files=rows.jsonl '
          'data.page_length=32 data.max_target_length=16 '
          'data.targets_start=bos model.pad_id=1 model.d_model=16 '
          'model.d_ff=16 model.decoder_d_ff=16 model.num_layers=1 '
          'model.num_decoder_layers=1 model.dropout_rate=0.0 '
          'decode.max_length=8 decode.no_repeat_ngram_size=0 train.steps=60 '
          'train.batch_size=2 train.eval_every=0 eval.baselines=False'
      ),
      '--workdir=run',
  ]
  succeed(main, *command, f'--config.data.vocabulary={home}')
  s = locost_jax.load('run')
  assert s.settings.start_id == s.vocabulary.bos_id == 0
  (text,) = s.summarize('Ann sat. Ann sat. Ann sat.', max_length=6)
  (written,) = (tmp_path / 'run' / 'predictions').glob('*.jsonl')
  predictions = [row['prediction'] for row in read_jsonl(written)]
  assert any(text.startswith(name) for name in ('Ann', 'Bob')), text
  assert set(predictions) <= {'Ann.', 'Bob.'}
  ids = vocabulary_lib.surround(s.vocabulary, s.vocabulary.encode('Ann sat.'))
  plain = s.generate(np.array([ids]), max_length=4)
  assert plain[0, 0] != 0  # the mark is read, not written
  # Also after a conversion.
  succeed(convert, '--source=run', '--target=exported')
  other = locost_jax.load('exported')
  assert other.settings.start_id == 0
  assert other.summarize('Ann sat. Ann sat. Ann sat.', max_length=6) == [text]
  # As in the release: read the start token, force the mark.
  release = s.generate(
      np.array([ids]), max_length=4, start='start_id', forced_first_token=0
  )
  assert release[0, 0] == 0
