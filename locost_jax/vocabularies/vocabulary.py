"""Vocabularies: text <-> token ids.

All vocabularies have the same interface:

- `encode(text) -> ids`, without marks (`surround` adds them);
- `encode_with_ends(text) -> (ids, ends)`: the number of characters of the text
  up to the end of each token;
- `decode(ids) -> text`, up to the first eos, without sentinels (with
  keep_sentinels, the text has their names);
- `bos_id` (begins every text; None: no mark), `pad_id`, `eos_id`, `unk_id`,
  `start_id` (the first token that a decoder reads);
- `unknown_ids` (of characters that the vocabulary lacks, see token_ids.py);
- `sentinel_ids`, `extra_ids` (number of sentinels), `size` (sentinels included),
  `fingerprint`.

The kinds:

- sentencepiece_vocabulary.py: SentencePiece with T5's or PEGASUS's ids;
- byte_vocabulary.py: bytes (ByT5);
- tokenizer_vocabulary.py: the files of the `tokenizers` library, for BART's
  byte-level BPE, for T5's pieces without a spiece.model, and for mBART's.
"""

import difflib
import json
import os

from locost_jax import files
from locost_jax.config import kinds
from locost_jax.config import object_store
from locost_jax.errors import InputError
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import sentencepiece_vocabulary
from locost_jax.vocabularies import token_ids
from locost_jax.vocabularies import tokenizer_json
from locost_jax.vocabularies import tokenizer_vocabulary

MODEL_FILE = 'spiece.model'
INFO_FILE = 'vocabulary.json'
_FILES = '*.model', '*.json', '*.txt'  # to copy from a directory in a bucket
_INFO_KINDS = {
    'kind': kinds.choice('byte', 'sentencepiece', 'pegasus', 'tokenizer'),
    'extra_ids': kinds.integer(0, 10**5),
    'ids': kinds.OBJECT,
    'model_type': kinds.TEXT,
    'offset': kinds.integer(0, 10**5),
}


# Models with PEGASUS's spiece.model.
_PEGASUS = 'pegasus', 'pegasus_x', 'bigbird_pegasus'


def surround(vocabulary, tokens, is_input=False):
  """Adds the marks that a model reads or writes: bos, if any, and eos."""
  front = [] if vocabulary.bos_id is None else [vocabulary.bos_id]
  after = after_input(vocabulary) if is_input else []
  return front + tokens + [vocabulary.eos_id] + after


def after_input(vocabulary):
  """Returns the ids behind the eos of an input: mBART's language, if any."""
  i = getattr(vocabulary, 'after_id', None)
  return [] if i is None else [i]


def with_language(vocabulary, name, key='language'):
  """Returns a vocabulary whose texts are marked with a language: 'ro_RO'."""
  known = getattr(vocabulary, 'languages', {})
  marks = [getattr(vocabulary, mark, None) for mark in ('bos_id', 'after_id')]
  if not set(marks) & set(known.values()):
    raise InputError(
        f"{key}={name}: the model's texts have no mark of their language; "
        'expected an mBART with its tokenizer.json'
    )
  if name not in known:
    near = difflib.get_close_matches(name, known, 1, 0)
    raise InputError(
        f'{key}={name}: is none of the {len(known)} of the vocabulary; the '
        f'nearest is {near[0]}'
    )
  return vocabulary.with_language(name)


def is_in(directory):
  """Whether a directory has files that `load_vocabulary` reads."""
  return tokenizer_vocabulary.is_in(directory) or any(
      os.path.exists(os.path.join(directory, name))
      for name in (MODEL_FILE, INFO_FILE)
  )


def load_vocabulary(path):
  """Loads a vocabulary.

  Args:
    path: 'byte'; a SentencePiece model file; tokenizer.json, or vocab.json
      with merges.txt; or a directory with one of these (SentencePiece first)
      or with what `save_vocabulary` wrote; all of these also in a bucket.
  """
  if path == 'byte':
    return byte_vocabulary.ByteVocabulary()
  path = object_store.local(os.fspath(path), _FILES)
  if not os.path.exists(path):
    raise InputError(
        f'{path}: no such vocabulary; expected a SentencePiece '
        f'file, {tokenizer_json.TOKENIZER}, a directory that holds one, or '
        '"byte"'
    )
  if not os.path.isdir(path):
    if path.endswith(('.json', '.txt', tokenizer_json.PIECES)):
      return tokenizer_vocabulary.load(path)
    return sentencepiece_vocabulary.SentencePieceVocabulary(path)
  if not is_in(path):
    raise InputError(
        f'{path}: no vocabulary in this directory; expected {MODEL_FILE}, '
        f'{tokenizer_json.TOKENIZER}, {tokenizer_json.VOCAB} and '
        f'{tokenizer_json.MERGES}, {tokenizer_json.PIECES}, or {INFO_FILE}'
    )
  has_model = os.path.exists(os.path.join(path, MODEL_FILE))
  kind = 'sentencepiece' if has_model else 'tokenizer'
  model = _read_info(os.path.join(path, 'config.json'))
  if has_model and model.get('model_type') in _PEGASUS:
    kind = 'tokenizer' if tokenizer_vocabulary.is_in(path) else 'pegasus'
  offset = sentencepiece_vocabulary.PegasusVocabulary.OFFSET
  info = {'kind': kind, 'extra_ids': None, 'ids': None, 'offset': offset}
  # transformers has the number of sentinels there: none for mT5's pieces.
  for name in 'tokenizer_config.json', INFO_FILE:
    info.update(_read_info(os.path.join(path, name)))
  extra_ids = info['extra_ids']
  if info['kind'] == 'byte':
    return byte_vocabulary.ByteVocabulary(
        token_ids.EXTRA_IDS if extra_ids is None else extra_ids
    )
  if info['kind'] == 'tokenizer':
    return tokenizer_vocabulary.load(path, info['ids'])
  file = os.path.join(path, MODEL_FILE)
  if info['kind'] == 'pegasus':
    return sentencepiece_vocabulary.PegasusVocabulary(file, info['offset'])
  return sentencepiece_vocabulary.SentencePieceVocabulary(file, extra_ids)


def _read_info(path):
  """Returns what a JSON file says of `_INFO_KINDS`; {} if it is missing."""
  try:
    info = files.read_object(path)
  except FileNotFoundError:
    return {}
  for key, kind in _INFO_KINDS.items():
    if info.get(key) is not None:
      files.check_value(path, key, info[key], kind)
  return {key: info[key] for key in _INFO_KINDS if info.get(key) is not None}


def save_vocabulary(vocabulary, directory):
  """Writes a vocabulary that `load_vocabulary(directory)` can load."""
  if isinstance(vocabulary, byte_vocabulary.ByteVocabulary):
    own, info = {}, dict(kind='byte', extra_ids=vocabulary.extra_ids)
  elif isinstance(vocabulary, sentencepiece_vocabulary.SentencePieceVocabulary):
    own = {MODEL_FILE: vocabulary.model}
    info = dict(kind='sentencepiece', extra_ids=vocabulary.extra_ids)
    if isinstance(vocabulary, sentencepiece_vocabulary.PegasusVocabulary):
      info.update(kind='pegasus', offset=vocabulary.offset)
  else:
    own, info = vocabulary.files, dict(kind='tokenizer', ids=vocabulary.ids)
  for name, data in own.items():
    files.write(os.path.join(directory, name), data)
  files.write(os.path.join(directory, INFO_FILE), json.dumps(info) + '\n')
