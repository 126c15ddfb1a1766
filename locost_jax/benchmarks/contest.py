"""Models beside each other: ours and PyTorch's, each in its own process.

Their encoders, or their train steps. All models of a round are loaded, and they
take turns; of each the median time, the ratios and the peak of its process with
the whole model loaded. Of train steps, which hold much memory, a round has ours
and one other. What would hold more memory than it may is ended and told; longer
inputs of it are skipped.
"""

import contextlib
import statistics

from locost_jax.benchmarks import measure
from locost_jax.benchmarks import processes

MADE, KEPT = 'locost, kernels made', 'locost, kernels kept'
LEARNS = 'locost'
# Of a peer's name: it computes activations again, as ours does in pieces.
RECOMPUTES = ', recomputing'


def subjects(spec, peers):
  """The names of all that is compared: ours, then each peer in each form."""
  if not spec['learns']:
    return [MADE, KEPT, *peers]
  return [LEARNS, *(peer + form for peer in peers for form in ('', RECOMPUTES))]


def make_spec(spec, name, length):
  """The spec of a subject by its name, one of `subjects`."""
  spec = dict(spec, length=length)
  if name == LEARNS:
    return dict(spec, what='learner')
  if name in (MADE, KEPT):
    return dict(spec, what='encoder', kept=name == KEPT)
  return dict(spec, what='peer', peer=name.removesuffix(RECOMPUTES),
              recomputes=name.endswith(RECOMPUTES))


def compare_all(spec, names, length, ended, tell):
  """`compare` of encoders; of train steps, of ours beside each of the others.

  Ours is then several subjects: 'locost, beside longt5' and so on.
  """
  others = [name for name in names if name != LEARNS and name not in ended]
  if not (spec['learns'] and others):
    return compare(spec, names, length, ended, tell)
  rows = []
  for other in others:
    pair = compare(spec, [LEARNS, other], length, ended, tell)
    for row in pair:
      if row['subject'] == LEARNS:
        row['subject'] = f'{LEARNS}, beside {other}'
    rows += pair
  return rows


def compare(spec, names, length, ended, tell):
  """Times all subjects at one length.

  Args:
    spec: as of `child`, without what.
    names: of `subjects`.
    length: tokens.
    ended: name -> the length at which its memory ended; filled.
    tell: takes a line of progress.

  Returns:
    A list of dicts: subject, length, times, seconds, loaded_peak_bytes (of the
    process before its first run), peak_bytes (after all), ratio_made and
    ratio_kept or, of steps, ratio (its time in ours), peak_ratio (our peak,
    kernels made, in its); or memory_ended.
  """
  rows = {name: dict(subject=name, length=length) for name in names
          if name not in ended}
  with contextlib.ExitStack() as stack:
    running = {}

    def end(name, error):
      ended[name] = length
      rows[name].update(memory_ended=True, peak_bytes=error.held)
      if name in running:
        running.pop(name).close()

    for name in list(rows):
      tell(f'{length} tokens: preparing {name}')
      try:
        process = processes.Process(
            make_spec(spec, name, length), spec['limit'])
      except processes.MemoryEnded as error:
        end(name, error)
        continue
      stack.callback(process.close)
      rows[name].update(process.prepared)
      rows[name]['loaded_peak_bytes'] = rows[name].pop('peak_bytes')
      if rows[name].get('too_large_to_keep'):
        process.close()
        del rows[name]
        continue
      running[name] = process

    def ask(name):
      try:
        answer = running[name].ask()
      except processes.MemoryEnded as error:
        end(name, error)
        return None
      rows[name].update(answer)
      return answer['seconds']

    times = measure.take_turns(
        {name: (lambda name=name: ask(name)) for name in running},
        spec['repeats'], spec['seconds'],
        lambda text: tell(f'{length} tokens: {text}'))
  for name, row in rows.items():
    if not row.get('memory_ended'):
      seconds = statistics.median(times[name])
      row.update(
          times=times[name], seconds=seconds,
          tokens_per_second=spec['batch_size'] * length / seconds,
          samples_per_second=spec['batch_size'] / seconds)
  _add_ratios(rows)
  return list(rows.values())


def _add_ratios(rows):
  for ours, key in (
      (MADE, 'ratio_made'), (KEPT, 'ratio_kept'), (LEARNS, 'ratio')):
    for row in rows.values():
      if 'seconds' in row and 'seconds' in rows.get(ours, ()):
        row[key] = row['seconds'] / rows[ours]['seconds']
  ours = rows.get(MADE) or rows.get(LEARNS) or {}
  for row in rows.values():
    if 'seconds' in ours:
      row['peak_ratio'] = ours['peak_bytes'] / row['peak_bytes']


def find_longest(spec, name, start, tell):
  """The longest input whose whole process stays below spec['limit'].

  Lengths are doubled from `start` until memory ends, then 1.5 times the last
  one is tried. A pass longer than spec['seconds'] ends the search too.

  Returns:
    dict(subject, length, peak_bytes, ended_at): length is None if not even
    `start` fits; ended_at is the shortest length that did not, None if time
    ended the search.
  """
  found = dict(subject=name, length=None, peak_bytes=None, ended_at=None)

  def fits(length):
    tell(f'longest input of {name}: trying {length} tokens')
    try:
      with processes.Process(
          make_spec(spec, name, length), spec['limit']) as process:
        answer = process.ask()
    except processes.MemoryEnded:
      found['ended_at'] = length
      return False
    found.update(peak_bytes=answer['peak_bytes'], length=length)
    return answer['seconds'] <= spec['seconds']

  length = start
  while fits(length):
    length *= 2
  if found['length'] and found['ended_at']:
    fits(found['length'] * 3 // 2)
  return found
