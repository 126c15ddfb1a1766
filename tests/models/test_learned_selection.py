"""SimCAS's selector learns what to read (soak)."""

import pytest

from tests import learned_selection as task


@pytest.mark.soak
def test_simcas_learns_what_to_read():
  params, steps = task.read(0)
  assert steps < task.MOST
  before, after = task.select(0, params, 100)
  assert before['marked'] == pytest.approx(0.5, abs=0.05)
  assert before['others'] == pytest.approx(0.5, abs=0.05)
  assert not task.is_learned(before)
  assert task.is_learned(after), after
