"""Decoding with a small LOCOST matches its parallel decoder."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from locost_jax.config import decode_settings
from locost_jax.generation import generate
from locost_jax.models import low_memory_encoder
from tests import products

METHODS = {
    'greedy': dict(),
    'beams': dict(num_beams=3, length_penalty=0.8, min_length=3),
    'sampling': dict(temperature=0.8, top_k=9, top_p=0.95, seed=3),
    'not_of_the_input': dict(
        encoder_no_repeat_ngram_size=1, repetition_penalty=1.3
    ),
}


def padded(tokens, length=10):
  return np.pad(tokens, ((0, 0), (0, length - tokens.shape[1])))


def slow_greedy(summarizer, inputs, mask, max_length):
  """Runs the whole decoder again for every token, one row at a time."""
  apply = jax.jit(summarizer.model.apply)
  outputs = []
  for row, row_mask in zip(inputs, mask):
    written = []
    while len(written) < max_length and (not written or written[-1] != 1):
      targets_in = np.zeros((1, max_length), np.int32)
      targets_in[0, 1 : 1 + len(written)] = written[: max_length - 1]
      logits = apply(
          {'params': summarizer.params}, row[None], targets_in, row_mask[None]
      )
      written.append(int(logits[0, len(written)].argmax()))
    outputs.append(written + [0] * (max_length - len(written)))
  return np.array(outputs)


def test_greedy_matches_the_slow_loop_with_and_without_eos(
    summarizer, documents
):
  """One batch of ragged inputs; rows write eos early, late and never."""
  want = slow_greedy(summarizer, *documents, 10)
  ends = (want == 1).any(1)
  assert ends.any() and not ends.all(), 'the case must have both kinds of rows'
  assert (want[ends] == 0).any(), 'and an end before the maximum'
  got = summarizer.generate(*documents, max_length=10)
  np.testing.assert_array_equal(padded(got), want)


@products.parametrize('method', METHODS, ('beams',))
def test_a_text_depends_on_its_document_only(summarizer, documents, method):
  """A text does not depend on its batch, row, padding or bucket."""
  inputs, mask = documents
  write = functools.partial(
      summarizer.generate, max_length=10, **METHODS[method]
  )
  together = padded(write(inputs, mask))
  assert len(np.unique(together, axis=0)) > 2
  assert (together == 1).any() and (together[:, -1] > 1).any()
  np.testing.assert_array_equal(padded(write(inputs, mask)), together)
  order = np.arange(12)[::-1]
  np.testing.assert_array_equal(
      padded(write(inputs[order], mask[order])), together[order]
  )
  for i in range(4):
    alone = write(inputs[i : i + 1, : mask[i].sum()])
    np.testing.assert_array_equal(padded(alone), together[i : i + 1])
  longer = np.pad(inputs, ((0, 0), (0, 40 - 11)))
  np.testing.assert_array_equal(padded(write(longer)), together)


@pytest.mark.parametrize(
    'options',
    (
        dict(),
        dict(num_beams=3, no_repeat_ngram_size=2, min_length=4),
        dict(num_beams=2, length_penalty_form='gnmt', forced_last_token=1),
        dict(method='sample', top_k=5),
        dict(num_beams=3, encoder_no_repeat_ngram_size=2),
    ),
    ids=('greedy', 'beams', 'gnmt', 'sampling', 'not_of_the_input'),
)
def test_scores_match_the_parallel_decoder(summarizer, documents, options):
  """The reported score is the log p of the text under teacher forcing."""
  settings = decode_settings.Settings(
      max_length=10, length_penalty=0.8, **options
  )
  inputs, mask = documents
  seeds = generate.document_seeds(inputs, mask, 0)
  tokens, scores = map(
      np.asarray,
      generate.generate(
          summarizer.model, summarizer.params, inputs, mask, settings, seeds
      ),
  )
  targets_in = np.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
  logits = summarizer.logits(inputs, targets_in, mask).astype(np.float64)
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  log_p = np.take_along_axis(log_p, tokens[..., None], -1)[..., 0]
  if settings.forced_last_token == 1:
    log_p[:, -1] = 0
  ended = (tokens == 1).any(1)
  assert ended.any() and (settings.forced_last_token == 1 or not ended.all())
  length = np.where(ended, (tokens == 1).argmax(1) + 1, 10)
  total = (log_p * (np.arange(10) < length[:, None])).sum(1)
  if settings.length_penalty_form == 'gnmt':
    base = (5 + length) / 6
  else:
    base = np.where(ended, length, 1 + length)
  np.testing.assert_allclose(
      scores, total / base**settings.length_penalty, rtol=2e-5
  )


def test_beams_do_not_copy_the_document(summarizer):
  """The state of 4 beams has one copy of the document's arrays."""
  inputs = jax.ShapeDtypeStruct((2, 64), jnp.int32)

  def sizes(settings):
    def make(params, inputs):
      memory = generate.read(summarizer.model, params, inputs, None)
      return generate.begin(summarizer.model, params, memory, settings)

    shared, state = jax.eval_shape(make, summarizer.params, inputs)
    size = lambda tree: sum(x.size for x in jax.tree.leaves(tree))
    return size(shared), size(state['per_row'])

  shared, per_row = sizes(decode_settings.Settings(max_length=8))
  assert sizes(decode_settings.Settings(max_length=8, num_beams=4)) == (
      shared,
      4 * per_row,
  )


@products.parametrize('method', METHODS, ('greedy', 'beams'))
def test_decoding_in_steps_matches_one_program(
    summarizer, documents, method, monkeypatch
):
  """Equal tokens, one program for all steps, with kept kernels or without."""
  monkeypatch.setattr(generate, 'CHUNK', 4)
  inputs, mask = documents
  model, params = summarizer.model, summarizer.params
  changes = {key: x for key, x in METHODS[method].items() if key != 'seed'}
  settings = decode_settings.change(
      decode_settings.Settings(max_length=10), changes
  )
  seeds = generate.document_seeds(inputs, mask, 3)
  want, _ = generate.generate(model, params, inputs, mask, settings, seeds)
  before = generate.advance._cache_size()  # pylint: disable=protected-access
  calls = []
  for kernels in (None, low_memory_encoder.kernels(model, params, 11)):
    steps = generate.Steps(kernels, lambda *call: calls.append(call))
    got, _ = generate.generate(
        model, params, inputs, mask, settings, seeds, steps
    )
    np.testing.assert_array_equal(got, want)
  after = generate.advance._cache_size()  # pylint: disable=protected-access
  assert after == before + 1
  assert calls == 2 * [
      *(('encoding', done, 2) for done in (0, 1, 2)),
      *(('decoding', done, 10) for done in (0, 4, 8, 10)),
  ]


def test_kernels_are_kept_from_the_second_call_on(summarizer, monkeypatch):
  size = low_memory_encoder.kernel_bytes(summarizer.model, 64)
  monkeypatch.setattr(generate, 'KEPT_BYTES', 2 * size)
  kept = generate.KeptKernels(summarizer.model, summarizer.params)
  assert kept.get(64) is None and kept.get(48) is None and kept.get(999) is None
  first = kept.get(64)
  np.testing.assert_array_equal(
      first, low_memory_encoder.kernels(summarizer.model, summarizer.params, 64)
  )
  assert kept.get(64) is first
  assert kept.get(48) is not None
  assert kept.get(64) is first
  assert kept.get(32) is None and kept.get(32) is not None  # 48 is dropped
  assert kept.get(64) is first
  assert kept.get(48) is None
  kept.expect([96, 48, 96])
  assert kept.get(96) is not None


def test_progress_ends_with_the_last_text(summarizer, documents, monkeypatch):
  monkeypatch.setattr(generate, 'CHUNK', 4)
  inputs, mask = documents
  calls = []
  tokens = summarizer.generate(
      inputs,
      mask,
      max_length=40,
      forced_first_token=1,
      progress=lambda *call: calls.append(call),
  )
  assert tokens.tolist() == [[1]] * 12
  assert calls[-1] == ('decoding', 1, 40)
