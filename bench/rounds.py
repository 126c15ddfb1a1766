"""Interleaved rounds: times the models of a comparison, one after the other.

A machine's speed drifts, so compared calls run a, b, c, a, b, c, ...
"""

import contextlib
import functools
import statistics

from bench import workers

# Questions whose whole model is compared with those of --against.
COMPARED = 'encode', 'generate', 'train'
# How a part of ours ends, unless it is a question's only one.
OURS = ', ours'


def groups(question, name, against):
  """Returns lists of parts; the parts of a list are measured together.

  Train steps need much memory, so ours is compared with one peer at a time,
  which also runs recomputing its activations, as ours does in pieces.

  Args:
    question: one of `QUESTIONS`.
    name: config.model.name.
    against: parts of `peers`.
  """
  ours = [name + OURS]
  if question == 'encode' and name == 'locost':
    ours = [f'locost, kernels {form}{OURS}' for form in ('made', 'kept')]
    return [['layer'], ours + against]
  if question == 'train':
    forms = [p + form for p in against for form in ('', ', recomputing')]
    return [['steps'], *(ours + [form] for form in forms)]
  return [(ours if question in COMPARED else ['all']) + against]


def interleave(calls, repeats, seconds, report=lambda text: None):
  """Runs several calls in interleaved rounds.

  The first round is a warm-up and does not count, unless it takes longer than
  `seconds`; then it is the only round.

  Args:
    calls: {name: function () -> dict with seconds}. A call that returns None
      is not repeated.
    repeats: number of counted rounds.
    seconds: no round starts after this measured time; one round always counts.
    report: function (line) that shows progress.

  Returns:
    {name: answers of the counted rounds}.
  """
  calls, spent = dict(calls), 0.0
  answers = {name: [] for name in calls}
  for turn in range(repeats + 1):
    for name, call in list(calls.items()):
      report(f'{name}, ' + (f'{turn} of {repeats}' if turn else 'warming up'))
      answer = call()
      if answer is None:
        del calls[name]
      else:
        answers[name].append(answer)
        spent += answer['seconds']
    if spent > seconds:
      break
    if turn == 0:
      answers = {name: [] for name in answers}
  return answers


def measure(spec, parts, out_of_memory, report):
  """Measures a group of parts at one length, each in a process of its own.

  Args:
    spec: see `programs`; part and module are added.
    parts: an element of `groups`.
    out_of_memory: set of parts that needed too much memory; these are skipped.
      New ones are added.
    report: function (line) that shows progress.

  Returns:
    (rows, device). A row is a dict for JSON and the printer: length, name, the
    facts of the call, the numbers of `summarise`, and ratio (seconds / those of
    the first row); or out_of_memory.
  """
  rows, calls, device = {}, {}, ''

  def run(part, name, action):
    try:
      return action()
    except workers.OutOfMemory as error:
      out_of_memory.add(part)
      rows[name] = dict(length=spec['length'], name=name, out_of_memory=True)
      rows[name]['peak_bytes'] = error.args[0]

  with contextlib.ExitStack() as stack:
    for part in [part for part in parts if part not in out_of_memory]:
      report(f'preparing {part}')
      full = dict(spec, part=part, module=module_of(spec['question'], part))
      worker = run(part, part, lambda full=full: workers.Worker(full))
      if worker is None:
        continue
      stack.enter_context(worker)
      device = device or worker.device
      for name, facts in worker.facts.items():
        rows[name] = dict(length=spec['length'], name=name, **facts)
      for name in worker.names:
        call = functools.partial(worker.run, name)
        calls[name] = functools.partial(run, part, name, call)
    answers = interleave(calls, spec['repeats'], spec['seconds'], report)
  for name, found in answers.items():
    if found and 'out_of_memory' not in rows[name]:
      rows[name] |= summarise(rows[name], found)
  rows = list(rows.values())
  for row in rows:
    if 'seconds' in row and 'seconds' in rows[0]:
      row['ratio'] = row['seconds'] / rows[0]['seconds']
  return rows, device


def module_of(question, part):
  """Returns the module whose `prepare` measures a part of a question."""
  if not (part in ('layer', 'steps', 'all') or part.endswith(OURS)):
    return 'bench.peers'
  return f'bench.{"encode" if question == "generate" else question}'


def summarise(facts, answers):
  """Returns the numbers of a row from the answers of its rounds.

  Args:
    facts: of the call. documents and tokens: how many it reads; written: how
      many tokens it writes.
    answers: see `workers.Measurement.run`.
  """
  times, cpu_times = (
      [answer[key] for answer in answers] for key in ('seconds', 'cpu_seconds')
  )
  seconds = statistics.median(times)
  row = dict(seconds=seconds, cpu_seconds=statistics.median(cpu_times))
  if 'written' in facts:
    row['seconds_per_written'] = seconds / facts['written']
  if 'tokens' in facts:
    row['tokens_per_second'] = facts['tokens'] / seconds
  if 'documents' in facts:
    row['samples_per_second'] = facts['documents'] / seconds
  peak = max(answer['peak_bytes'] for answer in answers)
  return dict(row, peak_bytes=peak, times=times, cpu_times=cpu_times)
