"""Formats numbers with a unit and about three digits.

s  seconds            n  an integer         %  a share
B  bytes              g  three digits       e  a small difference
x  a ratio            f  two decimals       t  a text, unchanged
"""

# The largest unit that fits is used. Times from a minute on have no decimals.
_SECONDS = ((60.0, 's'), (1.0, 's'), (1e-3, 'ms'), (1e-6, 'us'))
_BYTES = ((1 << 30, 'GiB'), (1 << 20, 'MiB'), (1 << 10, 'KiB'))
_OTHERS = {
    'n': '{:.0f}',
    'g': '{:.3g}',
    'x': '{:.2f}x',
    'f': '{:.2f}',
    'e': '{:.1e}',
}


def format_value(value, unit):
  """Returns a value with its unit; '-' for None."""
  if value is None:
    return '-'
  if unit == 't':
    return value
  if unit == 's':
    return _format_seconds(value)
  if unit == 'B':
    return _format_bytes(value)
  if unit == '%':
    return f'{100 * value:.3g}%'
  return _OTHERS[unit].format(value)


def format_length(value):
  """Returns '16K' for 16384, '2' for 2."""
  return f'{value / 1024:g}K' if value >= 1024 else f'{value:g}'


def _format_seconds(value):
  for size, name in _SECONDS:
    if value >= 0.9995 * size:  # rounds up to `size` with three digits
      if size == 60:
        return f'{value:.0f} s'
      return f'{value / size:#.3g} {name}'.replace('. ', ' ')
  return f'{value * 1e9:.0f} ns'


def _format_bytes(value):
  for size, name in _BYTES:
    if value >= size:
      digits = '.4g' if value < 1000 * size else '.0f'
      return f'{value / size:{digits}} {name}'
  return f'{value} B'
