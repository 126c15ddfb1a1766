"""Draws the papers' figures and others from runs, checkpoints and small files.

  python -m locost_jax.plot curves runs/a runs/b --output=curves.png
  python -m locost_jax.plot kernels runs/finetune --output=kernels.svg
  python -m locost_jax.plot page_weights runs/pagesum report.txt \\
      --output=weights.png

The first word is the kind of picture, the others are its inputs. The ending of
--output decides between PNG and SVG. docs/pictures.md defines the files. Needs
matplotlib: pip install 'locost_jax[plot]'.
"""

import os

from absl import flags

from locost_jax import files
from locost_jax.command_line import commands
from locost_jax.errors import InputError
from locost_jax.figures import curves
from locost_jax.figures import finished_runs
from locost_jax.figures import picture_kinds
from locost_jax.figures import style
from locost_jax.summarizing import outputs

__doc__ += f'\nKinds:\n{picture_kinds.describe()}\n'

FORMATS = {'.png': 'png', '.svg': 'svg'}


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  flags.DEFINE_string(
      'output',
      None,
      'FILE: the picture to write, FILE.png or FILE.svg',
      flag_values=values,
  )
  flags.DEFINE_boolean(
      'overwrite', False, 'replace an existing --output', flag_values=values
  )
  flags.DEFINE_list(
      'keys',
      list(curves.KEYS),
      'KEY,KEY,...: curves: the numbers of metrics.jsonl to draw; * matches '
      'anything',
      flag_values=values,
  )
  flags.DEFINE_integer(
      'channel',
      0,
      'kernels: the channel to draw, counted from 0',
      lower_bound=0,
      flag_values=values,
  )
  flags.DEFINE_integer(
      'length',
      2048,
      'kernels, kernel_map, context: length of the kernels in tokens',
      lower_bound=2,
      flag_values=values,
  )
  flags.DEFINE_enum(
      'split',
      None,
      list(finished_runs.SPLITS),
      "score_length, low_resource: the split of a WORKDIR's predictions [test, "
      'or validation if there is no test]',
      flag_values=values,
  )
  flags.DEFINE_string(
      'protocol',
      'locost',
      'score_length, low_resource: how to compute ROUGE, see '
      '`python -m locost_jax.score --help`',
      flag_values=values,
  )


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: the kind of picture, and its inputs.
  """
  if not arguments:
    raise InputError(
        'which picture? expected one of '
        f'{", ".join(picture_kinds.KINDS)}, then its inputs'
    )
  name, *inputs = arguments
  picture_kinds.find(name)
  kind = _check_output(values.output, values.overwrite, inputs)
  options = picture_kinds.Options(
      keys=tuple(values.keys),
      channel=values.channel,
      length=values.length,
      split=values.split or '',
      protocol=values.protocol,
  )
  try:
    with style.settings():
      picture = style.render(picture_kinds.draw(name, inputs, options), kind)
  except ImportError as error:
    if (error.name or '').partition('.')[0] != 'matplotlib':
      raise
    raise InputError(
        "matplotlib is not installed: pip install 'locost_jax[plot]'"
    ) from None
  files.write(values.output, picture)


def _check_output(output, overwrite, inputs):
  """Returns the format of --output.

  Raises:
    InputError: it is missing, of another format, there already, or an input.
  """
  if not output:
    raise InputError('--output=FILE is missing: where does the picture go?')
  kind = FORMATS.get(os.path.splitext(output)[1].lower())
  if kind is None:
    raise InputError(f'--output={output}: expected FILE.png or FILE.svg')
  if os.path.realpath(output) in map(os.path.realpath, inputs):
    raise InputError(f'--output={output}: is an input; expected another file')
  files.check_regular(output, f'--output={output}')
  if not overwrite:
    outputs.refuse_existing(output, 'output')
  return kind


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
