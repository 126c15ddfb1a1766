"""Attribution of summaries: attention per passage, closest passages."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax import models
from locost_jax.attribution import attribution
from locost_jax.attribution import page as page_lib
from locost_jax.attribution import words as words_lib
from locost_jax.models import attention
from locost_jax.models import decoder_layers
from locost_jax.summarizing.summarizer import Summarizer
from locost_jax.vocabularies import byte_vocabulary
from tests.models import small


@functools.partial(jax.jit, static_argnums=0)
def encode(model, params, inputs, mask):
  return model.apply({'params': params}, inputs, mask, method='encode')


@functools.partial(jax.jit, static_argnums=(0, 6))
def direct_mass(model, params, inputs, mask, targets_in, segments, P):
  """Computes the mass layer by layer from complete attention weights."""
  states = encode(model, params, inputs, mask)['states']
  h = params['token_embedding']['embedding'][targets_in]
  positions = np.arange(targets_in.shape[1])
  causal = positions[None] <= positions[:, None]
  bias = attention.RelativeBias(model.config, False).apply(
      {'params': params['decoder']['relative_bias']}, positions, positions
  )

  def weights(layer, h):
    x = layer.self_attention_norm(h)
    x = layer.self_attention(
        x, *layer.self_attention.keys_values(x), causal, bias
    )
    cross = layer.cross_attention
    queries = cross.split_heads(cross.query(layer.cross_attention_norm(h + x)))
    scores = jnp.einsum(
        'bthk,bshk->bhts', queries, cross.keys_values(states)[0]
    )
    return jax.nn.softmax(jnp.where(mask[:, None, None], scores, -jnp.inf))

  total, depth = 0, model.config.num_decoder_layers
  for i in range(depth):
    layer = decoder_layers.DecoderLayer(model.config, jnp.float32)
    variables = {
        'params': jax.tree.map(lambda p: p[i], params['decoder']['layers'])
    }
    total += layer.apply(variables, h, method=weights).mean(1) / depth
    h, _ = layer.apply(variables, h, states, mask, causal, bias, True)
  return jnp.einsum('bts,bsp->btp', total, jnp.eye(P)[segments])


@pytest.mark.parametrize('length', (37, 64))
def test_mass_equals_the_direct_sum(small_model_config, monkeypatch, length):
  monkeypatch.setattr(attention, '_MASS_KEYS', 8)
  model = models.build(small_model_config)
  generator = np.random.default_rng(0)
  inputs = generator.integers(3, 60, (2, length))
  targets_in = generator.integers(0, 60, (2, 11))
  mask = np.arange(length) < np.array([[length], [length - 9]])
  segments = np.sort(generator.integers(0, 7, (2, length)), axis=1)
  params = small.drawn_params(model, 0.3)  # attention is not uniform
  memory = encode(model, params, inputs, mask)
  mass = jax.jit(
      lambda *a: model.apply({'params': params}, *a, 7, method='cross_mass')
  )(memory, targets_in, segments)
  expected = direct_mass(model, params, inputs, mask, targets_in, segments, 7)
  assert expected.std() > 0.05
  np.testing.assert_allclose(mass, expected, atol=2e-6)
  np.testing.assert_allclose(np.sum(mass, -1), 1, atol=2e-6)


def test_memory_does_not_grow_with_the_input():
  """Peak memory of the compiled program: it never holds all weights."""
  B, T, H, K, D, P = 1, 128, 4, 16, 64, 256

  def temporary(L):
    floats = (B, T, H, K), (B, L, D), (D, H * K), (D, H * K)
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in floats]
    shapes += [jax.ShapeDtypeStruct((B, L), kind) for kind in (bool, jnp.int32)]
    program = jax.jit(attention.attend_and_sum, static_argnums=6)
    compiled = program.lower(*shapes, P).compile()
    return compiled.memory_analysis().temp_size_in_bytes

  short, long = temporary(2**14), temporary(2**17)
  assert long < 1.01 * short < B * H * T * 2**14 * 4


def test_closest_is_the_best_weighted_recall():
  """Equals an explicit search over all passages."""
  generator = np.random.default_rng(0)
  letters = np.array(list('aaaabbbccdefgh'))
  passages = [
      ' '.join(generator.choice(letters, generator.integers(1, 12)))
      for _ in range(30)
  ]
  sentences = [' '.join(generator.choice(letters, 6)) for _ in range(10)]

  def grams(text, size):
    words = text.split()
    return [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]

  def overlap(sentence, passage):
    total = 0
    for size in (1, 2):
      own, theirs = grams(sentence, size), grams(passage, size)
      held = lambda gram, n=size: sum(gram in grams(p, n) for p in passages)
      weight = {gram: np.log(1 + 30 / max(1, held(gram))) for gram in own}
      shared = sum(
          weight[gram] * min(own.count(gram), theirs.count(gram))
          for gram in set(own)
      )
      total += shared / sum(weight[gram] for gram in own) / 2
    return total

  matches = words_lib.closest_passages(sentences + ['zz'], passages)
  assert matches.pop() is None
  for sentence, match in zip(sentences, matches):
    scores = [overlap(sentence, passage) for passage in passages]
    assert match.score == pytest.approx(max(scores))
    assert scores[match.passage] == pytest.approx(max(scores))
  (found,) = words_lib.closest_passages(
      ['Prince Kuragin left'], ['the right', 'KUR\u00c1GIN stayed']
  )
  assert found.passage == 1


def test_attribution_is_the_mean_over_a_sentences_tokens(small_model_config):
  """A random byte model: shares per sentence, in total, and of cut text."""
  vocabulary = byte_vocabulary.ByteVocabulary()
  small_model_config.vocab_size = vocabulary.size
  model = models.build(small_model_config)
  params = small.drawn_params(model, 0.3)
  summarizer = Summarizer(model, params, vocabulary)
  text = ' One.\n\nTwo and three.\n\nFour is the last.'
  tokens = vocabulary.encode('First here. Then this.') + [1]
  source = attribution.attribute(summarizer, text, tokens + [0, 0])
  assert source.tokens.tolist() == [7, 16, 17]
  assert source.tokens_total == source.tokens_read == len(text) + 1
  inputs = np.array([vocabulary.encode(text) + [1]])
  targets_in = np.array([[0] + tokens[:-1]])
  segments = np.repeat([0, 1, 2, 3], [7, 16, 17, 1])
  mass = direct_mass(
      model, params, inputs, inputs > 0, targets_in, segments[None], 4
  )[0]
  first, second = source.sentences
  np.testing.assert_allclose(first.mass, mass[:12, :3].mean(0), atol=1e-6)
  np.testing.assert_allclose(second.mass, mass[12:22, :3].mean(0), atol=1e-6)
  np.testing.assert_allclose(source.mass, mass[:22, :3].mean(0), atol=1e-6)
  assert [match.passage for match in first.attended] == (
      np.argsort(-first.mass).tolist()
  )
  memory = encode(model, params, inputs, inputs > 0)
  again = attribution.attribute(summarizer, text, tokens, memory=memory)
  np.testing.assert_allclose(again.mass, source.mass, atol=1e-6)
  cut = attribution.attribute(summarizer, text, tokens, max_input_length=9)
  assert cut.tokens.tolist() == [7, 1, 0] and cut.mass[2] == 0
  assert (cut.tokens_total, cut.tokens_read) == (len(text) + 1, 9)
  last = attribution.attribute(summarizer, text, vocabulary.encode('Last.'))
  assert last.sentences[0].closest.passage == 2
  last = attribution.attribute(
      summarizer, text, vocabulary.encode('Last.'), max_input_length=9
  )
  assert last.sentences[0].closest is None  # the passage was not read
  page = page_lib.render('a', last, {})
  assert '¶ 2, where reading ended</span>' in page
  assert f'The model read 9 of {len(text) + 1} tokens, the last in <a' in page
  assert 'where reading ended' not in page_lib.render('a', source, {})
  nothing = attribution.attribute(summarizer, text, [1])
  assert nothing.sentences == [] and nothing.mass.tolist() == [0, 0, 0]
