"""Trains or evaluates a model: from a config to a table of scores.

  python -m locost_jax.main --config=configs/quickstart.py
  python -m locost_jax.main --config=configs/finetune.py \\
      --config.data.train_files='data/train-*.jsonl' --workdir=runs/mine
  python -m locost_jax.main --workdir=runs/mine --evaluate \\
      --config.data.test_files=data/test.jsonl --config.decode.num_beams=4

  python -m locost_jax.main --config=configs/finetune.py --dry_run \\
      --config.data.train_files='data/train-*.jsonl'
  python -m locost_jax.main --config=configs/finetune.py --preflight \\
      --config.data.train_files='data/train-*.jsonl'

Every key of the config can be set, for example --config.train.steps=100;
--help=config lists the keys. To resume a stopped run, give the same command
again, or --workdir alone. --evaluate takes the run's settings from WORKDIR
unless --config is given. The report goes to stdout, progress to stderr.

To train on several hosts, run the same command on each of them
(locost_jax/devices/connect.py).
"""

import os
import re
import sys

from locost_jax.config import speed

if __name__ == '__main__':  # before JAX is imported
  speed.restart_with_huge_pages()

# TensorFlow only reads data here; hide its long messages on stderr. If this is
# not set, importing JAX sets it to 1.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

# pylint: disable=g-import-not-at-top
from locost_jax.config import commands
from locost_jax.config import config_files
from locost_jax.config import object_store
from locost_jax.config import train_flags
from locost_jax.devices import collective
from locost_jax.devices import compiling
from locost_jax.devices import connect
from locost_jax.runs import dry_run
from locost_jax.runs import evaluate_run
from locost_jax.runs import final_table
from locost_jax.runs import preflight
from locost_jax.runs import resume
from locost_jax.runs import source_model
from locost_jax.runs import train_run
from locost_jax.telemetry import telemetry as telemetry_lib
from locost_jax.workdir import bucket_run
from locost_jax.workdir import phases as phases_lib

_EVALUATE = re.compile('--?evaluate(=(true|t|yes|y|1))?', re.IGNORECASE)


def define_flags(values, argv):
  """Defines this command's flags; argv names the config whose keys count."""
  commands.define_config(values, argv, run=find_run(argv))
  train_flags.define(values)


def find_run(argv):
  """Returns (config, its path) of the run that replaces --config, or None.

  A run continues with its own settings: only --evaluate may change keys.
  """
  workdir = commands.find_value(argv, 'workdir')
  evaluates = any(map(_EVALUATE.fullmatch, argv))
  if commands.find_value(argv, 'config') is not None or not workdir:
    return None
  if not evaluates and commands.find_keys(argv):
    return None
  return resume.find_settings(workdir, evaluates)


def main(values, arguments):
  """Runs the command."""
  commands.expect_flags_only(arguments)
  config, overrides = commands.get_config(values)
  train_flags.check(values)
  speed.keep_programs(values.program_cache)
  compiling.announce()
  connect.connect(values, values.preflight or connect.TIMEOUT)
  file = getattr(values['config'], 'config_filename', '')
  workdir = values.workdir or config_files.default_workdir(file)
  is_named = ':' in file or 'model.name' in overrides
  start = overrides.get('train.init_from') or ''
  use = next((x for x in train_flags.ACTIONS if values[x].value), 'train')
  opened = bucket_run.open_workdir(workdir, use)
  with collective.expecting_all_hosts(), opened as workdir:
    if values.topology and '://' in start:
      collective.log(f'config.train.init_from={start}: not read for --topology')
    else:
      source_model.follow(config, overrides, workdir, is_named)
    report, results = run_once(values, config, overrides, workdir)
  if collective.is_first_host():
    show = report.format_text if values.format == 'text' else report.format_json
    print(object_store.original(show(**results)))


def run_once(values, config, overrides, workdir):
  """Trains one run, or does what other flags ask for.

  Returns:
    (the module whose `format_text` and `format_json` format the report, dict of
    their arguments).
  """
  phases = phases_lib.make_phases(config, overrides, workdir)
  whole_split = 'eval.examples' not in overrides
  if values.dry_run:
    return dry_run, dry_run.dry_run(
        phases, workdir, values.topology, values.evaluate
    )
  if values.preflight:
    lines = sys.stdout if values.format == 'text' else sys.stderr
    return preflight, preflight.run(
        phases, workdir, train_flags.expected(values), values.preflight, lines
    )
  if values.evaluate:
    return final_table, evaluate_run.evaluate_run(
        phases, workdir, whole_split, values.by_length
    )
  options = telemetry_lib.Options(values.peak_tflops, values.profile)
  return final_table, train_run.train_run(config, phases, workdir, options)


if __name__ == '__main__':
  speed.trim_after_compiling()
  commands.run(main, define_flags, __doc__)
