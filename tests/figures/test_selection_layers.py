"""Pictures of the selection show the numbers in the files."""

import json

import numpy as np
import pytest

from locost_jax.errors import InputError
from locost_jax.figures import selection_layers

pytest.importorskip('matplotlib', reason='the pictures need matplotlib')


def write_rows(path, rows):
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return path


def points(line):
  return [list(map(float, pair)) for pair in zip(*line.get_data())]


def test_the_curves_of_a_run(tmp_path):
  """Rows are left out if numbers are missing, 0 or null, or if cut off."""
  path = write_rows(
      tmp_path / 'metrics.jsonl',
      [
          {'step': 5, 'train/selected': 0.0, 'train/reward': 0.0},
          {'step': 10, 'train/selected': 120.5, 'train/reward': 3.0},
          {'step': 10, 'eval/loss': 1.0},
          {'step': 20, 'train/selected': 60.0, 'train/reward': None},
          {'step': 30, 'train/selected': 31, 'train/reward': 9.5},
      ],
  )
  with open(path, 'a') as f:
    f.write('{"step": 40, "train/sel')
  figure = selection_layers.draw_training(path, limit=32)
  left, right = figure.axes
  curve, limit = left.lines
  assert points(curve) == [[10, 120.5], [20, 60], [30, 31]]
  assert set(limit.get_ydata()) == {32}
  assert points(right.lines[0]) == [[10, 3], [30, 9.5]]


def test_a_run_without_a_selector_is_refused(tmp_path):
  path = write_rows(tmp_path / 'm.jsonl', [{'step': 1, 'train/loss': 2.0}])
  with pytest.raises(InputError, match="'train/selected'; expected .*loss"):
    selection_layers.draw_training(path)
  with pytest.raises(InputError, match='none.jsonl: no such file'):
    selection_layers.draw_training(tmp_path / 'none.jsonl')


def test_time_and_selected_tokens_against_length(tmp_path):
  rows = [
      dict(tokens_kept=n, tokens_selected=n // 3, seconds=n / 100)
      for n in (4096, 1024, 2048)
  ]
  path = write_rows(tmp_path / 'rows.jsonl', rows)
  figure = selection_layers.draw_lengths(path)
  for axis, name in zip(figure.axes, ('tokens_selected', 'seconds')):
    want = sorted([row['tokens_kept'], row[name]] for row in rows)
    assert points(axis.lines[0]) == want
  del rows[1]['tokens_selected']
  write_rows(path, rows)
  with pytest.raises(InputError, match="row 2 has no number 'tokens_selected'"):
    selection_layers.draw_lengths(path)
  with pytest.raises(InputError, match='has no rows'):
    selection_layers.draw_lengths(write_rows(path, []))


@pytest.mark.parametrize('layers', [1, 3, 8])
def test_a_matrix_for_each_layer(layers):
  """Rows have at most six layers: cosines above, the paper's Sim below."""
  values = np.random.default_rng(0).uniform(-0.2, 1, (2, layers, 4, 4))
  figure = selection_layers.draw_similarity(values)
  shown = [axis for axis in figure.axes if axis.get_title()]
  assert len(shown) == 2 * layers
  for axis in shown:
    name, _, layer = axis.get_title().partition(', layer ')
    image = axis.images[0]
    expected = values[('cosine', 'Sim').index(name), int(layer) - 1]
    np.testing.assert_array_equal(image.get_array(), expected)
    assert image.get_clim() == shown[0].images[0].get_clim()  # the same scale
