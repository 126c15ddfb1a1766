"""Small models with random parameters, and checks that several tests share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from configs import default
from locost_jax import models
from locost_jax.models import flops
from locost_jax.models import parameters
from tests import counted_flops

BART = dict(
    name='bart',
    vocab_size=60,
    d_model=32,
    d_ff=48,
    decoder_d_ff=56,
    num_heads=4,
    num_layers=2,
    num_decoder_layers=2,
    feed_forward='gelu',
    dropout_rate=0.0,
    attention_dropout_rate=0.0,
    activation_dropout_rate=0.0,
    max_positions=40,
    scale_embedding=True,
    pad_id=1,
)
T5_STYLE = dict(
    vocab_size=60,
    d_model=32,
    d_ff=64,
    d_kv=8,
    num_heads=4,
    num_layers=2,
    num_decoder_layers=2,
    dropout_rate=0.0,
)
LOCOST = dict(d_state=8, **T5_STYLE)
FAMILIES = {
    'locost': dict(default.locost(), **LOCOST),
    't5': dict(default.t5(), **T5_STYLE),
    'longt5': dict(
        default.longt5(), local_radius=3, global_block_size=4, **T5_STYLE
    ),
    'bart': BART,
    'led': BART | dict(name='led', attention_window=6, max_target_positions=20),
    'pegasus_x': BART
    | dict(name='pegasus_x', pad_id=0, block_size=6, global_tokens=3),
    # Attention is sparse from 15 tokens on.
    'bigbird_pegasus': BART
    | dict(name='bigbird_pegasus', pad_id=0, norms_first=True)
    | dict(block_size=2, num_random_blocks=1),
    'pagesum': BART | dict(name='pagesum'),
    'simcas': BART | dict(name='simcas'),
}


def tokens(seed, *shape):
  return np.random.default_rng(seed).integers(3, 60, shape)


def documents(batch=2, length=13, pad=1):
  """Returns token ids of ragged length; the first document fills its row."""
  inputs = tokens(5, batch, length)
  kept = np.linspace(length, 2, batch).astype(int)
  return np.where(np.arange(length) < kept[:, None], inputs, pad)


def inputs_of(config):
  """Returns ragged documents of a model [3, 29], in pages [3, 4, 7]."""
  c = models.make_config(config)
  if c.page_forms:
    return documents(3, 28, c.pad_id).reshape(3, 4, 7)
  return documents(3, 29, c.pad_id)


def drawn(shapes, scale, dtype=None, is_like_new=False):
  """Returns random parameters; if like new, most are larger, as at first."""
  rng = np.random.default_rng(3 if is_like_new else 0)

  def draw(path, leaf):
    kind, width = path[-1].key, 0.0
    if is_like_new and kind in ('embedding', 'kernel'):
      width = 1.0 if kind == 'embedding' else leaf.shape[-2] ** -0.5
    noise = np.hypot(width, scale) * rng.normal(size=leaf.shape)
    mean = kind == 'scale'  # of norms
    return jnp.asarray((mean + noise).astype(dtype or leaf.dtype))

  return jax.tree_util.tree_map_with_path(draw, shapes)


def drawn_params(model, scale):
  return drawn(parameters.abstract_params(model), scale)


def drawn_state(init, scale, dtype='float32'):
  """Returns (a TrainState of random parameters and zeros, its shapes)."""
  shapes = jax.eval_shape(init, jax.random.key(0))
  is_float = lambda x: jnp.issubdtype(x.dtype, jnp.floating)
  zeros = lambda x: np.zeros(x.shape, dtype if is_float(x) else x.dtype)
  state = jax.tree.map(lambda x: jnp.asarray(zeros(x)), shapes)
  return state._replace(params=drawn(shapes.params, scale, dtype)), shapes


@functools.cache
def _params(config, scale, is_drawn):
  model = models.build(dict(config))
  if is_drawn:
    shapes = parameters.abstract_params(model)
    return {'params': drawn(shapes, scale, is_like_new=True)}
  one = tokens(0, 1, 4)
  params = jax.jit(model.init)(jax.random.key(0), one, one)
  rng = np.random.default_rng(3)
  move = lambda x: (x + scale * rng.normal(size=x.shape)).astype(x.dtype)
  return jax.tree.map(lambda x: jnp.asarray(move(x)), jax.device_get(params))


def moved_params(config, scale, is_drawn=False):
  """Returns a new tree: initial parameters, or numbers like them, with noise."""
  params = _params(tuple(sorted(dict(config).items())), scale, is_drawn)
  return jax.tree.map(lambda x: x, params)


class Runner:
  """Runs methods of a model; each set of changed keys is compiled once."""

  def __init__(self, config, scale, is_drawn=False):
    self._config = config
    self.small_params = functools.partial(moved_params, config, scale, is_drawn)
    self._compiled = functools.cache(self._compile)

  def params_without(self, part):
    """Returns the parameters without those of a part of the model."""
    own = dict(self.small_params()['params'])
    del own[part]
    return {'params': own}

  def _compile(self, method, changes):
    model = models.build(self._config | dict(changes))
    return jax.jit(functools.partial(model.apply, method=method))

  def __call__(self, *arguments, method='__call__', params=None, **changes):
    """Calls a method; its options are positional."""
    apply = self._compiled(method, tuple(sorted(changes.items())))
    return apply(params or self.small_params(), *arguments)


def in_steps(model, params, memory, targets, beams=1):
  """Decodes token by token, in new programs.

  Args:
    model: of params.
    params: with the key 'params'.
    memory: of B documents.
    targets: [B * beams, T].
    beams: rows for each document.

  Returns:
    (what rows share, logits [B * beams, T, V]).
  """
  length = targets.shape[1] + 2
  shared, per_row = jax.jit(
      lambda *given: model.apply(*given, length, method='init_cache')
  )(params, memory)
  per_row = repeated(per_row, beams)
  step = jax.jit(functools.partial(model.apply, method='step'))
  logits = []
  for own in targets.T:
    new, per_row = step(params, own, shared, per_row)
    logits.append(new)
  return shared, np.stack(logits, 1)


def repeated(memory, times):
  return jax.tree.map(lambda x: np.repeat(x, times, 0), memory)


def check_documents_alone(run, inputs, targets, counts, **changes):
  """Asserts that each document gives the same alone; returns the logits.

  Args:
    run: a Runner.
    inputs: [B, P, L] or [B, L].
    targets: [B, T].
    counts: how much of a document's second axis is not padding.
    **changes: keys of the model.
  """
  together = run(inputs, targets, **changes)
  for row, count in enumerate(counts):
    one = slice(row, row + 1)
    alone = run(inputs[one, :count], targets[one], **changes)
    np.testing.assert_allclose(together[row], alone[0], 0, 1e-5)
  return together


def check_gradients(run, params):
  """Compares run: params -> (value, gradients) with finite differences.

  Along one direction, which changes every parameter; in float64.
  """
  rng = np.random.default_rng(1)
  way = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), params)

  def value(step):
    return run(jax.tree.map(lambda x, w: x + step * w, params, way))[0]

  want = (value(1e-6) - value(-1e-6)) / 2e-6
  parts = jax.tree.map(jnp.vdot, way, run(params)[1])
  np.testing.assert_allclose(sum(jax.tree.leaves(parts)), want, rtol=1e-6)


def check_bfloat16(model, exact, arguments, in_float32):
  """Asserts that logits are close to exact(*arguments) in float32.

  Products are in bfloat16, but not the operations `in_float32`.
  """
  got, want = jax.jit(model.apply)(*arguments), exact(*arguments)
  assert got.dtype == jnp.float32
  assert np.abs(got - want).max() < 0.05 * np.abs(want).max()
  program = str(jax.make_jaxpr(model.apply)(*arguments)).splitlines()
  for operation in in_float32:
    lines = [line for line in program if operation in line]
    assert lines and not any('bf16' in line for line in lines)
  assert any('bf16' in line for line in program if 'dot_general' in line)


def check_flops(model, inputs, targets):
  """Asserts that the formula matches a traced step, without recomputing."""

  def loss(params, inputs, targets):
    return jnp.sum(model.apply({'params': params}, inputs, targets))

  shape = functools.partial(jax.ShapeDtypeStruct, dtype=jnp.int32)
  traced = jax.make_jaxpr(jax.value_and_grad(loss))(
      parameters.abstract_params(model), shape(inputs), shape(targets)
  )
  formula = flops.of_step(model, inputs, targets)
  assert 0.9 <= formula / counted_flops.count(traced) <= 1.01
