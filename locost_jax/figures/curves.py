"""Training curves of several runs, from their metrics.jsonl."""

import fnmatch

from locost_jax.errors import InputError
from locost_jax.figures import style
from locost_jax.telemetry import metrics_log

KEYS = ('train/loss', 'eval/*/loss', 'eval/*/rouge_mean')


def matches(key, patterns=KEYS):
  """Returns whether a number's name matches one of the shell patterns."""
  return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


def choose_keys(paths, patterns=KEYS):
  """Returns the names of the numbers to draw.

  Args:
    paths: metrics.jsonl of each run.
    patterns: names of numbers, or shell patterns.

  Returns:
    List of names without duplicates; the matches of a pattern are sorted.

  Raises:
    InputError: a file does not exist, or no name matches.
  """
  known = sorted({key for path in paths for key in metrics_log.keys(path)})
  chosen = dict.fromkeys(
      key for pattern in patterns for key in known if matches(key, [pattern])
  )
  if not chosen:
    raise InputError(
        f'--keys={",".join(patterns)}: no such number; expected some of '
        f'{", ".join(known) or "a number of the run, but it logged nothing"}'
    )
  return list(chosen)


def draw(runs, patterns=KEYS):
  """Draws a panel for each number, with a line for each run.

  Args:
    runs: list of (name, path of metrics.jsonl).
    patterns: see `choose_keys`.

  Returns:
    The matplotlib Figure.
  """
  keys = choose_keys([path for _, path in runs], patterns)
  columns = min(3, len(keys))
  figure, axes = style.make_figure(-(-len(keys) // columns), columns, 3.5, 2.6)
  for axis, key in zip(axes.flat, keys):
    for number, (name, path) in enumerate(runs):
      if key not in metrics_log.keys(path):
        continue
      steps, values = metrics_log.read_curve(path, key)
      axis.plot(steps, values, label=name, **style.line(number, len(steps)))
    axis.grid(alpha=0.3)
    axis.set(title=key, xlabel='step')
    axis.xaxis.set_major_locator(style.integers())
  for axis in axes.flat[len(keys) :]:
    axis.remove()
  style.add_legend(figure, axes.flat[: len(keys)])
  return figure
