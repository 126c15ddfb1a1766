r"""Warm start: the parameters of another model in the places where they fit.

For each parameter, by its path:

- The first row (regex, replacement) of config.train.init_map whose regex
  matches the whole path decides: the replacement is a path in the source, \1
  and \g<0> standing for what was matched; '' leaves the parameter fresh.
- Where no row does, it is the same path. Of another model (config.model.name)
  only in those parts of the tree, `encoder`, `decoder` and so on, that have the
  same paths in both: T5's decoder is LOCOST's; its encoder is not, though some
  of its kernels go by a name and a shape that LOCOST's have, too.

What the source lacks stays fresh. Another shape is an error, but for the rows
of a vocabulary, which releases round up: those that both have are taken.
"""

import math
import re
from typing import NamedTuple

from locost_jax.devices.sharding import VOCABULARY
from locost_jax.errors import InputError

_SHOWN = 6  # groups of parameters in a report


class Origin(NamedTuple):
  """Whose parameters they are.

  params: {path: array}; of arrays or shapes.
  name: config.model.name; '': not known, taken to be the same model.
  where: what train.init_from says, to name it.
  """

  params: dict
  name: str
  where: str


def takes_vocabulary(rows, target):
  """Whether an array with a row per token is to be taken from the source.

  Args:
    rows: config.train.init_map.
    target: the paths that the run needs.
  """
  return any(
      path in target and _by_rows(rows, path) != '' for path, _ in VOCABULARY
  )


def choose(origin, target, name, rows):
  """Returns which parameter comes from where.

  Args:
    origin: an Origin.
    target: {path: array or shape}, what the run needs.
    name: its config.model.name.
    rows: config.train.init_map.

  Returns:
    {path: path in the source} of what is taken.

  Raises:
    InputError: a row that matches nothing or names what is not there, shapes
      that differ, or nothing that is taken.
  """
  given = f'train.init_from={origin.where}'
  for pattern, _ in rows:
    if not any(re.fullmatch(pattern, path) for path in target):
      raise InputError(
          f'train.init_map: {pattern!r} matches no parameter; '
          f'paths read like {min(target)!r}'
      )
  alike = {_part(path) for path in target}
  if origin.name not in ('', name):
    alike = {
        part
        for part in alike
        if _below(part, target) == _below(part, origin.params)
    }
  chosen = {}
  for path, leaf in target.items():
    source = _by_rows(rows, path)
    if source is None:
      known = _part(path) in alike and path in origin.params
      source = path if known else ''
    elif source and source not in origin.params:
      raise InputError(
          f'{given}: has no {source}, which train.init_map wants '
          f'for {path}; paths there read like '
          f'{min(origin.params)!r}'
      )
    if not source:
      continue
    have, want = origin.params[source].shape, leaf.shape
    if len(have) != len(want) or any(
        h != w and (path, i) not in VOCABULARY
        for i, (h, w) in enumerate(zip(have, want))
    ):
      raise InputError(
          f'{given}: {source} is {list(have)}; expected {list(want)}, as this '
          'model has it (a row of train.init_map like '
          f"('{_part(path)}/.*', '') leaves it fresh)"
      )
    chosen[path] = source
  if not chosen:
    raise InputError(
        f'{given}: a {origin.name or "model"} that has nothing in '
        f'common with this {name}'
    )
  return chosen


def take(origin, target, chosen):
  """Returns {path: array} of what is taken, rows that are too many left out.

  Args:
    origin, target: as in `choose`.
    chosen: its result.
  """
  taken = {}
  for path, source in chosen.items():
    array, want = origin.params[source], target[path]
    part = tuple(slice(size) for size in want.shape)
    taken[path] = array[part].astype(want.dtype, copy=False)
  return taken


def describe(origin, target, chosen):
  """Returns a line: how much was copied, what stays fresh, what was not used.

  Args:
    origin, target, chosen: as in `take`.
  """

  def size(path):
    return math.prod(target[path].shape)

  total, copied, parts = sum(map(size, target)), 0, []
  for path, source in chosen.items():
    have, want = origin.params[source].shape, target[path].shape
    copied += math.prod(map(min, have, want))
    for i, (h, w) in enumerate(zip(have, want)):
      if h != w:
        parts.append(
            f'{path}: {h:,} {"columns" if i else "rows"} there, {w:,} here'
        )
  fresh = target.keys() - chosen.keys()
  unused = origin.params.keys() - set(chosen.values())
  line = (
      f'warm start from {origin.where}'
      f'{f" ({origin.name})" if origin.name else ""}: copied {copied:,} of '
      f'{total:,} parameters ({copied / total:.0%})'
  )
  if fresh:
    line += '; fresh: ' + _list(
        f'{group} ({sum(map(size, _below(group, fresh))):,})'
        for group in _summits(fresh, target)
    )
  if parts:
    line += f'; {", ".join(parts)}'
  if unused:
    line += f'; not used: {_list(_summits(unused, origin.params))}'
  return line


def _by_rows(rows, path):
  """The source that train.init_map names for a path; None: it has no row."""
  for pattern, replacement in rows:
    match = re.fullmatch(pattern, path)
    if match:
      try:
        return match.expand(replacement)
      except (re.error, IndexError) as error:
        raise InputError(f'train.init_map: {replacement!r}: {error}') from None
  return None


def _part(path):
  return path.split('/')[0]


def _below(prefix, paths):
  return {
      path for path in paths if path == prefix or path.startswith(f'{prefix}/')
  }


def _summits(chosen, paths, depth=1):
  """The shortest beginnings of paths below which all are chosen."""
  found = []
  for prefix in sorted({'/'.join(path.split('/')[:depth]) for path in paths}):
    below = _below(prefix, paths)
    inside = below & chosen
    if inside == below:
      found.append(prefix)
    elif inside:
      found += _summits(inside, below, depth + 1)
  return found


def _list(words):
  words = list(words)
  more = len(words) - _SHOWN
  return ', '.join(words[:_SHOWN]) + (f' and {more} more' if more > 0 else '')
