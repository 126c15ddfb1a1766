"""Interdependent sentences (PageSum, appendix A) equal rouge_score's."""

import itertools

import numpy as np
from rouge_score import rouge_scorer

from papers import interdependent
from tests.runs import test_main

SCORER = rouge_scorer.RougeScorer(['rouge1'], use_stemmer=True)


def recall(target, text):
  return 100 * SCORER.score(target, text)['rouge1'].recall


def loop(document, summary):
  """Computes equations 14 to 16 in loops."""
  found = []
  for h, target in enumerate(summary):
    best, chosen = -1, None
    for i, j in itertools.combinations(range(len(document)), 2):
      both = recall(target, f'{document[i]} {document[j]}')
      if both > best + 1e-9:
        best, chosen = both, (i, j)
    if chosen is not None and all(
        recall(target, document[s]) > 20
        and best - recall(target, document[s]) > 10
        for s in chosen
    ):
      found.append((h, *chosen))
  return found


def test_pairs_equal_the_equations():
  generator = np.random.default_rng(0)
  words = 'running ships whales oceans sailed ice lost crew men storm'.split()

  def sentences(count):
    return [
        ' '.join(generator.choice(words, generator.integers(1, 7)))
        for _ in range(count)
    ]

  seen = 0
  for _ in range(30):
    document, summary = sentences(generator.integers(1, 9)), sentences(3)
    found = interdependent.find_pairs(document, summary)
    assert [pair[:3] for pair in found] == loop(document, summary)
    for pair in found:
      both = f'{document[pair.first]} {document[pair.second]}'
      np.testing.assert_allclose(
          pair.recall, recall(summary[pair.target], both)
      )
    seen += len(found)
  assert 20 < seen < 80  # some sentences have a pair, others do not


def test_a_split_that_is_missing(tmp_path, run_command):
  path = test_main.write_rows(tmp_path / 'rows.jsonl', test_main.pairs(0, 2))
  keys = f'data.validation_files={path}', f'data.train_files={path}'
  flags = [test_main.CONFIG, *(f'--config.{key}' for key in keys)]
  status, _, err = run_command(interdependent, *flags, '--split=test')
  assert status == 2
  assert 'jsonl has no such split; expected train or validation' in err
