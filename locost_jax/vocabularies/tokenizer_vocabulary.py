"""Vocabularies in the files of Hugging Face's `tokenizers` library.

There are three kinds, with the interface of vocabularies/vocabulary.py:

- byte-level BPE (GPT-2, BART, LED): bytes are written as letters, and pairs in
  words (with the space before them) are merged in the order of merges.txt.
  decode(encode(text)) is the text, except for lone surrogates and for spaces
  that an added token such as ' <mask>' absorbs.
- Unigram with a metaspace (mBART; T5 without its spiece.model).
- WordPiece (Chinese BARTs with BERT's tokenizer).

tokenizer_json.py lists the files.

Marks in a text ('</s>') are encoded as text, so a document cannot end itself.
Other added tokens ('<mask>', '<extra_id_0>') in a text become their ids.
"""

import contextlib
import functools
import hashlib
import json
import os

from locost_jax import files
from locost_jax.errors import InputError
from locost_jax.vocabularies import token_ids
from locost_jax.vocabularies import tokenizer_json
from locost_jax.vocabularies.tokenizer_json import MERGES
from locost_jax.vocabularies.tokenizer_json import PIECES
from locost_jax.vocabularies.tokenizer_json import TOKENIZER
from locost_jax.vocabularies.tokenizer_json import VOCAB


def _check_ids(ids, size, path):
  """Raises an InputError for an id outside the vocabulary, or a missing one."""
  for key in (*tokenizer_json.IDS, 'after'):
    i = ids.get(key)
    is_id = type(i) is int and 0 <= i < size
    if not is_id and (i is not None or key not in ('bos', 'after')):
      raise InputError(
          f'{path}: the id of {key} is {i!r}; expected one of 0 to {size - 1}'
      )


class TokenizerVocabulary:
  """A vocabulary in the files of the `tokenizers` library.

  Attributes:
    files: {name: bytes}, the unchanged files.
    ids: {'bos', 'pad', 'eos', 'unk', 'start': id}; bos is None if texts do not
      begin with a mark. 'after', if there, is behind the eos of an input.
    languages: {name: id} of mBART's tokens of languages.
    separator_id: of PRIMERA's <doc-sep> between documents, or None.
  """

  def __init__(self, files, ids=None, where='tokenizer', config=None):
    """Makes a vocabulary.

    Args:
      files: {name: bytes}, some of tokenizer_json.FILES.
      ids: see the attribute; None: they are read from the files.
      config: config.json of the model, for ids that the files do not give.
    """
    self.files = dict(files)
    source = TOKENIZER if TOKENIZER in files else VOCAB
    path = os.path.join(where, source)
    named = tokenizer_json.read_names(files, where)
    spec = (
        tokenizer_json.read_object(files, TOKENIZER, where)
        if source == TOKENIZER
        else tokenizer_json.make_spec(files, named, where)
    )
    is_bpe = tokenizer_json.is_byte_level(spec, path)
    # No truncation, padding or random BPE dropout here.
    spec.update(truncation=None, padding=None)
    if is_bpe:
      spec['model']['dropout'] = None
    whole = tokenizer_json.make_tokenizer(spec, path)
    self.ids = ids = ids or tokenizer_json.find_ids(
        whole, is_bpe, named, config or {}, path
    )
    known = whole.get_vocab(True)
    self.size = 1 + max(known.values())
    _check_ids(ids, self.size, path)
    self.bos_id, self.pad_id, self.eos_id, self.unk_id, self.start_id = (
        ids.get(key) for key in tokenizer_json.IDS
    )
    self.after_id = ids.get('after')
    self.languages = tokenizer_json.languages(spec)
    self.separator_id = known.get('<doc-sep>')
    tokenizer_json.hide_marks(
        spec,
        {self.bos_id, self.pad_id, self.eos_id, self.unk_id, self.after_id},
    )
    spec['post_processor'] = None  # it would trim spaces from the offsets
    self._reader, self._is_byte_level = whole, is_bpe
    self._tokenizer = tokenizer_json.make_tokenizer(spec, path)
    self._tokenizer.encode_special_tokens = True
    self._known = frozenset(known.values())
    self.sentinel_ids = frozenset(
        i for piece, i in known.items() if token_ids.SENTINEL.fullmatch(piece)
    )
    self.extra_ids = len(self.sentinel_ids)
    self.fingerprint = hashlib.sha256(
        json.dumps([spec, ids], sort_keys=True).encode()
    ).hexdigest()

  def __reduce__(self):
    # The library's pickles lose `encode_special_tokens`.
    return TokenizerVocabulary, (self.files, self.ids)

  def with_language(self, name):
    """Marks texts with another language: in front (mBART-50), or behind eos
    and where the decoder begins (mBART)."""
    i, ids = self.languages[name], dict(self.ids)
    ids.update({'bos': i} if self.after_id is None else dict(after=i, start=i))
    return TokenizerVocabulary(self.files, ids)

  @functools.cached_property
  def unknown_ids(self):
    """The ids of characters that the vocabulary lacks, see `token_ids`."""
    pieces = self._reader.get_vocab(True)
    return token_ids.find_unknown(pieces, self.unk_id, self._is_byte_level)

  def encode(self, text):
    """Returns the ids of a text as a list, without marks at its ends."""
    return self._encode(text).ids

  def encode_with_ends(self, text):
    """Returns the ids of `encode(text)` and where each token ends."""
    encoded = self._encode(text)
    ends, last = [], 0
    for _, end in encoded.offsets:
      last = max(last, end)
      ends.append(last)
    return encoded.ids, ends

  def _encode(self, text):
    # '?' replaces a lone surrogate, as in the other vocabularies.
    text = text.encode('utf-8', errors='replace').decode()
    return self._tokenizer.encode(text, add_special_tokens=False)

  def decode(self, ids, keep_sentinels=False):
    """Returns the text of ids (any iterable of ints), up to the first eos.

    pad, bos, languages and, unless they are kept, sentinels are skipped. Ids
    that the vocabulary lacks become unk.
    """
    kept, skipped = [], {self.pad_id, self.bos_id, *self.languages.values()}
    if not keep_sentinels:
      skipped |= self.sentinel_ids
    for i in map(int, ids):
      if i == self.eos_id:
        break
      if i not in skipped:
        kept.append(i if i in self._known else self.unk_id)
    return self._reader.decode(kept, skip_special_tokens=False)


def is_in(directory):
  """Whether a directory has the files of such a vocabulary."""
  there = [
      os.path.exists(os.path.join(directory, name))
      for name in (TOKENIZER, PIECES, VOCAB, MERGES)
  ]
  return there[0] or there[1] or all(there[2:])


def load(path, ids=None):
  """Loads a vocabulary.

  Args:
    path: a directory for which `is_in` holds, or one of its files
      tokenizer.json, vocab.json, merges.txt and sentencepiece.bpe.model.
  """
  directory, name = (path, '') if os.path.isdir(path) else os.path.split(path)
  if name not in ('', TOKENIZER, VOCAB, MERGES, PIECES):
    raise InputError(
        f'{path}: expected a file called {TOKENIZER}, {VOCAB}, {MERGES} or '
        f'{PIECES}'
    )
  names = {*tokenizer_json.FILES, 'config.json'}
  if name in (VOCAB, MERGES):
    names -= {TOKENIZER, PIECES}
  elif name == PIECES:
    names.remove(TOKENIZER)
  found = {}
  for name in names:
    with contextlib.suppress(FileNotFoundError):
      found[name] = files.read_bytes(
          os.path.join(directory, name), files.MOST_TOKENIZER_BYTES
      )
  config = tokenizer_json.read_object(found, 'config.json', directory)
  found.pop('config.json', None)
  if TOKENIZER not in found and PIECES in found:
    named = tokenizer_json.read_names(found, directory)
    spec = tokenizer_json.make_mbart_spec(found, named, config, directory)
    found[TOKENIZER] = json.dumps(spec).encode()
  found.pop(PIECES, None)
  if TOKENIZER not in found:
    for name, other in ((VOCAB, MERGES), (MERGES, VOCAB)):
      if name not in found:
        raise InputError(
            f'{os.path.join(directory, name)}: no such file, but '
            f'{other} needs it'
        )
  return TokenizerVocabulary(found, ids, directory, {} if ids else config)
