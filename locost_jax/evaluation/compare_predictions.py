"""Compares the predictions of two systems on the same documents."""

import functools
import itertools
import re

import numpy as np

from locost_jax.config import tables
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.evaluation.metrics import intervals
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import rouge

_TIE = 1e-9  # F1 x 100; larger than rounding errors
_TITLES = protocols.TITLES | {protocols.GEOMETRIC: 'geomean'}
_NOTES = """\
p: how often chance alone gives a difference this large, by approximate
randomisation. won: documents where A scores higher."""


def match(ours, theirs, names):
  """Returns the pairs `theirs` in the order of `ours`.

  Pairs are matched by id. If no row of either file has an id, they are matched
  by position, and the references must be equal. An InputError names the first
  difference of the files.
  """
  if any(pair.id is not None for pair in (*ours, *theirs)):
    one, other = map(_by_id, (ours, theirs), names)
    for (rows, name), (others, file) in itertools.permutations(
        zip((one, other), names)
    ):
      for key, pair in rows.items():
        if key not in others:
          raise InputError(
              f'{name}:{pair.line}: id {_show(key)} is not in {file} '
              f'({len(ours):,} and {len(theirs):,} rows): expected the same '
              f'documents; {_advise(names)}'
          )
    sets = ours[0].test_set, theirs[0].test_set
    if all(sets) and sets[0] != sets[1]:
      raise InputError(
          f'{names[0]} has {sets[0]}; {names[1]} has {sets[1]}, with other '
          'references: expected the same test set'
      )
    return [other[pair.id] for pair in ours]
  if len(ours) != len(theirs):
    raise InputError(
        f'{names[0]} has {len(ours):,} rows, {names[1]} has {len(theirs):,}, '
        'without ids: expected the same documents in the same order'
    )
  for one, other in zip(ours, theirs):
    if one.references != other.references:
      raise InputError(
          f'{names[0]}:{one.line} and {names[1]}:{other.line} have '
          'different references, and no ids: expected the same documents in '
          'the same order'
      )
  return theirs


def _advise(names):
  """Returns what to do about two files with different ids."""
  splits = re.findall(r'-(validation|test)-\d[^/]*$', '\n'.join(names), re.M)
  if len(set(splits)) == 2:
    return f'one is of {splits[0]}, the other of {splits[1]}: use --split=test'
  return 'an `id` in each row of the test set names them alike'


def _by_id(pairs, name):
  """Returns {id: Row}; raises for a missing or repeated id."""
  found = {}
  for pair in pairs:
    if pair.id is None:
      raise InputError(
          f"{name}:{pair.line}: no field 'id', which other rows have: expected "
          'it in all rows of both files, or in none'
      )
    if pair.id in found:
      raise InputError(
          f'{name}:{pair.line}: id {_show(pair.id)} is also in line '
          f'{found[pair.id].line}: expected each id once'
      )
    found[pair.id] = pair
  return found


def warnings(pairs, names, protocol, is_chosen=False):
  """Yields warnings; none about a protocol that the user has chosen."""
  others = sum(
      sorted(one.references) != sorted(other.references)
      for one, other in zip(*pairs)
  )
  if others:
    yield (
        f'warning: {names[0]} and {names[1]} have different references '
        f'for {others:,} of {len(pairs[0]):,} ids: each prediction is scored '
        'with the references of its own file'
    )
  if is_chosen:
    return
  now = protocols.method(protocols.signature(protocol, len(pairs[0])))
  for side, name in zip(pairs, names):
    written = {protocols.method(pair.signature) for pair in side} - {''}
    if different := sorted(written - {now}):
      yield (
          f'warning: {name} was written with scores of another signature, '
          f'{visible(different[0])}; both files are scored again as {now}: do '
          'not compare these scores with the earlier ones'
      )


def compare(scores, protocol):
  """Compares two systems document by document.

  Args:
    scores: two arrays [n, KEYS], from `rouge.score_rows`, of the same documents
      in the same order.

  Returns:
    {kind of ROUGE or mean: the dict of `intervals.compare` with wins, ties and
    losses, numbers of documents (not for the geometric mean, which a single
    document lacks)}.
  """
  ours, theirs = scores
  names = [*rouge.KEYS, *[protocols.GEOMETRIC] * protocol.geometric]
  found = intervals.compare(
      ours, theirs, functools.partial(rouge.with_geometric, protocol)
  )
  differences = dict(zip(names, found, strict=True))
  for key, by in zip(rouge.KEYS, (ours - theirs).T):
    differences[key].update(
        wins=int((by > _TIE).sum()),
        ties=int((np.abs(by) <= _TIE).sum()),
        losses=int((by < -_TIE).sum()),
    )
  return differences


def _show(key):
  return repr(visible(key if len(key) <= 60 else key[:57] + '...'))


def format_text(result):
  """Returns the table and the signature.

  Args:
    result: the dict of `score --format=json` for a comparison: predictions (two
      names), scores (two dicts of `rouge.summarize`), differences, signature.
  """
  first, second = result['predictions']
  rows = [['F1 x 100', 'A', 'B', 'A - B', '95% interval', 'p', 'won-tied-lost']]
  for key, found in result['differences'].items():
    cells = [
        _TITLES[key],
        *(f'{scores[key]:.2f}' for scores in result['scores']),
        f'{found["difference"]:+.2f}',
        '{:.2f} to {:.2f}'.format(*found['interval']),
        f'{found["p_randomisation"]:.4f}',
    ]
    if 'wins' in found:
      cells.append(f'{found["wins"]:,}-{found["ties"]:,}-{found["losses"]:,}')
    rows.append(cells)
  lines = [f'A: {visible(first)}', f'B: {visible(second)}', '']
  lines += tables.align(rows, (0, 6))
  ours, theirs = (scores[protocols.MEAN] for scores in result['scores'])
  if theirs:
    lines.append(f"A's mean is {100 * ours / theirs:.1f}% of B's.")
  lines += [_NOTES, result['signature']]
  return '\n'.join(lines)
