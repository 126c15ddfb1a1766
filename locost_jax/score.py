"""Scores predictions by the ROUGE of a paper or package, without a model.

  python -m locost_jax.score --predictions=FILE.jsonl --protocol=locost

Each row has `prediction` and `reference`, or `references`, a list of which the
best counts. `main --evaluate` writes such files. Texts are never truncated.

The last line is the signature: it says how the numbers were computed, and goes
with them wherever they are printed. The intervals hold 95% of the means of
1,000 sets of as many documents, drawn from these with replacement.
"""

import json
import os
import sys

from absl import flags

from locost_jax.command_line import commands
from locost_jax.command_line.progress import Progress
from locost_jax.errors import InputError
from locost_jax.evaluation import predictions
from locost_jax.evaluation import scoring
from locost_jax.evaluation.metrics import protocols


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  flags.DEFINE_string(
      'predictions',
      None,
      'FILE: JSON Lines with prediction and reference (or references)',
      flag_values=values,
  )
  flags.DEFINE_string(
      'protocol',
      'locost',
      'how ROUGE is computed. '
      + '; '.join(f'{p.name}: {p.what}' for p in protocols.PROTOCOLS.values()),
      flag_values=values,
  )
  flags.DEFINE_integer(
      'processes',
      None,
      'how many work on it [one for each core]',
      flag_values=values,
  )
  commands.define_format(values, 'what goes to stdout')


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: what else was on the command line; there must be nothing.
  """
  commands.expect_flags_only(arguments)
  if not values.predictions:
    raise InputError('--predictions=FILE is missing: which predictions?')
  protocol = protocols.find(values.protocol)
  pairs = predictions.read(values.predictions)
  progress = Progress()
  scores = scoring.score_pairs(
      pairs,
      protocol,
      values.processes or os.cpu_count() or 1,
      lambda done, total: progress.show('scoring', done, total),
  )
  progress.wipe()
  for line in notes(pairs, scores, protocol):
    print(line, file=sys.stderr)
  result = scoring.summarize(scores, protocol)
  if values.format == 'json':
    print(json.dumps(result))
  else:
    print(text(result))


def notes(pairs, scores, protocol):
  """Yields a line for what could not be scored."""
  blank, wordless = scoring.count_empty(pairs, scores, protocol)
  if blank:
    yield (
        f'warning: empty references: {blank:,} of {len(pairs):,} pairs, '
        'counted as 0'
    )
  if wordless:
    yield (
        'warning: references without a word that --protocol='
        f'{protocol.name} counts: {wordless:,} of {len(pairs):,} pairs, '
        'counted as 0; --protocol=unicode reads every script'
    )


def text(result):
  """Returns the table and the signature of a `scoring.summarize`."""
  lines = [f'{"F1 x 100":<14}  {"":>6}  95% interval']
  for key, title in protocols.TITLES.items():
    if key in result:
      low, high = result['intervals'][key]
      of = ''
      if key in (protocols.MEAN, protocols.GEOMETRIC):
        of = '  of ' + ', '.join(
            protocols.TITLES[name] for name in result['mean_of']
        )
      lines.append(
          f'{title:<14}  {result[key]:6.2f}  {low:.2f} to {high:.2f}{of}'
      )
  return '\n'.join([*lines, result['signature']])


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
