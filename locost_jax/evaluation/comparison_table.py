"""Formats the result of `compare_predictions.compare`, 80 columns wide."""

import textwrap

from locost_jax.errors import visible
from locost_jax.evaluation.metrics import protocols

_TITLES = protocols.TITLES | {protocols.GEOMETRIC: 'geomean'}
_HEAD = 'F1 x 100      A       B   A - B   95% interval   p: {:>4}   {:>4} won-tied-lost'
_TESTS = dict(p_bootstrap='boot', p_randomisation='swap')
_FEW = """\
Go by swap, which is exact: of fewer than 50 documents, boot is too often small.
"""
_NOTES = """\
boot: paired bootstrap. swap: approximate randomisation. p: how often chance
alone gives a difference this large. won: documents where A scores higher."""


def format_text(result):
  """Returns the table, the signature and the examples.

  Args:
    result: the dict of `score --format=json` for a comparison: predictions (two
      names), scores (two dicts of `scoring.summarize`), differences, examples,
      signature.
  """
  first, second = result['predictions']
  tests = _order(result)
  head = _HEAD.format(*map(_TESTS.get, tests))
  lines = [f'A: {visible(first)}', f'B: {visible(second)}', '', head]
  lines += [
      _row(title, key, result)
      for key, title in _TITLES.items()
      if key in result['differences']
  ]
  ours, theirs = (scores[protocols.MEAN] for scores in result['scores'])
  if theirs:
    lines.append(f"A's mean is {100 * ours / theirs:.1f}% of B's.")
  few = _FEW * (tests[0] == 'p_randomisation')
  lines += [few + _NOTES, result['signature']]
  if result['examples']:
    lines += ['', 'Documents that differ most, by the mean:']
  for example in result['examples']:
    lines += _example(example)
  return '\n'.join(lines)


def _order(result):
  """Returns the names of both tests, the one to go by first."""
  return sorted(_TESTS, key=lambda test: test != result['leading_test'])


def _row(title, key, result):
  """Returns the line of one kind of ROUGE."""
  found = result['differences'][key]
  ours, theirs = (scores[key] for scores in result['scores'])
  first, second = (found[test] for test in _order(result))
  interval = '{:.2f} to {:.2f}'.format(*found['interval'])
  line = (
      f'{title:<8}{ours:7.2f} {theirs:7.2f} {found["difference"]:+7.2f}'
      f'{interval:>17}{first:8.4f}{second:7.4f}'
  )
  if 'wins' in found:
    line += f' {found["wins"]:,}-{found["ties"]:,}-{found["losses"]:,}'
  return line


def _example(example):
  """Returns the lines of one document."""
  name = example.get('id') or f'line {example["line"]}'
  ours, theirs = example['scores']
  lines = [f'─── {visible(name)[:50]}: A {ours:.2f}, B {theirs:.2f}']
  for label, text in zip('AB', example['texts']):
    lines += textwrap.wrap(
        visible(text),
        80,
        initial_indent=f'{label}  ',
        subsequent_indent='   ',
    )
  return lines
