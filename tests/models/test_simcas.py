"""SimCAS: all forms match a plain one; test_golden_simcas.py: golden arrays."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.models import flops
from locost_jax.models import selector as selector_lib
from locost_jax.ops import chunks
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


def choose(judges, x, g, limit, is_whole, is_token):
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
    kept = is_token
  log_p = np.log(p[range(len(x)), kept * 1])
  return kept, log_p, -(p * np.log(p)).sum(-1), judge('critic')[:, 0], is_whole


@pytest.mark.parametrize('padding', PADDINGS)
@pytest.mark.parametrize('selection', ['sample', 'argmax'])
def test_the_selector_matches_its_loop(padding, selection):
  """The loop is over documents and chunks, in float64."""
  inputs = documents()
  config = SIMCAS | dict(selection=selection, padding=padding)
  model = models.build(config, 'float64')
  with jax.enable_x64():
    params = small.moved_params(config, 0.2, True)
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    judges = params['params']['selector']
    judges['actor']['output']['bias'] += 0.9, 0  # some chunks select nothing
    (memory, rollout), (states, mask, seeds) = jax.jit(
        lambda params: tuple(
            model.apply(params, inputs, method=method)
            for method in ('rollout', 'chunk_states')
        )
    )(params)
    drawn = selector_lib.uniform(seeds, *mask[0, :, 1:].shape)
    counts = selector_lib.selected_counts(memory)
    short = selector_lib._compact(memory, int(counts.max()))['states']
  arrays = (rollout, states, mask, drawn, short)
  rollout, states, mask, drawn, short = jax.tree.map(np.asarray, arrays)
  kinds = set()
  for row in range(len(inputs)):
    count = mask[row].any(-1).sum()
    read = [states[row, :count, 0].mean(0)]
    for c in range(count):
      x, is_token = states[row, c, 1:], mask[row, c, 1:]
      limit = 0.5 if selection == 'argmax' else drawn[row, c]
      g = np.mean(read, axis=0)
      kept, *of_actions, is_whole = choose(
          judges, x, g, limit, count == 1, is_token
      )
      kinds.add('one' if count == 1 else is_whole)
      read.extend(x[kept])
      np.testing.assert_array_equal(rollout.actions[row, c], kept)
      np.testing.assert_array_equal(rollout.observations[row, c], x)
      np.testing.assert_allclose(rollout.state[row, c], g, 0, 1e-12)
      found = rollout.log_probs, rollout.entropies, rollout.values
      for array, want in zip(found, of_actions):
        np.testing.assert_allclose(array[row, c], want, 0, 1e-9)
    assert not rollout.actions[row, count:].any()
    np.testing.assert_allclose(short[row, 0, : len(read)], read, 0, 1e-12)
  assert {True, False, 'one'} == kinds


def test_attention_is_the_mean_of_the_mass():
  """Per document: over selected tokens and its own targets."""
  inputs, targets = documents(), tokens(7, 4, 5)
  memory = run(inputs, method='encode')
  counts = np.array([5, 3, 4, 1])
  written = np.arange(5) < counts[:, None]
  found = np.asarray(run(memory, targets, written, method='attention'))
  assert found.shape == memory['mask'].shape
  np.testing.assert_allclose(found.sum((1, 2)), 1, 0, 1e-5)
  assert not found[~np.asarray(memory['mask'])].any()
  size = found[0].size
  segments = np.broadcast_to(np.arange(size), (4, size))
  apply = functools.partial(models.build(SIMCAS).apply, method='cross_mass')
  mass = jax.jit(apply, static_argnums=4)(
      small_params(), memory, targets, segments, size
  )
  for row, count in enumerate(counts):
    want = np.asarray(mass)[row, :count].mean(0).reshape(found[row].shape)
    np.testing.assert_allclose(found[row], want, 0, 1e-6)


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
  """Not on rows and padding: see the test of documents one by one."""
  inputs = documents()
  encode = jax.jit(
      functools.partial(models.build(SIMCAS).apply, method='encode')
  )

  def mask(inputs, seeds=None):
    return encode(small_params(), inputs, seeds=seeds)['mask']

  own = mask(inputs)
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
