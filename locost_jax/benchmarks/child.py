"""The process in which one thing is measured; see `processes`.

What it prepares is a dict: `what` (a row of `rows`, 'encoder' or 'peer'), the
length, and what `bench.make_spec` makes of the flags.
"""

from locost_jax.benchmarks import measure
from locost_jax.benchmarks import processes


def prepare(spec):
  """Returns (what is told of the subject, run); see `processes.serve`."""
  tell = measure.Progress(f'{spec["what"]}, {spec["length"]} tokens: ')
  if spec['what'] == 'peer':
    from locost_jax.benchmarks import peers
    return peers.prepare(spec, tell)
  from locost_jax.benchmarks import rows
  return rows.prepare(spec, tell)


if __name__ == '__main__':
  processes.serve(prepare)
