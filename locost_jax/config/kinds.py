"""Kinds of values: of config keys, flags, and keys in untrusted files."""

import math
import numbers
import re
import sys
from typing import Any, Callable, NamedTuple

from locost_jax.errors import InputError

# Upper bounds far above any machine's memory; all but SEED fit an int32.
TOKENS = 10**8  # of a document
COUNT = 2**31 - 1  # steps, examples, seconds
IDS = 10**7  # of a vocabulary
MILLION = 10**6  # documents of a batch, the width of a layer, hosts
LAYERS = 1000
SEED = 2**32 - 1
LONE = re.compile('[\ud800-\udfff]')  # a surrogate, half of a character


class Kind(NamedTuple):
  """The values that a key may have.

  Attributes:
    expected: what is expected, for messages; {} stands for the key's name. Or a
      function of a wrong value that returns it.
    fits: value -> bool.
    range: the values of a number in few words, for --help; '': all.
    type: of a flag that has such values.
  """

  expected: str | Callable
  fits: Callable
  range: str = ''
  type: type = str

  def problem(self, name, value):
    """Returns the end of an error message, or None for a valid value."""
    if self.fits(value):
      return None
    if callable(self.expected):
      return self.expected(value)
    return f'expected {self.expected.replace("{}", name)}'


class Function(str):
  """A function in a config: config.json stores and compares its name."""

  def __new__(cls, function):
    named = super().__new__(cls, function.__name__)
    named.call = function
    return named

  # A ConfigDict stores str(value) and is copied.
  __str__ = lambda self: self
  __deepcopy__ = lambda self, memo: self

  def __reduce__(self):
    raise InputError(f'{self}, a function of a config: needs --processes=1')


def integer(least, most):
  """Returns the Kind of integers from `least` to `most`, inclusive."""
  shown = f'{least} to {most}'
  if most >= 10_000:
    shown = f'at least {least}' if least > 0 else ''
  return Kind(
      f'an integer, {least} <= {{}} <= {most:,}',
      lambda x: _is(numbers.Integral, x) and least <= x <= most,
      shown,
      int,
  )


def number(least=-math.inf, most=math.inf, above=False, below=False):
  """Returns the Kind of finite numbers from `least` to `most`.

  `above` excludes `least`, `below` excludes `most`.
  """
  shown = ''
  if math.isfinite(most):
    left, right = '<' if above else '<=', '<' if below else '<='
    shown = f'{least:g} {left} {{}} {right} {most:g}'
  elif math.isfinite(least):
    shown = f'{{}} {">" if above else ">="} {least:g}'
  words = shown if math.isfinite(most) else f'a finite number, {shown}'
  return Kind(
      words.removesuffix(', '),
      lambda x: _is_finite(x)
      and least <= x <= most
      and not (above and x == least)
      and not (below and x == most),
      shown.replace('{}', 'x'),
      float,
  )


def choice(*values):
  """Returns the Kind of the given values."""
  return Kind(
      'one of ' + ', '.join(map(repr, values)),
      lambda x: any(type(x) is type(known) and x == known for known in values),
  )


def list_of(kind):
  """Returns the Kind of lists whose items are of another Kind."""
  return Kind(
      f'a list, each item {kind.expected}'.replace('{}', 'item'),
      lambda x: isinstance(x, list) and all(map(kind.fits, x)),
  )


def path(*schemes):
  """Returns the Kind of a local path, or of several separated by commas.

  schemes: allowed URL schemes, such as 'hf' for hf://org/name; '*': all.
  """
  others = ''.join(f' or {scheme}://' for scheme in schemes)

  def problem(x):
    if not isinstance(x, str):
      return 'expected a path'
    if '*' in schemes:
      return None
    for scheme in re.findall(r'([^\s,/]*)://', x):
      if scheme not in schemes:
        end = f'cannot be used here: expected a local path{others}'
        return f'{scheme}:// {end}'
    return 'expected a path without a null character' if '\0' in x else None

  return Kind(problem, lambda x: problem(x) is None)


def lengths(most):
  """Returns the Kind of ascending lengths from 1 to `most`."""
  return Kind(
      f'ascending lengths from 1 to {most:,}, like (128, 512)',
      lambda x: _is_row(x)
      and all(_is(numbers.Integral, n) and 1 <= n <= most for n in x)
      and list(x) == sorted(set(x)),
  )


def patterns(what, kind):
  """Returns the Kind of a table of rows (regex of paths, value).

  A value is called `what` in messages and has a Kind.
  """

  def problem(x):
    if not _is_row(x):
      return f'expected ((regex of paths, {what}), ...)'
    for row in x:
      if not _is_row(row) or len(row) != 2 or not isinstance(row[0], str):
        return f'{row!r} is not (regex of paths, {what})'
      if error := regex_error(row[0]):
        return f'{row[0]!r} is not a regex: {error}'
      if wrong := kind.problem(what, row[1]):
        return f'{row!r}: {wrong}'
    return None

  return Kind(problem, lambda x: problem(x) is None)


def regex_error(pattern):
  """Returns why a pattern does not compile, or None."""
  try:
    re.compile(pattern)
  except re.error as error:
    return str(error)
  return None


def _is(number_type, x):
  return isinstance(x, number_type) and not isinstance(x, bool)


def _is_finite(x):
  # Compare: math.isfinite fails for an integer too large for a float.
  return _is(numbers.Real, x) and abs(x) <= sys.float_info.max


def _is_row(x):
  return isinstance(x, (tuple, list))


BOOLEAN = Kind('True or False', lambda x: isinstance(x, bool), type=bool)
# Any text; its reader checks its choices.
TEXT = Kind(
    'a string without lone surrogates',
    lambda x: isinstance(x, str) and not LONE.search(x),
)
TEXTS = Kind(
    "texts, like ('loss', 'rouge')",
    lambda x: _is_row(x) and all(isinstance(text, str) for text in x),
    type=list,
)
LIST = Kind('a list', lambda x: isinstance(x, list))
OBJECT = Kind('an object', lambda x: isinstance(x, dict))
REGEX = Kind(
    lambda x: 'expected a regex'
    + (f': {regex_error(x)}' if isinstance(x, str) else ''),
    lambda x: isinstance(x, str) and regex_error(x) is None,
)
# A number of steps, or a share of train.steps.
STEPS = Kind(
    'a whole number of steps, or a share of train.steps between 0 and 1',
    lambda x: _is_finite(x) and (0 < x < 1 or (0 <= x < 2**31 and x % 1 == 0)),
)
_OF_TYPE = {
    bool: BOOLEAN,
    str: TEXT,
    tuple: TEXTS,
    int: integer(0, COUNT),
    float: number(0),
}


class Key(NamedTuple):
  """A key of the config.

  Attributes:
    default: its value in the default config.
    text: its meaning, for --help=config.
    given: its Kind; None: that of all values of the default's type.
    old: its name in configs that earlier versions stored, in the same section.
    is_needed: of a model's key, whether every stored config must have it.
  """

  default: Any
  text: str
  given: Kind | None = None
  old: str = ''
  is_needed: bool = False

  @property
  def kind(self):
    """The allowed values."""
    return self.given or _OF_TYPE[type(self.default)]
