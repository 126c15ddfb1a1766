"""Steps on several devices: equal results, small messages."""

import re

import pytest

from tests import mesh_program
from tests import products
from tests.mesh_program import COLLECTIVES
from tests.page_mesh_program import B
from tests.page_mesh_program import L
from tests.page_mesh_program import P
from tests.page_mesh_program import S
from tests.page_mesh_program import SIMCAS
from tests.page_mesh_program import T

D = 32
ONE = (1, 1, 1, 1)
MESHES = [(2, 1, 1, 4), (1, 2, 1, 4)]
RELEASE = dict(padding='release')


def run(function, *arguments):
  return mesh_program.run(
      function, *arguments, module='tests.page_mesh_program'
  )


def large(sent, rows=2):
  """Returns the messages that contain pages: [(collective, shape)].

  Pages are shapes with a sequence length, except position tables and, in
  all-reduces, confidences [B, T] and mixed states [B, T, D].

  Args:
    sent: from `mesh_program.sent`.
    rows: documents per device.
  """
  found = []
  for name in COLLECTIVES:
    small = {(L, D), (T, D)}
    if name == 'all-reduce':
      small |= {(rows, T), (rows, T, D)}
    for message in sent[name]:
      for shape in message.split('+'):
        sizes = tuple(map(int, filter(None, shape.split(','))))
        has_length = any(n % k == 0 for n in sizes for k in (L, T, S))
        if has_length and sizes not in small:
          found.append((name, shape))
  return found


def check_steps(meshes, results):
  for sizes, result in zip(meshes, results, strict=True):
    assert result['loss'] < 1e-6, sizes
    assert result['gradients'] < 1e-5 and result['parameters'] < 1e-5, sizes
    assert result['flops'] == 1, sizes
    assert not large(result['sent'], B // (sizes[0] * sizes[1])), sizes
    # Only sharded parameters are gathered.
    for name in COLLECTIVES:
      if name != 'all-reduce' and (name != 'all-gather' or sizes[1] == 1):
        assert not result['sent'][name], (sizes, name)


def test_a_step_sends_no_page():
  """Also in pieces in float64, on the other mesh."""
  check_steps(MESHES[:1], run('step', MESHES[:1]))
  (result,) = run('step', MESHES[1:], True, {}, 'float64')
  check_steps(MESHES[1:], [result])
  assert result['loss'] < 1e-13 and result['gradients'] < 1e-12, result


@pytest.fixture(scope='module')
def seen():
  """Returns what short programs saw, all of one process."""
  return run('several', [('control', MESHES[0]), ('rows',), ('refused',)])


def test_the_check_finds_code_that_sends_pages(seen):
  """Negative control: pages are folded into rows and sharded like rows."""
  learning, writing = seen[0]
  assert ('all-gather', f'2,{P},{T},{D}') in large(learning)
  assert ('all-gather', f'{2 * P},{L},4,8') in large(writing)


@products.few(
    'meshes, in_pieces, model',
    [([(1, 1, 1, 8)], True, {}), ([(1, 1, 2, 4)], False, RELEASE)],
    [(MESHES, True, {}), ([MESHES[1], (4, 1, 1, 2)], False, RELEASE)],
    pytest.mark.slow,
)
def test_steps_on_other_meshes(meshes, in_pieces, model):
  results = run('step', meshes, in_pieces, model)
  for sizes, result in zip(meshes, results, strict=True):
    assert result['loss'] < 1e-6 and result['gradients'] < 1e-5, sizes
    if sizes[2] == 1:
      check_steps([sizes], [result])


@products.few(
    'sizes, settings', [(MESHES[1], dict(num_beams=3))], [(MESHES[0], {})]
)
def test_encoding_and_generation_equal_one_device(sizes, settings):
  one, other = run('write', [ONE, sizes], settings)
  assert len({tuple(row) for row in one['tokens']}) == B
  assert other['states'] < 1e-6 and other['tokens'] == one['tokens']
  assert other['scores'] == pytest.approx(one['scores'], rel=1e-4)
  assert other['pages'] == P // 4 and not large(other['sent'])


@pytest.mark.slow
def test_global_decoding():
  """One decoder over all pages; its keys are sharded over `sequence`."""
  model = dict(decoding='global')
  (result,) = run('step', MESHES[:1], False, model)
  assert result['loss'] < 1e-6 and result['gradients'] < 1e-5
  assert not result['sent']['all-gather']
  one, other = run('write', [ONE, MESHES[0]], {}, model)
  assert other['tokens'] == one['tokens'] and other['states'] < 1e-6


@pytest.mark.slow
def test_steps_that_read_states():
  one, other = run('write', [ONE, MESHES[0]], {}, {}, True)
  assert other['tokens'] == one['tokens'] and not large(other['sent'])


def test_rows_are_on_the_devices_of_their_pages(seen):
  returned, own, drawn, different = seen[1]
  assert returned and own and drawn == different


def test_pages_are_never_added_to_a_batch(seen):
  message = 'mesh.sequence=4: does not divide the 6 pages of a document'
  assert seen[2] == message


def test_gradients_through_a_jitted_function():
  assert run('gradients_of_jitted') < 1e-5


def test_a_dry_run_counts_the_pages_of_a_device():
  one, four = run('dry_runs', [ONE, (1, 1, 1, 4)])
  for result in one, four:
    assert result['batch']['input_tokens'] == P * 256
  assert four['flops'] == one['flops']
  assert four['memory']['temporary'] < 0.35 * one['memory']['temporary']


def test_a_step_of_chunks_equals_the_step_on_one_device():
  """Chunks are sharded over `sequence`, documents over `data` and `fsdp`."""
  (result,) = run('step', MESHES[1:], False, SIMCAS)
  assert result['loss'] < 1e-6
  assert result['gradients'] < 1e-5 and result['parameters'] < 1e-5
  (result,) = run('step', MESHES[:1], False, SIMCAS, 'float64')
  assert result['loss'] < 1e-13 and result['gradients'] < 1e-12, result


@products.few('sizes', [(1, 2, 2, 2)], [(2, 1, 1, 4)])
def test_a_selector_turn_equals_the_turn_on_one_device(sizes):
  (result,) = run('turns', [ONE, sizes])
  assert result['turns'] == 1 and result['reward'] > 0
  assert result['metrics'] < 1e-4
  assert result['selector'] < 1e-4 and result['others'] < 1e-5


@products.few(
    'sizes, settings, model',
    [(MESHES[0], dict(num_beams=2, no_repeat_ngram_size=1), {})],
    [
        ((1, 1, 1, 8), dict(num_beams=3), dict(align='mean', select='first_k')),
    ],
)
def test_encoding_selection_and_generation_equal_one_device(
    sizes, settings, model
):
  """The compact memory has the capacity that the largest document needs."""
  if 'select' in model:
    model = model | dict(limit=70)
  one, other = run('write_compact', [ONE, sizes], settings, model)
  assert other['mask'] == one['mask'] and other['states'] < 1e-6
  assert len({tuple(row) for row in one['tokens']}) == B
  assert one['tokens'] == one['whole']
  assert other['tokens'] == other['whole'] == one['tokens']
  assert other['scores'] == pytest.approx(one['scores'], abs=1e-4)
  assert other['slots'] == one['slots'] >= one['most']
  assert other['slots'] < P * L
  assert other['pages'] == P // sizes[3]
  rows, _, slots, _ = other['here']
  assert rows == B // sizes[0] and slots == other['slots'] // sizes[3]


LENGTH = mesh_program.L


def is_activation(shape):
  """Whether a shape has a sequence axis, whole or sharded, with rows or not."""
  numbers = map(int, re.findall(r'\d+', shape))
  lengths = LENGTH, LENGTH // 2, LENGTH // 8, mesh_program.T
  rows = 1, 2, mesh_program.B
  return bool({n * length for n in rows for length in lengths} & set(numbers))


@pytest.fixture(scope='module')
def steps():
  """Returns {sizes: how a step of LOCOST on the mesh differs}."""
  meshes = (2, 2, 1, 2), (1, 1, 1, 8), (1, 1, 8, 1), (1, 2, 2, 2)
  return dict(zip(meshes, mesh_program.run('step', meshes, False)))


def check_gathers(sizes, result):
  assert result['loss'] < 1e-6 and result['gradients'] < 1e-5, sizes
  for name in 'all-gather', 'all-to-all', 'reduce-scatter':
    moved = result['sent'][name]
    assert not list(filter(is_activation, moved)), (sizes, name, moved)
  # Only sharded parameters are gathered.
  assert bool(result['sent']['all-gather']) == (sizes[1] > 1)


def test_a_step_gathers_no_activation(steps):
  for sizes in (2, 2, 1, 2), (1, 1, 1, 8):
    check_gathers(sizes, steps[sizes])


@products.few(
    'meshes, in_pieces',
    [([(2, 2, 1, 2)], True)],
    [([(1, 1, 1, 8)], True), ([(8, 1, 1, 1), (1, 8, 1, 1)], False)],
    pytest.mark.slow,
)
def test_other_steps_gather_no_activation(meshes, in_pieces):
  results = mesh_program.run('step', meshes, in_pieces)
  for sizes, result in zip(meshes, results, strict=True):
    check_gathers(sizes, result)


def test_tensor_parallel_blocks(steps):
  """Exactly two all-reduces per block of a layer, forward and backward."""
  for sizes in (1, 1, 8, 1), (1, 2, 2, 2):
    result = steps[sizes]
    assert result['loss'] < 1e-6 and result['gradients'] < 1e-5, sizes
    rows, length = mesh_program.B // sizes[1], LENGTH // sizes[3]
    # An encoder layer has a mixer and a feed-forward; the look-up in the
    # embedding, which is sharded by the vocabulary; the sum of the
    # cross-attentions' gradients for the encoder.
    reduced = sum(
        count
        for shape, count in result['sent']['all-reduce'].items()
        if f'{rows},{length},32' in shape or f'{rows * length},32' in shape
    )
    assert reduced == 2 * 2 + 1 + 1, result['sent']
    every = mesh_program.B * LENGTH
    words = [f'{rows},{length}', f'{mesh_program.B},{LENGTH}', f'{every},']
    words.append(f'{rows * length},')
    for name in 'all-gather', 'all-to-all':
      for shape in result['sent'][name]:
        assert not any(x in shape for x in words), (sizes, name)
