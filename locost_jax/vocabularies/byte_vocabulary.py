"""The vocabulary of UTF-8 bytes: id = byte + 3, then the sentinels (ByT5)."""

import numpy as np

from locost_jax.vocabularies import token_ids

_BYTES = 256
_SPECIAL = 3  # pad, eos, unk


class ByteVocabulary:
  """UTF-8 bytes; decode(encode(text)) is the text, except lone surrogates.

  Ids 3 to 258 are the bytes. The sentinels follow; `encode` never returns them.
  `decode` drops ids that are not bytes and bytes that are not UTF-8.
  """

  pad_id, eos_id, unk_id = token_ids.PAD_ID, token_ids.EOS_ID, token_ids.UNK_ID
  bos_id, start_id = None, token_ids.PAD_ID
  unknown_ids = ()

  def __init__(self, extra_ids=token_ids.EXTRA_IDS):
    self.extra_ids = extra_ids
    self.size = _SPECIAL + _BYTES + extra_ids
    self.sentinel_ids = range(_SPECIAL + _BYTES, self.size)
    self.fingerprint = token_ids.fingerprint(b'byte', extra_ids)

  def encode(self, text):
    """Returns the ids of a text as a list, without an end mark."""
    # '?' replaces a lone surrogate, as in the other vocabularies.
    return [b + _SPECIAL for b in text.encode('utf-8', errors='replace')]

  def encode_with_ends(self, text):
    """Returns the ids of `encode(text)` and where each token ends."""
    ids = self.encode(text)
    data = np.array(ids, int) - _SPECIAL
    return ids, np.cumsum(data & 0xC0 != 0x80).tolist()

  def decode(self, ids, keep_sentinels=False):
    """Returns the text of ids (any iterable of ints), up to the first eos."""
    del keep_sentinels  # they have no text
    text = bytearray()
    for i in map(int, ids):
      if i == self.eos_id:
        break
      if _SPECIAL <= i < _SPECIAL + _BYTES:
        text.append(i - _SPECIAL)
    return text.decode('utf-8', errors='ignore')
