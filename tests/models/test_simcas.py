"""SimCAS: all forms match a plain one; test_golden_simcas.py: golden arrays."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.models import flops
from locost_jax.models import parameters
from locost_jax.models import selector as selector_lib
from locost_jax.models import simcas
from locost_jax.ops import chunks
from locost_jax.ops import long_attention
from locost_jax.ops import tokenwise
from locost_jax.runs import checks
from tests import products
from tests.models import small
from tests.models.small import BART as SMALL
from tests.models.small import tokens

SIMCAS = SMALL | dict(name='simcas', num_decoder_layers=1)
PAD, EOS = 1, 2
COUNTS = [1, 3, 40, 3]
ALIGNS = ('shift', 'mean', 'none')
PADDINGS = ('tokens', 'release')
SELECTS = ('ppo', 'none', 'first_k')


@functools.lru_cache
def documents(L=6):
  """Returns documents of 1, 3, 40, 3 chunks; last chunks are padded inside."""
  inputs = np.full((len(COUNTS), max(COUNTS), L), PAD)
  for row, count in enumerate(COUNTS):
    inputs[row, :count] = tokens(row, count, L)
    inputs[row, :count, -1] = EOS
    if count > 1:
      inputs[row, count - 1, 3:-1] = PAD
  inputs[0, 0, 3:] = [EOS, PAD, PAD]  # a single chunk is not padded inside
  return inputs


run = small.Runner(SIMCAS, 0.2)
small_params = run.small_params
of_three = small.Runner(SIMCAS | dict(num_layers=3), 0.2, True)


def test_parameters_are_those_of_bart_and_the_selector():
  added = small.added_parameters(SIMCAS, SMALL | dict(num_decoder_layers=1))
  assert added == {
      f'selector/{judge}/{layer}/{part}'
      for judge in ('actor', 'critic')
      for layer in ('token', 'state', 'hidden', 'output')
      for part in ('kernel', 'bias')
  }
  config = dict(default.simcas(), vocab_size=60)
  shapes = parameters.abstract_params(models.build(config))['selector']
  assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == 9_451_011


def test_new_selectors_are_orthogonal():
  """Gains are sqrt(2), in the last layer 0.01 and 1; biases are 0."""
  model = models.build(SIMCAS)
  new = jax.jit(model.init)(jax.random.key(0), tokens(0, 1, 4), tokens(1, 1, 4))
  for judge, gain in (('actor', 0.01), ('critic', 1.0)):
    own = new['params']['selector'][judge]
    for name, layer in own.items():
      square = gain**2 if name == 'output' else 2.0
      kernel = np.asarray(layer['kernel'])
      if kernel.shape[0] > kernel.shape[1]:
        kernel = kernel.T
      expected = square * np.eye(len(kernel))
      np.testing.assert_allclose(kernel @ kernel.T, expected, 0, 1e-5)
      assert not layer['bias'].any()


FEW = ['shift tokens ppo', 'none release ppo', 'mean release none']
FEW.append('mean tokens first_k')
ALL = map(' '.join, itertools.product(ALIGNS, PADDINGS, SELECTS))


@products.few('options', FEW, [x for x in ALL if x not in FEW])
def test_a_batch_matches_its_documents_one_by_one(options):
  """Also with longer rows; influence of other documents would be detected."""
  changes = dict(zip(('align', 'padding', 'select'), options.split()))
  inputs, targets = documents(), tokens(7, len(COUNTS), 5)
  together = small.check_documents_alone(
      run, inputs, targets, COUNTS, **changes
  )
  wide = np.pad(inputs, ((0, 0), (0, 3), (0, 2)), constant_values=PAD)
  np.testing.assert_allclose(run(wide, targets, **changes), together, 0, 1e-5)


def plain_exchange(h, mask, align):
  """`chunks.exchange` for one document, as a loop over its chunks."""
  out = np.array(h)
  own = [c for c in range(len(h)) if mask[c].any()]
  last = {c: np.flatnonzero(mask[c])[-1] for c in own}
  for i, c in enumerate(own):
    before, after = own[i - 1], own[(i + 1) % len(own)]
    start, end = h[before, 0], h[after, last[after]]
    if align == 'mean':
      start = sum(h[o, 0] for o in own) / len(own)
      end = sum(h[o, last[o]] for o in own) / len(own)
    if align != 'none':
      out[c, last[c]], out[c, 0] = end, start
  return out


@pytest.mark.parametrize('align', ALIGNS)
def test_the_exchange_matches_its_loop(align):
  """Also with empty chunks between others, and with an empty document."""
  mask = documents() != PAD
  mask[3, 1], mask[1] = False, False
  h = np.random.default_rng(0).normal(size=(*mask.shape, 8))
  with jax.enable_x64():
    found = chunks.exchange(jnp.asarray(h), mask, align)
  for row in range(len(COUNTS)):
    np.testing.assert_allclose(
        found[row], plain_exchange(h[row], mask[row], align), 0, 1e-12
    )


def test_only_the_release_mode_reads_padding():
  """In the masked mode the pad token's vector has no effect."""
  params = jax.tree.map(lambda x: x, small_params())
  embedding = params['params']['token_embedding']['embedding']
  changed = embedding.at[PAD].add(np.sin(np.arange(32)))
  other = {
      'params': params['params'] | {'token_embedding': {'embedding': changed}}
  }
  inputs, targets = documents()[1:2, :3], tokens(7, 1, 5)
  for padding, differs in (('tokens', False), ('release', True)):
    run_it = functools.partial(
        run, inputs, targets, padding=padding, select='none', method='states'
    )
    difference = abs(run_it()[0] - run_it(params=other)[0]).max()
    assert (difference > 1e-3) == differs, padding


@pytest.mark.parametrize('norms_first', (False, True))
def test_a_document_of_one_chunk_matches_bart(norms_first):
  """Inputs [B, L] and [B, 1, L], for every kind of selection."""
  inputs, targets = tokens(5, 2, 13), tokens(7, 2, 5)
  run = small.Runner(SIMCAS | dict(norms_first=norms_first), 0.2)
  plain = SMALL | dict(num_decoder_layers=1, norms_first=norms_first)
  plain = small.Runner(plain, 0.2)
  want = plain(inputs, targets, params=run.params_without('selector'))
  for select, given in (
      ('ppo', inputs),
      ('none', inputs),
      ('ppo', inputs[:, None]),
  ):
    found = run(given, targets, select=select)
    np.testing.assert_allclose(found, want, 0, 1e-5)


@pytest.mark.parametrize('padding', PADDINGS)
@pytest.mark.parametrize('selection', ['sample', 'argmax'])
def test_the_selector_matches_its_loop(selection, padding):
  """The loop is over documents and chunks, in float64."""
  model = models.build(
      SIMCAS | dict(padding=padding, selection=selection), 'float64'
  )
  inputs = documents()
  with jax.enable_x64():
    params = small.moved_params(SIMCAS, 0.2, True)
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    judges = params['params']['selector']
    # A bias, so that some chunks select nothing.
    judges['actor']['output']['bias'] += [0.9, 0]
    (_, rollout), memory, (states, mask, seeds) = jax.jit(
        lambda params: tuple(
            model.apply(params, inputs, method=method)
            for method in ('rollout', 'encode', 'chunk_states')
        )
    )(params)
    drawn = np.asarray(selector_lib.uniform(seeds, 40, 5))
    counts = np.asarray(selector_lib.selected_counts(memory))
    short = selector_lib._compact(memory, int(counts.max()))['states']
  rollout = jax.tree.map(np.asarray, rollout)
  states, mask, whole = np.asarray(states), np.asarray(mask), 0
  for row, count in enumerate(COUNTS):
    H = states[row]
    selected = [H[:count, 0].mean(0)]
    for c in range(count):
      x, is_token, g = H[c, 1:], mask[row, c, 1:], np.mean(selected, axis=0)
      limit = 0.5 if selection == 'argmax' else drawn[row, c]
      kept, *of_actions, is_whole = small.choose(
          judges, x, g, limit, count == 1, is_token
      )
      whole += is_whole
      selected.extend(x[kept])
      np.testing.assert_array_equal(rollout.actions[row, c], kept)
      np.testing.assert_allclose(rollout.state[row, c], g, 0, 1e-12)
      found = rollout.log_probs, rollout.entropies, rollout.values
      for array, want in zip(found, of_actions):
        np.testing.assert_allclose(array[row, c], want, 0, 1e-9)
    assert not rollout.actions[row, count:].any()
    np.testing.assert_allclose(
        short[row, 0, : counts[row]], np.stack(selected), 0, 1e-12
    )
  assert whole > 1  # including a chunk where nothing was selected


@pytest.mark.parametrize('form', ['sample', 'argmax', 'given'])
def test_tokens_are_projected_at_once_or_chunk_by_chunk(monkeypatch, form):
  """Equal choices and states; only `at once` makes an array of all chunks."""
  model = models.build(SIMCAS, 'float64')
  with jax.enable_x64():
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), small_params())
    chunk_states = functools.partial(model.apply, method='chunk_states')
    states, mask, seeds = jax.jit(chunk_states)(params, documents())
    uniform = selector_lib.uniform(seeds, *mask[0, :, 1:].shape)
    given = np.asarray(uniform) < 0.3
    options = dict(sample=(uniform,), argmax=(None,), given=(uniform, given))[
        form
    ]

    def select(states):
      choose = lambda model: model.selector.select(states, mask, *options)
      return model.apply(params, method=choose)

    wide = states[:, :, 1:].shape[:-1] + (2 * states.shape[-1],)
    shape = 'x'.join(map(str, wide)) + 'xf64'
    at_once = jax.jit(lambda states: select(states)).lower(states)
    monkeypatch.setattr(selector_lib, 'MOST_PROJECTED', 0)
    by_chunk = jax.jit(lambda states: select(states)).lower(states)
    assert shape in at_once.as_text() and shape not in by_chunk.as_text()
    want, found = (form.compile()(states) for form in (at_once, by_chunk))
  np.testing.assert_array_equal(found.actions, want.actions)
  np.testing.assert_allclose(found.state, want.state, 0, 1e-14)
  np.testing.assert_allclose(found.logits, want.logits, 0, 1e-14)


def test_samples_depend_only_on_the_document():
  """Samples depend on tokens and seeds, not on row, batch or padding."""
  inputs = documents()
  encode = jax.jit(
      functools.partial(models.build(SIMCAS).apply, method='encode')
  )

  def mask(inputs, seeds=None):
    return encode(small_params(), inputs, seeds=seeds)['mask']

  own = mask(inputs)
  np.testing.assert_array_equal(mask(inputs[::-1])[::-1], own)
  wide = np.pad(inputs, ((0, 0), (0, 2), (0, 1)), constant_values=PAD)
  np.testing.assert_array_equal(mask(wide)[:, :40, :6], own)
  changed = inputs.copy()
  changed[2, 39, 1] += 1
  assert (mask(changed)[2] != own[2]).any((-1, -2))
  seeds = jnp.arange(4, dtype=jnp.uint32)
  assert (mask(inputs, seeds) != mask(inputs, seeds + 9)).any()
  np.testing.assert_array_equal(mask(inputs, seeds), mask(inputs, seeds))
  share = selector_lib.uniform(seeds, 50, 100)
  assert abs(share.mean() - 0.5) < 0.01 and abs(share.std() - 12**-0.5) < 0.01


def test_the_first_tokens_are_kept():
  inputs, targets = documents(), tokens(7, 4, 5)
  mask = np.asarray(
      run(inputs, select='first_k', limit=7, method='encode')['mask']
  )
  kept = [np.flatnonzero(row)[1:] for row in mask.reshape(4, -1)]
  # Positions in a chunk are 0 to 5; 0 is its start mark.
  assert [list(places) for places in kept] == [
      [1, 2, 3],
      [1, 2, 3, 4, 5, 7, 8],
      [1, 2, 3, 4, 5, 7, 8],
      [1, 2, 3, 4, 5, 7, 8],
  ]
  np.testing.assert_array_equal(
      run(inputs, targets, select='first_k', limit=10**6),
      run(inputs, targets, select='none'),
  )


@pytest.mark.parametrize('absorbed', [False, True])
@pytest.mark.parametrize('select', SELECTS)
def test_steps_over_a_compact_memory_match_the_decoder(
    monkeypatch, absorbed, select
):
  """Also with three rows per document, like beams."""
  if absorbed:
    monkeypatch.setattr(long_attention, 'ABSORBED', 1)
  changes = dict(select=select, limit=9)
  model = models.build(SIMCAS | changes)
  inputs, targets = documents()[1:], tokens(7, 9, 5)
  memory = run(inputs, method='encode', **changes)
  expected = run(small.repeated(memory, 3), targets, method='decode', **changes)
  most = int(selector_lib.selected_counts(memory).max())
  for read in memory, selector_lib._compact(memory, most):
    shared, logits = small.in_steps(model, small_params(), read, targets, 3)
    assert ('states' in shared) == absorbed
    np.testing.assert_allclose(logits, expected, 0, 1e-4)


def gradients(select, remat, dropout=0.0):
  """Returns a function: key of dropout -> gradients by path."""
  changes = dict(select=select, dropout_rate=dropout)
  model = models.build(SIMCAS | changes, remat=remat)

  def loss(params, key):
    keys = dict(deterministic=not dropout, rngs={'dropout': key})
    logits = model.apply(params, documents(), tokens(7, 4, 5), **keys)
    return jnp.mean(logits**2)

  compute = jax.jit(jax.grad(loss))
  return lambda key: parameters.flatten(compute(small_params(), key))


@products.few('select', ['ppo'], ['first_k'])
def test_groups_of_chunks_give_the_same_gradients(monkeypatch, select):
  """Layers run over a few chunks at a time; the selector gets no gradient."""
  key = jax.random.key(0)
  want = gradients(select, 'none')(key)
  monkeypatch.setattr(tokenwise, 'CPU_PIECE', 7 * 6)
  shapes = []
  group = simcas.EncoderLayer.rows
  monkeypatch.setattr(
      simcas.EncoderLayer,
      'rows',
      lambda self, h, *rest, **keys: shapes.append(h.shape)
      or group(self, h, *rest, **keys),
  )
  for remat in ('pieces', 'full'):
    got = gradients(select, remat)(key)
    assert {shape[0] for shape in shapes} == {7}
    for path, array in want.items():
      bound = 2e-4 * abs(array).max() + 1e-7
      np.testing.assert_allclose(got[path], array, 0, bound, err_msg=path)
      assert array.any() != ('selector/' in path)


def test_dropout_in_groups_of_chunks(monkeypatch):
  monkeypatch.setattr(tokenwise, 'CPU_PIECE', 7 * 6)
  drop = gradients('none', 'pieces', 0.1)
  one, same, other = (drop(jax.random.key(seed)) for seed in (0, 0, 1))
  path = 'params/encoder/layers/feed_forward/wi/kernel'
  np.testing.assert_array_equal(one[path], same[path])
  assert abs(one[path] - other[path]).max() > 1e-3 * abs(one[path]).max()


def test_a_document_without_tokens_gives_finite_numbers():
  inputs, targets = np.full((2, 3, 5), PAD), tokens(7, 2, 4)
  inputs[0] = tokens(3, 3, 5)
  for align, select in (('shift', 'ppo'), ('mean', 'first_k')):
    changes = dict(align=align, select=select)
    logits = small.check_documents_alone(run, inputs, targets, [3], **changes)
    assert np.isfinite(logits).all()


def test_one_chunk_is_one_sequence():
  """Ablation without chunks: inputs are checked as for BART."""
  one = SIMCAS | dict(chunk='one')
  assert models.make_config(one).page_forms == ()
  inputs, targets = tokens(5, 2, 13), tokens(7, 2, 5)
  np.testing.assert_array_equal(
      run(inputs, targets, chunk='one'), run(inputs, targets)
  )
  with pytest.raises(InputError, match="have 3 chunks: model.chunk='one'"):
    run(inputs[:, :12].reshape(2, 3, 4), targets, chunk='one')
  own, of_many = (
      flops.of_step(models.build(SIMCAS | dict(chunk=chunk)), read, (2, 64))
      for chunk, read in (('one', (2, 32)), ('many', (2, 1, 32)))
  )
  assert own == of_many

  config = default.get_config()
  config.model = default.simcas()
  config.model.chunk = 'one'
  config.data.max_input_length = 1024
  checks.check_reading(config)
  checks.check_positions(config)
  assert checks.pages_of(config) == 0
  config.data.max_input_length = 1025
  with pytest.raises(InputError, match='max_input_length=1025: .* at most'):
    checks.check_positions(config)
  config.data.pages = 'chunks'
  with pytest.raises(InputError, match="data.pages='chunks': simcas reads a"):
    checks.check_reading(config)
  config.model.chunk, config.data.page_length = 'many', 1025
  with pytest.raises(InputError, match='page_length=1025: expected at most'):
    checks.check_positions(config)


@pytest.mark.parametrize('select', ['ppo', 'none'])
def test_flops_match_the_traced_step(select):
  wide = dict(d_model=128, d_ff=256, max_positions=512)
  model = models.build(SIMCAS | wide | dict(select=select), remat='none')
  small.check_flops(model, (2, 3, 256), (2, 64))
  parts = flops.train_step(model.config, 2, 256, 64, 3)
  assert (parts['selector'] > 0) == (select == 'ppo')
