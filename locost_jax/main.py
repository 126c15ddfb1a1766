"""Trains a model, or evaluates one: from a config to a table of numbers.

  python -m locost_jax.main --config=configs/quickstart.py
  python -m locost_jax.main --config=configs/finetune.py \\
      --config.data.train_files='data/train-*.jsonl' --workdir=runs/mine
  python -m locost_jax.main --config=configs/finetune.py --workdir=runs/mine \\
      --config.data.train_files='data/train-*.jsonl' --evaluate

  python -m locost_jax.main --config=configs/finetune.py --dry_run \\
      --config.data.train_files='data/train-*.jsonl'
  python -m locost_jax.main --config=configs/finetune.py --preflight \\
      --config.data.train_files='data/train-*.jsonl'

Each key of the config (configs/default.py lists them all) can be set:
--config.train.steps=100. A run that was stopped goes on when the same command
is given again. The report goes to stdout, progress to stderr.

On several hosts the same command runs on each of them (locost_jax/hosts.py).
"""

import contextlib
import functools
import importlib.util
import os
from pathlib import Path
import shutil
import sys

from locost_jax import allocator

if __name__ == '__main__':  # before JAX is imported
  allocator.restart_with_huge_pages()

# TensorFlow, which only reads data here, says at length on stderr what is said
# better elsewhere. Importing JAX sets this to 1 where it is not set.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')

# pylint: disable=g-import-not-at-top
from absl import flags
import jax
from ml_collections import config_flags

from locost_jax import commands
from locost_jax import dry_run
from locost_jax import evaluate
from locost_jax import final
from locost_jax import hosts
from locost_jax import models
from locost_jax import optim
from locost_jax import parts
from locost_jax import preflight
from locost_jax import pretrained
from locost_jax import profiling
from locost_jax import report
from locost_jax import sharding
from locost_jax import telemetry
from locost_jax import topology
from locost_jax import train
from locost_jax import workdir as runs
from locost_jax.data import cache as cache_lib
from locost_jax.data import pipeline
from locost_jax.data import records
from locost_jax.data import tasks
from locost_jax.data import vocabulary as vocabularies
from locost_jax.errors import InputError

# What training needs beyond the base dependencies; `setup.cfg` has the same.
_TRAIN_EXTRA = ('tensorflow', 'tensorflow_datasets', 'seqio', 'array_record',
                'msgpack')


def define_flags(values, argv):
  """Defines this command's flags; argv names the config whose keys count."""
  commands.define_config(values, argv)
  flags.DEFINE_string(
      'workdir', None, 'DIR: where the run is kept, and continued from '
      '[runs/NAME, for configs/NAME.py]', flag_values=values)
  flags.DEFINE_bool(
      'evaluate', False, 'do not train: measure the best checkpoint of the '
      'workdir on the test split, or on validation when there is none',
      flag_values=values)
  flags.DEFINE_bool(
      'dry_run', False, 'do not train: check everything, compile the train '
      'step and what evaluations write with, and tell sizes, arithmetic and '
      'memory, and whether it fits', flag_values=values)
  flags.DEFINE_string(
      'topology', '', 'with --dry_run: TPUs to compile for, which need not be '
      'here, like v5e:4x4 (extra tpu-aot)', flag_values=values)
  _define_optional_number(
      values, 'preflight', preflight.SECONDS, 'do not train: tell hosts, '
      'versions, devices and mesh, check everything, add up over all devices '
      'and write into the workdir; what does not answer within so many '
      'seconds is named')
  hosts.define_flags(values)
  flags.DEFINE_enum(
      'format', 'text', ['text', 'json'], 'of the report on stdout',
      flag_values=values)
  flags.DEFINE_string(
      'wandb', '', 'PROJECT: send the numbers of metrics.jsonl to Weights & '
      'Biases too', flag_values=values)
  flags.DEFINE_float(
      'carbon_intensity', None, 'grams of CO2 per kWh, to tell the emissions '
      'of training where energy can be read', lower_bound=0, flag_values=values)
  flags.DEFINE_float(
      'peak_tflops', None, 'TFLOP/s of one device at most, to tell its '
      'utilisation [of the device: locost_jax/peaks.py]', lower_bound=0,
      flag_values=values)
  _define_optional_number(
      values, 'profile', profiling.STEPS, 'write a trace of so many steps into '
      'WORKDIR/profile')


def _define_optional_number(values, name, default, text):
  """Defines --NAME and --NAME=NUMBER; without the flag it is 0."""
  flags.DEFINE_flag(flags.Flag(
      _NumberParser(default), None, name, 0, f'[=NUMBER]: {text} [{default}]',
      boolean=True), flag_values=values)


class _NumberParser(flags.ArgumentParser):
  """--name, --noname or --name=NUMBER."""

  def __init__(self, default):
    super().__init__()
    self._default = default

  def parse(self, argument):
    if argument in ('true', 'false'):  # absl's words for a flag without value
      return self._default if argument == 'true' else 0
    return int(argument)


def main(values, arguments):
  """Runs the command; returns its exit status.

  Args:
    values: the flags of `define_flags`.
    arguments: what else was on the command line; there must be nothing.
  """
  commands.expect_flags_only(arguments)
  config, overrides = commands.get_config(values)
  instead = [f'--{name}' for name in ('evaluate', 'dry_run', 'preflight')
             if values[name].value]
  if len(instead) > 1:
    raise InputError(f'{" and ".join(instead)}: expected one of them')
  if values.preflight < 0:
    raise InputError(f'--preflight={values.preflight}: expected seconds')
  roll = hosts.connect(values, values.preflight or hosts.PATIENCE)
  workdir = Path(values.workdir or default_workdir(values['config']))
  phases = runs.make_phases(config, overrides, workdir)
  show = {'text': report.format_text, 'json': report.format_json}
  if values.topology and not values.dry_run:
    raise InputError(f'--topology={values.topology} belongs to --dry_run')
  if values.dry_run:
    devices = topology.devices(values.topology) if values.topology else None
    results = rehearse(phases, workdir, devices)
    show = {'text': dry_run.format_text, 'json': dry_run.format_json}
  elif values.preflight:
    results = preflight.run(
        phases, workdir, roll, values.preflight,
        functools.partial(check_all, phases, workdir),
        sys.stdout if values.format == 'text' else sys.stderr)
    show = {'text': preflight.format_text, 'json': preflight.format_json}
  elif values.evaluate:
    results = evaluate_run(phases, workdir)
  else:
    results = train_run(config, phases, workdir, telemetry.Options(
        values.wandb, values.carbon_intensity, values.peak_tflops,
        values.profile))
  if parts.is_first_host():
    print(show[values.format](**results))


def default_workdir(config_flag):
  """Returns 'runs/NAME' for --config=DIR/NAME.py."""
  path = config_flags.get_config_filename(config_flag)
  file, _, word = path.partition(':')
  return Path('runs') / '_'.join(filter(None, [Path(file).stem, word]))


# --- Training ----------------------------------------------------------------


def train_run(config, phases, workdir, options):
  """Runs or continues all phases; returns what the report shows.

  Args:
    config: the whole config.
    phases: of `workdir.make_phases`.
    workdir: WORKDIR.
    options: telemetry.Options.
  """
  telemetry.check(options)
  vocabulary = check_all(phases, workdir)
  # What follows may still find that the data cannot be used.
  with nothing_half_written(workdir):
    if vocabulary is None:
      vocabulary = tasks.find_vocabulary(phases[0].config)
    for part in [config] + [phase.config for phase in phases]:
      parts.fill_vocab_size(part, vocabulary)
    model = models.build(phases[0].config.model)
    parts.check_init(phases[0], model)
    caches = [{split: cache_lib.open_cache(
        phase.config, vocabulary, split, workdir / 'cache',
        beside_others=len(phases) > 1)
               for split in ('train', 'validation')} for phase in phases]
  if parts.is_first_host():
    parts.save_start(workdir, config, vocabulary)
  if __name__ == '__main__' and jax.default_backend() == 'cpu' and (
      jax.process_count() == 1):
    allocator.restart_after_reading()
  parts.tell(f'{parts.count_parameters(model) / 1e6:.1f}M parameters, '
             f'{vocabulary.size} tokens in the vocabulary, '
             f'{jax.device_count()} {jax.devices()[0].platform} device(s), '
             f'workdir {workdir}')
  for phase, splits in zip(phases, caches):
    if parts.is_first_host():
      parts.save_start(phase.directory, phase.config, vocabulary)
    parts.wait_for_hosts(f'start {phase.name}')
    plan = f'{phase.config.train.steps} steps'
    if runs.is_finished(phase):
      plan += ', done before'
    parts.tell(
        f'{phase.name or "training"} on {parts.task_name(phase)}: {plan}')
    train.train(
        phase.config, phase.directory, parts.build(phase.config),
        functools.partial(parts.train_batches, splits['train'], vocabulary,
                          phase.config),
        functools.partial(parts.evaluate_phase, phase, vocabulary,
                          splits['validation'], 'validation'), options)
  return final.measure_run(phases, workdir, vocabulary, 'validation', caches)


def rehearse(phases, workdir, devices):
  """Checks what `train_run` checks, and compiles its programs; makes no file.

  Args:
    phases, workdir: as in `train_run`.
    devices: to compile for; None: those of this run.
  """
  dry_run.fill_vocab_size(phases, check_all(phases, workdir, devices))
  model = models.build(phases[0].config.model)
  if begun_from := parts.check_init(phases[0], model):
    parts.tell(begun_from)
  return dry_run.measure(phases, devices)


def check_all(phases, workdir, devices=None):
  """Keys, files and fields; returns the vocabulary, or None: to be trained."""
  check_keys(phases, devices)
  runs.check_unchanged(phases, workdir)
  require_train_extra()
  for phase in phases:
    tasks.check(phase.config)
  vocabulary = parts.find_vocabulary(phases, workdir)
  to_be_trained = vocabularies.SentencePieceVocabulary
  models.check_padding(
      phases[0].config.model, (vocabulary or to_be_trained).pad_id,
      f'config.data.vocabulary={phases[0].config.data.vocabulary}')
  return vocabulary


def check_keys(phases, devices=None):
  """Raises an InputError for values that no run can have; makes nothing."""
  mesh = sharding.make_mesh(phases[0].config.mesh, devices)
  for phase in phases:
    config = phase.config
    train.check(config)
    evaluate.check(config)
    optim.make_schedule(config.optim, config.train.steps)
    train.check_batch(config.train, mesh)
    sharding.check_batch_size(config.eval.batch_size, mesh, 'eval.batch_size')
    sharding.check_model(config.model, mesh)
    check_feeding(config, mesh)
    model = models.build(parts.with_vocabulary(config.model),
                         config.train.dtype, config.train.remat)
    if config.optim.groups or config.train.lora.rank:
      train.make_optimizer(config, pretrained.abstract_params(model))
    check_positions(config)
    for key in phases[0].config.model:
      if config.model[key] != phases[0].config.model[key] and (
          key != 'dropout_rate'):
        raise InputError(f'config.phases, {phase.name}: model.{key} cannot '
                         'change from one phase to the next')


def check_positions(config):
  """Raises an InputError for lengths that the model has no positions for."""
  most, data = models.max_positions(config.model), config.data
  read = 'page_length' if data.pages else 'max_input_length'
  for key, length in ((f'data.{read}', data[read]),
                      ('data.max_target_length', data.max_target_length),
                      ('decode.max_length', config.decode.max_length)):
    if most is not None and length > most:
      raise InputError(f'config.{key}={length}: expected at most '
                       f'model.max_positions={most}, which is all that '
                       f'{config.model.name} reads or writes')


def check_feeding(config, mesh):
  """Raises an InputError for batches that cannot be, or not for this model."""
  pipeline.check(config, sharding.batch_parts(mesh) * config.train.accumulate)
  name, data = config.model.name, config.data
  if data.pages:
    raise InputError(f'config.data.pages={data.pages!r}: {name} reads a '
                     "document as one sequence: expected ''")
  if data.packing:
    raise InputError(f'config.data.packing=True: {name} would mix the '
                     'documents of a row: expected False')


def require_train_extra():
  """Raises an InputError that names the pip line unless all is installed."""
  missing = [name for name in _TRAIN_EXTRA
             if importlib.util.find_spec(name) is None]
  if missing:
    raise InputError(f'training needs {", ".join(missing)}: '
                     'pip install "locost_jax[train]"')


@contextlib.contextmanager
def nothing_half_written(workdir):
  """Removes the directories made in this context if an InputError ends it.

  Not what was tokenised, which may have taken hours.
  """
  missing = [path for path in (workdir, *workdir.parents) if not path.exists()]
  try:
    yield
  except InputError:
    if missing and not any(workdir.glob(f'cache/**/{records.STATS}')):
      shutil.rmtree(missing[-1], ignore_errors=True)
    raise


# --- Evaluating --------------------------------------------------------------


def evaluate_run(phases, workdir):
  """Measures the best checkpoint of WORKDIR; returns what the report shows.

  Data and decoding may be other than in training; the model may not.
  """
  check_keys(phases)
  if not workdir.is_dir():
    raise InputError(f'--workdir={workdir}: no such directory; train first')
  run = pretrained.find_run(workdir)
  if run is None:
    raise InputError(f'--workdir={workdir}: no config.json of a run in it')
  home, directory, stored = run
  phases = [phase for phase in phases
            if phase.directory.resolve() == Path(home).resolve()]
  if not phases:
    raise InputError(f'--workdir={workdir}: its last phase is {home}, which '
                     'this config does not have')
  differences = runs.list_differences(
      stored, runs.to_dict(phases[0].config), keys=r'model\..*')
  if differences:
    key, (old, new) = sorted(differences.items())[0]
    raise InputError(f'config.{key}={new!r}, but {home} was trained with '
                     f'{old!r}: expected the same model')
  require_train_extra()
  tasks.check(phases[0].config)
  vocabulary = vocabularies.load_vocabulary(os.path.join(home, 'vocabulary'))
  parts.fill_vocab_size(phases[0].config, vocabulary)
  caches = {split: cache_lib.open_cache(
      phases[0].config, vocabulary, split, workdir / 'cache')
            for split in ('test', 'validation')}
  caches['test'] = parts.without_hidden(caches['test'], vocabulary)
  split = 'test' if caches['test'] is not None else 'validation'
  if phases[0].config.eval.baselines:
    caches['train'] = cache_lib.open_cache(
        phases[0].config, vocabulary, 'train', workdir / 'cache')
  return final.measure_run(phases, workdir, vocabulary, split, [caches])


if __name__ == '__main__':
  allocator.trim_after_compiling()
  commands.run(main, define_flags, __doc__)
