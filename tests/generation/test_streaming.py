"""The tokens that are final while the rest of a summary is generated."""

import numpy as np
import pytest

from locost_jax.generation import decode_settings
from locost_jax.generation import generate
from locost_jax.generation import streaming
from tests.generation.test_generate import METHODS

T = 10


@pytest.mark.parametrize('method', METHODS)
def test_certain_tokens_stay(summarizer, documents, method):
  """Each list is a prefix of the next and of the result; some arrive early."""
  inputs, mask = documents
  changes = {key: x for key, x in METHODS[method].items() if key != 'seed'}
  settings = decode_settings.change(
      decode_settings.Settings(max_length=T), changes
  )
  seeds = generate.document_seeds(inputs, mask, 3)
  seen = []
  arguments = summarizer.model, summarizer.params, inputs, mask, settings
  written, _ = generate.generate_in_steps(
      *arguments, seeds, on_tokens=seen.append
  )
  want, _ = generate.generate(*arguments, seeds)
  np.testing.assert_array_equal(written, want)
  rows = [
      row[: row.index(1) + 1] if 1 in row else row
      for row in np.asarray(want).tolist()
  ]
  assert seen[0] == [[]] * len(inputs)
  for before, after in zip(seen, [*seen[1:], rows]):
    for one, other in zip(before, after):
      assert other[: len(one)] == one
  lengths = [sum(map(len, found)) for found in seen]
  if method != 'beams':
    assert seen[-1] == rows and lengths[1] == len(inputs)
  else:
    whole = sum(map(len, rows))
    assert 0 < lengths[len(lengths) // 2] < whole


def test_certain_tokens_of_beams_are_their_common_prefix():
  """A case by hand: open beams, a finished text and an unused slot."""
  settings = decode_settings.Settings(num_beams=2, max_length=5, eos_id=1)
  state = dict(
      position=np.int32(3),
      done=np.array([False, True, False]),
      written=np.array(
          [
              [[0, 7, 8, 9, 0, 0], [0, 7, 8, 5, 0, 0]],
              [[0, 3, 3, 3, 0, 0], [0, 4, 4, 4, 0, 0]],
              [[0, 7, 8, 9, 0, 0], [0, 7, 8, 9, 0, 0]],
          ]
      ).reshape(6, 6),
      texts=np.array(
          [
              [[0, 7, 1, 0, 0, 0], [0, 6, 6, 6, 6, 6]],
              [[0, 3, 1, 0, 0, 0], [0, 4, 1, 0, 0, 0]],
              [[0, 5, 5, 5, 5, 5], [0, 5, 5, 5, 5, 5]],
          ]
      ),
      text_scores=np.array(
          [[-1.0, -np.inf], [-1.0, -2.0], [-np.inf, -np.inf]], np.float32
      ),
  )
  found = streaming.certain_tokens(settings, state)
  assert found == [[7], [3, 1], [7, 8, 9]]


@pytest.mark.parametrize(
    'text, stable',
    [
        ('', ''),
        ('one', ''),
        ('one two', 'one '),
        ('one two ', 'one two '),
        ('one\ntw\ufffd', 'one\n'),
        ('鯨は歌\ufffd', '鯨は歌'),
        ('고래 노래', '고래 노래'),
    ],
)
def test_an_open_word_is_held_back(text, stable):
  assert streaming.stable_text(text) == stable


def test_steps_of_one_token(summarizer, documents):
  inputs, mask = documents
  settings = decode_settings.Settings(max_length=4)
  memory = generate.encode(summarizer.model, summarizer.params, inputs, mask)
  steps = generate.decode_in_steps(
      summarizer.model, summarizer.params, memory, settings, chunk=1
  )
  positions = [int(state['position']) for state in steps]
  assert positions == [0, 1, 2, 3, 4]
