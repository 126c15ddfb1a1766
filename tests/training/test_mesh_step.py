"""A train step on 8 devices equals one on 1 device, gathers no activation."""

import re

import pytest

from tests import mesh_program
from tests.mesh_program import B
from tests.mesh_program import L
from tests.mesh_program import T


def is_activation(shape):
  """Whether a shape has a sequence axis, whole or sharded, with rows or not."""
  numbers = map(int, re.findall(r'\d+', shape))
  lengths = L, L // 2, L // 8, T
  return bool(
      {rows * length for rows in (1, 2, B) for length in lengths} & set(numbers)
  )


@pytest.mark.parametrize(
    'meshes, in_pieces',
    [
        ([(2, 2, 1, 2)], False),
        pytest.param(
            [(8, 1, 1, 1), (1, 8, 1, 1), (1, 1, 1, 8)],
            False,
            marks=pytest.mark.mesh,
        ),
        pytest.param(
            [(1, 1, 1, 8), (2, 2, 1, 2)], True, marks=pytest.mark.slow
        ),
    ],
)
def test_a_step_gathers_no_activation(meshes, in_pieces):
  for sizes, result in zip(meshes, mesh_program.run('step', meshes, in_pieces)):
    assert result['loss'] < 1e-6 and result['gradients'] < 1e-5, sizes
    for name in 'all-gather', 'all-to-all', 'reduce-scatter':
      moved = result['sent'][name]
      assert not list(filter(is_activation, moved)), (sizes, name, moved)
    # Only sharded parameters are gathered.
    assert bool(result['sent']['all-gather']) == (sizes[1] > 1)


@pytest.mark.mesh
def test_tensor_parallel_blocks():
  """Exactly two all-reduces per block of a layer, forward and backward."""
  meshes = [(1, 1, 8, 1), (1, 2, 2, 2)]
  for sizes, result in zip(meshes, mesh_program.run('step', meshes, False, 2)):
    assert result['loss'] < 1e-6 and result['gradients'] < 1e-5, sizes
    rows, length = B // sizes[1], L // sizes[3]
    # 2 encoder layers, with a mixer and a feed-forward each; the look-up in the
    # embedding, which is sharded by the vocabulary; the sum of the
    # cross-attentions' gradients for the encoder.
    reduced = sum(
        count
        for shape, count in result['sent']['all-reduce'].items()
        if f'{rows},{length},32' in shape or f'{rows * length},32' in shape
    )
    assert reduced == 2 * 2 * 2 + 1 + 1, result['sent']
    for name in 'all-gather', 'all-to-all':
      assert not any(
          words in shape
          for shape in result['sent'][name]
          for words in (
              f'{rows},{length}',
              f'{B},{L}',
              f'{rows * length},',
              f'{B * L},',
          )
      ), (sizes, name)


@pytest.mark.mesh
def test_a_step_in_float64():
  """In pieces, because their loop counters are then 64 bits wide too."""
  meshes = [(2, 2, 1, 2)]
  (result,) = mesh_program.run('step_in_float64', meshes)
  assert result['loss'] < 1e-13 and result['gradients'] < 1e-12, result
