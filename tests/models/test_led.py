"""LED: its global tokens; test_golden.py: golden arrays."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.summarizing import documents
from locost_jax.summarizing import stream
from locost_jax.summarizing.summarizer import Summarizer
from tests.models import golden
from tests.models import small

SMALL = small.FAMILIES['led']


def arrays():
  """Returns the golden arrays, and the mask with 2 at global tokens."""
  return golden.arrays('led'), golden.mask_of('led')


def logits_of(model, params, mask):
  io, _ = arrays()
  inputs, targets = np.int32(io['input_ids']), np.int32(io['decoder_input_ids'])
  return model.apply({'params': params}, inputs, targets, mask)


def test_global_tokens():
  """The first ones, unless the mask marks others."""
  io, mask = arrays()
  marked = np.where(np.arange(29) == 0, 2 * io['attention_mask'], mask > 0)
  model, params = golden.changed('led')
  run = functools.partial(jax.jit(logits_of, static_argnums=0), model, params)
  np.testing.assert_array_equal(run(io['attention_mask']), run(marked))
  np.testing.assert_array_equal(run(None), run(marked))  # padding is 1
  assert (
      np.abs(run(np.where(np.arange(29) == 3, 2, mask > 0)) - run(None)).max()
      > 1e-3
  )
  none, _ = golden.changed('led', global_tokens=0)
  assert np.abs(logits_of(none, params, mask) - run(None)).max() > 1e-3


def test_separators_are_global():
  """PRIMERA's: with the first token, the first of them, unless others are."""
  io, mask = arrays()
  plain, inputs = mask > 0, np.int32(io['input_ids'])
  separator, *more = inputs[0, [3, 7]]
  inputs[0, 7] = inputs[1, 2] = inputs[1, 9] = separator
  want = 1 * plain + ((inputs == separator) & plain)
  want[:, 0] = 2
  count = (want == 2).sum(-1).max()

  def run(mask, **keys):
    model, params = golden.changed('led', **keys)
    targets = np.int32(io['decoder_input_ids'])
    return jax.jit(model.apply)({'params': params}, inputs, targets, mask)

  keys = dict(separator_id=int(separator))
  want = run(want, global_tokens=int(count))
  check = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-5)
  check(run(plain, **keys), want)
  check(run(plain, **keys, max_separators=int(count) - 1), want)
  first = run(plain, **keys, max_separators=1)
  assert np.abs(first - want).max() > 1e-3
  assert np.abs(run(plain) - want).max() > 1e-3
  check(run(mask, **keys), run(mask, global_tokens=2))
  model, _ = golden.changed('led', **keys)
  own = configs.model_config(golden.DIRECTORY / 'led')
  released = configs.to_released(own | keys)
  assert configs.from_released(released)['separator_id'] == separator
  assert model.config.most_global == 65


@pytest.mark.parametrize('id_, count', [(7, 3), (7, 2), (-1, 3)])
def test_separators_that_are_too_many_are_reported(id_, count):
  config = models.make_config(SMALL | dict(separator_id=id_, max_separators=2))
  job = stream.Job(
      0, documents.Document('news', '', '-'), pages=[[7, 5] * count]
  )
  lines = []
  progress = mock.Mock(note_once=lambda key, line: lines.append(line))
  stream.report_separators(config, job, progress)
  assert len(lines) == ((id_, count) == (7, 3))
  assert all('news: has 3 separators; only the first 2' in x for x in lines)


def test_a_mask_of_global_tokens():
  """Summarizer.generate takes transformers' global_attention_mask."""
  io, mask = arrays()
  model, params = golden.changed('led')
  s = Summarizer(model, params)
  s.settings = decode_settings.Settings(pad_id=1, start_id=2, eos_id=95)
  marks = io['global_attention_mask']
  tokens = s.generate(
      np.int32(io['input_ids']),
      io['attention_mask'],
      global_attention_mask=marks,
      max_length=20,
  )
  want = io['greedy_tokens']
  np.testing.assert_array_equal(tokens, want[:, : tokens.shape[1]])
  assert (want[:, tokens.shape[1] :] == 1).all()
  refuse = functools.partial(
      s.generate, np.int32(io['input_ids']), io['attention_mask']
  )
  for wrong in (marks[:, 1:], marks * [[0], [1]]):
    with pytest.raises(InputError, match='at least one token marked in each'):
      refuse(global_attention_mask=wrong, max_length=9)
  bart, params = golden.changed('bart')
  with pytest.raises(InputError, match='expected an LED'):
    Summarizer(bart, params).generate(
        [[5, 6]], global_attention_mask=[[1, 0]], max_length=9
    )


def test_lengths_of_both_stacks():
  model = models.build(SMALL)
  encode = functools.partial(jax.eval_shape, model.init, jax.random.key(0))
  shape = lambda length: jax.ShapeDtypeStruct((1, length), jnp.int32)
  encode(shape(40), shape(20))
  with pytest.raises(InputError, match='inputs have 41 tokens.*=40'):
    encode(shape(41), shape(20))
  with pytest.raises(InputError, match='targets have 21 tokens.*=20'):
    encode(shape(40), shape(21))
