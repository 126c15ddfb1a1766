"""Training curves of several runs, from their metrics.jsonl."""

import fnmatch
from pathlib import Path

from locost_jax.errors import InputError
from locost_jax.telemetry import metrics_log
from papers.figures import points
from papers.figures import style

KEYS = ('train/loss', 'eval/*/loss', 'eval/*/rouge_mean')


def choose_keys(paths, patterns=KEYS):
  """Returns the numbers of some metrics.jsonl that match shell patterns.

  They are in the order of the patterns; the matches of a pattern are sorted.
  """
  known = sorted(set().union(*map(read_curves, paths)))
  chosen = dict.fromkeys(
      key for pattern in patterns for key in fnmatch.filter(known, pattern)
  )
  if not chosen:
    raise InputError(
        f'--keys={",".join(patterns)}: no such number; expected some of '
        f'{", ".join(known) or "a number of the run, but it logged nothing"}'
    )
  return list(chosen)


def read_curves(path, *needed):
  """Reads {name: [(step, number), ...]} of a run, such as 'train/loss'.

  Steps at which a number is missing or null are left out.

  Raises:
    InputError: no such file, or no line has a name that is `needed`.
  """
  if not Path(path).exists():
    raise InputError(f'{path}: no such file; expected metrics.jsonl of a run')
  curves = {}
  for _, row in metrics_log.read_lines(path):
    for name in row.keys() - {'step'}:
      if row[name] is not None:
        curves.setdefault(name, []).append((row['step'], row[name]))
  for key in needed:
    if key not in curves:
      known = ', '.join(sorted(curves))
      raise InputError(
          f'{path}: no line has {key!r}; expected one of {known}'
          if known
          else f'{path}: has no numbers yet; expected {key!r}'
      )
  return curves


def draw(run, *runs, keys=KEYS):
  """Training curves of WORKDIRs or of their metrics.jsonl."""
  names = points.short_names([run, *runs])
  paths = list(map(points.find_metrics, [run, *runs]))
  keys = choose_keys(paths, keys)
  columns = min(3, len(keys))
  figure, axes = style.make_figure(-(-len(keys) // columns), columns, 3.5, 2.6)
  for axis, key in zip(axes.flat, keys):
    for number, (name, path) in enumerate(zip(names, paths)):
      if curve := read_curves(path).get(key):
        steps, values = zip(*curve)
        axis.plot(steps, values, label=name, **style.line(number, len(steps)))
    axis.grid(alpha=0.3)
    axis.set(title=key, xlabel='step')
    style.integers_on(axis.xaxis)
  for axis in axes.flat[len(keys) :]:
    axis.remove()
  style.add_legend(figure, axes.flat[: len(keys)])
  return figure
