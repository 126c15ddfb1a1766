"""The built-in corpus for a first run: the documentation on this machine.

data/documentation.py reads the documentation of Python and of the packages
installed with this one. It makes two tasks: documents for gap sentences, and
pairs (documentation without its first sentence -> that sentence).
"""

import functools
import hashlib
import re
from typing import NamedTuple

from locost_jax.data import documentation
from locost_jax.data import sources
from locost_jax.data import text as text_lib

_HELD_OUT = 0.04  # share of pairs and of modules kept for validation
_PART_WORDS = 1000  # a longer module is split between docstrings
_FEWEST_DOCUMENT_WORDS = 50
# Shorter sentences ("The dtype of this.") are too little for a summary.
_TARGET_WORDS = (6, 40)
_FEWEST_INPUT_WORDS = 12
# At least this share of a target's words of four or more letters must occur in
# the input, because the others cannot be derived from it.
_SHARE_FOUND = 1 / 3
_WORD = re.compile(r'[a-z0-9]+')
_CODE = re.compile(r'->|::|\w\([^)]|[={}|<>@\\^]|__|\bTODO\b|\bFIXME\b')


class Document(NamedTuple):
  """Documentation of (a part of) a module or topic, for gap sentences."""

  id: str
  text: str


class Pair(NamedTuple):
  """An object's documentation without its first sentence, and that sentence."""

  id: str
  document: str
  summary: str


class Corpus(NamedTuple):
  """The built-in corpus; lists are sorted by hashes of the ids."""

  documents: dict  # 'train', 'validation' -> list of Document
  pairs: dict  # 'train', 'validation' -> list of Pair
  statistics: dict  # counts by name
  checksum: str  # hexadecimal, of all texts in order


@functools.lru_cache(maxsize=1)
def make_corpus(packages=documentation.PACKAGES):
  """Makes the built-in corpus of this machine's documentation.

  Equal docstrings are read once. A hash of a target's words decides whether its
  pair is in validation, so copies of a sentence (jax and keras repeat numpy)
  are on one side. A hash of the module decides for gap-sentence documents. The
  training split leaves out docstrings that contain a validation target, and its
  documents also leave out copies of docstrings of the validation modules.

  Args:
    packages: see `documentation.read_docstrings`.

  Returns:
    A Corpus, cached for the next call: do not modify it. It depends on the
    installed versions, which its checksum distinguishes.
  """
  docstrings = [
      _Docstring(
          f'{d.module}:{d.name}' if d.name else d.module,
          d.module,
          d.text,
          _words(d.text),
      )
      for d in documentation.read_docstrings(packages)
  ]
  pairs = _pairs(docstrings)
  held_out = _HeldOut(_words(pair.summary) for pair in pairs['validation'])
  leaks = {d.id for d in docstrings if held_out.occurs_in(d.words)}
  pairs['train'] = [p for p in pairs['train'] if p.id not in leaks]
  documents = _documents(docstrings, leaks)
  return _corpus(documents, pairs)


class _Docstring(NamedTuple):
  id: str
  module: str
  text: str
  words: list


def _words(text):
  return _WORD.findall(text.lower())


class _HeldOut:
  """Finds texts that contain one of some word sequences."""

  _HEAD = 4  # words; no target is shorter

  def __init__(self, sequences):
    self._by_head = {}
    for words in sequences:
      self._by_head.setdefault(tuple(words[: self._HEAD]), []).append(words)
    self._heads = self._by_head.keys()

  def occurs_in(self, words):
    heads = list(zip(*(words[i:] for i in range(self._HEAD))))
    if self._heads.isdisjoint(heads):
      return False
    return any(
        words[i : i + len(sequence)] == sequence
        for i, head in enumerate(heads)
        for sequence in self._by_head.get(head, ())
    )


def _pairs(docstrings):
  """Returns dict(train=pairs, validation=pairs) without duplicates."""
  pairs = {'train': [], 'validation': []}
  seen = set()
  for docstring in docstrings:
    pair = _pair(docstring)
    if pair is None:
      continue
    key = ' '.join(_words(pair.summary))
    body = sources.hash_key(' '.join(_words(pair.document)))
    if key in seen or body in seen:
      continue
    seen.update((key, body))
    side = 'validation' if sources.is_held_out(key, _HELD_OUT) else 'train'
    pairs[side].append(pair)
  return pairs


def _pair(docstring):
  """Makes a pair of a docstring; None if it is useless for training.

  It is useless if the first sentence is a signature, code, too short or too
  long; if the rest is too short; or if the rest repeats the sentence or has too
  few of its words.
  """
  paragraph = docstring.text.partition('\n\n')[0]
  start, end = text_lib.sentence_spans(paragraph)[0]
  summary = text_lib.squeeze(paragraph[start:end])
  document = docstring.text[end:].strip()
  fewest, most = _TARGET_WORDS
  target = _words(summary)
  if (
      not fewest <= len(target) <= most
      or not summary[0].isalnum()
      or _CODE.search(summary)
  ):
    return None
  # Many first sentences have no full stop; then they must be a paragraph.
  if not summary.endswith('.') and (
      end < len(paragraph) or not summary[-1].isalnum()
  ):
    return None
  body = docstring.words[len(target) :]
  if len(body) < _FEWEST_INPUT_WORDS or _HeldOut([target]).occurs_in(body):
    return None
  content = {word for word in target if len(word) >= 4}
  if len(content & set(body)) < _SHARE_FOUND * len(content):
    return None
  return Pair(docstring.id, document, summary)


def _documents(docstrings, leaks):
  """Returns dict(train=documents, validation=documents) for gap sentences."""
  validation = [
      d for d in docstrings if sources.is_held_out(d.module, _HELD_OUT)
  ]
  # Copies may differ after the first words.
  openings = {tuple(d.words[:12]) for d in validation}
  train = [
      d
      for d in docstrings
      if d.id not in leaks and tuple(d.words[:12]) not in openings
  ]
  return {'train': _join(train), 'validation': _join(validation)}


def _join(docstrings):
  """Joins docstrings of a module into documents of about _PART_WORDS words."""
  documents = []
  module, texts, words, part = None, [], 0, 0

  def finish():
    if words >= _FEWEST_DOCUMENT_WORDS:
      documents.append(Document(f'{module}#{part}', '\n\n'.join(texts)))

  for d in docstrings:
    if d.module != module:
      finish()
      module, texts, words, part = d.module, [], 0, 0
    elif words + len(d.words) > _PART_WORDS:
      finish()
      texts, words, part = [], 0, part + 1
    texts.append(d.text)
    words += len(d.words)
  finish()
  return documents


def _corpus(documents, pairs):
  """Orders the rows, counts them and computes the checksum."""
  statistics = {}
  checksum = hashlib.sha256()
  for kind, splits in (('documents', documents), ('pairs', pairs)):
    for split, rows in splits.items():
      rows.sort(key=lambda row: (sources.hash_key(row.id), row))
      statistics[f'{split}_{kind}'] = len(rows)
      statistics[f'words_in_{split}_{kind}'] = sum(
          len(field.split()) for row in rows for field in row[1:]
      )
      checksum.update(f'{split} {kind}\n'.encode())
      for row in rows:
        checksum.update('\0'.join(row).encode('utf-8', errors='replace'))
        checksum.update(b'\n')
  return Corpus(documents, pairs, statistics, checksum.hexdigest())
