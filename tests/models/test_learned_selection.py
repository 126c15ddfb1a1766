"""SimCAS's selector learns what to read (soak); the task is tested too."""

import functools

import jax
import numpy as np
import pytest

from tests import learned_selection as task
from tests.models import small
from tests.training import test_ppo


def test_documents_match_a_plain_loop():
  batch, marked = task.make_documents((3, 7), 200)
  inputs = batch['encoder_input_tokens']
  assert inputs.shape == (200, task.C, task.L)
  assert marked.shape == (200, task.C, task.L - 1)
  assert (inputs[:, :, 0] == task.START).all()
  assert (inputs[:, :, -1] == task.END).all()
  for tokens, places, targets in zip(
      inputs, marked, batch['decoder_target_tokens']
  ):
    found = [t for t in tokens.ravel() if t in task.PAYLOAD]
    assert [*found, task.END] == targets.tolist()
    assert tokens[:, 1:][places].tolist() == found
  others = inputs[:, :, 1:-1][~marked[:, :, :-1]]
  assert np.isin(others, task.FILLER).all()
  np.testing.assert_array_equal(
      batch['decoder_input_tokens'][:, 1:],
      batch['decoder_target_tokens'][:, :-1],
  )
  # All chunks and all positions occur.
  assert np.abs(marked.mean((0, 2)) - 4 / (8 * 31)).max() < 0.006
  assert (marked.any((0, 1))[:-1]).all() and not marked[:, :, -1].any()
  again, _ = task.make_documents((3, 7), 200)
  other, _ = task.make_documents((3, 8), 200)
  same = [(inputs == b['encoder_input_tokens']).all() for b in (again, other)]
  assert same == [True, False]


def test_measurements_match_a_plain_loop():
  batch, marked = task.make_documents((0,), 6)
  model = task.build('ppo')
  inputs, before = batch['encoder_input_tokens'], batch['decoder_input_tokens']
  params = small.moved_params(task.make_config('ppo', 1).model, 0.3, True)[
      'params'
  ]
  measured = task.measure(params, batch, marked)
  for select, key in (('ppo', 'reward'), ('none', 'everything')):
    apply = jax.jit(task.build(select).apply)
    logits = apply({'params': params}, inputs, before)
    written = np.ones(before.shape, bool)
    rewards = test_ppo.likelihood(
        logits, batch['decoder_target_tokens'], written, 1.0
    )
    assert measured[key] == pytest.approx(float(np.mean(rewards)), rel=1e-4)
  encode = jax.jit(functools.partial(model.apply, method='encode'))
  memory = encode({'params': params}, inputs)
  counts = dict(marked=[], others=[], selected=[])
  for b in range(6):
    chosen = np.asarray(memory['mask'][b, :, 1:])
    counts['selected'].append(chosen.sum())
    counts['marked'] += chosen[marked[b]].tolist()
    counts['others'] += chosen[~marked[b]].tolist()
  for key, values in counts.items():
    assert measured[key] == pytest.approx(float(np.mean(values)))
  assert measured['argmax_selected'] != measured['selected']


@pytest.mark.soak
def test_simcas_learns_what_to_read():
  params, steps = task.read(0)
  assert steps < task.MOST
  _, rows = task.select(0, params, 100, every=100)
  assert rows[0]['marked'] == pytest.approx(0.5, abs=0.05)
  assert rows[0]['others'] == pytest.approx(0.5, abs=0.05)
  assert not task.is_learned(rows[0])
  assert task.is_learned(rows[-1]), rows[-1]
