"""Vocabularies: text <-> token ids.

One face: `encode(text) -> ids` (no marks added; `surround` adds them),
`encode_with_ends(text) -> (ids, ends)` (the characters each token ends behind),
`decode(ids) -> text` (up to the first end mark), `bos_id` (in front of every
text; None: nothing is), `pad_id`, `eos_id`, `unk_id`, `start_id` (what a
decoder reads first), `extra_ids` (number of sentinels), `size` (sentinels
included), `fingerprint`. The rest of the house knows these ids from here alone.

- SentencePiece (Kudo & Richardson 2018) with T5's ids: a model file plus
  `extra_ids` sentinels behind its pieces, `<extra_id_0>` being the LAST id.
  T5's own 32,000 pieces make 32,100 ids. pad and start 0, eos 1, unk 2.
- Bytes: id = byte + 3, then the sentinels (ByT5).
- The files of the `tokenizers` library: BART's byte-level BPE, and T5's pieces
  where there is no spiece.model (data/bpe.py).
"""

import hashlib
import io
import json
import os

import numpy as np

from locost_jax.data import bpe
from locost_jax.data import spiece
from locost_jax.errors import InputError

PAD_ID, EOS_ID, UNK_ID = 0, 1, 2
EXTRA_IDS = 100
MODEL_FILE = 'spiece.model'
INFO_FILE = 'vocabulary.json'

_BYTES = 256
_SPECIAL = 3  # pad, eos, unk
# Training text per id. On 25 MB of documentation, 4,000 ids trained on 2 MB cut
# unseen text into 0.6% more pieces than trained on all of it, in a quarter of
# the time (6 s of two cores). BPE takes 1 s and makes 0.4% more still; unigram
# is what T5 uses.
_BYTES_PER_ID = 500
_LONGEST_LINE = 1000  # characters; longer ones are cut between words
# Every letter, digit and sign of plain English gets a piece, however rare.
_REQUIRED = ''.join(map(chr, range(33, 127)))


class SentencePieceVocabulary:
  """A SentencePiece model with sentinels.

  What survives encode, then decode: words, and newlines when the model has the
  piece '\\n' (the ones `train_sentencepiece` makes do, T5's does not: there a
  newline becomes a space). A run of spaces or tabs becomes one space, and none
  is left at the ends of lines, so indentation is lost. Text is NFKC-normalised
  as the model demands, and characters the model lacks become its mark for
  unknown.
  """

  pad_id, eos_id, unk_id = PAD_ID, EOS_ID, UNK_ID
  bos_id, start_id = None, PAD_ID

  def __init__(self, path, extra_ids=EXTRA_IDS):
    """Loads a model.

    Args:
      path: a SentencePiece model file with pad 0, eos 1, unk 2.
      extra_ids: sentinels added behind the pieces.

    Raises:
      InputError: no such file, not a SentencePiece model, or other ids.
    """
    try:
      with open(path, 'rb') as f:
        self.model = f.read()
    except OSError as e:
      raise InputError(
          f'{path}: no SentencePiece model: {e.strerror}') from None
    self.extra_ids = extra_ids
    self._processor = _load_processor(self.model, path)
    ids = tuple(
        getattr(self._processor, name)() for name in ('pad_id', 'eos_id',
                                                      'unk_id'))
    if ids != (PAD_ID, EOS_ID, UNK_ID):
      raise InputError(f'{path}: expected the ids pad 0, eos 1, unk 2 (T5\'s), '
                       f'got pad {ids[0]}, eos {ids[1]}, unk {ids[2]}')
    if extra_ids:
      self._processor = _load_processor(
          self.model + spiece.sentinel_pieces(extra_ids), path)
    self.size = self._processor.get_piece_size()
    self.fingerprint = _fingerprint(self.model, extra_ids)
    newline = self._processor.piece_to_id('\n')
    self._newline_id = None if newline == UNK_ID else newline

  def encode(self, text):
    """Returns the ids of a text as a list, without an end mark."""
    # A lone surrogate (JSON allows them) has no UTF-8 form; '?' stands for it.
    text = text.encode('utf-8', errors='replace').decode()
    if self._newline_id is None or '\n' not in text:
      return self._processor.encode(text)
    # Line by line, so that a word at the start of a line is the same piece as
    # one behind a space.
    lines = text.split('\n')
    encoded = self._processor.encode(lines, num_threads=1)
    ids = encoded[0]
    for line in encoded[1:]:
      ids.append(self._newline_id)
      ids += line
    return ids

  def encode_with_ends(self, text):
    """Returns the ids of `encode(text)` and where each token ends.

    Returns:
      (ids, ends), lists of one length: token i ends behind the first ends[i]
      characters of `text`. It begins where the token before it ends, so white
      space belongs to the word behind it.
    """
    text = text.encode('utf-8', errors='replace').decode()
    is_split = self._newline_id is not None
    ids, ends, start = [], [], 0
    for line in text.split('\n') if is_split else [text]:
      if start:
        ids.append(self._newline_id)
        ends.append(start)
      proto = self._processor.encode(line, out_type='serialized_proto')
      line_ids, line_ends = spiece.ids_and_ends(proto)
      ids += line_ids
      if not line.isascii():
        data = np.frombuffer(line.encode(), np.uint8)
        # characters that begin in the first n bytes
        begun = np.cumsum(np.append(0, data & 0xc0 != 0x80))
        line_ends = begun[line_ends].tolist()
      ends += [start + end for end in line_ends]
      start += len(line) + 1
    return ids, ends

  def decode(self, ids):
    """Returns the text of ids (any iterable of ints), up to the first eos.

    Padding is skipped. Ids that the vocabulary does not have count as unknown.
    """
    lines = [[]]
    for i in map(int, ids):
      if i == EOS_ID:
        break
      if i == self._newline_id:
        lines.append([])
      elif i != PAD_ID:
        lines[-1].append(i if 0 <= i < self.size else UNK_ID)
    return '\n'.join(self._processor.decode(line) for line in lines)


class ByteVocabulary:
  """UTF-8 bytes: every text survives encode, then decode, unchanged.

  Ids 3 to 258 are the bytes; the sentinels behind them are never written by
  `encode`. `decode` drops what is no byte, and bytes that are not UTF-8.
  """

  pad_id, eos_id, unk_id = PAD_ID, EOS_ID, UNK_ID
  bos_id, start_id = None, PAD_ID

  def __init__(self, extra_ids=EXTRA_IDS):
    self.extra_ids = extra_ids
    self.size = _SPECIAL + _BYTES + extra_ids
    self.fingerprint = _fingerprint(b'byte', extra_ids)

  def encode(self, text):
    """Returns the ids of a text as a list, without an end mark."""
    # As above, '?' for a lone surrogate.
    return [b + _SPECIAL for b in text.encode('utf-8', errors='replace')]

  def encode_with_ends(self, text):
    """Returns the ids of `encode(text)` and where each token ends.

    Returns:
      (ids, ends), lists of one length: token i is part of, or the end of, the
      first ends[i] characters of `text`.
    """
    ids = self.encode(text)
    data = np.array(ids, int) - _SPECIAL
    return ids, np.cumsum(data & 0xc0 != 0x80).tolist()

  def decode(self, ids):
    """Returns the text of ids (any iterable of ints), up to the first eos."""
    text = bytearray()
    for i in map(int, ids):
      if i == EOS_ID:
        break
      if _SPECIAL <= i < _SPECIAL + _BYTES:
        text.append(i - _SPECIAL)
    return text.decode('utf-8', errors='ignore')


def train_sentencepiece(texts, path, size, seed=0):
  """Trains a unigram SentencePiece model with T5's ids and writes it.

  Lines are the unit, and each counts once. Of a corpus of more than 500 bytes
  for each id, a part chosen by the hash of (seed, line) is used; so the result
  depends on the set of lines and the seed only.

  Args:
    texts: iterable of strings.
    path: where the model is written.
    size: ids of the vocabulary, the 100 sentinels included. A corpus too small
      for it gives a smaller vocabulary: look at `.size`.
    seed: chooses another part of a large corpus.

  Returns:
    The SentencePieceVocabulary.

  Raises:
    InputError: there is no text, or `size` cannot hold even its letters.
  """
  import sentencepiece as spm

  lines = _training_lines(texts, seed, _BYTES_PER_ID * size)
  if not lines:
    raise InputError('cannot train a vocabulary: the corpus has no text')
  model = io.BytesIO()
  try:
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model,
        model_type='unigram', vocab_size=size - EXTRA_IDS,
        hard_vocab_limit=False, pad_id=PAD_ID, eos_id=EOS_ID, unk_id=UNK_ID,
        bos_id=-1, user_defined_symbols=['\n'], character_coverage=0.9999,
        required_chars=_REQUIRED, max_sentence_length=8 * _LONGEST_LINE,
        num_threads=2, minloglevel=2)
  except RuntimeError as e:
    reason = str(e).split(']')[-1].strip() or str(e)
    raise InputError(f'cannot train a vocabulary of {size} ids ({EXTRA_IDS} of '
                     f'them sentinels): {reason}') from None
  _write(path, model.getvalue())
  return SentencePieceVocabulary(path)


def surround(vocabulary, ids):
  """The ids of a text as a model reads or writes it, marks at its ends."""
  front = [] if vocabulary.bos_id is None else [vocabulary.bos_id]
  return front + ids + [vocabulary.eos_id]


def is_in(directory):
  """Whether `load_vocabulary` finds files of a vocabulary in a directory."""
  return bpe.is_in(directory) or any(
      os.path.exists(os.path.join(directory, name))
      for name in (MODEL_FILE, INFO_FILE))


def load_vocabulary(path):
  """Loads a vocabulary.

  Args:
    path: 'byte'; a SentencePiece model file; tokenizer.json, or vocab.json
      beside merges.txt; or a directory with one of these (SentencePiece first)
      or with what `save_vocabulary` wrote.

  Returns:
    A SentencePieceVocabulary, ByteVocabulary or bpe.TokenizerVocabulary.

  Raises:
    InputError: there is nothing of the kind.
  """
  if path == 'byte':
    return ByteVocabulary()
  path = os.fspath(path)
  if not os.path.exists(path):
    raise InputError(f'{path}: no such vocabulary; expected a SentencePiece '
                     f'file, {bpe.TOKENIZER}, a directory that holds one, or '
                     '"byte"')
  if not os.path.isdir(path):
    is_ours = path.endswith(('.json', '.txt'))
    return bpe.load(path) if is_ours else SentencePieceVocabulary(path)
  if not is_in(path):
    raise InputError(
        f'{path}: no vocabulary in this directory; expected {MODEL_FILE}, '
        f'{bpe.TOKENIZER}, {bpe.VOCAB} and {bpe.MERGES}, or {INFO_FILE}')
  has_model = os.path.exists(os.path.join(path, MODEL_FILE))
  info = {'kind': 'sentencepiece' if has_model else 'tokenizer',
          'extra_ids': EXTRA_IDS, 'ids': None}
  info_path = os.path.join(path, INFO_FILE)
  if os.path.exists(info_path):
    try:
      with open(info_path, encoding='utf-8') as f:
        info.update(json.load(f))
    except (TypeError, ValueError):
      raise InputError(f'{info_path}: not a JSON object') from None
  if info['kind'] == 'byte':
    return ByteVocabulary(info['extra_ids'])
  if info['kind'] == 'tokenizer':
    return bpe.load(path, info['ids'])
  return SentencePieceVocabulary(
      os.path.join(path, MODEL_FILE), info['extra_ids'])


def save_vocabulary(vocabulary, directory):
  """Writes a vocabulary so that `load_vocabulary(directory)` finds it."""
  os.makedirs(directory, exist_ok=True)
  if isinstance(vocabulary, ByteVocabulary):
    files, info = {}, dict(kind='byte', extra_ids=vocabulary.extra_ids)
  elif isinstance(vocabulary, SentencePieceVocabulary):
    files = {MODEL_FILE: vocabulary.model}
    info = dict(kind='sentencepiece', extra_ids=vocabulary.extra_ids)
  else:
    files, info = vocabulary.files, dict(kind='tokenizer', ids=vocabulary.ids)
  for name, data in files.items():
    _write(os.path.join(directory, name), data)
  _write(os.path.join(directory, INFO_FILE), json.dumps(info).encode() + b'\n')


def _write(path, data):
  """Writes a file whole or not at all."""
  temporary = f'{path}.tmp{os.getpid()}'
  with open(temporary, 'wb') as f:
    f.write(data)
  os.replace(temporary, path)


def _load_processor(model, path):
  import sentencepiece as spm
  try:
    return spm.SentencePieceProcessor(model_proto=model)
  except RuntimeError:
    raise InputError(f'{path}: not a SentencePiece model') from None


def _fingerprint(model, extra_ids):
  return hashlib.sha256(b'%d:' % extra_ids + model).hexdigest()


def _training_lines(texts, seed, most):
  """Distinct lines of the texts, at most `most` bytes of them.

  Kept are the lines with the smallest hashes, in the order of the hashes.
  """
  kept = {}  # hash -> line
  total = 0
  limit = 1 << 64
  prefix = b'%d:' % seed
  for text in texts:
    for line in _short_lines(text):
      data = line.encode('utf-8', errors='replace')
      key = int.from_bytes(
          hashlib.blake2b(prefix + data, digest_size=8).digest(), 'big')
      if key >= limit or key in kept:
        continue
      kept[key] = data.decode()
      total += len(data)
      if total > 2 * most:
        limit, total = _keep_smallest(kept, most)
  if total > most:
    _keep_smallest(kept, most)
  return [kept[key] for key in sorted(kept)]


def _short_lines(text):
  """Yields the lines of a text, white space squeezed, long ones in parts."""
  for line in text.split('\n'):
    line = ' '.join(line.split())
    while len(line) > _LONGEST_LINE:
      cut = line.rfind(' ', 0, _LONGEST_LINE)
      cut = cut if cut > 0 else _LONGEST_LINE
      yield line[:cut]
      line = line[cut:].lstrip()
    if line:
      yield line


def _keep_smallest(kept, most):
  """Drops the largest hashes beyond `most` bytes; returns (limit, bytes)."""
  total = 0
  limit = None
  for key in sorted(kept):
    if limit is None:
      total += len(kept[key].encode('utf-8'))
      if total <= most:
        continue
      limit = key
      total -= len(kept[key].encode('utf-8'))
    del kept[key]
  return limit, total
