"""PageSum learns which page to trust (soak); the task is tested too."""

import jax
import numpy as np
import pytest

from locost_jax import models
from tests import learned_confidence as task
from tests.models import small


def test_documents_match_a_plain_loop():
  batch, right = task.make_documents((3, 7), 200)
  for pages, targets, found in zip(
      batch['encoder_input_tokens'], batch['decoder_target_tokens'], right
  ):
    for slot, mark in enumerate(task.MARKS):
      ((page, place),) = np.argwhere(pages == mark)
      assert page == found[slot]
      assert pages[page, place + 1] == targets[slot]
    assert sorted(found) == [0, 1, 2, 3]
    assert np.isin(pages, task.PAYLOADS).sum() == 4
  np.testing.assert_array_equal(
      batch['decoder_input_tokens'][:, 1:],
      batch['decoder_target_tokens'][:, :-1],
  )
  assert (batch['decoder_input_tokens'][:, 0] == task.START).all()
  assert len(np.unique(right, axis=0)) == 24  # all orders of the slots occur
  again, _ = task.make_documents((3, 7), 200)
  other, _ = task.make_documents((3, 8), 200)
  same = [
      (batch['encoder_input_tokens'] == b['encoder_input_tokens']).all()
      for b in (again, other)
  ]
  assert same == [True, False]


def test_accuracy_and_weight_match_a_plain_loop():
  config = task.make_config('pages', 1).model
  model = models.build(config)
  batch, right = task.make_documents((0,), 6)
  inputs, before = batch['encoder_input_tokens'], batch['decoder_input_tokens']
  params = small.moved_params(config, 0.3, True)
  logits = np.array(jax.jit(model.apply)(params, inputs, before))
  # Half of the targets are the model's predictions, so accuracy is not 0.
  batch['decoder_target_tokens'][::2] = logits.argmax(-1)[::2]
  weights = np.asarray(task.page_weights(model, params['params'], batch))
  hits, of_right = [], []
  for b in range(6):
    for t in range(task.P):
      target = batch['decoder_target_tokens'][b, t]
      hits.append(logits[b, t, target] == logits[b, t].max())
      of_right.append(weights[b, right[b, t], t])
  measured = task.measure(params['params'], batch, right, model=model)
  assert measured['accuracy'] == pytest.approx(np.mean(hits))
  assert measured['weight'] == pytest.approx(np.mean(of_right), abs=1e-6)
  assert 0.5 <= np.mean(hits) < 1 and np.std(of_right) > 0.05


@pytest.mark.soak
def test_pagesum_learns_its_confidence():
  """After training, permuted pages permute the weights and nothing else."""
  model, params, rows = task.train('pages', 0, 300, 300)
  assert not task.is_learned(rows[0])
  assert rows[0]['weight'] == pytest.approx(1 / task.P, abs=0.02)
  assert task.is_learned(rows[-1])
  batch, right = task.make_documents((0, 2), 32)
  order = np.array([2, 0, 3, 1])
  permuted = batch | dict(
      encoder_input_tokens=batch['encoder_input_tokens'][:, order]
  )
  weights, of_permuted = (
      np.asarray(task.page_weights(model, params, b)) for b in (batch, permuted)
  )
  np.testing.assert_allclose(of_permuted, weights[:, order], 0, 1e-5)
  assert np.abs(of_permuted - weights).max() > task.WEIGHT  # negative control
  logits, of_permuted = (
      np.asarray(
          model.apply(
              {'params': params},
              b['encoder_input_tokens'],
              b['decoder_input_tokens'],
          )
      )
      for b in (batch, permuted)
  )
  np.testing.assert_allclose(of_permuted, logits, 0, 1e-4)
  # The page with the largest weight is the right one.
  assert (weights.argmax(1) == right).mean() >= task.ACCURACY
