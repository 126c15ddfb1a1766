"""Writes one HTML page with the results of runs, side by side.

  python -m locost_jax.report runs/finetune --output=results.html
  python -m locost_jax.report runs/a runs/b --protocol=google \\
      --output=results.html

The page shows scores with intervals and signature, training curves, scores by
input length, kernels (of LOCOST), differences from the default config, and the
best and worst summaries next to their references, with copied words marked. It
is made from the files of each WORKDIR; `main --evaluate` writes the
predictions. The page is a single file that loads no others.
"""

import os

from absl import flags

from locost_jax import files
from locost_jax.command_line import commands
from locost_jax.command_line import config_files
from locost_jax.command_line.progress import Progress
from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import protocols
from locost_jax.figures import finished_runs
from locost_jax.reports import contents
from locost_jax.reports import page
from locost_jax.summarizing import outputs
from locost_jax.workdir import phases as phases_lib


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  flags.DEFINE_string('output', None, 'FILE.html: the page', flag_values=values)
  flags.DEFINE_boolean(
      'overwrite', False, 'replace an existing --output', flag_values=values
  )
  flags.DEFINE_enum(
      'split',
      None,
      list(finished_runs.SPLITS),
      'the split of the predictions [test, or validation if there is no test]',
      flag_values=values,
  )
  flags.DEFINE_string(
      'protocol',
      'locost',
      'how to compute ROUGE, see `python -m locost_jax.score --help`',
      flag_values=values,
  )
  flags.DEFINE_integer(
      'examples',
      3,
      'show the N best and the N worst summaries of each task',
      lower_bound=0,
      flag_values=values,
  )
  flags.DEFINE_integer(
      'length',
      2048,
      'length of the kernels in tokens',
      lower_bound=2,
      flag_values=values,
  )
  flags.DEFINE_integer(
      'processes',
      None,
      'number of processes that compute ROUGE [one per core]',
      flag_values=values,
  )


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: WORKDIRs.
  """
  if not arguments:
    raise InputError('which runs? expected one or more WORKDIRs')
  if not values.output:
    raise InputError(
        '--output=FILE.html is missing: expected the page to write'
    )
  protocols.find(values.protocol)
  files.check_regular(values.output, f'--output={values.output}')
  if not values.overwrite:
    outputs.refuse_existing(values.output, 'output')
  progress, found = Progress(), []
  for run in finished_runs.find_runs(arguments):
    found.append(
        contents.collect(
            run,
            values.split or '',
            values.protocol,
            values.length,
            values.processes or os.cpu_count() or 1,
            lambda done, total, name=run.name: progress.show(
                f'scoring {name}', done, total
            ),
        )
    )
  progress.wipe()
  defaults = [default_config(one.run.config) for one in found]
  files.write(values.output, page.render(found, defaults, values.examples))


def default_config(config):
  """Returns {key: default} of configs/default.py for a run's model.

  Args:
    config: of the run, nested dicts.
  """
  config_files.make_importable()
  from configs import default

  found, name = default.get_config(), config['model']['name']
  if hasattr(default, name):
    found.model = getattr(default, name)()
  return phases_lib.flatten(phases_lib.to_dict(found))


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
