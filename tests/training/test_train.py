"""The training loop: non-finite steps, lines of metrics.jsonl, saves."""

import functools
import itertools
from pathlib import Path
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import default
from locost_jax import models
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.errors import Stopped
from locost_jax.training import losses
from locost_jax.training import objectives
from locost_jax.training import optim
from locost_jax.training import step as step_lib
from locost_jax.workdir import checkpoint
from locost_jax.workdir import find
from locost_jax.workdir import phases
from tests import counted_flops
from tests import mesh_program
from tests import products
from tests import small_training
from tests.models import small
from tests.small_training import Bag
from tests.small_training import bag_config as _bag_config
from tests.small_training import batches as _batches
from tests.small_training import evaluate as _evaluate
from tests.small_training import make_config as _config
from tests.small_training import poisoned as _poisoned
from tests.small_training import rows as _rows

BAG = Bag()


@functools.cache
def _bag(**changes):
  """Returns (first state, step), with changes to config.optim."""
  config = _bag_config(10)
  config.optim.update(changes)
  init, step = small_training.make_step(config, BAG)
  return init(jax.random.key(0)), step


_token_sums = jax.jit(step_lib.token_sums, static_argnames='model')


@functools.partial(jax.jit, static_argnames=('label_smoothing', 'z_loss'))
def _mean_loss(params, batch, **changes):
  """Returns the mean loss of the model's logits."""
  inputs = batch['encoder_input_tokens']
  states, _ = BAG.states(
      params, inputs, batch['decoder_input_tokens'], inputs != 0
  )
  total, weight = losses.cross_entropy(
      BAG.head(params, states),
      batch['decoder_target_tokens'],
      batch['decoder_loss_weights'],
      **changes,
  )
  return total / weight


def _train(config, workdir, batches=_batches, evaluate=_evaluate, model=BAG):
  return small_training.train(config, workdir, model, batches, evaluate)


def _equal(one, other):
  jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_non_finite_step_changes_only_the_count():
  batch, (state, step) = next(_batches(0)), _bag()
  state, metrics = step(state, batch)
  assert metrics['nonfinite'] == 0 and metrics['culprit'] == -1
  bad = next(_poisoned({1})(0))
  skipped, metrics = step(state, bad)
  assert metrics['nonfinite'] == 1 and metrics['culprit'] == 0
  assert skipped.nonfinite == 1 and skipped.step == state.step + 1
  _equal(skipped.params, state.params)
  _equal(skipped.opt_state, state.opt_state)
  # The next step continues from this state, at its own learning rate.
  after, metrics = step(skipped, batch)
  assert metrics['nonfinite'] == 0 and after.nonfinite == 1
  assert np.any(
      after.params['logits']['kernel'] != state.params['logits']['kernel']
  )


@functools.cache
def _step_in_pieces(pieces):
  """Returns what a step in float64 gives; gradients are in its state."""
  config = _config(10)
  config.model.dropout_rate = 0.0
  model = models.build(config.model, dtype='float64')
  batch = next(_batches(0, rows=8))
  # The pieces have different numbers of target tokens.
  batch['decoder_loss_weights'][::2, 1:] = 0
  optimizer = optax.with_extra_args_support(optax.trace(0.0))
  config.train.accumulate = pieces
  init, step = small_training.make_step(config, model, optimizer)
  with jax.enable_x64(True):
    batch['decoder_loss_weights'] = np.float64(batch['decoder_loss_weights'])
    state, _ = small.drawn_state(init, 0.2, 'float64')
    return jax.device_get(step(state, batch))


@products.few('pieces', [2], [8])
def test_pieces_of_a_batch_equal_the_batch(pieces):
  jax.tree.map(
      functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12),
      _step_in_pieces(pieces),
      _step_in_pieces(1),
  )


@pytest.mark.memory
def test_frozen_parameters_need_no_memory_or_flops():
  """They have no optimiser state and no gradient, and save backward FLOPs."""
  config = _config(10)
  mesh = sharding.make_mesh(config.mesh)
  model, batch = models.build(config.model), next(_batches(0))
  frozen = ((r'token_embedding/.*|encoder/.*', 0.0),)

  def measure(groups):
    config.optim.groups = groups
    with jax.set_mesh(mesh):
      programs = objectives.make_programs(config, model, mesh)
      state = jax.eval_shape(programs.init, jax.random.key(0))
      step = programs.step.trace(state, batch)
    return state, counted_flops.count(step.jaxpr)

  whole, operations = measure(())
  state, fewer = measure(frozen)
  size = lambda tree: sum(
      x.size * x.dtype.itemsize for x in jax.tree.leaves(tree)
  )
  trained, _ = optim.split(state.params, frozen)
  assert 0 < size(trained) < size(state.params)
  assert size(state.opt_state) == 2 * size(trained) + 4
  assert size(whole.opt_state) == 2 * size(state.params) + 4
  encode = jax.jit(functools.partial(model.apply, method='encode')).trace(
      {'params': state.params}, batch['encoder_input_tokens']
  )
  saved = operations - fewer
  # The backward pass of a product has two products; the one for the kernel's
  # gradient is not computed.
  assert saved > 1.5 * counted_flops.count(encode.jaxpr)


def test_a_non_finite_gradient_is_named_among_frozen_parameters(tmp_path):
  config = _bag_config(3)
  config.optim.groups = (('logits/.*', 0.0),)
  message = 'first in the gradient of token_embedding/embedding'
  with pytest.raises(InputError, match=message):
    _train(config, tmp_path, _poisoned({2}))


def test_metrics_of_a_step():
  batch, (state, step) = next(_batches(3)), _bag()
  weights = batch['decoder_loss_weights']
  mean = _mean_loss(state.params, batch)
  _, metrics = step(state, batch)
  np.testing.assert_allclose(metrics['loss'], mean, rtol=1e-6)
  assert metrics['weight'] == weights.sum()
  tokens = weights.sum() + (batch['encoder_input_tokens'] != 0).sum()
  assert metrics['tokens'] == tokens
  assert metrics['learning_rate'] == np.float32(1e-2)


@pytest.mark.parametrize(
    'changes', [dict(label_smoothing=0.1), dict(z_loss=1e-2)]
)
def test_label_smoothing_and_z_loss_affect_training_only(changes):
  """They change loss and gradients in training, but not in evaluation."""
  batch, (state, step) = next(_batches(3)), _bag()
  mean = functools.partial(_mean_loss, batch=batch, **changes)
  loss, gradients = jax.jit(jax.value_and_grad(mean))(state.params)
  _, plain = step(state, batch)
  _, metrics = _bag(**changes)[1](state, batch)
  assert abs(metrics['loss'] - plain['loss']) > 1e-2
  np.testing.assert_allclose(metrics['loss'], loss, rtol=1e-6)
  np.testing.assert_allclose(
      metrics['grad_norm'], optax.tree.norm(gradients), rtol=1e-5
  )
  total, _, count = _token_sums(state.params, batch, model=BAG)
  np.testing.assert_allclose(total / count, plain['loss'], rtol=1e-6)


def test_the_first_non_finite_step_ends_the_run(tmp_path):
  config = _bag_config(12, checkpoint_every=4)
  with pytest.raises(InputError) as error:
    _train(config, tmp_path, _poisoned({7}))
  message = str(error.value)
  assert message.startswith('step 7: loss ')
  assert 'gradient of logits/kernel' in message
  assert 'the checkpoint of step 4 is kept' in message
  assert '\n' not in message
  assert checkpoint.find(tmp_path).name == '4'
  # With finite batches the run continues normally.
  _train(config, tmp_path)
  _train(config, tmp_path / 'other')
  assert _rows(tmp_path) == _rows(tmp_path / 'other')


def test_some_non_finite_steps_are_allowed(tmp_path):
  config = _bag_config(12, max_nonfinite_steps=2, log_every=6)
  _train(config, tmp_path, _poisoned({3, 9}))
  rows = [row for row in _rows(tmp_path) if 'train/loss' in row]
  assert [row['train/nonfinite'] for row in rows] == [1, 1]
  assert all(np.isfinite(row['train/loss']) for row in rows)
  with pytest.raises(InputError, match='^step 11: '):
    _train(config, tmp_path / 'other', _poisoned({3, 9, 11}))


def test_the_count_of_skipped_steps_survives_a_restart(tmp_path):
  """One skipped step before a signal and one after exceed the limit of one."""

  def interrupted(start):
    for step, batch in enumerate(_poisoned({3, 9})(start), start + 1):
      if step == 6:
        signal.raise_signal(signal.SIGTERM)
      yield batch

  config = _bag_config(12, max_nonfinite_steps=1)
  with pytest.raises(Stopped, match='after step 5, which is saved') as stopped:
    _train(config, tmp_path, interrupted)
  assert stopped.value.status == 143
  with pytest.raises(InputError, match='^step 9: .* step 5 is kept$'):
    _train(config, tmp_path, _poisoned({3, 9}))


def test_a_non_finite_parameter_is_named(tmp_path):

  class Broken(Bag):

    def init(self, rng, inputs, targets_in):
      variables = super().init(rng, inputs, targets_in)
      table = variables['params']['token_embedding']
      table['embedding'] = table['embedding'].at[:, 0].set(jnp.nan)
      return variables

  with pytest.raises(InputError) as error:
    _train(_bag_config(3), tmp_path, model=Broken())
  assert 'parameter token_embedding/embedding is not finite' in str(error.value)
  assert 'no checkpoint was written yet' in str(error.value)


def test_a_line_has_means_since_the_previous_line(tmp_path):
  each, some = tmp_path / 'each', tmp_path / 'some'
  _train(_bag_config(10), each)
  _train(_bag_config(10, log_every=4), some)
  numbers = lambda name: [
      {r['step']: r[name] for r in _rows(run) if name in r}
      for run in (each, some)
  ]
  by_step, lines = numbers('train/loss')
  assert list(lines) == [4, 8, 10]
  for first, last in ((0, 4), (4, 8), (8, 10)):
    mean = np.mean([by_step[step + 1] for step in range(first, last)])
    np.testing.assert_allclose(lines[last], mean, rtol=1e-6)
  totals = numbers('train/total_tokens')
  assert totals[1] == {step: totals[0][step] for step in lines}
  assert totals[0][10] == sum(
      int((batch['encoder_input_tokens'] != 0).sum())
      + int(batch['decoder_loss_weights'].sum())
      for batch, _ in zip(_batches(0), range(10))
  )


@products.parametrize('log_every', [4, 50], [50])
def test_tokens_before_the_first_line_are_counted(tmp_path, log_every):
  """A run that is killed before its first line and continued."""
  config = _bag_config(6, log_every=log_every, eval_every=0, checkpoint_every=1)

  def batches(start):
    yield from itertools.islice(_batches(start), 3)
    raise MemoryError('a kill')

  with pytest.raises(MemoryError):
    _train(config, tmp_path / 'a', batches)
  assert not _rows(tmp_path / 'a')
  for name in 'ab':
    _train(config, tmp_path / name)
  assert _rows(tmp_path / 'a') == _rows(tmp_path / 'b')
  totals = [row['train/total_tokens'] for row in _rows(tmp_path / 'a')]
  assert sorted(totals) == totals and totals[-1] > 0


def test_steps_of_evaluations_and_saves(tmp_path):
  asked = []

  def evaluate(params, step):
    asked.append(step)
    return {'eval/x/rouge_mean': 100 - step, 'eval/x/loss': 1.0}

  config = _bag_config(10, eval_every=4, checkpoint_every=3)
  config.checkpoint.keep_latest = 3
  result = _train(config, tmp_path, _batches, evaluate)
  assert asked == [4, 8, 10]
  assert result == {
      'step': 10,
      'final': {'eval/x/rouge_mean': 90.0, 'eval/x/loss': 1.0},
      'best_step': 4,
      'best': {'eval/x/rouge_mean': 96.0, 'eval/x/loss': 1.0},
  }
  steps = sorted(int(p.name) for p in (tmp_path / 'checkpoints').glob('[0-9]*'))
  assert steps == [4, 8, 9, 10]
  # A finished run does not run again and returns the same result.
  never = lambda start: pytest.fail('asked for batches')
  assert _train(config, tmp_path, never, evaluate) == result
  assert asked == [4, 8, 10]


def test_patience(capsys, tmp_path):
  """Stops after two worse evaluations; continues with a patience of four."""
  scores = {2: 1.0, 4: 3.0, 6: 2.0, 8: 2.9, 10: 2.5, 12: 4.0, 14: 9.0}
  asked = []

  def evaluate(params, step):
    asked.append(step)
    return {'eval/x/rouge_mean': scores[step]}

  config = _bag_config(14, eval_every=2, checkpoint_every=1)
  config.train.patience = 2
  phase = phases.Phase('', tmp_path, config)
  train_it = lambda: _train(config, tmp_path, _batches, evaluate)
  assert not phases.is_finished(phase)
  result = train_it()
  assert asked == [2, 4, 6, 8]
  assert (result['step'], result['best_step']) == (8, 4)
  said = 'step 8: stopped, 2 evaluations did not reach that of step 4'
  assert capsys.readouterr().err.count(said) == 1
  assert phases.is_finished(phase)
  assert train_it() == result and asked == [2, 4, 6, 8]
  config.train.patience = 4
  assert not phases.is_finished(phase)
  assert train_it()['best_step'] == 14
  assert asked == [2, 4, 6, 8, 10, 12, 14]
  assert phases.is_finished(phase)


def test_a_phase_stopped_by_patience_is_finished(tmp_path):
  """The next phase has started and is not finished."""
  config = _bag_config(14, eval_every=2, checkpoint_every=1)
  config.train.patience = 2
  evaluate = lambda params, step: {'eval/x/rouge_mean': 100 - step}
  _train(config, tmp_path / 'one', _batches, evaluate)
  shutil.copytree(
      tmp_path / 'one' / 'checkpoints' / '2', tmp_path / 'two/checkpoints/2'
  )

  whole = default.get_config()
  phases.write_config(tmp_path / 'two', whole)
  whole.phases = ('one', {}), ('two', {})
  phases.write_config(tmp_path, whole)

  def home(patience):
    config.train.patience = patience
    phases.write_config(tmp_path / 'one', config)
    return Path(find.find_run(tmp_path)[0]).name

  assert (home(2), home(3)) == ('one', 'two')


def test_each_step_has_another_dropout_mask():
  """Batch and parameters are fixed, so only masks make losses differ."""
  config = _config(10)
  config.model.dropout_rate = 0.5
  init, step = small_training.make_step(config, models.build(config.model))
  state, batch = init(jax.random.key(0)), next(_batches(0))
  losses_of = lambda steps: [
      float(step(state._replace(step=jnp.int32(s)), batch)[1]['loss'])
      for s in steps
  ]
  found = losses_of(range(6))
  assert len(set(found)) == 6, found
  assert np.std(found) > 1e-3
  assert losses_of([4, 2]) == [found[4], found[2]]


@pytest.mark.parametrize('accumulate', [2, 4])
def test_each_piece_of_a_batch_has_another_key(accumulate):
  """A piece's loss is its random number, so the sum reveals the keys."""
  batch = {'decoder_loss_weights': jnp.ones((4, 3))}
  key = jax.random.key(1)

  def sums_of(trained, piece, rng):
    assert piece['decoder_loss_weights'].shape == (4 // accumulate, 3)
    drawn = jax.random.uniform(rng)
    return trained * drawn, drawn, jnp.float32(1)

  (loss, _), gradient = step_lib.loss_and_gradients(
      sums_of, jnp.float32(2), batch, key, accumulate
  )
  drawn = [
      float(jax.random.uniform(jax.random.fold_in(key, i)))
      for i in range(accumulate)
  ]
  assert len(set(drawn)) == accumulate
  np.testing.assert_allclose(gradient, sum(drawn) / 12, rtol=1e-6)
  np.testing.assert_allclose(loss, 2 * sum(drawn) / 12, rtol=1e-6)


# --- A mesh of eight devices; the stage `mesh` has the others -------------------


def test_a_step_of_locost_in_float64():
  """In pieces, because their loop counters are then 64 bits wide too."""
  meshes = [(2, 2, 1, 2)]
  (result,) = mesh_program.run('step', meshes, True, 'float64')
  assert result['loss'] < 1e-13 and result['gradients'] < 1e-12, result
