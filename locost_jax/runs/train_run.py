"""Trains a whole run, or evaluates it: each function is one story."""

import contextlib
from pathlib import Path
import shutil

import jax

from locost_jax import files
from locost_jax.data import corpus
from locost_jax.data import records
from locost_jax.data import tasks
from locost_jax.devices import collective
from locost_jax.errors import InputError
from locost_jax.evaluation import content
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import checks
from locost_jax.runs import final_table
from locost_jax.runs import resume
from locost_jax.telemetry import metrics_log
from locost_jax.training import train
from locost_jax.training import warm_start
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find
from locost_jax.workdir import phases as phases_lib


def train_run(config, phases, workdir, options, when_read=lambda: None):
  """Runs or continues all phases."""
  metrics_log.check_wandb(options.wandb)
  setups = [assemble.Setup(phase) for phase in phases]
  files.check_directory('--workdir', workdir)  # before the lock makes it
  missing = [path for path in (workdir, *workdir.parents) if not path.exists()]
  with hold_lock(workdir):
    with removing_on_input_error(workdir, missing):
      vocabulary = _prepare(config, setups, workdir)
    if collective.is_first_host():
      shares = () if config.phases else setups[0].shares
      phases_lib.begin(workdir, config, vocabulary, shares)
    when_read()
    collective.log(
        f'{parameters.count(setups[0].shapes) / 1e6:.1f}M parameters, '
        f'{vocabulary.size} tokens in the vocabulary, '
        f'{jax.device_count()} {jax.devices()[0].platform} device(s), '
        f'workdir {workdir}'
    )
    for line in dict.fromkeys(
        line for setup in setups for line in assemble.describe_cut(setup)
    ):
      collective.log(line)
    for setup in setups:
      train_phase(setup, options)
    return final_table.measure_run(setups, workdir, 'validation')


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
  check_init(setups[0])
  for setup in setups:
    setup.open_caches(
        workdir / 'cache',
        ('train', 'validation'),
        allow_other_caches=len(setups) > 1,
    )
  return vocabulary


def train_phase(setup, options):
  """Runs or continues one phase."""
  metric, documents = setup.choose_metric()
  if collective.is_first_host():
    phases_lib.begin(
        setup.directory, setup.config, setup.vocabulary, setup.shares
    )
    content.save(setup.common, setup.directory / content.FILE)
    phases_lib.save_queries(setup.directory, corpus.has_queries(setup.config))
  collective.wait_for_hosts(f'start {setup.name}')
  plan = f'{setup.config.train.steps} steps'
  if phases_lib.is_finished(setup.phase):
    plan += ', done before'
  if documents:
    plan += f'; the best by {metric} of {documents:,} validation documents'
  collective.log(f'{setup.name or "training"} on {setup.task}: {plan}')
  train.train(setup, options._replace(labels=setup.labels()))


def evaluate_run(phases, workdir, whole_split=False, by_length=False):
  """Evaluates the best checkpoint of WORKDIR.

  Uses the test split, or validation if it is missing. Data and decoding may
  differ from training; the model may not, except for its dropout.

  Args:
    whole_split: whether to measure all documents and ignore
      config.eval.examples, which is meant for evaluations during training.
  """
  setups = [assemble.Setup(phase) for phase in phases]
  for setup in setups:
    if whole_split:
      setup.config.eval.examples = 0
    checks.check_evaluation_keys(setup)
  setup = choose_setup(setups, workdir)
  checks.require_train_extra()
  tasks.check(setup.config)
  vocabulary = vocabulary_lib.load_vocabulary(setup.directory / 'vocabulary')
  checks.check_forced_tokens(setup.config, vocabulary)
  setup.use_vocabulary(vocabulary)
  caches = workdir / 'cache'
  setup.open_caches(caches, ('test', 'validation'))
  setup.caches['test'] = without_hidden(setup.caches['test'], setup.vocabulary)
  split = 'test' if setup.caches['test'] is not None else 'validation'
  if setup.config.eval.baselines:
    setup.open_caches(caches, ('train',))
  return final_table.measure_run([setup], workdir, split, by_length)


def choose_setup(setups, workdir):
  """Returns the Setup of the phase that WORKDIR's best checkpoint belongs to."""
  if not workdir.is_dir():
    raise InputError(f'--workdir={workdir}: no such directory; train first')
  run = find.find_run(workdir)
  if run is None:
    raise InputError(f'--workdir={workdir}: no config.json of a run in it')
  home, _, stored = run
  home = Path(home).resolve()
  for setup in setups:
    if setup.directory.resolve() == home:
      resume.check_same_model(setup, stored)
      return setup
  raise InputError(
      f'--workdir={workdir}: its last phase is {run[0]}, which this config '
      'does not have'
  )


def without_hidden(cache, vocabulary):
  """Returns a test split without the tasks whose summaries are hidden, or None.

  Args:
    cache: from `cache.open_cache`: a Cache, a dict of them, or None.
  """
  if cache is None:
    return None
  several = cache if isinstance(cache, dict) else {'': cache}
  empty = len(vocabulary_lib.surround(vocabulary, []))
  shown = {
      task: found
      for task, found in several.items()
      if (found.lengths[:, 1] > empty).any()
  }
  for task in several.keys() - shown.keys():
    collective.log(
        f'{task or "the task"}: the summaries of the test split are hidden'
    )
  if not shown:
    collective.log('measuring on the validation split')
    return None
  return shown if isinstance(cache, dict) else cache


def check_init(setup):
  """Returns a line that reports the parameters of train.init_from, or None."""
  begun = checkpoint.latest_step(setup.directory / 'checkpoints') is not None
  if begun or not setup.config.train.init_from:
    return None
  return warm_start.load(setup.config, setup.shapes)[1]


@contextlib.contextmanager
def hold_lock(workdir):
  """Holds the lock on WORKDIR; the first host holds it for all hosts."""
  with contextlib.ExitStack() as stack:
    with collective.raising_together():
      if collective.is_first_host():
        stack.enter_context(phases_lib.hold_lock(workdir))
    yield


@contextlib.contextmanager
def removing_on_input_error(workdir, missing):
  """A context that removes a new WORKDIR after an InputError.

  WORKDIR is kept if it has a token cache, which may have taken hours to make,
  and directories are kept if another run has written to them.

  Args:
    missing: WORKDIR and those of its parents that the lock had to make.
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
