"""Training curves of several runs, from their metrics.jsonl."""

import fnmatch

from locost_jax.errors import InputError
from locost_jax.figures import style
from locost_jax.telemetry import metrics_log

KEYS = ('train/loss', 'eval/*/loss', 'eval/*/rouge_mean')


def matches(key, patterns=KEYS):
  """Whether a number's name is one of some shell patterns."""
  return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)


def choose_keys(paths, patterns=KEYS):
  """Returns which numbers of the runs are drawn.

  Args:
    paths: of metrics.jsonl.
    patterns: names of numbers, or shell patterns of them.

  Returns:
    List of names, those of a pattern in alphabetical order, each once.

  Raises:
    InputError: no such file, or no number of that name.
  """
  known = sorted({key for path in paths for key in metrics_log.keys(path)})
  chosen = dict.fromkeys(
      key for pattern in patterns for key in known if matches(key, [pattern])
  )
  if not chosen:
    raise InputError(
        f'--keys={",".join(patterns)}: no such number; expected some of '
        f'{", ".join(known) or "those of a run, but it has logged none"}'
    )
  return list(chosen)


def draw(runs, patterns=KEYS):
  """Draws each number in a panel, each run as a line.

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
