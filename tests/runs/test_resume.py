"""A continued run may change its schedule and lack keys."""

import importlib

import numpy as np
import pytest

from locost_jax.errors import InputError
from locost_jax.runs import assemble
from locost_jax.runs import resume
from locost_jax.training import optim as optim_lib
from locost_jax.workdir import phases as phases_lib
from tests import tiny_run


def make_setup(directory, steps, **optim):
  config = tiny_run.make_config(steps)
  config.optim.update(optim)
  return assemble.Setup(phases_lib.Phase('', directory, config))


def begin(setup, done=0):
  """Creates the run of a setup, with a checkpoint after `done` steps."""
  setup.shares = resume.resolve_schedule(setup.config)
  phases_lib.write_config(setup.directory, setup.config, setup.shares)
  if done:
    directory = setup.directory / 'checkpoints' / str(done) / 'params'
    directory.mkdir(parents=True)


def continued(directory, steps, **optim):
  """Returns config.optim after the same command with other steps."""
  setup = make_setup(directory, steps, **optim)
  resume.check_unchanged([setup], directory)
  phases_lib.write_config(directory, setup.config, setup.shares)
  return setup.config.optim


def test_continues_only_under_the_same_config(tmp_path):
  """Some keys may change, others may not."""
  setup = make_setup(tmp_path, 2)
  begin(setup)
  config = setup.config
  free = (
      'train.steps train.eval_every train.log_every train.checkpoint_every '
      'train.max_nonfinite_steps train.timeout decode.max_length '
      'eval.examples checkpoint.keep_best'
  )
  others = {'train.remat': 'full', 'mesh.data': 1, 'model.vocab_size': 0}
  for key, value in (dict.fromkeys(free.split(), 7) | others).items():
    section, last = key.split('.')
    config[section][last] = value
  resume.check_unchanged([setup], tmp_path)
  config.train.batch_size = 64
  config.data.seed, config.data.input_buckets = 5, (64,)
  with pytest.raises(InputError) as error:
    resume.check_unchanged([setup], tmp_path)
  assert 'config.train.batch_size was 2, now 64' in str(error.value)
  assert 'config.data.seed was 0, now 5' in str(error.value)
  assert str(error.value).endswith(
      ": give '--config.data.input_buckets=()' --config.data.seed=0 "
      '--config.train.batch_size=2, or use another --workdir'
  )


SHARES = dict(warmup_steps=0.05, cooldown_steps=0.4)


@pytest.mark.parametrize(
    'steps, expected', [(40, (2, 16)), (40_000, (2000, 16000))]
)
def test_shares_become_steps(tmp_path, steps, expected):
  setup = make_setup(tmp_path, steps, **SHARES)
  begin(setup)
  optim = setup.config.optim
  assert (optim.warmup_steps, optim.cooldown_steps) == expected
  stored = phases_lib.read_config(tmp_path)
  assert stored['optim']['cooldown_steps'] == expected[1]
  assert stored['shares'] == {
      'optim.warmup_steps': 0.05,
      'optim.cooldown_steps': 0.4,
  }


def test_more_steps_move_a_future_cooldown(tmp_path):
  begin(make_setup(tmp_path, 100, **SHARES), done=60)
  for steps in (200, 400, 100, 200):  # repeats the same command
    optim = continued(tmp_path, steps, **SHARES)
    assert (optim.warmup_steps, optim.cooldown_steps) == (5, 40)


@pytest.mark.parametrize('steps', [100, 101, 80])
@pytest.mark.parametrize('done', [61, 62, 100])
def test_other_steps_in_a_cooldown_are_refused(tmp_path, done, steps):
  """Step 62 is the first with a reduced rate: 39 / 40."""
  begin(make_setup(tmp_path, 100, **SHARES), done=done)
  first_less = min(steps, 100) - 40 + 1  # earlier steps have the full rate
  if steps == 100 or done <= first_less:
    continued(tmp_path, steps, **SHARES)
  else:
    with pytest.raises(InputError, match='is in the cooldown of 40 steps'):
      continued(tmp_path, steps, **SHARES)


def test_without_a_cooldown_steps_may_change(tmp_path):
  begin(make_setup(tmp_path, 10), done=10)
  continued(tmp_path, 20)


@pytest.mark.parametrize(
    'begun, now, expected',
    [
        (SHARES, dict(warmup_steps=5, cooldown_steps=40), None),
        (dict(warmup_steps=5, cooldown_steps=40), SHARES, None),
        (SHARES, dict(SHARES, warmup_steps=0.1), 'was 5, now 10'),
        (SHARES, dict(SHARES, warmup_steps=6), 'was 5, now 6'),
    ],
)
def test_shares_equal_their_steps(tmp_path, begun, now, expected):
  begin(make_setup(tmp_path, 100, **begun))
  if expected is None:
    continued(tmp_path, 100, **now)
  else:
    with pytest.raises(InputError, match=expected):
      continued(tmp_path, 100, **now)


def test_a_missing_key_has_its_default(tmp_path):
  config = tiny_run.make_config()
  stored = phases_lib.to_dict(config)
  del stored['optim']['z_loss'], stored['train']['lora'], stored['data']['seed']
  assert resume.list_differences(stored, config) == {}
  config.optim.z_loss, config.train.lora.rank = 1e-4, 2
  assert resume.list_differences(stored, config) == {
      'optim.z_loss': (0.0, 1e-4),
      'train.lora.rank': (0, 2),
  }


def test_another_objective_is_not_the_default():
  """Its values are, also those that a stored config lacks."""
  config = tiny_run.make_config()
  stored = phases_lib.to_dict(config)
  stored.pop('gsg')  # a run of a version without the key
  assert resume.list_differences(stored, config) == {}
  with config.unlocked():
    config.gsg = dict(ratio=0.2)
  assert 'gsg.ratio' in resume.list_differences(stored, config)
  stored = phases_lib.to_dict(config)
  with config.unlocked():
    config.gsg = dict(strategy='independent')
  assert resume.list_differences(stored, config) == {}


@pytest.mark.parametrize(
    'name', ['finetune', 'pretrain', 'quickstart', 'quickstart_long']
)
@pytest.mark.parametrize('steps', [40, 40_000])
def test_configs_reach_their_learning_rate(name, steps):
  config = importlib.import_module(f'configs.{name}').get_config()
  given = {'train.steps': steps}
  for phase in phases_lib.make_phases(config, given, 'w'):
    rules = phase.config.optim
    rates = optim_lib.make_schedule(rules, steps)(np.arange(steps))
    whole = np.isclose(rates, rules.learning_rate)
    assert whole.mean() > 0.3, (phase.name, whole.mean())


@pytest.mark.parametrize('now, continues', [('hf://a/b', True), ('a/b', False)])
def test_hub_names_without_a_prefix(tmp_path, now, continues):
  setup = make_setup(tmp_path, 4)
  setup.config.train.init_from = 'a/b' if continues else 'hf://a/b'
  begin(setup)
  setup.config.train.init_from = now
  if continues:
    resume.check_unchanged([setup], tmp_path)
  else:
    with pytest.raises(InputError, match='init_from was "hf://a/b", now "a/b"'):
      resume.check_unchanged([setup], tmp_path)
