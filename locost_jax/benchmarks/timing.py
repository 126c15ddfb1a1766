"""Times calls: interleaved runs and their medians.

Times are wall-clock seconds of whole calls. The calls that are compared are
interleaved, because a machine's speed drifts.
"""

import statistics
import time


def time_interleaved(calls, repeats, seconds, report=lambda text: None):
  """Times several calls in interleaved rounds: a, b, c, a, b, c, ...

  The first round warms up and does not count, unless it alone took longer than
  `seconds`: then it is the only one.

  Args:
    calls: name -> () -> seconds that it took. A call that returns None is not
      made again.
    repeats: rounds that count.
    seconds: no round begins after this time; one round always counts.
    report: takes a line of progress.

  Returns:
    name -> seconds of each counted round; [] for a call whose first result was
    None.
  """
  calls, start = dict(calls), time.perf_counter()
  times = {name: [] for name in calls}
  for turn in range(repeats + 1):
    for name, call in list(calls.items()):
      report(f'{name}, ' + (f'{turn} of {repeats}' if turn else 'warming up'))
      took = call()
      if took is None:
        del calls[name]
      else:
        times[name].append(took)
    late = time.perf_counter() - start > seconds
    if late:
      break
    if turn == 0:
      times = {name: [] for name in times}
  return times


def timed(run, *args):
  """Returns the seconds of run(*args), which returns when its work is done."""
  start = time.perf_counter()
  run(*args)
  return time.perf_counter() - start


def medians(times):
  """Returns name -> median of name -> list of seconds, without empty lists."""
  return {name: statistics.median(row) for name, row in times.items() if row}
