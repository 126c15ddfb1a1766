"""Tests with a few cases in CI; `python -m pytest -m soak` runs the others."""

import pytest


def parametrize(names, few, others, *marks):
  """Like pytest.mark.parametrize: few cases with marks, others with `soak`."""
  values = lambda case: case if ',' in names else (case,)
  few = [pytest.param(*values(x), marks=marks) for x in few]
  others = [pytest.param(*values(x), marks=pytest.mark.soak) for x in others]
  return pytest.mark.parametrize(names, few + others)
