"""LoRA: algebra, training, checkpoints, merging, meshes and errors."""

import json

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import locost_jax
from locost_jax import models
from locost_jax.devices import sharding
from locost_jax.errors import InputError
from locost_jax.models import layers as model_layers
from locost_jax.models import lora
from locost_jax.models import parameters
from locost_jax.training import objectives
from locost_jax.training import step as step_lib
from locost_jax.training import warm_start
from locost_jax.workdir import checkpoint
from locost_jax.workdir import phases as phases_lib
from tests import small_training
from tests import tiny_run
from tests.models import small

flat = parameters.flatten
KERNELS = r'.*(attention/(query|value)|mixer/key|feed_forward/wo)/kernel'


def without(params):
  """Returns the parameters without adapters."""
  kept = {path: x for path, x in flat(params).items() if 'lora' not in path}
  return parameters.unflatten(kept)


def make_config(rank=2, layers=2, **keys):
  config = small_training.make_config(10)
  config.model.update(
      num_layers=layers, num_decoder_layers=layers, dropout_rate=0.0
  )
  config.train.lora.update(rank=rank, alpha=6.0, paths=KERNELS)
  config.optim.update(keys)
  return config


def base(config):
  """Returns the parameters of a model without adapters."""
  return small.drawn_params(models.build(config.model), 0.2)


def trained(config, seed=0):
  """Returns parameters with adapters, with a random B."""
  params = lora.add(base(config), config.train.lora, jax.random.key(7))
  rng = np.random.default_rng(seed)
  return jax.tree_util.tree_map_with_path(
      lambda path, x: jnp.asarray(rng.normal(size=x.shape) / 4, jnp.float32)
      if path[-1].key == lora.B
      else x,
      params,
  )


def logits(config, params):
  batch = next(small_training.batches(0))
  return jax.jit(models.build(config.model).apply)(
      {'params': params},
      batch['encoder_input_tokens'],
      batch['decoder_input_tokens'],
  )


def test_new_adapters_have_the_shapes_of_the_paper_and_no_effect():
  config = make_config()
  params = base(config)
  adapted = lora.add(params, config.train.lora, jax.random.key(1))
  added = {
      path: leaf
      for path, leaf in flat(adapted).items()
      if path not in flat(params)
  }
  assert {path: leaf.shape for path, leaf in added.items()} == {
      f'{kernel}/lora_{name}': (2, *shape)
      for kernel in (
          'encoder/layers/mixer/key',
          'encoder/layers/feed_forward/wo',
          *(
              f'decoder/layers/{attention}_attention/{kind}'
              for attention in ('self', 'cross')
              for kind in ('query', 'value')
          ),
          'decoder/layers/feed_forward/wo',
      )
      for name, shape in (('a', (16, 2)), ('b', (2, 16)))
  }
  draws = [
      np.asarray(leaf)[layer]
      for path, leaf in added.items()
      if path.endswith('_a')
      for layer in range(2)
  ]
  assert len({draw.tobytes() for draw in draws}) == len(draws)
  assert np.std(draws) == pytest.approx(16**-0.5, rel=0.15)
  assert not any(
      np.any(leaf) for path, leaf in added.items() if path.endswith('_b')
  )
  back = without(adapted)
  assert jax.tree.structure(back) == jax.tree.structure(params)
  merged = lora.merge(adapted, 6.0)
  jax.tree.map(np.testing.assert_array_equal, merged, params)
  np.testing.assert_array_equal(logits(config, merged), logits(config, params))
  # Without LoRA the tree is the same.
  config.train.lora.rank = 0
  assert lora.add(params, config.train.lora, jax.random.key(1)) is params


def test_merged_matches_the_sum_of_both_paths():
  """h W' equals h W + alpha / r (h A) B, computed in the layers."""
  config = make_config(layers=1)
  params = trained(config)
  adapters, found = flat(params), []

  def with_adapter(call, arguments, keywords, context):
    y = call(*arguments, **keywords)
    form = dict(
        __call__='...d,dr,rf->...f',
        to_channels='bld,dr,rf->fbl',
        of_channels='dbl,dr,rf->blf',
    ).get(context.method_name)
    if form is None or not isinstance(
        context.module, (nn.Dense, model_layers.Projection)
    ):
      return y
    path = '/'.join(context.module.path)
    if f'{path}/lora_a' not in adapters:
      return y
    found.append(path)
    a, b = (adapters[f'{path}/lora_{name}'][0] for name in 'ab')
    return y + 6.0 / 2 * jnp.einsum(form, arguments[0], a, b)

  with nn.intercept_methods(with_adapter):
    expected = logits(config, without(params))
  assert len(set(found)) == 7
  merged = logits(config, lora.merge(params, 6.0))
  np.testing.assert_allclose(merged, expected, rtol=2e-5, atol=2e-5)
  plain = logits(config, without(params))
  assert np.abs(merged - plain).max() > 0.1


def bag(rank=2, **optim_keys):
  """Returns programs and state of a bag of words with output adapters."""
  config = small_training.bag_config(10)
  config.train.lora.update(rank=rank, alpha=6.0, paths='logits/kernel')
  config.optim.update(optim_keys)
  mesh = sharding.make_mesh(config.mesh)
  with jax.set_mesh(mesh):
    made = objectives.make_programs(config, small_training.Bag(), mesh)
    return made, made.init(jax.random.key(0))


def bytes_of(tree):
  return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def copied(tree):
  return jax.tree.map(np.array, tree)


def test_only_adapters_are_trained_and_have_optimiser_state():
  made, state = bag()
  before, batch = copied(state), next(small_training.batches(0))
  adapters = {
      path: leaf for path, leaf in flat(before.params).items() if 'lora' in path
  }
  assert adapters['logits/lora_a'].shape == (8, 2)
  # AdamW keeps two numbers per adapter weight, and a count.
  assert bytes_of(state.opt_state) == 2 * bytes_of(adapters) + 4
  whole = bag(rank=0)[1]
  assert bytes_of(whole.opt_state) == 2 * bytes_of(whole.params) + 4

  def loss(b):
    params = jax.tree.map(jnp.asarray, without(before.params))
    a = adapters['logits/lora_a']
    params['logits']['kernel'] += 6 / 2 * a @ b
    loss, _, count = step_lib.token_sums(params, batch, small_training.Bag())
    return loss / count

  # B is 0, so A has no gradient: the norm is that of B's gradient.
  gradient = jax.grad(loss)(jnp.zeros((2, small_training.V)))
  state, metrics = made.step(state, batch)
  np.testing.assert_allclose(
      metrics['grad_norm'], np.linalg.norm(gradient), rtol=1e-5
  )
  for path, leaf in flat(state.params).items():
    assert np.array_equal(leaf, flat(before.params)[path]) != (
        path == 'logits/lora_b'
    ), path
  state, _ = made.step(state, batch)
  for path, leaf in flat(state.params).items():
    assert np.array_equal(leaf, flat(before.params)[path]) != (
        path in adapters
    ), path


def test_groups_train_other_parameters_and_change_rates():
  """Rows of optim.groups are matched first."""
  batch = next(small_training.batches(0))
  made, state = bag(clip=0.0)
  before = flat(copied(state.params))
  one = flat(made.step(state, batch)[0].params)
  made, state = bag(
      clip=0.0, groups=(('token_embedding/.*', 1.0), ('.*/lora_b', 0.5))
  )
  other = flat(made.step(state, batch)[0].params)
  np.testing.assert_allclose(
      other['logits/lora_b'], one['logits/lora_b'] / 2, rtol=1e-5
  )
  for path in before:
    assert np.array_equal(other[path], before[path]) == (
        path in ('logits/kernel', 'logits/lora_a')
    ), path


def test_a_fine_tuned_run_loads_merged_weights(tmp_path):
  """Tuned from a run; evaluated, loaded and used as init_from when merged."""
  tiny_run.make(tmp_path / 'base', steps=1)
  config, seen = tiny_run.make_config(2), []
  config.train.init_from = str(tmp_path / 'base')
  config.train.lora.rank = 4
  phases_lib.write_config(tmp_path / 'tuned', config)
  small_training.train(
      config,
      tmp_path / 'tuned',
      models.build(config.model),
      lambda start: iter([tiny_run.make_batch(config)] * 9),
      lambda params, step: seen.append(copied(params)) or {},
  )
  raw = checkpoint.load_params(tmp_path / 'tuned')
  before = locost_jax.load(tmp_path / 'base')
  jax.tree.map(np.testing.assert_array_equal, without(raw), before.params)
  after = locost_jax.load(tmp_path / 'tuned')
  assert jax.tree.structure(after.params) == jax.tree.structure(before.params)
  adapted = 0
  for path, leaf in flat(after.params).items():
    np.testing.assert_allclose(leaf, flat(seen[0])[path], atol=1e-6)
    a, b = (
        flat(raw).get(path.removesuffix('kernel') + name)
        for name in ('lora_a', 'lora_b')
    )
    if a is None:
      np.testing.assert_array_equal(leaf, flat(before.params)[path])
    else:
      adapted += 1
      change = 16 / 4 * np.float64(a) @ np.float64(b)
      assert np.abs(change).max() > 1e-4
      np.testing.assert_allclose(
          leaf, flat(before.params)[path] + change, atol=1e-6
      )
  assert adapted == 4  # query and value of two attentions

  # A run that starts from it gets the merged weights.
  config.train.init_from = str(tmp_path / 'tuned')
  shapes = parameters.abstract_params(after.model)
  given, _ = warm_start.load(config, shapes)
  for path, leaf in flat(after.params).items():
    np.testing.assert_array_equal(given[path], leaf)

  # Configs older than LoRA lack its keys.
  path = tmp_path / 'base' / 'config.json'
  stored = json.loads(path.read_text())
  del stored['train']['lora']
  path.write_text(json.dumps(stored))
  jax.tree.map(
      np.testing.assert_array_equal,
      locost_jax.load(tmp_path / 'base').params,
      before.params,
  )


@pytest.mark.parametrize(
    'changes, words',
    [
        (
            dict(paths='decodr/.*'),
            "'decodr/.*' matches no parameter; kernels are "
            'decoder/layers/cross_attention/key/kernel, ',
        ),
        (
            dict(paths='.*mixer/key/.*'),
            'matches encoder/layers/mixer/key/bias [1, 16]: expected kernels only',
        ),
        (
            dict(rank=16),
            'train.lora.rank=16: expected less than 16, the smaller '
            'side of decoder/layers/cross_attention/query/kernel [1, 16, 16]',
        ),
    ],
)
def test_invalid_values(changes, words, tmp_path):
  config = small_training.make_config(2)
  config.train.lora.rank = 2
  config.train.lora.update(changes)
  with pytest.raises(InputError) as error:
    small_training.train(
        config,
        tmp_path / 'run',
        models.build(config.model),
        small_training.batches,
        small_training.evaluate,
    )
  assert words in str(error.value) and '\n' not in str(error.value)
  assert not (tmp_path / 'run').exists()
