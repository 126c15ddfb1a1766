"""PageSum learns which page to trust (soak)."""

import numpy as np
import pytest

from tests import learned_confidence as task


@pytest.mark.soak
def test_pagesum_learns_its_confidence():
  """After training, permuted pages permute the weights and nothing else."""
  model, params, rows = task.train(0, 300, 300)
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
