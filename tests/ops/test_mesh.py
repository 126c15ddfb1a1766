"""The mixer and decoding on eight devices, and checkpoints between meshes."""

import re

import pytest

from tests import mesh_program
from tests import products
from tests.mesh_program import B


@pytest.fixture(scope='module')
def mixed():
  """Returns the results of `mixer`, all of one process."""
  cases = [
      ((1, 1, 1, 8), 96, False, {}),
      ((1, 1, 1, 4), 96, False, dict(variant='paper')),
      ((1, 1, 1, 2), 96, False, dict(bidirectional=False)),
      ((1, 1, 8, 1), 96, False, {}),
      ((2, 2, 1, 2), 96, False, {}),
      ((1, 2, 2, 2), 96, False, {}),
      ((1, 2, 2, 2), 96, False, dict(transform='matmul')),
      ((1, 1, 1, 4), 1200, False, dict(transform='matmul', variant='paper')),
      ((1, 1, 1, 8), 96, True, {}),
      *(((1, 1, 1, 8), n, False, {}) for n in (208, 416)),
  ]
  return mesh_program.run('mixer', cases)


def test_the_mixer_on_every_mesh(mixed):
  """Negative control, the last: a plain FFT of split documents under jit."""
  for i, result in enumerate(mixed[:9]):
    assert result['outputs'] < 1e-6 and result['gradients'] < 5e-6, result
    others = result['sent'].keys() - {'all-reduce', 'collective-permute'}
    assert (i == 8) == any(result['sent'][name] for name in others)


def test_messages_do_not_grow_with_the_length(mixed):
  """A document of twice the length sends the same messages."""
  short, long = mixed[9:]
  assert short['sent'] == long['sent']
  # 4 exchanges of 2 numbers, in 2 directions, forward and backward: 32. The
  # program may contain none, half or all of the forward pass a second time.
  moved = short['sent']['collective-permute']
  assert set(moved) == {f'{B},32,8'} and sum(moved.values()) in (32, 40, 48)
  # Only gradients of parameters are reduced.
  assert all(
      int(n) <= 32
      for shape in short['sent']['all-reduce']
      for n in re.findall(r'\d+', shape)
  )


def test_inputs_are_padded_to_equal_parts():
  found = mesh_program.run('place', [16, 21])
  for placed, length, missing in zip(found, (16, 21), (0, 3)):
    row = [5] * length
    assert placed['encoder_input_tokens'] == 2 * [row + [1] * missing]
    assert placed['encoder_positions'] == 2 * [row + [0] * missing]


@products.few(
    'sizes', [(1, 2, 2, 2)], [(1, 1, 1, 8), (8, 1, 1, 1)], pytest.mark.slow
)
def test_summaries_are_equal_on_meshes(sizes):
  one, other = mesh_program.run('write', [(1, 1, 1, 1), sizes])
  assert len({tuple(row) for row in one}) > 1
  assert other == one


def test_encoders_with_blocks_equal_one_device():
  """Rows, parameters and heads are split, a document is not; in pieces."""
  keys = dict(
      led=dict(attention_window=16, global_tokens=2),
      pegasus_x=dict(block_size=16, global_tokens=4),
      bigbird_pegasus=dict(block_size=8, num_random_blocks=2),
  )
  found = mesh_program.run('windowed', keys, [(2, 2, 2, 1)])
  assert found.keys() == keys.keys()
  for name, (result,) in found.items():
    assert result['loss'] < 1e-13 and result['gradients'] < 1e-11, name


def test_a_checkpoint_goes_from_mesh_to_mesh(tmp_path):
  equal, parts = mesh_program.run(
      'restore',
      str(tmp_path),
      [(1, 2, 2, 2), (1, 1, 1, 1), (8, 1, 1, 1), (1, 1, 1, 8), (1, 4, 2, 1)],
  )
  assert all(equal) and parts == [4, 1, 1, 1, 8]
