"""Chunks of documents on several devices give the results of one device."""

import pytest

from tests import mesh_program
from tests.chunk_mesh_program import B
from tests.chunk_mesh_program import C

ONE = (1, 1, 1, 1)


def run(function, *arguments):
  return mesh_program.run(
      function, *arguments, module='tests.chunk_mesh_program'
  )


def test_a_step_equals_the_step_on_one_device():
  """Chunks are sharded over `sequence`, documents over `data` and `fsdp`."""
  meshes = [(2, 1, 1, 4), (1, 2, 1, 4)]
  for sizes, result in zip(meshes, run('step', meshes, {}), strict=True):
    assert result['loss'] < 1e-6, sizes
    assert result['gradients'] < 1e-5 and result['parameters'] < 1e-5, sizes


def test_a_selector_turn_equals_the_turn_on_one_device():
  meshes = [ONE, (2, 1, 1, 4), (1, 2, 2, 2)]
  for sizes, result in zip(meshes[1:], run('turns', meshes), strict=True):
    assert result['turns'] == 1 and result['reward'] > 0
    assert result['metrics'] < 1e-4, sizes
    assert result['selector'] < 1e-4 and result['others'] < 1e-5, sizes


@pytest.mark.parametrize(
    'sizes, settings, model',
    [
        ((2, 1, 1, 4), dict(no_repeat_ngram_size=1), {}),
        ((1, 1, 1, 8), dict(num_beams=3), dict(align='mean', select='first_k')),
    ],
)
def test_encoding_selection_and_generation_equal_one_device(
    sizes, settings, model
):
  """The compact memory has the capacity that the largest document needs."""
  if 'select' in model:
    model = model | dict(limit=70)
  one, other = run('write', [ONE, sizes], settings, model)
  assert other['mask'] == one['mask'] and other['states'] < 1e-6
  assert len({tuple(row) for row in one['tokens']}) == B
  assert one['tokens'] == one['whole']
  assert other['tokens'] == other['whole'] == one['tokens']
  assert other['scores'] == pytest.approx(one['scores'], abs=1e-4)
  assert other['slots'] == one['slots'] >= one['most']
  assert other['slots'] < C * 28
  assert other['chunks'] == C // sizes[3]
  rows, _, slots, _ = other['here']
  assert rows == B // sizes[0] and slots == other['slots'] // sizes[3]


def test_a_step_in_float64():
  meshes = [(2, 1, 1, 4)]
  (result,) = run('step', meshes, {}, 'float64')
  assert result['loss'] < 1e-13 and result['gradients'] < 1e-12, result
