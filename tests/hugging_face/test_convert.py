"""Conversion between Hugging Face directories and runs."""

import json

import jax.numpy as jnp
from ml_collections import ConfigDict
import numpy as np
import pytest
from safetensors.numpy import load_file
from safetensors.numpy import save_file

from configs import default
import locost_jax
from locost_jax import convert
from locost_jax import models
from locost_jax import summarize
from locost_jax.config import decode_settings
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import export
from locost_jax.hugging_face import names as names_lib
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import resume
from locost_jax.training import warm_start
from locost_jax.vocabularies import sentencepiece_training
from locost_jax.workdir import phases as phases_lib
from tests import products
from tests import python
from tests import tiny_run
from tests.hugging_face.converting import change_json
from tests.hugging_face.converting import GOLDEN
from tests.hugging_face.converting import rewrite
from tests.hugging_face.converting import shard
from tests.hugging_face.converting import WEIGHTS

SIDES = 'encoder', 'decoder'
FOLDERS = sorted(
    path.parent.name for path in GOLDEN.glob('*/state_dict.safetensors')
)
SIMILAR = 'locost_b_small', 'longt5_local'  # to locost_a_tiny, longt5_tglobal


@products.few('folder', [x for x in FOLDERS if x not in SIMILAR], SIMILAR)
def test_a_round_trip_is_exact(folder, tmp_path, call):
  """All tensors, in float32 and in bfloat16, and the model's config."""
  source = GOLDEN / folder
  want = load_file(source / 'state_dict.safetensors')
  there = call(source, tmp_path / 'run')
  assert there['direction'] == 'run'
  back = call(tmp_path / 'run', tmp_path / 'back')
  got = load_file(tmp_path / 'back' / WEIGHTS)
  table = names_lib.table(configs.model_config(source))
  copies = {name for names in table.copies.values() for name in names}
  assert got.keys() == want.keys() - copies
  assert len(got) == back['tensors']
  size = sum(x.size for x in got.values())
  assert size == back['parameters'] == there['parameters']
  for name, array in got.items():
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, want[name], err_msg=name)
  # bfloat16 rounds once; another round trip changes nothing.
  for start, home in (('run', '1'), ('again', '2')):
    call(tmp_path / start, tmp_path / home, '--dtype=bfloat16')
    if home == '1':
      assert call(tmp_path / '1', tmp_path / 'again')['dtype'] == 'float32'
    for name, array in load_file(tmp_path / home / WEIGHTS).items():
      assert array.dtype == jnp.bfloat16
      np.testing.assert_array_equal(
          array, want[name].astype(jnp.bfloat16), err_msg=name
      )
  theirs, ours = (
      json.loads((path / 'config.json').read_text())
      for path in (source, tmp_path / 'back')
  )
  assert ours['model_type'] == (theirs['model_type'] or 'locost')
  for key in ours.keys() - {
      'torch_dtype',
      'architectures',
      'model_type',
      'auto_map',
  }:
    assert ours[key] == theirs[key], key
  assert configs.model_config(tmp_path / 'back') == (
      configs.model_config(source)
  )


def test_a_converted_run_can_be_loaded_and_trained_from(
    tmp_path, call, run_command
):
  """Also by the path of its checkpoint; it cannot be continued."""
  source = GOLDEN / 'locost_d_untied_relu'
  call(source, tmp_path / 'run')
  inputs, targets = [[3, 4, 5, 6]], [[0, 7, 8]]
  want = locost_jax.load(source).logits(inputs, targets)
  for place in (tmp_path / 'run', tmp_path / 'run' / 'checkpoints' / '0'):
    summarizer = locost_jax.load(place)
    np.testing.assert_array_equal(summarizer.logits(inputs, targets), want)
    train = dict(init_from=str(place), init_map=())
    start = ConfigDict(dict(model=dict(name='locost'), train=train))
    abstract = parameters.abstract_params(summarizer.model)
    params, _ = warm_start.load(start, abstract)
    np.testing.assert_array_equal(
        params['logits/kernel'], summarizer.params['logits']['kernel']
    )
  config = tiny_run.make_config()
  setup = assemble.Setup(phases_lib.Phase('', tmp_path / 'run', config))
  with pytest.raises(InputError, match='no training to continue.*init_from='):
    resume.check_unchanged([setup], tmp_path / 'run')
  text = tmp_path / 'text.txt'
  text.write_text('A text.')
  status, _, err = run_command(
      summarize, f'--checkpoint={tmp_path / "run"}', text
  )
  assert status == 2 and 'has no vocabulary' in err


def test_a_round_trip_of_a_trained_run(run, tmp_path, call, run_command):
  """Keeps weights, vocabulary and generation settings; checks the report."""
  exported = call(run, tmp_path / 'out')
  assert exported['checkpoint'] == str(run / 'checkpoints' / '2')
  assert exported['copied'] == ['vocabulary.json']
  assert any('byte vocabulary' in note for note in exported['notes'])
  assert exported['files'] == [WEIGHTS]
  tensors = load_file(tmp_path / 'out' / WEIGHTS)
  size = sum(x.nbytes for x in tensors.values())
  assert 4 * exported['parameters'] == size
  shard(tmp_path / 'out')
  imported = call(tmp_path / 'out', tmp_path / 'again')
  assert imported['copied'] == ['vocabulary.json', 'tokenizer_config.json']
  text = tmp_path / 'text.txt'
  text.write_text('A text to read.')
  summaries = [
      locost_jax.load(place).summarize(text.read_text())
      for place in (run, tmp_path / 'out', tmp_path / 'again')
  ]
  assert summaries[0] == summaries[1] == summaries[2]
  status, out, _ = run_command(
      summarize, f'--checkpoint={tmp_path / "again"}', text
  )
  assert status == 0
  assert out.strip() == f'{summaries[0][0].strip()} (cut at 6 tokens)'
  assert locost_jax.load(tmp_path / 'out').settings.max_length == 6


def test_the_report_as_text(release, tmp_path, succeed):
  run = tmp_path / 'run'
  out, _ = succeed(convert, f'--source={release}', f'--target={run}')
  assert out.splitlines()[-1] == (
      f'{run}: a run from {release}: locost, 66 tensors, 56,128 parameters, '
      '0.2 MB in float32'
  )


def test_files_of_a_vocabulary_are_copied_unchanged(release, tmp_path, call):
  """SentencePiece; rows of the embedding beyond the tokens are kept."""
  texts = ['the cat sat on the mat', 'a dog and a cat', 'dogs sit on mats']
  sentencepiece_training.train(texts * 9, release / 'spiece.model', 220)
  (release / 'tokenizer_config.json').write_text('{"extra_ids": 100}')

  def pad(tensors):
    for name in ('shared', 'lm_head', *(f'{x}.embed_tokens' for x in SIDES)):
      name = f'{name}.weight'
      tensors[name] = np.resize(tensors[name], (320, 32))

  rewrite(release, pad)
  change_json(release / 'config.json', vocab_size=320)
  call(release, tmp_path / 'run')
  call(tmp_path / 'run', tmp_path / 'back')
  for name in ('spiece.model', 'tokenizer_config.json'):
    copied = (tmp_path / 'back' / name).read_bytes()
    assert copied == (release / name).read_bytes()
  back = load_file(tmp_path / 'back' / WEIGHTS)
  assert back['shared.weight'].shape == (320, 32)
  change_json(release / 'config.json', vocab_size=150)
  with pytest.raises(InputError, match='tokens, its model only 150'):
    locost_jax.load(release)


def test_a_tied_embedding_is_read_under_any_of_its_names(
    release, tmp_path, call
):
  """Files with another of the tied names, and with T5's unused bias."""
  want = load_file(release / WEIGHTS)['shared.weight']
  bias = 'decoder.block.0.layer.1.EncDecAttention.relative_attention_bias'
  bias += '.weight'

  def change(tensors):
    for name in 'shared', 'lm_head', 'encoder.embed_tokens':
      del tensors[f'{name}.weight']
    tensors[bias] = np.zeros((32, 4), np.float32)

  rewrite(release, change)
  report = call(release, tmp_path / 'run')
  assert f'{bias}: not used by the model' in report['notes']
  np.testing.assert_array_equal(
      locost_jax.load(tmp_path / 'run').params['token_embedding']['embedding'],
      want,
  )


def write_untied(directory, with_head, **changes):
  source = GOLDEN / 't5v11'
  config = json.loads((source / 'config.json').read_text()) | changes
  directory.mkdir()
  (directory / 'config.json').write_text(json.dumps(config))
  tensors = load_file(source / 'state_dict.safetensors')
  tensors['lm_head.weight'] = tensors['shared.weight'].copy()
  if not with_head:
    del tensors['lm_head.weight']
  save_file(tensors, directory / WEIGHTS)
  return directory


def test_the_unscaled_head_of_a_t5_is_the_embedding(tmp_path, call):
  """As transformers 5 writes T5Config(tie_word_embeddings=False)."""
  unscaled = dict(tie_word_embeddings=True, scale_decoder_outputs=False)
  one = write_untied(tmp_path / 'one', False, **unscaled)
  both = write_untied(tmp_path / 'both', True, tie_word_embeddings=False)
  inputs, targets = [[5, 6, 7, 1]], [[0, 9, 8]]
  want = locost_jax.load(both).logits(inputs, targets)
  np.testing.assert_array_equal(
      locost_jax.load(one).logits(inputs, targets), want
  )
  call(one, tmp_path / 'run')
  np.testing.assert_array_equal(
      locost_jax.load(tmp_path / 'run').logits(inputs, targets), want
  )


def test_without_its_keys_a_missing_head_is_an_error(tmp_path):
  directory = write_untied(tmp_path / 'one', False, tie_word_embeddings=False)
  with pytest.raises(InputError, match='lacks the tensor lm_head.weight'):
    locost_jax.load(directory)


def test_half_precision_and_mixed_dtypes_are_read(release, tmp_path, call):
  """Like T5 files in float16 with `wo` in float32."""
  want = load_file(release / WEIGHTS)

  def change(tensors):
    for name in tensors:
      if '.wo.' not in name:
        tensors[name] = tensors[name].astype(np.float16)

  rewrite(release, change)
  call(release, tmp_path / 'run')
  params = locost_jax.load(tmp_path / 'run').params
  np.testing.assert_array_equal(
      params['token_embedding']['embedding'],
      want['shared.weight'].astype(np.float16),
  )


def test_pickles_are_read_with_torch(release, tmp_path, call):
  torch = pytest.importorskip('torch', reason='needs the extra `peers`')
  want = load_file(release / WEIGHTS)
  (release / WEIGHTS).unlink()
  kind = lambda name: torch.bfloat16 if 'wi_' in name else torch.float32
  tensors = {n: torch.from_numpy(x).to(kind(n)) for n, x in want.items()}
  torch.save(tensors, release / 'pytorch_model.bin')
  call(release, tmp_path / 'run')
  call(tmp_path / 'run', tmp_path / 'back')
  for name, array in load_file(tmp_path / 'back' / WEIGHTS).items():
    expected = want[name]
    if 'wi_' in name:
      expected = expected.astype(jnp.bfloat16)
    np.testing.assert_array_equal(array, expected)


@pytest.mark.slow
def test_loading_takes_little_more_memory_than_the_weights(tmp_path):
  """250M parameters: peak memory grows by at most 1.3 times their bytes."""
  config = default.get_config().model
  config.vocab_size = 52_000
  abstract = parameters.flatten(
      parameters.abstract_params(models.build(config))
  )
  generator = np.random.default_rng(0)
  params = {
      path: np.broadcast_to(
          generator.random(leaf.shape[1:], np.float32), leaf.shape
      )
      for path, leaf in abstract.items()
  }
  export.Exported(dict(config), abstract, 'float32').write(tmp_path, params)
  settings = decode_settings.Settings()
  released = configs.release(dict(config), settings, 'float32')
  (tmp_path / 'config.json').write_text(json.dumps(released))
  size = (tmp_path / WEIGHTS).stat().st_size
  assert size > 4 * 250_000_000
  program = """if True:
      import sys
      import locost_jax, jax
      from locost_jax.devices.memory import peak_host_bytes as peak
      jax.devices()
      before = peak()
      summarizer = locost_jax.load(sys.argv[1])
      jax.block_until_ready(summarizer.params)
      print(sum(x.size for x in jax.tree.leaves(summarizer.params)),
            peak() - before)"""
  done = python.run('-c', program, tmp_path)
  count, growth = map(int, done.stdout.split())
  assert 4 * count <= size < 4 * count + 100_000
  assert size < growth < 1.3 * size
