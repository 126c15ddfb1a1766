"""Trains a whole run: its lock, checks and phases."""

import contextlib
import shutil

import jax

from locost_jax import files
from locost_jax.config import object_store
from locost_jax.data import corpus
from locost_jax.data import records
from locost_jax.data import tasks
from locost_jax.devices import collective
from locost_jax.errors import InputError
from locost_jax.evaluation import content
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import checks
from locost_jax.runs import evaluate_run
from locost_jax.runs import validation
from locost_jax.training import train
from locost_jax.training import warm_start
from locost_jax.workdir import bucket_run
from locost_jax.workdir import phases as phases_lib


def train_run(config, phases, workdir, options):
  """Runs or continues all phases."""
  setups = [assemble.Setup(phase) for phase in phases]
  files.check_directory('--workdir', workdir)  # before the lock makes it
  missing = [path for path in (workdir, *workdir.parents) if not path.exists()]
  with phases_lib.hold_lock(workdir):
    with removing_on_input_error(workdir, missing):
      vocabulary = _prepare(config, setups, workdir)
    if config.phases and collective.is_first_host():
      phases_lib.begin(workdir, config, vocabulary)
    collective.log(
        f'{parameters.count(setups[0].shapes) / 1e6:.1f}M parameters, '
        f'{vocabulary.size} tokens in the vocabulary, '
        f'{jax.device_count()} {jax.devices()[0].platform} device(s), '
        f'workdir {workdir}'
    )
    for line in dict.fromkeys(
        line for setup in setups for line in checks.describe_cut(setup)
    ):
      collective.log(line)
    for setup in setups:
      train_phase(setup, options)
    return evaluate_run.measure_run(setups, workdir, 'validation')


def _prepare(config, setups, workdir):
  """Checks everything and tokenises the data; returns the vocabulary.

  Some errors in the data show only after all of it is read.
  """
  vocabulary = checks.check_all(setups, workdir)
  if vocabulary is None:
    vocabulary = tasks.find_vocabulary(setups[0].config)
  assemble.fill_vocab_size(config, vocabulary)
  for setup in setups:
    setup.use_vocabulary(vocabulary)
  first = setups[0]
  warm_start.load(first.config, first.shapes, first.directory)  # or raises
  for setup in setups:
    setup.open_caches(
        workdir / 'cache',
        ('train', 'validation'),
        allow_other_caches=len(setups) > 1,
    )
  found, *others = collective.gather_rows([object_store.FOUND])
  for name, objects in found.items():
    if any(other.get(name, objects) != objects for other in others):
      raise InputError(f'{name}: was replaced while the hosts began to read it')
  return vocabulary


def train_phase(setup, options):
  """Runs or continues one phase."""
  metric, documents = validation.choose_metric(setup)
  if collective.is_first_host():
    phases_lib.begin(
        setup.directory, setup.config, setup.vocabulary, setup.shares
    )
    content.save(setup.common, setup.directory / content.FILE)
    phases_lib.save_queries(setup.directory, corpus.has_queries(setup.config))
  collective.wait_for_hosts(f'start {setup.name}')
  steps, warmup = setup.config.train.steps, setup.config.optim.warmup_steps
  plan = f'{steps} steps'
  if warmup > steps:
    plan += f', fewer than optim.warmup_steps={warmup:g}'
  if phases_lib.is_finished(setup):
    plan += ', done before'
  if documents:
    plan += f'; the best by {metric} of {documents:,} validation documents'
  collective.log(f'{setup.name or "training"} on {setup.task}: {plan}')
  train.train(setup, options)
  bucket_run.mirror_of(setup.directory).share()


@contextlib.contextmanager
def removing_on_input_error(workdir, missing):
  """A context that removes a new WORKDIR after an InputError.

  WORKDIR is kept if it has a token cache, which may have taken hours to make,
  and directories are kept if another run has written to them.

  `missing` are WORKDIR and those of its parents that the lock had to make.
  """
  names = {path.name for path in workdir.glob('*')}
  is_new = missing and names <= {phases_lib.LOCK_FILE}
  try:
    yield
  except InputError:
    if is_new and not any(workdir.glob(f'cache/**/{records.STATS}')):
      shutil.rmtree(workdir, ignore_errors=True)
      with contextlib.suppress(OSError):  # not empty: used by another run
        for path in missing[1:]:
          path.rmdir()
    raise
