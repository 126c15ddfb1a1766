"""Times calls in interleaved rounds, and takes medians.

Times are wall-clock seconds of whole calls. Compared calls are interleaved,
because a machine's speed drifts.
"""

import statistics
import time


def time_interleaved(calls, repeats, seconds, report=lambda text: None):
  """Times several calls in interleaved rounds: a, b, c, a, b, c, ...

  The first round is a warm-up and does not count, unless it takes longer than
  `seconds`; then it is the only round.

  Args:
    calls: {name: function () -> seconds it took}. A call that returns None is
      not repeated.
    repeats: number of counted rounds.
    seconds: no round starts after this time; one round always counts.
    report: function (line) that shows progress.

  Returns:
    {name: seconds of each counted round}; [] for a call whose first result was
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
  """Returns the seconds of run(*args), which must block until it is done."""
  start = time.perf_counter()
  run(*args)
  return time.perf_counter() - start


def medians(times):
  """Returns {name: median} of {name: list of seconds}, without empty lists."""
  return {name: statistics.median(row) for name, row in times.items() if row}
