"""Warm start: which parameters are copied or stay new, and errors."""

import math
from pathlib import Path
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import checks
from locost_jax.training import warm_start
from locost_jax.training.warm_start import Source
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import phases as phases_lib
from tests import tiny_run

GOLDEN = Path(__file__).parents[1] / 'golden'


def shapes_of(**changes):
  """Returns {path: shape} of a LOCOST."""
  config = default.get_config().model
  config.update(vocab_size=32100, **changes)
  return parameters.flatten(parameters.abstract_params(models.build(config)))


def like_t5(target, rows=32128):
  """Returns the shapes of T5 v1.1, given a LOCOST of its size."""
  D = target['encoder/norm/scale'].shape[0]
  layers = target['encoder/layers/mixer_norm/scale'].shape[0]
  shape = lambda *sizes: jax.ShapeDtypeStruct(sizes, jnp.float32)
  source = {
      path: leaf for path, leaf in target.items() if '/mixer/' not in path
  }
  source |= {
      f'encoder/layers/mixer/{name}/kernel': shape(layers, D, D)
      for name in ('query', 'key', 'value', 'output')
  }
  source |= {
      'encoder/relative_bias/embedding': shape(32, 12),
      'token_embedding/embedding': shape(rows, D),
      'logits/kernel': shape(D, rows),
  }
  return source


def test_t5_gives_locost_its_embedding_and_decoder():
  """59% of the paper-size model; no encoder kernel, even of equal shape."""
  target = shapes_of()
  source = Source(like_t5(target), 't5', 'DIR')
  key = 'encoder/layers/mixer/key/kernel'
  assert source.params[key].shape == target[key].shape
  chosen = warm_start.choose(source, target, 'locost', ())
  assert chosen == {
      path: path for path in target if not path.startswith('encoder/')
  }
  encoder = sum(
      math.prod(leaf.shape)
      for path, leaf in target.items()
      if path.startswith('encoder/')
  )
  assert warm_start.describe(source, target, chosen) == (
      f'warm start from DIR (t5): copied {234_724_224 - encoder:,} of '
      f'234,724,224 parameters (59%); fresh: encoder ({encoder:,}); '
      'token_embedding/embedding: 32,128 rows there, 32,100 here; '
      'not used: encoder, logits'
  )
  # init_map can add the encoder's feed-forwards and norms.
  rows = ((r'encoder/(norm|layers/(feed_forward|\w+_norm))/.*', r'\g<0>'),)
  more = warm_start.choose(source, target, 'locost', rows)
  assert more.keys() - chosen.keys() == {
      path
      for path in target
      if path.startswith('encoder/') and '/mixer/' not in path
  }
  line = warm_start.describe(source, target, more)
  assert 'fresh: encoder/layers/mixer (' in line


def test_modules_with_the_same_paths_are_copied_from_another_model():
  """An encoder with equal paths is copied; a decoder is not if its
  feed-forward has another form."""
  target = shapes_of(feed_forward='relu')
  encoder = Source(shapes_of(), 'other', 'DIR')
  assert set(warm_start.choose(encoder, target, 'locost', ()).values()) == {
      'token_embedding/embedding'
  }
  whole = warm_start.choose(encoder, shapes_of(), 'locost', ())
  assert whole.keys() == shapes_of().keys()


def test_the_same_model_gives_all_parameters_with_the_same_path():
  target = shapes_of(gating=False)
  source = Source(shapes_of(), 'locost', 'DIR')
  chosen = warm_start.choose(source, target, 'locost', ())
  assert chosen.keys() == target.keys()
  line = warm_start.describe(source, target, chosen)
  assert '(100%); not used: encoder/layers/mixer/gate' in line
  back = warm_start.choose(
      Source(target, 'locost', 'DIR'), source.params, 'locost', ()
  )
  assert {
      path.rsplit('/', 1)[0] for path in source.params if path not in back
  } == {'encoder/layers/mixer/gate'}


def random_tree(shapes, seed=0):
  rng = np.random.default_rng(seed)
  return {
      path: rng.normal(size=shape).astype(np.float32)
      for path, shape in shapes.items()
  }


def test_init_map_is_matched_before_defaults():
  source = Source(
      random_tree(
          {
              'token_embedding/embedding': (7, 2),
              'old/a/kernel': (2, 3),
              'old/b/kernel': (2, 3),
              'old/bias': (3,),
              'encoder/norm/scale': (2,),
          }
      ),
      'locost',
      'DIR',
  )
  target = random_tree(
      {
          'token_embedding/embedding': (5, 2),
          'decoder/a/kernel': (2, 3),
          'decoder/b/kernel': (2, 3),
          'decoder/bias': (3,),
          'encoder/norm/scale': (2,),
      },
      1,
  )
  rows = (
      ('encoder/.*', ''),
      (r'decoder/(\w)/kernel', r'old/\1/kernel'),
      (r'.*/scale', 'nowhere'),
  )  # no effect: the first match is used
  chosen = warm_start.choose(source, target, 'locost', rows)
  taken = warm_start.take(source, target, chosen)
  expected = {
      'token_embedding/embedding': source.params['token_embedding/embedding'][
          :5
      ],
      'decoder/a/kernel': source.params['old/a/kernel'],
      'decoder/b/kernel': source.params['old/b/kernel'],
  }
  assert taken.keys() == expected.keys()
  for path, array in expected.items():
    np.testing.assert_array_equal(taken[path], array)
  assert warm_start.describe(source, target, chosen) == (
      'warm start from DIR (locost): copied 22 of 27 parameters (81%); '
      'fresh: decoder/bias (3), encoder (2); token_embedding/embedding: 7 '
      'rows there, 5 here; not used: encoder, old/bias'
  )


@pytest.mark.parametrize('source_rows, own_rows', [(9, 6), (6, 9)])
def test_rows_of_padded_vocabularies(source_rows, own_rows):
  """Common rows are copied; the others keep their initial values."""
  make = lambda rows, seed: random_tree(
      {'token_embedding/embedding': (rows, 4), 'logits/kernel': (4, rows)}, seed
  )
  source, own = Source(make(source_rows, 0), 't5', 'DIR'), make(own_rows, 1)
  chosen = warm_start.choose(source, own, 'locost', ())
  given = warm_start.take(source, own, chosen)
  params = jax.tree.map(jnp.asarray, parameters.unflatten(own))
  found = parameters.flatten(warm_start.put(params, given))
  assert not given  # all arrays were freed
  expected = {path: array.copy() for path, array in own.items()}
  expected['token_embedding/embedding'][:6] = source.params[
      'token_embedding/embedding'
  ][:6]
  expected['logits/kernel'][:, :6] = source.params['logits/kernel'][:, :6]
  for path, array in expected.items():
    np.testing.assert_array_equal(found[path], array)
  line = warm_start.describe(source, own, chosen)
  assert line.startswith('warm start from DIR (t5): copied 48 of')
  for words in (
      'token_embedding/embedding: {} rows there, {} here',
      'logits/kernel: {} columns there, {} here',
  ):
    assert words.format(source_rows, own_rows) in line


def test_parameters_that_do_not_fit_are_refused():
  target = shapes_of()
  t5 = Source(like_t5(target), 't5', 'DIR')
  shallow = Source(like_t5(shapes_of(num_decoder_layers=6)), 't5', 'DIR')
  narrow = Source(like_t5(shapes_of(d_model=384)), 't5', 'DIR')
  strange = Source({'stem/kernel': target['encoder/norm/scale']}, 'cnn', 'DIR')
  for source, rows, words in [
      (shallow, (), 'train.init_from=DIR: decoder/layers/'),
      (shallow, (), 'kernel is [6, 768, 768]; expected [12, 768, 768]'),
      (shallow, (), "like ('decoder/.*', '') leaves it fresh"),
      (narrow, (), 'kernel is [12, 384, 768]; expected [12, 768, 768]'),
      (t5, (('encodr/.*', ''),), "'encodr/.*' matches no parameter"),
      (
          t5,
          (('encoder/norm/(.*)', r'norm/\1'),),
          'has no norm/scale, which train.init_map wants for encoder/norm/scale',
      ),
      (t5, (('encoder/norm/.*', r'\1'),), r"train.init_map: '\\1': invalid"),
      (strange, (), 'DIR: a cnn that has nothing in common with this locost'),
  ]:
    with pytest.raises(InputError) as error:
      warm_start.choose(source, target, 'locost', rows)
    assert words in str(error.value) and '\n' not in str(error.value)
  # With a row in init_map that module stays new.
  chosen = warm_start.choose(shallow, target, 'locost', (('decoder/.*', ''),))
  assert set(chosen) == {'token_embedding/embedding'}


def test_vocabularies_must_be_equal_unless_rows_stay_new(tmp_path):
  origin = tmp_path / 'origin'
  phases_lib.write_config(origin, tiny_run.make_config())
  vocabulary_lib.save_vocabulary(
      byte_vocabulary.ByteVocabulary(), origin / 'vocabulary'
  )
  vocabulary_lib.save_vocabulary(
      byte_vocabulary.ByteVocabulary(extra_ids=7), tmp_path / 'other'
  )
  (origin / 'checkpoints' / '1' / 'params').mkdir(parents=True)

  def find(vocabulary, rows=(), **model):
    config = tiny_run.make_config()
    config.data.vocabulary = str(vocabulary)
    config.model.update(model)
    config.train.update(init_from=str(origin), init_map=rows)
    setup = assemble.Setup(phases_lib.Phase('', tmp_path / 'run', config))
    return checks.choose_vocabulary([setup], tmp_path / 'run')

  assert find('train').size == find('byte').size == 359
  both = (('(token_embedding|logits)/.*', ''),)
  with pytest.raises(InputError) as error:
    find(tmp_path / 'other')
  assert 'has another vocabulary (359 tokens)' in str(error.value)
  assert str(both) in str(error.value)
  assert find(tmp_path / 'other', both).size == 266
  assert find(tmp_path / 'other', both, tie_embeddings=False).size == 266
  half = (('token_embedding/.*', ''),)
  assert find(tmp_path / 'other', half).size == 266
  with pytest.raises(InputError, match='has another vocabulary'):
    find(tmp_path / 'other', half, tie_embeddings=False)
  shutil.rmtree(origin / 'vocabulary')
  with pytest.raises(InputError) as error:
    find('byte')
  assert 'has no vocabulary' in str(error.value)
  assert str(both) in str(error.value)
  assert find('byte', both).size == 359
