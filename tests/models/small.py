"""Small models with random parameters, and checks that several tests share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from locost_jax import models
from locost_jax.devices import sharding
from locost_jax.models import flops
from locost_jax.models import parameters
from locost_jax.ops import long_attention
from locost_jax.ops import tokenwise
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
# The sizes of facebook/bart-base.
BART_BASE = dict(
    vocab_size=50265,
    d_model=768,
    d_ff=3072,
    decoder_d_ff=3072,
    num_heads=12,
    num_layers=6,
    num_decoder_layers=6,
    max_positions=1024,
)


def tokens(seed, *shape):
  return np.random.default_rng(seed).integers(3, 60, shape)


def documents(batch=2, length=13, pad=1):
  """Returns token ids of ragged length; the first document fills its row."""
  inputs = tokens(5, batch, length)
  kept = np.linspace(length, 2, batch).astype(int)
  return np.where(np.arange(length) < kept[:, None], inputs, pad)


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


def check_less_memory(monkeypatch, gradients):
  """Compares gradients(remat): layers recomputed, blocks and pieces of little."""
  want = gradients('none')
  check = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-9)
  jax.tree.map(check, gradients('full'), want)
  monkeypatch.setattr(tokenwise, 'CPU_PIECE', 16)
  monkeypatch.setattr(long_attention, 'PIECE_BYTES', 1)
  jax.tree.map(check, gradients('pieces'), want)


def check_less_memory_of(config, inputs, monkeypatch):
  """`check_less_memory` of the gradients of a model's logits, in float64."""
  targets = tokens(7, 2, 5)

  def run(remat):
    with jax.enable_x64(True):
      model = models.build(config, 'float64', remat)
      params = jax.tree.map(np.float64, moved_params(config, 0.1, True))
      loss = lambda params: (model.apply(params, inputs, targets) ** 2).mean()
      return jax.jit(jax.grad(loss))(params)

  check_less_memory(monkeypatch, run)


def check_steps(config, inputs):
  """Steps match the plain form; returns (run: inputs -> logits, its logits)."""
  model, params = models.build(config), moved_params(config, 0.1, True)
  targets = tokens(7, 2, 5)
  run = lambda inputs: model.apply(params, inputs, targets)
  want = run(inputs)
  memory = model.apply(params, inputs, method='encode')
  _, logits = in_steps(model, params, memory, targets)
  np.testing.assert_allclose(logits, want, 0, 1e-5)
  return run, want


def check_attention_dropout(config, inputs):
  """Every state of a document depends on the seed of attention's dropout."""
  model = models.build(config | dict(attention_dropout_rate=0.5))
  params = moved_params(config, 0.1, True)
  run = lambda seed: model.apply(
      params,
      inputs,
      None,
      False,
      method='encode',
      rngs={'dropout': jax.random.key(seed)},
  )['states']
  np.testing.assert_array_equal(run(0), run(0))
  assert (run(0) != run(1)).any(-1)[0].all()


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


def added_parameters(config, base):
  """Returns the paths that a model has in addition to those of another one.

  Asserts that all have a place on a mesh.
  """
  own, others = (
      set(parameters.flatten(parameters.abstract_params(models.build(keys))))
      for keys in (config, base)
  )
  assert others < own
  for path in own:
    sharding.spec_of(path)
  return own - others


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


def choose(judges, x, g, limit, is_whole=False, is_token=True):
  """SimCAS's choice in one chunk: x [J, D], g [D], limit [J].

  Args:
    judges: parameters of the selector.
    x: states of the chunk's tokens.
    g: the selector's state.
    limit: a token is kept if its probability is higher.
    is_whole: all tokens are kept anyway.
    is_token: where not, nothing is kept.

  Returns:
    (kept, log p of that, entropies, values), each [J]; whether the whole chunk
    is kept.
  """

  def judge(name):
    own = judges[name]
    dense = lambda name, x: x @ own[name]['kernel'] + own[name]['bias']
    hidden = np.tanh(dense('token', x) + dense('state', g))
    return dense('output', np.tanh(dense('hidden', hidden)))

  logits = judge('actor')
  p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  kept = (p[:, 1] > limit) & is_token
  is_whole = is_whole or not kept.any()
  if is_whole:
    kept = np.ones(len(x), bool) & is_token
  log_p = np.log(p[range(len(x)), kept * 1])
  return kept, log_p, -(p * np.log(p)).sum(-1), judge('critic')[:, 0], is_whole
