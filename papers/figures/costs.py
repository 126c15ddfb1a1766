"""Memory and throughput against length (LOCOST, figure 4), from `bench`."""

from locost_jax.devices import memory
from locost_jax.errors import InputError
from papers.figures import points
from papers.figures import style

_TITLES = {
    'encode': 'encoder, forward',
    'train': 'train step, forward and backward',
}
# Rows of `bench` that are parts of a model.
_PARTS = ('layer', 'forward', 'step')


def read(paths):
  """Returns {question: {model: [(length, bytes, samples/s), ...]}} of `bench`.

  Bytes and samples/s are None if a run was out of memory; each is None if the
  result has no such number. Without --against, `bench train` has steps alone.
  """
  found = {}
  for path in paths:
    result = points.read_json(path)
    try:
      lines = found.setdefault(result['question'], {})
      names = {row['name'] for row in result['rows']}
      models = {x for x in names if not x.startswith(_PARTS)} or {'step, none'}
      rows = [row for row in result['rows'] if row['name'] in models]
      if result['question'] not in _TITLES or not rows:
        raise LookupError
      for row in rows:
        numbers = row.get('peak_bytes'), row.get('samples_per_second')
        if row.get('out_of_memory', False):
          numbers = None, None
        lines.setdefault(row['name'], []).append((row['length'], *numbers))
    except (LookupError, TypeError, AttributeError):
      raise InputError(
          f'{path}: expected a result of `bench encode` or `bench train`'
      ) from None
  return found


def draw(result, *results):
  """Memory and throughput against length (LOCOST 4).

  A cross marks a length at which a model was out of memory, at the height of
  the model's last value.
  """
  costs = read([result, *results])
  models = list(dict.fromkeys(m for lines in costs.values() for m in lines))
  figure, axes = style.make_figure(
      2, len(costs), 4.2, 2.7, sharex='col', sharey=False
  )
  for column, (command, lines) in zip(axes.T, costs.items()):
    for place, axis in enumerate(column, start=1):
      for model, rows in lines.items():
        look = style.line(models.index(model))
        known = [(row[0], row[place]) for row in rows if row[place]]
        if not known:
          continue
        axis.plot(*zip(*known), label=model, **look)
        cross = dict(color=look['color'], markersize=9, markeredgewidth=2)
        for length, *numbers in rows:
          if numbers == [None, None]:
            axis.plot(length, known[-1][1], 'x', **cross)
      style.count_on(axis.xaxis)
      axis.grid(alpha=0.3)
      drawn = [row[place] for rows in lines.values() for row in rows]
      _scale_values(axis, list(filter(None, drawn)), place == 1)
    column[0].set(title=_TITLES[command], ylabel='peak memory of the process')
    column[1].set(xlabel='length in tokens', ylabel='documents per second')
  style.add_legend(figure, axes.flat)
  return figure


def _scale_values(axis, values, are_bytes):
  """Makes the vertical axis logarithmic if the values span a factor above 8."""
  if values and max(values) > 8 * min(values):
    axis.set_yscale('log', base=2 if are_bytes else 10)
  elif values:
    axis.set_ylim(0, 1.1 * max(values))
    if are_bytes:
      style.bytes_on(axis.yaxis, max(values))
  format_value = memory.format_bytes if are_bytes else '{:g}'.format
  axis.yaxis.set_major_formatter(lambda value, _: format_value(value))
