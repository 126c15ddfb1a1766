"""Training curves of several runs, from their metrics.jsonl."""

import fnmatch

from locost_jax.errors import InputError
from locost_jax.telemetry import metrics_log
from papers.figures import points
from papers.figures import style

KEYS = ('train/loss', 'eval/*/loss', 'eval/*/rouge_mean')


def choose_keys(paths, patterns=KEYS):
  """Returns the numbers of some metrics.jsonl that match shell patterns.

  They are in the order of the patterns; the matches of a pattern are sorted.
  """
  known = sorted(set().union(*map(metrics_log.read_curves, paths)))
  chosen = dict.fromkeys(
      key for pattern in patterns for key in fnmatch.filter(known, pattern)
  )
  if not chosen:
    raise InputError(
        f'--keys={",".join(patterns)}: no such number; expected some of '
        f'{", ".join(known) or "a number of the run, but it logged nothing"}'
    )
  return list(chosen)


def draw(run, *runs, keys=KEYS):
  """Training curves of WORKDIRs or of their metrics.jsonl."""
  names = points.short_names([run, *runs])
  paths = list(map(points.find_metrics, [run, *runs]))
  keys = choose_keys(paths, keys)
  columns = min(3, len(keys))
  figure, axes = style.make_figure(-(-len(keys) // columns), columns, 3.5, 2.6)
  for axis, key in zip(axes.flat, keys):
    for number, (name, path) in enumerate(zip(names, paths)):
      if curve := metrics_log.read_curves(path).get(key):
        steps, values = zip(*curve)
        axis.plot(steps, values, label=name, **style.line(number, len(steps)))
    axis.grid(alpha=0.3)
    axis.set(title=key, xlabel='step')
    style.integers_on(axis.xaxis)
  for axis in axes.flat[len(keys) :]:
    axis.remove()
  style.add_legend(figure, axes.flat[: len(keys)])
  return figure
