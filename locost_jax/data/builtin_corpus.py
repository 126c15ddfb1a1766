"""The built-in corpus for a first run: documentation of Python packages.

python_docs.jsonl.xz comes with the package, so that a first run needs no
download and gives the same numbers everywhere; python_docs.md, its card, has
the sources, their licences and how it was made. Its rows are documents for gap
sentences, and pairs (an object's documentation without its first sentence ->
that sentence).
"""

import functools
import hashlib
import json
import lzma
import os

from locost_jax.data import sources

FILE = os.path.join(os.path.dirname(__file__), 'python_docs.jsonl.xz')


@functools.cache
def fingerprint():
  """Returns a hash of the file, a hexadecimal string."""
  with open(FILE, 'rb') as file:
    return hashlib.sha256(file.read()).hexdigest()


def read_rows(split, gap_sentences):
  """Reads the rows of a split, in the order of hashes of their ids.

  Args:
    gap_sentences: whether to read the documents for gap sentences, dicts of id
      and text; otherwise the pairs, dicts of id, document and summary.

  Returns:
    A list of dicts of strings.
  """
  with lzma.open(FILE, 'rt', encoding='utf-8', newline='\n') as file:
    rows = [json.loads(line) for line in file]
  rows = [
      row
      for row in rows
      if row.pop('split', 'train') == split and ('text' in row) == gap_sentences
  ]
  return sorted(rows, key=lambda row: sources.hash_key(row['id']))
