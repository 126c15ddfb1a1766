"""The worker process of one measurement, see `processes`.

Its spec is a dict of `spec.make_spec` with `length` and `what`: a name in
`measurements`, 'run', 'gsg' or 'peer'.
"""

from locost_jax.benchmarks import processes
from locost_jax.command_line import allocator
from locost_jax.command_line.progress import Line


def prepare(spec):
  """Returns (known, run), see `processes.serve`."""
  line = Line(seconds=10.0, at_once=True)
  unit = 'words' if spec['what'] == 'gsg' else 'tokens'
  report = lambda text: line.show(
      [f'{spec["what"]}, {spec["length"]} {unit}: {text}']
  )
  if spec['what'] == 'peer':
    from locost_jax.benchmarks import peers

    return peers.prepare(spec, report)
  if spec['what'] == 'gsg':
    from locost_jax.benchmarks import gap_sentences

    return gap_sentences.prepare(spec, report)
  from locost_jax.command_line import compiled_programs

  compiled_programs.keep()
  allocator.trim_after_compiling()
  if spec['what'] == 'run':
    from locost_jax.benchmarks import whole_run

    return whole_run.prepare(spec, report)
  from locost_jax.benchmarks import measurements

  return measurements.prepare(spec, report)


if __name__ == '__main__':
  processes.serve(prepare)
