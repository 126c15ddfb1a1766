"""Evaluates the best checkpoint of a run under the current config."""

from pathlib import Path

from locost_jax.data import tasks
from locost_jax.errors import InputError
from locost_jax.hosts import collective
from locost_jax.runs import assemble
from locost_jax.runs import checks
from locost_jax.runs import final_scores
from locost_jax.runs import resume
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from locost_jax.workdir import find


def evaluate_run(phases, workdir, whole_split=False, by_length=False):
  """Evaluates the best checkpoint of WORKDIR.

  Uses the test split, or validation if it is missing. Data and decoding may
  differ from training; the model may not, except for its dropout.

  Args:
    whole_split: whether to measure all documents and ignore
      config.eval.examples, which is meant for evaluations during training.
    by_length: whether to score documents by their length, too.

  Returns:
    The final table's contents, see `final_scores.measure_run`.

  Raises:
    InputError: an invalid config, or no run of this model in WORKDIR.
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
  return final_scores.measure_run([setup], workdir, split, by_length)


def choose_setup(setups, workdir):
  """Returns the Setup of the phase that WORKDIR's best checkpoint belongs to.

  Raises:
    InputError: there is no run, or it has another model.
  """
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
