"""Ids with a meaning: T5's marks and sentinels, and unknown characters."""

import hashlib
import re

import numpy as np

PAD_ID, EOS_ID, UNK_ID = 0, 1, 2
EXTRA_IDS = 100  # sentinels; '<extra_id_0>' is the last id
# The name of a sentinel, with or without SentencePiece's mark of a space.
SENTINEL = re.compile(r'\u2581?<extra_id_\d+>')

_BYTE = re.compile(r'<0x[89A-F][0-9A-F]>')
# Byte-level BPE (GPT-2) writes a printable byte as the character of the same
# number. It numbers the others from 256 on; 256 to 289 are ASCII.
_ASCII_LETTERS = range(256, 290)


def fingerprint(model, extra_ids):
  """Returns a hash of a vocabulary's bytes and its number of sentinels."""
  return hashlib.sha256(b'%d:' % extra_ids + model).hexdigest()


def find_unknown(pieces, unk_id, is_byte_level=False):
  """Returns the ids of characters that a vocabulary lacks: an int array.

  These are unk and, where characters fall back to bytes, single bytes of
  characters that are not ASCII. `pieces` is {piece: id}.
  """
  is_byte = _is_byte_letter if is_byte_level else _BYTE.fullmatch
  found = {i for piece, i in pieces.items() if is_byte(piece)}
  return np.array(sorted({unk_id, *found}))


def _is_byte_letter(piece):
  if len(piece) != 1:
    return False
  return ord(piece) >= 0xA1 and ord(piece) not in _ASCII_LETTERS


def unknown_share(vocabulary, ids):
  """Returns the share of ids that stand for unknown characters, 0 to 1."""
  ids = np.asarray(ids)
  if not ids.size:
    return 0.0
  return float(np.isin(ids, vocabulary.unknown_ids).mean())
