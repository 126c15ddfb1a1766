"""Products of options: the core has some, the stage `products` the others."""

import pytest


def parametrize(names, cases, core):
  """Like pytest.mark.parametrize; `core` has the cases of the core."""

  def make(case):
    values = case if isinstance(case, tuple) else (case,)
    marks = () if case in core else pytest.mark.products
    return pytest.param(*values, marks=marks)

  return pytest.mark.parametrize(names, list(map(make, cases)))
