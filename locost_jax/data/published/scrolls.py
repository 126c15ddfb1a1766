"""The corpora of SCROLLS (Shaham et al. 2022), from its archives."""

from locost_jax.data import tfds_rows
from locost_jax.data.published import author_files


def read_scrolls(directory, name, convert=tfds_rows.scrolls):
  """Reads a corpus of SCROLLS.

  Args:
    directory: the unpacked archive.
    name: name of the corpus in SCROLLS.
    convert: function (row of SCROLLS) -> row; see data/tfds_rows.py.

  Yields:
    (split, row).
  """
  for split, theirs in author_files.VALIDATION.items():
    for _, row in author_files.read_rows(
        directory, f'{name}/{theirs}.jsonl', f'{theirs}.jsonl'
    ):
      yield split, convert(row)
