"""Decoding from the selected states only equals decoding with a mask."""

import jax
import numpy as np

from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.generation import generate
from locost_jax.models import selector as selector_lib
from tests import products
from tests.models.test_simcas import documents
from tests.models.test_simcas import run
from tests.models.test_simcas import SIMCAS
from tests.models.test_simcas import small_params

METHODS = {
    # If no token repeats, the texts of documents differ.
    'greedy': dict(no_repeat_ngram_size=1),
    'beams': dict(num_beams=3, length_penalty=0.8, no_repeat_ngram_size=2),
    'sampling': dict(method='sample', top_k=9),
}
IDS = dict(eos_id=2, pad_id=1, start_id=2)


def slots_decoded(monkeypatch, model, params, *arguments):
  """(tokens, scores, slots that the decoder read), compact and not."""
  begun, begin = [], generate.begin

  def count_slots(model, params, memory, *rest):
    begun.append(memory['mask'][0].size)
    return begin(model, params, memory, *rest)

  monkeypatch.setattr(generate, 'begin', count_slots)
  for steps in None, generate.Steps():
    # Make new programs: those traced earlier would not be counted.
    generate.write.clear_cache()
    tokens, scores = generate.generate(model, params, *arguments, steps)
    yield tokens, scores, begun.pop()


@products.few('method', ['greedy', 'beams'], ['sampling'])
def test_texts_and_scores_match_those_of_all_states(monkeypatch, method):
  """Fewer slots are read than there are, in steps and as one program."""
  monkeypatch.setattr(selector_lib, 'SMALLEST', 2)
  model, params = models.build(SIMCAS), small_params()['params']
  inputs = documents().astype(np.int32)
  settings = decode_settings.Settings(max_length=9, **IDS, **METHODS[method])
  seeds = generate.document_seeds(inputs, inputs != settings.pad_id, 3)
  arguments = params, inputs, None, settings, seeds
  want, want_scores = generate.read_and_write(model, *arguments)
  assert len(np.unique(want, axis=0)) == len(inputs)
  memory = generate.encode(model, params, inputs, None)
  own = run(inputs, method='encode')
  np.testing.assert_array_equal(memory['mask'], own['mask'])
  most = int(selector_lib.selected_counts(memory).max())
  for tokens, scores, slots in slots_decoded(monkeypatch, model, *arguments):
    assert slots == selector_lib.bucket(most) < memory['mask'][0].size
    np.testing.assert_array_equal(tokens, want)
    np.testing.assert_allclose(scores, want_scores, 0, 1e-5)


def test_nothing_is_dropped_if_that_saves_no_slot():
  """If all states are selected, the memory is decoded unchanged."""
  model = models.build(SIMCAS | dict(select='none'))
  inputs = documents().astype(np.int32)
  memory = generate.encode(model, small_params()['params'], inputs, None)
  assert int(selector_lib.selected_counts(memory).max()) == 1 + 40 * 5
  assert model.compact_memory(memory) is memory


def test_buckets_are_those_of_lengths():
  """Buckets are 2^k and 1.5 * 2^k; the smallest that fits is used."""
  sizes = sorted({n << k for n in (2, 3) for k in range(5, 23)})
  for count in (1, 64, 65, 96, 97, 128, 2049, 3072, 3073, 2**20 + 1):
    want = next(size for size in sizes if size >= count)
    assert selector_lib.bucket(count) == max(want, 64), count


def test_few_programs_are_compiled():
  """Batches whose largest count is in the same bucket share a program."""
  before = selector_lib._compact._cache_size()  # pylint: disable=protected-access
  random = np.random.default_rng(0)
  states = random.normal(size=(2, 8, 32, 4)).astype(np.float32)
  for share in (0.3, 0.31, 0.32):
    mask = random.random((2, 8, 32)) < share
    memory = jax.device_put({'states': states, 'mask': mask})
    small = selector_lib.compact(memory)
    assert small['mask'].shape == (2, 1, 96)
    for row in range(2):
      np.testing.assert_array_equal(
          small['states'][row][small['mask'][row]], states[row][mask[row]]
      )
  after = selector_lib._compact._cache_size()  # pylint: disable=protected-access
  assert after == before + 1
