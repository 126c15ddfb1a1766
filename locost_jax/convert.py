"""Converts weights: a Hugging Face directory <-> a run's directory.

  python -m locost_jax.convert --source=runs/finetune --target=exported
  python -m locost_jax.convert exported runs/imported

A run (of a WORKDIR, its best checkpoint, or else the latest) becomes a Hugging
Face directory: config.json, generation_config.json, model.safetensors and the
tokenizer's files. A Hugging Face directory becomes a WORKDIR with config.json,
vocabulary/ and checkpoints/0, which every command accepts as a checkpoint. The
target is written completely or not at all.
"""

import json
import os
from pathlib import Path

from locost_jax.config import commands
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.hugging_face import hub
from locost_jax.runs import convert_weights
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  table = {
      'source': (
          'DIR: a WORKDIR, a checkpoint in it, a Hugging Face directory, or '
          'hf://org/name[@revision] on the Hugging Face Hub'
      ),
      'target': 'DIR: the directory to write; must not exist',
      'dtype': (
          None,
          'type of exported tensors; those of a run are always float32 '
          '[float32]',
          ('float32', 'bfloat16'),
      ),
      'format': ('text', 'format of the report on stdout', commands.FORMATS),
  }
  commands.define(values, table | commands.allow_download('source'))


def main(values, arguments):
  """Runs the command."""
  commands.take_words(values, arguments, 'source', 'target')
  for flag in ('source', 'target'):
    if not values[flag].value:
      raise InputError(f'--{flag}=DIR is missing')
  target = Path(values.target).absolute()
  if os.path.lexists(target):
    raise InputError(
        f'--target={values.target}: exists already; expected a new directory'
    )
  if not target.parent.is_dir():
    raise InputError(f'--target={values.target}: no directory {target.parent}')
  source = hub.find_directory(values.source, values.allow_download)
  report = _convert(source, target, values.dtype or 'float32')
  report = dict(source=str(source), target=values.target, **report)
  if values.format == 'json':
    print(json.dumps(report))
  else:
    print(format_text(report))


def format_text(report):
  """Returns the report as lines."""
  size = report['parameters'] * (2 if report['dtype'] == 'bfloat16' else 4)
  kind = 'a run' if report['direction'] == 'run' else 'a Hugging Face directory'
  lines = list(report['notes'])
  if report['copied']:
    lines.append(f'tokenizer: {", ".join(report["copied"])}')
  lines.append(
      f'{report["target"]}: {kind} from '
      f'{report.get("checkpoint", report["source"])}: {report["model"]}, '
      f'{report["tensors"]} tensors, {report["parameters"]:,} parameters, '
      f'{size / 1e6:,.1f} MB in {report["dtype"]}'
  )
  return '\n'.join(map(visible, lines))


@checkpoint.choose_again
def _convert(source, target, dtype):
  """Returns the report."""
  run = find.find_run(source)
  if run is not None:
    return convert_weights.export_run(*run, target, dtype)
  if dtype != 'float32':
    raise InputError(
        f"--dtype={dtype}: a run's parameters are float32, and {source} becomes "
        'a run'
    )
  return convert_weights.import_release(source, target)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
