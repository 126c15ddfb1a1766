"""The cost of summarising one document: seconds, joules, money."""

import numpy as np

from locost_jax.benchmarks import jax_programs
from locost_jax.benchmarks import timing
from locost_jax.benchmarks import whole_model
from locost_jax.telemetry import energy


def measure_cost(spec, report):
  """Measures the cost of summarising spec['length'] tokens."""
  call, joules = _make_call(spec)
  result = jax_programs.time_programs({'whole': call}, spec, report)
  # Only the counted rounds.
  count = len(result['times']['whole'])
  values = [value for value, _ in joules[-count:]]
  B = spec['batch_size']
  seconds = result['seconds']['whole'] / B
  used = None if None in values else float(np.median(values)) / B
  prices = spec['prices']
  kwh = None if used is None else used / energy.JOULES_PER_KWH
  return dict(
      result,
      tokens=spec['tokens'],
      seconds_per_book=seconds,
      joules=used,
      energy_source=joules[-1][1],
      money=money(prices, seconds, kwh),
      grams_co2=None
      if None in (used, prices['carbon_intensity'])
      else energy.grams_co2(used, prices['carbon_intensity']),
  )


def _make_call(spec):
  """Compiles the whole model.

  Returns:
    (call, joules): call() summarises once, returns the seconds, and appends
    (joules or None, source of the reading) to the list `joules`.
  """
  whole, _ = whole_model.compile_whole(spec)
  joules = []

  def call():
    with energy.Meter() as meter:
      took = timing.timed(whole)
    joules.append((meter.joules, meter.source))
    return took

  return call, joules


def money(prices, seconds, kwh):
  """Returns the price of machine time and energy; None if neither is known.

  Args:
    prices: dict(per_hour, per_kwh); None for an unknown price.
    seconds: of machine time.
    kwh: of energy, or None.
  """
  if prices['per_hour'] is None and None in (prices['per_kwh'], kwh):
    return None
  return (prices['per_hour'] or 0) * seconds / 3600 + (
      prices['per_kwh'] or 0
  ) * (kwh or 0)
