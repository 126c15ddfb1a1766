"""The corpus that comes with the package."""

import os
import re

import pytest

from locost_jax.data import corpus as corpus_lib


@pytest.fixture(scope='module')
def rows():
  return {
      (kind, split): corpus_lib.built_in_rows(split, kind == 'documents')
      for kind in ('documents', 'pairs')
      for split in ('train', 'validation')
  }


def _words(text):
  return ' ' + ' '.join(re.findall('[a-z0-9]+', text.lower())) + ' '


def test_the_file_is_small_and_never_changes():
  """Its card and the numbers of the quickstart are those of this file."""
  assert os.path.getsize(corpus_lib.BUILT_IN_FILE) <= 2_000_000
  assert corpus_lib.built_in_fingerprint()[:16] == 'd56903abd01d0265'


def test_the_card_has_the_counts(rows):
  with open(corpus_lib.BUILT_IN_FILE.replace('.jsonl.xz', '.md')) as file:
    card = file.read()
  for kind in ('documents', 'pairs'):
    train, validation = rows[kind, 'train'], rows[kind, 'validation']
    words = sum(
        len(text.split())
        for row in train + validation
        for key, text in row.items()
        if key != 'id'
    )
    assert (
        f'| {len(train):,} | {len(validation):,} | {words:,} |\n' in card
    ), kind


def test_validation_targets_are_not_in_training(rows):
  trained = ''.join(
      [_words(row['text']) for row in rows['documents', 'train']]
      + [
          _words(row['document']) + _words(row['summary'])
          for row in rows['pairs', 'train']
      ]
  )
  for row in rows['pairs', 'validation']:
    assert _words(row['summary']) not in trained
  # Negative control: the documents have the training targets.
  found = [_words(r['summary']) in trained for r in rows['pairs', 'train'][:99]]
  assert all(found)
