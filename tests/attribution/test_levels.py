"""Attention followed through the levels of a hierarchical summary."""

import numpy as np
import pytest

from locost_jax import models
from locost_jax.attribution import attribution
from locost_jax.attribution import levels as levels_lib
from locost_jax.summarizing import parts
from locost_jax.summarizing.summarizer import Summarizer
from locost_jax.vocabularies import byte_vocabulary
from tests import tiny_run
from tests.models import small

BYTES = byte_vocabulary.ByteVocabulary()
PARAGRAPHS = [
    'The old mill stood by the river. Nobody ground corn there any more.',
    'A miller had lived in it.  His name\nwas long forgotten.',
    'In May the river rose.',
    'It took the wheel with it, and the bridge, and the road to the town.',
    'The town built another bridge. It was of stone.',
]


@pytest.fixture(scope='module')
def summarizer():
  """A random model whose tokens are bytes."""
  config = tiny_run.make_config(model=dict(num_decoder_layers=2)).model
  model = models.build(config)
  params = small.drawn_params(model, 0.3)
  return Summarizer(model, params, BYTES)


def make_part(text, summary):
  return parts.Part(text, [*BYTES.encode(summary), 1], summary.strip())


def test_shares_are_multiplied_level_by_level(summarizer):
  """Summaries of one sentence: the attributions of the parts, as matrices."""
  join = '\n\n'.join
  text = join(PARAGRAPHS)
  first = [
      make_part(join(PARAGRAPHS[:2]), 'A mill was old.'),
      make_part(PARAGRAPHS[2], ' High water. '),
      make_part(join(PARAGRAPHS[3:]), 'A bridge went and came.'),
  ]
  second = [
      make_part('A mill was old.\n\nHigh water.', 'Mill, water.'),
      make_part('A bridge went and came.', 'Bridges.'),
  ]
  third = [make_part('Mill, water.\n\nBridges.', 'First one. Then others.')]
  levels = [first, second, third]

  def matrix(parts):
    """Shares of the parts' sentences on the paragraphs that they read."""
    size = sum(part.text.count('\n\n') + 1 for part in parts)
    rows, at = [], 0
    for part in parts:
      source = attribution.attribute(summarizer, part.text, part.tokens)
      for sentence in source.sentences:
        row = np.zeros(size)
        row[at : at + len(sentence.mass)] = sentence.mass / sentence.mass.sum()
        rows.append(row)
      at += len(source.passages)
    return np.array(rows)

  last = attribution.attribute(summarizer, third[0].text, third[0].tokens)
  through = matrix(second) @ matrix(first)
  found = levels_lib.attribute(summarizer, text, levels)
  assert [text[a:b] for a, b in found.passages] == PARAGRAPHS
  assert found.summary == 'First one. Then others.'
  for sentence, own in zip(found.sentences, last.sentences, strict=True):
    np.testing.assert_allclose(sentence.mass, own.mass @ through, atol=1e-6)
  np.testing.assert_allclose(found.mass, last.mass @ through, atol=1e-6)
  assert np.ptp(found.mass) > 0.01  # the paragraphs differ
  assert found.parts == [
      levels_lib.PartSummary((0, 1), 'A mill was old.'),
      levels_lib.PartSummary((2, 2), 'High water.'),
      levels_lib.PartSummary((3, 4), 'A bridge went and came.'),
  ]
  # The closest passage is looked for in the document, not in the summaries.
  direct = attribution.attribute(summarizer, text, third[0].tokens)
  assert [s.closest for s in found.sentences] == [
      s.closest for s in direct.sentences
  ]


def test_one_level_is_plain_attribution(summarizer):
  text = '\n\n'.join(PARAGRAPHS)
  part = make_part(text, 'A bridge went. Another came.')
  found = levels_lib.attribute(summarizer, text, [[part]])
  want = attribution.attribute(summarizer, text, part.tokens)
  np.testing.assert_allclose(found.mass, want.mass, atol=1e-6)
  assert found.tokens.tolist() == want.tokens.tolist()
  assert found.tokens_total == want.tokens_total
  for sentence, other in zip(found.sentences, want.sentences, strict=True):
    assert [m.passage for m in sentence.attended] == [
        m.passage for m in other.attended
    ]


def test_passages_and_sentences_cut_between_parts(summarizer):
  """Each letter belongs to its passage; no share is lost in a level."""
  text = '\n\n'.join(PARAGRAPHS)
  # Parts begin inside the second and fourth paragraphs, with other white space.
  cuts = [0, text.index('miller'), text.index('and the bridge'), len(text)]
  parts = [' '.join(text[a:b].split()) for a, b in zip(cuts, cuts[1:])]
  written = ['One thing. Two things.', '', 'Three of them. And four.']
  first = [make_part(*pair) for pair in zip(parts, written)]
  # The second level cuts a sentence of the first.
  second = [
      make_part('One thing. Two things.\n\nThree', 'Up. Down.'),
      make_part('of them. And four.', 'Left.'),
  ]
  last = [make_part('Up. Down.\n\nLeft.', 'All of it.')]
  found = levels_lib.attribute(summarizer, text, [first, second, last])
  letters = [sum(not c.isspace() for c in p) for p in PARAGRAPHS]
  assert (found.tokens >= letters).all()
  assert found.tokens.sum() == sum(map(len, parts))
  plain = attribution.attribute(summarizer, last[0].text, last[0].tokens)
  assert found.mass.sum() == pytest.approx(plain.mass.sum(), abs=1e-6)
  # The second part wrote nothing, so its own paragraph has no share.
  assert found.parts[1].text == '' and found.parts[1].passages == (1, 3)
  assert found.mass[2] == 0 and (found.mass[[0, 1, 3, 4]] > 0).all()


def test_parts_that_wrote_nothing(summarizer):
  text = '\n\n'.join(PARAGRAPHS)
  first = [make_part(p, '') for p in PARAGRAPHS]
  found = levels_lib.attribute(
      summarizer, text, [first, [make_part('', 'Something.')]]
  )
  assert found.summary == 'Something.' and not found.mass.any()
  found = levels_lib.attribute(summarizer, text, [first, [make_part('', '')]])
  assert found.sentences == []
