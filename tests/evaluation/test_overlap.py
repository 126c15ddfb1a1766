"""Fast ROUGE equals rouge_score exactly, and a plain table."""

import json
from pathlib import Path
import random

import pytest
from rouge_score import rouge_scorer

from locost_jax.data import text as text_lib
from locost_jax.evaluation.metrics import overlap
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import subsequences

GOLDEN = Path(__file__).parents[1] / 'golden' / 'perl_rouge.jsonl'
TEXTS = [
    row[side]
    for row in map(json.loads, GOLDEN.read_text().splitlines())
    for side in ('prediction', 'reference')
]


def random_text(draw, words):
  """Makes a text of one sentence per line, some without words."""
  lines = [
      ' '.join(draw.choices(words, k=draw.randint(0, 12)))
      for _ in range(draw.randint(0, 8))
  ]
  return '\n'.join(line or draw.choice(['', '--', '...']) for line in lines)


def cut(text):
  """Splits a text with one sentence per line."""
  return [line.split() for line in text.split('\n')]


@pytest.mark.parametrize(
    'words', ['ab', 'abcdef', 'abcdefghijklmnopqrstuvwxyz']
)
def test_equals_rouge_score_on_random_texts(words):
  """Few different words have many longest common subsequences."""
  draw, letters = random.Random(0), list(words)
  scorer = rouge_scorer.RougeScorer(protocols.TYPES)
  texts = [
      (random_text(draw, letters), random_text(draw, letters))
      for _ in range(400)
  ]
  assert any(not text.strip() for pair in texts for text in pair)
  for prediction, reference in texts:
    expected = scorer.score(reference, prediction)
    sides = (
        [[w for w in line if w.isalpha()] for line in cut(side)]
        for side in (prediction, reference)
    )
    found = overlap.overlaps(*sides)
    for key in protocols.TYPES:
      assert overlap.f1(found[key]) == expected[key].fmeasure, key


@pytest.mark.parametrize('name, stemmer', [('locost', False), ('google', True)])
def test_equals_rouge_score_on_real_texts(name, stemmer):
  scorer = rouge_scorer.RougeScorer(protocols.TYPES, use_stemmer=stemmer)
  draw = random.Random(1)
  pairs = list(zip(TEXTS, TEXTS[1:])) + [
      ('', TEXTS[0]),
      (TEXTS[0], ''),
      ('', ''),
  ]
  # Long texts, like reports.
  pairs += [
      (' '.join(draw.sample(TEXTS, 8)), ' '.join(draw.sample(TEXTS, 8)))
      for _ in range(4)
  ]
  on_lines = lambda text: '\n'.join(text_lib.split_sentences(text))
  for prediction, reference in pairs:
    expected = scorer.score(on_lines(reference), on_lines(prediction))
    found = protocols.score(protocols.find(name), prediction, [reference])
    for key in protocols.TYPES:
      assert found[key] == 100 * expected[key].fmeasure, key


def table(one, other):
  """Computes the table of LCS lengths of all prefixes, cell by cell."""
  t = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
  for i, word in enumerate(one, 1):
    for j, theirs in enumerate(other, 1):
      t[i][j] = (
          t[i - 1][j - 1] + 1
          if word == theirs
          else max(t[i - 1][j], t[i][j - 1])
      )
  return t


def walk(one, other):
  """Follows ROUGE's path through the table."""
  t, i, j, found = table(one, other), len(one), len(other), []
  while i and j:
    if one[i - 1] == other[j - 1]:
      i, j = i - 1, j - 1
      found.append(i)
    elif t[i][j - 1] > t[i - 1][j]:
      j -= 1
    else:
      i -= 1
  return found


def test_subsequences_equal_those_of_the_table():
  draw = random.Random(2)
  for _ in range(2000):
    one, other = (draw.choices('abcd', k=draw.randint(0, 70)) for _ in range(2))
    assert subsequences.length(one, other) == table(one, other)[-1][-1]
    where = subsequences.positions(other)
    assert subsequences.indices(one, where, len(other)) == walk(one, other)


def test_hits_of_a_word_are_limited_by_both_counts():
  """Both sentences, "a b" and "a c", match the only "a"."""
  found = overlap.summary_subsequence([['a', 'x']], [['a', 'b'], ['a', 'c']])
  assert found == overlap.Overlap(1, 2, 4)
  assert overlap.f1(found) == pytest.approx(2 / 6)
