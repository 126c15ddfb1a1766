"""Growth of a time with the length of the input."""

import math
import statistics

# Time per token is relative to this length or, if missing, to the shortest.
BASE_LENGTH = 16384


def fit_exponent(lengths, seconds):
  """Returns p of seconds = c length^p, by least squares of the logarithms.

  Returns None with fewer than two different lengths.
  """
  points = [
      (math.log(x), math.log(y)) for x, y in zip(lengths, seconds) if y > 0
  ]
  if len({x for x, _ in points}) < 2:
    return None
  mean_x = statistics.fmean(x for x, _ in points)
  mean_y = statistics.fmean(y for _, y in points)
  return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
      (x - mean_x) ** 2 for x, _ in points
  )


def describe_growth(points):
  """Describes the growth of a time: dict(exponent, per_token, base), or None.

  Args:
    points: [(length, seconds)].

  Returns:
    per_token is the time per token at the longest input / at the length `base`.
    None with fewer than two different lengths.
  """
  points = sorted(points)
  exponent = fit_exponent(*zip(*points)) if points else None
  if exponent is None:
    return None
  lengths = [length for length, _ in points]
  base = BASE_LENGTH if BASE_LENGTH in lengths else lengths[0]
  (longest, last), per_base = points[-1], dict(points)[base] / base
  return dict(exponent=exponent, per_token=last / longest / per_base, base=base)
