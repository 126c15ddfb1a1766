"""Products of options: a stage has some, another or none the others."""

import pytest


def parametrize(names, cases, core):
  """Like pytest.mark.parametrize; `core` has the cases of the core."""
  parts = [[x for x in cases if (x in core) == own] for own in (True, False)]
  return few(names, *parts, others=pytest.mark.products)


def few(names, cases, rest, *marks, others=pytest.mark.soak):
  """Like pytest.mark.parametrize; the cases have `marks`, the rest `others`."""
  rows = [(x, marks) for x in cases] + [(x, others) for x in rest]
  values = lambda case: case if ',' in names else (case,)
  given = [pytest.param(*values(case), marks=marks) for case, marks in rows]
  return pytest.mark.parametrize(names, given)
