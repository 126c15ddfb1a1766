"""The corpus that comes with the package."""

import os

from locost_jax.data import corpus as corpus_lib


def test_the_file_is_small_and_never_changes():
  """Its card and the numbers of the quickstart are those of this file."""
  assert os.path.getsize(corpus_lib.BUILT_IN_FILE) <= 2_000_000
  assert corpus_lib.built_in_fingerprint()[:16] == 'd56903abd01d0265'


def test_the_card_has_the_counts():
  with open(corpus_lib.BUILT_IN_FILE.replace('.jsonl.xz', '.md')) as file:
    card = file.read()
  for is_gsg in True, False:
    train, validation = (
        corpus_lib.built_in_rows(split, is_gsg)
        for split in ('train', 'validation')
    )
    words = sum(
        len(text.split())
        for row in train + validation
        for key, text in row.items()
        if key != 'id'
    )
    counts = f'| {len(train):,} | {len(validation):,} | {words:,} |\n'
    assert counts in card
