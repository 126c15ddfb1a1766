"""Where text comes from: files, prepared TFDS corpora, this machine's own docs.

- JSONL: one object a line, UTF-8, split at the byte '\\n' only (some strings
  hold U+0085 and others that `str.splitlines` would split at); `.gz` is read
  through gzip. Plain text files: a document each.
- TFDS: a corpus somebody prepared on this machine; never a download.
- The built-in corpus: the documentation of Python and of the packages installed
  beside this one, for a first run on real text. Two tasks are made of it:
  documents for gap sentences, and pairs (documentation without its first
  sentence -> that sentence).

No TensorFlow is imported.
"""

import functools
import glob
import gzip
import hashlib
import json
import os
import re
import zlib
from typing import NamedTuple

from locost_jax.data import documentation
from locost_jax.data import text as text_lib
from locost_jax.errors import InputError

_WORD = re.compile(r'[a-z0-9]+')


def is_held_out(key, fraction=0.02):
  """Whether a row belongs to the held-out part, by the hash of its key.

  Args:
    key: a string; equal keys fall on one side.
    fraction: share of the keys that is held out.
  """
  return _hash(key) < fraction * 2**64


def _hash(key):
  data = key.encode('utf-8', errors='replace')
  return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), 'big')


# --- Files -------------------------------------------------------------------


def expand_globs(globs):
  """Finds the files of comma-separated glob patterns.

  Args:
    globs: such as 'a/train-*.jsonl.gz,b.jsonl'.

  Returns:
    Sorted paths, each once.

  Raises:
    InputError: a pattern matches no file.
  """
  files = set()
  patterns = [p.strip() for p in globs.split(',') if p.strip()]
  if not patterns:
    raise InputError(f'{globs!r}: expected at least one file or glob pattern')
  for pattern in patterns:
    # A name that exists is meant literally, brackets and all.
    matches = ([pattern] if os.path.isfile(pattern) else
               [p for p in glob.glob(pattern, recursive=True)
                if os.path.isfile(p)])
    if not matches:
      raise InputError(f'{pattern}: no such file' if not glob.has_magic(pattern)
                       else f'{pattern}: no file matches this pattern')
    files.update(matches)
  return sorted(files)


def read_jsonl(files, fields=()):
  """Reads the rows of JSONL files.

  Args:
    files: paths; those that end in '.gz' are decompressed.
    fields: names of the fields every row must have, as strings.

  Yields:
    A dict a row, in order. Empty lines are passed over; a byte order mark and
    carriage returns at line ends are tolerated.

  Raises:
    InputError: a file cannot be read; a line is not UTF-8, not a JSON object,
      or lacks a field (with file and line number).
  """
  for path in files:
    for number, line in read_lines(path):
      yield parse_row(path, number, line, fields)


def read_lines(path):
  """Yields (line number from 1, bytes without the line end) of a file."""
  try:
    with (gzip.open(path) if path.endswith('.gz') else open(path, 'rb')) as f:
      # Binary files iterate over b'\n' only.
      for number, line in enumerate(f, start=1):
        if number == 1 and line.startswith(b'\xef\xbb\xbf'):
          line = line[3:]
        line = line.strip()
        if line:
          yield number, line
  except (OSError, EOFError, zlib.error) as e:
    reason = getattr(e, 'strerror', None) or str(e)
    raise InputError(f'{path}: cannot be read: {reason}') from None


def parse_row(path, number, line, fields):
  """Returns the dict of a line; errors and fields as in `read_jsonl`."""
  where = f'{path}:{number}'
  try:
    row = json.loads(line.decode('utf-8'))
  except UnicodeDecodeError as e:
    raise InputError(f'{where}: not UTF-8 (byte {e.start})') from None
  except (ValueError, RecursionError) as e:
    raise InputError(f'{where}: not JSON: {e}') from None
  if not isinstance(row, dict):
    raise InputError(
        f'{where}: expected a JSON object, got {type(row).__name__}')
  for field in fields:
    if field not in row:
      raise InputError(f'{where}: no field {field!r}; the row has '
                       f'{", ".join(map(repr, row)) or "none"}')
    if not isinstance(row[field], str):
      raise InputError(f'{where}: field {field!r} must be a string, got '
                       f'{type(row[field]).__name__}')
  return row


def read_texts(files):
  """Reads plain text files, a document each.

  Args:
    files: paths; those that end in '.gz' are decompressed.

  Yields:
    dict(id=path, text=...), line ends made '\\n'.

  Raises:
    InputError: a file cannot be read or is not UTF-8.
  """
  for path in files:
    try:
      with (gzip.open(path) if path.endswith('.gz') else open(path, 'rb')) as f:
        data = f.read()
      text = data.decode('utf-8-sig')
    except UnicodeDecodeError as e:
      raise InputError(f'{path}: not UTF-8 (byte {e.start})') from None
    except (OSError, EOFError, zlib.error) as e:
      reason = getattr(e, 'strerror', None) or str(e)
      raise InputError(f'{path}: cannot be read: {reason}') from None
    yield {'id': path, 'text': text.replace('\r\n', '\n').replace('\r', '\n')}


# --- TFDS --------------------------------------------------------------------


def find_tfds(name, tfds_dir=''):
  """Finds a corpus that TFDS prepared on this machine.

  Args:
    name: 'dataset', 'dataset/config', either with ':version' behind.
    tfds_dir: where TFDS keeps its data; '': $TFDS_DATA_DIR, or else
      ~/tensorflow_datasets.

  Returns:
    The directory of the version (the newest one unless named), which
    `tfds.builder_from_directory` reads.

  Raises:
    InputError: there is none; nothing is downloaded.
  """
  from etils import epath  # also reads gs:// and the like

  base = epath.Path(tfds_dir or os.environ.get('TFDS_DATA_DIR') or
                    '~/tensorflow_datasets').expanduser()
  dataset, _, version = name.partition(':')
  root = base / dataset
  prepared = [
      path.name for path in (root.iterdir() if root.is_dir() else ())
      if re.fullmatch(r'\d+\.\d+\.\d+', path.name) and
      (not version or path.name == version) and
      (path / 'dataset_info.json').exists()
  ]
  if not prepared:
    where = f' --data_dir={tfds_dir}' if tfds_dir else ''
    raise InputError(
        f'{name}: not prepared by TFDS: expected '
        f'{root / (version or "VERSION")}/dataset_info.json. Prepare it with '
        f'`tfds build {dataset}{where}`, or let config.data.tfds_dir name the '
        'directory that TFDS keeps it in')
  newest = max(prepared, key=lambda v: tuple(map(int, v.split('.'))))
  return str(root / newest)


def tfds_shards(directory, split):
  """The files of a split in a directory of `find_tfds`, sorted."""
  from etils import epath
  return sorted(map(str, epath.Path(directory).glob(f'*-{split}.*-of-*')))


# --- The built-in corpus -----------------------------------------------------

_HELD_OUT = 0.04  # share of pairs and of modules kept for validation
_PART_WORDS = 1000  # a module's documents are cut at docstrings beyond this
_FEWEST_DOCUMENT_WORDS = 50
# Shorter ones ("The dtype of this.") say too little to be a summary.
_TARGET_WORDS = (6, 40)
_FEWEST_INPUT_WORDS = 12
# Of the words of four letters and more in a target, at least this share must
# occur in the input: the others cannot be known from it.
_SHARE_FOUND = 1 / 3
_CODE = re.compile(r'->|::|\w\([^)]|[={}|<>@\\^]|__|\bTODO\b|\bFIXME\b')


class Document(NamedTuple):
  """Documentation of a module or topic, or a part of it: for gap sentences."""
  id: str
  text: str


class Pair(NamedTuple):
  """An object's documentation without its first sentence, and that sentence."""
  id: str
  document: str
  summary: str


class Corpus(NamedTuple):
  """The built-in corpus; lists are in the order of hashes of the ids."""
  documents: dict  # 'train', 'validation' -> list of Document
  pairs: dict  # 'train', 'validation' -> list of Pair
  statistics: dict  # counts by name
  checksum: str  # hexadecimal, of all texts in order


@functools.lru_cache(maxsize=1)
def builtin_corpus(packages=documentation.PACKAGES):
  """Makes the built-in corpus of this machine's documentation.

  Equal docstrings are read once. A pair is in validation when the hash of its
  target's words says so, so copies of a sentence (jax and keras repeat numpy)
  fall on one side. Of the gap-sentence documents, those of modules chosen by
  hash are validation. Left out of everything that is trained on, pairs and
  documents: docstrings that open with, or contain, a validation target;
  documents also leave out those of the validation modules, wherever copied.

  Args:
    packages: see `documentation.read_docstrings`.

  Returns:
    A Corpus, kept for the next call: do not change it. It differs between
    machines with the versions installed, and the checksum tells.
  """
  docstrings = [
      _Docstring(f'{d.module}:{d.name}' if d.name else d.module, d.module,
                 d.text, _words(d.text))
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
  """Finds word sequences of which one occurs in a text."""
  _HEAD = 4  # words; no target is shorter

  def __init__(self, sequences):
    self._by_head = {}
    for words in sequences:
      self._by_head.setdefault(tuple(words[:self._HEAD]), []).append(words)
    self._heads = self._by_head.keys()

  def occurs_in(self, words):
    heads = list(zip(*(words[i:] for i in range(self._HEAD))))
    if self._heads.isdisjoint(heads):
      return False
    return any(
        words[i:i + len(sequence)] == sequence
        for i, head in enumerate(heads)
        for sequence in self._by_head.get(head, ()))


def _pairs(docstrings):
  """Returns dict(train=pairs, validation=pairs), equal ones once."""
  pairs = {'train': [], 'validation': []}
  seen = set()
  for docstring in docstrings:
    pair = _pair(docstring)
    if pair is None:
      continue
    key = ' '.join(_words(pair.summary))
    body = _hash(' '.join(_words(pair.document)))
    if key in seen or body in seen:
      continue
    seen.update((key, body))
    side = 'validation' if is_held_out(key, _HELD_OUT) else 'train'
    pairs[side].append(pair)
  return pairs


def _pair(docstring):
  """Makes a pair of a docstring, or None when it would teach nothing.

  None: the first sentence is no sentence (a signature, code, too short or
  long); too little is left; what is left repeats it, or has so little of its
  words that nobody could write it.
  """
  paragraph = docstring.text.partition('\n\n')[0]
  start, end = text_lib.sentence_spans(paragraph)[0]
  summary = text_lib.squeeze(paragraph[start:end])
  document = docstring.text[end:].strip()
  fewest, most = _TARGET_WORDS
  target = _words(summary)
  if (not fewest <= len(target) <= most or not summary[0].isalnum() or
      _CODE.search(summary)):
    return None
  # Many headlines have no full stop; then they are a paragraph of their own.
  if not summary.endswith('.') and (end < len(paragraph) or
                                    not summary[-1].isalnum()):
    return None
  body = docstring.words[len(target):]
  if len(body) < _FEWEST_INPUT_WORDS or _HeldOut([target]).occurs_in(body):
    return None
  content = {word for word in target if len(word) >= 4}
  if len(content & set(body)) < _SHARE_FOUND * len(content):
    return None
  return Pair(docstring.id, document, summary)


def _documents(docstrings, leaks):
  """Returns dict(train=documents, validation=documents) for gap sentences."""
  validation = [d for d in docstrings if is_held_out(d.module, _HELD_OUT)]
  # Copies may differ below the first words.
  openings = {tuple(d.words[:12]) for d in validation}
  train = [
      d for d in docstrings
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
      rows.sort(key=lambda row: (_hash(row.id), row))
      statistics[f'{split}_{kind}'] = len(rows)
      statistics[f'words_in_{split}_{kind}'] = sum(
          len(field.split()) for row in rows for field in row[1:])
      checksum.update(f'{split} {kind}\n'.encode())
      for row in rows:
        checksum.update('\0'.join(row).encode('utf-8', errors='replace'))
        checksum.update(b'\n')
  return Corpus(documents, pairs, statistics, checksum.hexdigest())
