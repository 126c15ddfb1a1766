"""Times locost_jax.score against a plain loop over rouge_score.

  python -m tests.rouge_speed --pairs=1000
  python -m tests.rouge_speed --predictions=FILE.jsonl

Both run in interleaved rounds of 20 pairs, in one process. Without
--predictions the pairs are texts of 500 words from the built-in corpus. All
scores must be exactly equal. Prints the median of the rounds.
"""

import itertools
import statistics
import time

from absl import flags
from rouge_score import rouge_scorer

from bench import gsg
from locost_jax.command_line import commands
from locost_jax.command_line.progress import Progress
from locost_jax.data import text as text_lib
from locost_jax.errors import InputError
from locost_jax.evaluation import predictions
from locost_jax.evaluation import scoring
from locost_jax.evaluation.metrics import protocols

ROUND = 20  # pairs
WORDS = 500  # of a text


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  flags.DEFINE_integer(
      'pairs', 1000, 'most pairs to score', lower_bound=1, flag_values=values
  )
  flags.DEFINE_string(
      'predictions',
      None,
      'FILE: JSON Lines in the format of locost_jax.score',
      flag_values=values,
  )


def main(values, arguments):
  """Runs the command."""
  commands.expect_flags_only(arguments)
  pairs = (
      predictions.read(values.predictions)
      if values.predictions
      else list(itertools.islice(make_pairs(), values.pairs))
  )[: values.pairs]
  progress, times = Progress(), {'locost': [], 'google': []}
  for start in range(0, len(pairs), ROUND):
    for name, found in times.items():
      found.append(measure(pairs[start : start + ROUND], name))
    progress.show('pairs', start, len(pairs))
  progress.wipe()
  for name, found in times.items():
    ours, loop = (statistics.median(column) for column in zip(*found))
    ratio = statistics.median(theirs / mine for mine, theirs in found)
    print(
        f'{name}: {len(pairs):,} pairs, equal scores; a pair takes '
        f'{1e3 * ours:.1f} ms, in the loop {1e3 * loop:.0f} ms; '
        f'{ratio:.1f} times as fast'
    )


def make_pairs():
  """Yields pairs of different texts of the built-in corpus, endlessly."""
  texts = list(map(' '.join, gsg.make_documents(WORDS)))
  for distance in itertools.count(1):
    for i, text in enumerate(texts):
      yield predictions.Pair(text, [texts[(i + distance) % len(texts)]])


def measure(pairs, name):
  """Returns the seconds per pair: (ours, the loop over rouge_score).

  Raises:
    InputError: the scores differ.
  """
  begin = time.perf_counter()
  ours = scoring.score_pairs(pairs, protocols.find(name))
  between = time.perf_counter()
  scorer = rouge_scorer.RougeScorer(
      protocols.TYPES, use_stemmer=name == 'google'
  )
  on_lines = lambda text: '\n'.join(text_lib.split_sentences(text))
  theirs = [
      scorer.score_multi(
          list(map(on_lines, pair.references)), on_lines(pair.prediction)
      )
      for pair in pairs
  ]
  end = time.perf_counter()
  for pair, mine, other in zip(pairs, ours, theirs):
    for key in protocols.TYPES:
      if mine[key] != 100 * other[key].fmeasure:
        raise InputError(f'{key} differs: {pair}')
  return (between - begin) / len(pairs), (end - between) / len(pairs)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
