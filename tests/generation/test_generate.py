"""Decoding with a small LOCOST matches its parallel decoder."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

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
