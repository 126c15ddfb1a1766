"""Kinds of values, such as integers in a range.

A kind has one method, `problem(name, value)`. It returns None for a valid
value, else the end of an error message, such as 'expected 0 <= b1 < 1'.
"""

import math
import numbers
import re
from typing import NamedTuple


class Integer(NamedTuple):
  """Integers from `least` to `most`, inclusive."""

  least: int
  most: int

  def problem(self, name, value):
    """Returns the end of an error message, or None for a valid value."""
    if _is(numbers.Integral, value) and self.least <= value <= self.most:
      return None
    return f'expected an integer, {self.least} <= {name} <= {self.most:,}'


class Number(NamedTuple):
  """Finite numbers; `above` and `below` exclude the lower and upper bound."""

  least: float = -math.inf
  most: float = math.inf
  above: bool = False
  below: bool = False

  def problem(self, name, value):
    """Returns the end of an error message, or None for a valid value."""
    if (
        _is(numbers.Real, value)
        and math.isfinite(value)
        and self.least <= value <= self.most
        and not (self.above and value == self.least)
        and not (self.below and value == self.most)
    ):
      return None
    if math.isfinite(self.most):
      left = '<' if self.above else '<='
      right = '<' if self.below else '<='
      return f'expected {self.least:g} {left} {name} {right} {self.most:g}'
    if math.isfinite(self.least):
      sign = '>' if self.above else '>='
      return f'expected a finite number, {name} {sign} {self.least:g}'
    return 'expected a finite number'


class Steps(NamedTuple):
  """Integers from 0 to `most`, or a share of train.steps between 0 and 1."""

  most: int

  def problem(self, name, value):
    """Returns the end of an error message, or None for a valid value."""
    del name
    if _is(numbers.Real, value) and (
        0 < value < 1 or (0 <= value <= self.most and value % 1 == 0)
    ):
      return None
    return (
        'expected a whole number of steps, or a share of train.steps between '
        '0 and 1'
    )


class Boolean(NamedTuple):
  """True or False."""

  def problem(self, name, value):
    """Returns the end of an error message, or None for a valid value."""
    del name
    return None if isinstance(value, bool) else 'expected True or False'


class Text(NamedTuple):
  """Any text; its reader checks its choices."""

  def problem(self, name, value):
    """Returns the end of an error message, or None for a valid value."""
    del name
    return None if isinstance(value, str) else 'expected a text'


class Texts(NamedTuple):
  """A tuple or list of texts."""

  def problem(self, name, value):
    """Returns the end of an error message, or None for a valid value."""
    del name
    if _is_row(value) and all(isinstance(x, str) for x in value):
      return None
    return "expected texts, like ('loss', 'rouge')"


class Path(NamedTuple):
  """A local path, or several separated by commas.

  Attributes:
    schemes: allowed URL schemes, such as 'hf' for hf://org/name; None: all.
  """

  schemes: tuple | None = ()

  def problem(self, name, value):
    """Returns the end of an error message, or None for a valid value."""
    del name
    if not isinstance(value, str):
      return 'expected a path'
    if self.schemes is None:
      return None
    for scheme in re.findall(r'([^\s,/]*)://', value):
      if scheme not in self.schemes:
        others = ''.join(f' or {other}://' for other in self.schemes)
        return f'{scheme}:// cannot be used here: expected a local path{others}'
    if '\0' in value:
      return 'expected a path without a null character'
    return None


class Lengths(NamedTuple):
  """Ascending lengths from 1 to `most`."""

  most: int

  def problem(self, name, value):
    """Returns the end of an error message, or None for a valid value."""
    del name
    if (
        _is_row(value)
        and all(_is(numbers.Integral, n) and 1 <= n <= self.most for n in value)
        and list(value) == sorted(set(value))
    ):
      return None
    return (
        f'expected ascending lengths from 1 to {self.most:,}, like (128, 512)'
    )


class Patterns(NamedTuple):
  """A table of rows (regex of paths, value).

  Attributes:
    what: what a row's value is, for error messages.
    kind: the kind of a row's value.
  """

  what: str
  kind: tuple

  def problem(self, name, value):
    """Returns the end of an error message, or None for a valid value."""
    if not _is_row(value):
      return f'expected ((regex of paths, {self.what}), ...)'
    for row in value:
      if not _is_row(row) or len(row) != 2 or not isinstance(row[0], str):
        return f'{row!r} is not (regex of paths, {self.what})'
      if error := regex_error(row[0]):
        return f'{row[0]!r} is not a regex: {error}'
      if wrong := self.kind.problem(self.what, row[1]):
        return f'{row!r}: {wrong}'
    return None


class Pattern(NamedTuple):
  """A regex."""

  def problem(self, name, value):
    """Returns the end of an error message, or None for a valid value."""
    del name
    if not isinstance(value, str):
      return 'expected a regex'
    error = regex_error(value)
    return error and f'expected a regex: {error}'


def regex_error(pattern):
  """Returns why a pattern does not compile, or None."""
  try:
    re.compile(pattern)
  except re.error as error:
    return str(error)
  return None


def _is(number, value):
  return isinstance(value, number) and not isinstance(value, bool)


def _is_row(value):
  return isinstance(value, (tuple, list))
