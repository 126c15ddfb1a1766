"""Memory and throughput against length (LOCOST, figure 4), from `bench`."""

from locost_jax.errors import InputError
from locost_jax.figures import style

_TITLES = {
    'encode': 'encoder, forward',
    'train': 'train step, forward and backward',
}


def read(results):
  """Returns memory and speed of the models in results of `bench`.

  Args:
    results: list of (name, result): the JSON object that `bench` wrote.

  Returns:
    {command: {model: [(length, bytes, samples/s), ...]}}; bytes or samples/s
    are None if a run was out of memory or the result has no such number.

  Raises:
    InputError: not a result of `bench encode` or `bench train`.
  """
  found = {}
  for name, result in results:
    command, points = result.get('command'), []
    if command in list(_TITLES):  # a list, because JSON may not be hashable
      try:
        points = list(_points(result))
      except (KeyError, TypeError, AttributeError):
        pass  # not written by `bench`
    if not points:
      raise InputError(
          f'{name}: expected a result of `bench encode` or `bench train`'
      )
    lines = found.setdefault(command, {})
    for model, point in points:
      lines.setdefault(model, []).append(point)
  return found


def _points(result):
  """Yields (model, (length, bytes, samples/s)) of a result."""
  for row in result.get('contest') or _alone(result):
    ended = row.get('memory_ended', False)
    yield row['subject'], (
        row['length'],
        None if ended else _peak(row),
        None if ended else row.get('samples_per_second'),
    )


def _peak(row):
  return row.get('device_peak_bytes') or row.get('peak_bytes')


def _alone(result):
  """Yields the rows of `bench train` without --against, like a comparison's."""
  batch = result.get('settings', {}).get('batch_size', 1)
  for row in result['rows'] if result['command'] == 'train' else ():
    seconds = row.get('seconds', {}).get('step none')
    yield dict(
        row,
        subject='locost',
        samples_per_second=batch / seconds if seconds else None,
    )


def draw(costs):
  """Draws memory and throughput against length (LOCOST, figure 4).

  A cross marks a length at which a model was out of memory, at the height of
  the model's last value.

  Args:
    costs: the result of `read`.

  Returns:
    The matplotlib Figure.
  """
  models = list(dict.fromkeys(m for lines in costs.values() for m in lines))
  figure, axes = style.make_figure(
      2, len(costs), 4.2, 2.7, sharex='col', sharey=False
  )
  for column, (command, lines) in zip(axes.T, costs.items()):
    for place, axis in enumerate(column, start=1):
      for model, rows in lines.items():
        look = style.line(models.index(model))
        known = [(row[0], row[place]) for row in rows if row[place]]
        if known:
          axis.plot(*zip(*known), label=model, **look)
          for row in rows:
            if row[place] is None and row[1] is None:
              axis.plot(
                  row[0],
                  known[-1][1],
                  'x',
                  color=look['color'],
                  markersize=9,
                  markeredgewidth=2,
              )
      style.count_on(axis.xaxis)
      axis.grid(alpha=0.3)
    memory, speed = (
        [row[place] for rows in lines.values() for row in rows if row[place]]
        for place in (1, 2)
    )
    _scale_values(column[0], memory, style.bytes_on)
    _scale_values(column[1], speed)
    column[0].set(title=_TITLES[command], ylabel='peak memory of the process')
    column[1].set(xlabel='length in tokens', ylabel='documents per second')
  style.add_legend(figure, axes.flat)
  return figure


def _scale_values(axis, values, ticks_on=None):
  """Makes the vertical axis logarithmic if the values span a factor above 8.

  Args:
    axis: an Axes.
    values: the values drawn on it.
    ticks_on: `style.bytes_on`; None: the values are plain numbers.
  """
  spans = bool(values) and max(values) > 8 * min(values)
  if spans:
    axis.set_yscale('log', base=2 if ticks_on else 10)
  elif values:
    axis.set_ylim(0, 1.1 * max(values))
    if ticks_on:
      ticks_on(axis.yaxis, max(values))
  format_value = style.format_bytes if ticks_on else '{:g}'.format
  axis.yaxis.set_major_formatter(lambda value, _: format_value(value))
