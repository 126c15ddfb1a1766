"""T5 and LongT5: their own forms; test_golden.py compares with transformers."""

import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.models import attention
from locost_jax.ops import long_attention
from tests.models import golden
from tests.models import small


@pytest.mark.parametrize('folder', ['t5v11', 'longt5_tglobal', 'locost_a_tiny'])
def test_relative_positions_stay_in_the_table(folder):
  """All that `make_config` accepts, and nothing else, gives valid buckets."""
  config = configs.model_config(golden.DIRECTORY / folder)
  directions = (False,) if folder.startswith('locost') else (False, True)
  distances = jnp.concatenate(
      [jnp.array([-9999]), jnp.arange(-40, 41), jnp.array([9999])]
  )
  for buckets in range(1, 9):
    for most in range(1, 7):
      keys = dict(
          relative_attention_num_buckets=buckets,
          relative_attention_max_distance=most,
      )
      try:
        models.make_config(config | keys)
        is_accepted = True
      except InputError as error:
        assert 'model.relative_attention_' in str(error)
        is_accepted = False
      try:
        found = np.stack(
            [
                attention.relative_buckets(distances, both, buckets, most)
                for both in directions
            ]
        )
        is_valid = 0 <= found.min() and found.max() < buckets
        # The further, the later the bucket, in both directions.
        is_valid &= (np.diff(found[:, 42:]) >= 0).all()
        is_valid &= (np.diff(found[:, :42]) <= 0).all()
      except ZeroDivisionError:
        is_valid = False
      assert is_accepted == is_valid, keys


def masks_with_holes():
  """Masks of two documents of six tokens; the second has a hole."""
  whole = np.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]])
  holes = np.array([[1, 1, 1, 1, 1, 0], [1, 1, 0, 1, 0, 0]])
  return whole, holes


@pytest.mark.messages
@pytest.mark.parametrize('folder', ['longt5_local', 'longt5_tglobal'])
def test_longt5_refuses_masks_with_holes(folder):
  """LongT5's side tokens summarise blocks counted from the first token."""
  summarizer = golden.load(folder)
  inputs, (whole, holes) = np.full((2, 6), 5), masks_with_holes()
  words = 'row 1: padding at position 2 and a token after it'
  calls = [
      lambda **keys: summarizer.encode(**keys),
      lambda **keys: summarizer.logits(targets_in=np.ones((2, 2), int), **keys),
      lambda **keys: summarizer.generate(max_length=2, **keys),
      lambda inputs, **keys: summarizer.model.apply(
          {'params': summarizer.params},
          jnp.asarray(inputs),
          *map(jnp.asarray, keys.values()),
          method='embed',
      ),
  ]
  for call in calls:
    with pytest.raises(InputError, match=f'^input_mask, {words}') as error:
      call(inputs=inputs, input_mask=holes)
    assert '\n' not in str(error.value)
    call(inputs=inputs, input_mask=whole)
    call(inputs=inputs * whole)
    call(inputs=inputs, input_mask=np.zeros((2, 6), int))
  for call in calls[:3]:  # here the tokens contain padding
    with pytest.raises(InputError, match=f'^inputs, {words}'):
      call(inputs=inputs * holes)


@pytest.mark.parametrize('is_long', (False, True))
def test_layers_with_equal_biases_are_a_t5_that_shares_one(
    is_long, monkeypatch
):
  if is_long:
    monkeypatch.setattr(long_attention, 'LONG', 1)
  config = dict(default.t5(), vocab_size=60, d_model=32, d_kv=8, d_ff=48)
  config |= dict(num_heads=4, num_layers=2, num_decoder_layers=3)
  runners = [
      small.Runner(config | dict(biases_per_layer=own), 0.2)
      for own in (False, True)
  ]
  params = dict(runners[0].small_params()['params'])
  inputs, targets = small.documents(pad=0), small.tokens(6, 2, 6)
  want = runners[0](inputs, targets)
  for side, layers in (('encoder', 2), ('decoder', 3)):
    bias = params[side]['relative_bias']['embedding']
    same = {'embedding': jnp.stack([bias] * layers)}
    params[side] = params[side] | {'relative_bias': same}
  got = runners[1](inputs, targets, params={'params': params})
  np.testing.assert_allclose(got, want, 0, 1e-5)
