"""The process in which one thing is measured; see `processes`.

What it prepares is a dict: `what` (a row of `rows`, 'encoder', 'learner' or
'peer'), the length, and what `bench.make_spec` makes of the flags.
"""

from locost_jax import allocator
from locost_jax.benchmarks import processes
from locost_jax.progress import Line


def prepare(spec):
  """Returns (what is told of the subject, run); see `processes.serve`."""
  line = Line(seconds=10.0, at_once=True)
  unit = 'words' if spec['what'] == 'gsg' else 'tokens'
  tell = lambda text: line.show(
      [f'{spec["what"]}, {spec["length"]} {unit}: {text}'])
  if spec['what'] == 'peer':
    from locost_jax.benchmarks import peers
    return peers.prepare(spec, tell)
  if spec['what'] == 'gsg':
    from locost_jax.benchmarks import gap_sentences
    return gap_sentences.prepare(spec, tell)
  allocator.trim_after_compiling()
  if spec['what'] == 'run':
    from locost_jax.benchmarks import whole_run
    return whole_run.prepare(spec, tell)
  from locost_jax.benchmarks import rows
  return rows.prepare(spec, tell)


if __name__ == '__main__':
  processes.serve(prepare)
