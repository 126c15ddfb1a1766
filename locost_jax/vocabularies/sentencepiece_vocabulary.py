"""SentencePiece models (Kudo & Richardson 2018) with T5's ids and sentinels.

A vocabulary is a model file plus `extra_ids` sentinels after its pieces;
`<extra_id_0>` is the LAST id. T5's 32,000 pieces give 32,100 ids. pad and start
are 0, eos is 1, unk is 2.
"""

import functools

import numpy as np

from locost_jax import files
from locost_jax.errors import InputError
from locost_jax.vocabularies import token_ids


class SentencePieceVocabulary:
  """A SentencePiece model with sentinels.

  Encoding and decoding preserves words. It preserves newlines if the model has
  the piece '\\n' (models of sentencepiece_training.py); otherwise (T5) a newline
  becomes a space. A run of spaces or tabs becomes one space, and lines are
  stripped, so indentation is lost. Text is NFKC-normalised if the model says so.
  Characters that the model lacks become unk.
  """

  pad_id, eos_id, unk_id = token_ids.PAD_ID, token_ids.EOS_ID, token_ids.UNK_ID
  bos_id, start_id = None, token_ids.PAD_ID

  def __init__(self, path, extra_ids=token_ids.EXTRA_IDS, has_t5s_unk=True):
    """Loads a model.

    Args:
      path: a SentencePiece model file with pad 0, eos 1, and unk 2 if
        has_t5s_unk.
      extra_ids: number of sentinels to add after the pieces; None: 100, unless
        the model has sentinels (mT5's).
    """
    try:
      self.model = files.read_bytes(path, files.MOST_TOKENIZER_BYTES)
    except OSError as e:
      raise InputError(
          f'{path}: no SentencePiece model: {e.strerror}'
      ) from None
    self._processor = load_processor(self.model, path)
    ids = tuple(
        getattr(self._processor, name)()
        for name in ('pad_id', 'eos_id', 'unk_id')
    )
    *_, self._unknown = ids
    wanted = token_ids.PAD_ID, token_ids.EOS_ID, token_ids.UNK_ID
    if ids[: 3 if has_t5s_unk else 2] != wanted[: 3 if has_t5s_unk else 2]:
      raise InputError(
          f"{path}: expected the ids pad 0, eos 1, unk 2 (T5's), "
          f'got pad {ids[0]}, eos {ids[1]}, unk {ids[2]}'
      )
    if extra_ids is None:
      has_own = any(map(token_ids.SENTINEL.fullmatch, self._pieces()))
      extra_ids = 0 if has_own else token_ids.EXTRA_IDS
    self.extra_ids = extra_ids
    if extra_ids:
      # As in SeqIO, a sentinel includes the space before it.
      names = (f'\u2581<extra_id_{i}>' for i in reversed(range(extra_ids)))
      self._processor = load_processor(self.model + _user_pieces(names), path)
    self.size = self._processor.get_piece_size()
    self.fingerprint = token_ids.fingerprint(self.model, extra_ids)
    newline = self._processor.piece_to_id('\n')
    self._newline_id = None if newline == self._unknown else newline

  def _pieces(self):
    count = self._processor.get_piece_size()
    return self._processor.id_to_piece(list(range(count)))

  @functools.cached_property
  def sentinel_ids(self):
    """The ids of '<extra_id_N>', those in the model file too."""
    return frozenset(
        i
        for i, piece in enumerate(self._pieces())
        if token_ids.SENTINEL.fullmatch(piece)
    )

  @functools.cached_property
  def unknown_ids(self):
    """The ids of characters that the model lacks, see `token_ids`."""
    pieces = {piece: i for i, piece in enumerate(self._pieces())}
    return token_ids.find_unknown(pieces, self._unknown)

  def encode(self, text):
    """Returns the ids of a text as a list, without an end mark."""
    # A lone surrogate (JSON allows them) has no UTF-8 form; '?' stands for it.
    text = text.encode('utf-8', errors='replace').decode()
    if self._newline_id is None or '\n' not in text:
      return self._processor.encode(text)
    # Line by line, so that a word has the same pieces at the start of a line as
    # after a space.
    lines = text.split('\n')
    encoded = self._processor.encode(lines, num_threads=1)
    ids = encoded[0]
    for line in encoded[1:]:
      ids.append(self._newline_id)
      ids += line
    return ids

  def encode_with_ends(self, text):
    """Returns the ids of `encode(text)` and where each token ends.

    Token i ends after the first ends[i] characters of `text` and begins where
    the previous token ends, so white space belongs to the word after it.
    """
    # The package's own readers of this message differ between its releases.
    from sentencepiece import sentencepiece_pb2

    text = text.encode('utf-8', errors='replace').decode()
    is_split = self._newline_id is not None
    ids, ends, start = [], [], 0
    for line in text.split('\n') if is_split else [text]:
      if start:
        ids.append(self._newline_id)
        ends.append(start)
      message = self._processor.encode(line, out_type='serialized_proto')
      pieces = sentencepiece_pb2.SentencePieceText.FromString(message).pieces
      data = np.frombuffer(line.encode(), np.uint8)
      # characters that begin in the first n bytes
      begun = np.cumsum(np.append(0, data & 0xC0 != 0x80)).tolist()
      ids += [piece.id for piece in pieces]
      ends += [start + begun[piece.end] for piece in pieces]
      start += len(line) + 1
    return ids, ends

  def decode(self, ids, keep_sentinels=False):
    """Returns the text of ids (any iterable of ints), up to the first eos.

    Padding and, unless they are kept, sentinels are skipped. Ids that the
    vocabulary does not have count as unknown.
    """
    lines, skipped = [[]], () if keep_sentinels else self.sentinel_ids
    for i in map(int, ids):
      if i == token_ids.EOS_ID:
        break
      if i == self._newline_id:
        lines.append([])
      elif i != token_ids.PAD_ID and i not in skipped:
        lines[-1].append(i if 0 <= i < self.size else self._unknown)
    return '\n'.join(self._processor.decode(line) for line in lines)


class PegasusVocabulary(SentencePieceVocabulary):
  """A SentencePiece model with PEGASUS's ids (Zhang et al. 2020).

  They are those of the model plus 103, except pad 0 and eos 1. In between are
  <mask_1> (2), <mask_2> (3) and unused ones; summaries have none of them.
  BigBird-PEGASUS's model file has these pieces itself: its offset is 0.
  """

  OFFSET, _MASKS = 103, ('<mask_1>', '<mask_2>')

  def __init__(self, path, offset=OFFSET):
    """Loads a model; see the base class."""
    super().__init__(path, extra_ids=0, has_t5s_unk=offset > 0)
    N, self.offset = self.size, offset
    self.unk_id = self._unknown + offset
    masks = [f'{space}{x}' for space in ('\u2581', '') for x in self._MASKS]
    masks = masks if offset else []
    self._processor = load_processor(self.model + _user_pieces(masks), path)
    # Of each id of the processor.
    self._ours = np.array([0, 1, *range(2, N)] + [2, 3] * (len(masks) // 2))
    self._ours[2:N] += offset
    self._theirs = {i: x for x, i in enumerate(self._ours.tolist())}
    self.size = N + offset
    self.sentinel_ids = frozenset(range(2, self.unk_id))
    kind = b'pegasus' if offset == self.OFFSET else b'pegasus %d' % offset
    self.fingerprint = token_ids.fingerprint(kind + self.model, 0)

  @functools.cached_property
  def unknown_ids(self):
    """See the base class."""
    return self._ours[super().unknown_ids]

  def encode(self, text):
    """See the base class."""
    return self._ours[super().encode(text)].tolist()

  def encode_with_ends(self, text):
    """See the base class."""
    ids, ends = super().encode_with_ends(text)
    return self._ours[ids].tolist(), ends

  def decode(self, ids, keep_sentinels=False):
    """See the base class."""
    skipped, known = () if keep_sentinels else self.sentinel_ids, self._theirs
    ids = (known.get(int(i), self._unknown) for i in ids if i not in skipped)
    return super().decode(ids, True)


def load_processor(model, path):
  """Loads a SentencePiece model of bytes; path: of its file, for the error."""
  import sentencepiece as spm

  try:
    return spm.SentencePieceProcessor(model_proto=model)
  except RuntimeError:
    raise InputError(f'{path}: not a SentencePiece model') from None


def _user_pieces(names):
  """Returns bytes that, appended to a model, add pieces of these names.

  A model is a protocol buffer with the pieces in its repeated field 1 (1:
  piece, 2: score as a 32-bit float, 3: type, where 4 is user defined).
  Appending bytes to a serialised message appends to its repeated fields.
  """
  added = b''
  for name in map(str.encode, names):
    piece = b'\x0a' + bytes([len(name)]) + name + b'\x15\0\0\0\0\x18\x04'
    added += b'\x0a' + bytes([len(piece)]) + piece
  return added
