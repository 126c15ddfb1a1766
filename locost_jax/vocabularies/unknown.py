"""Tokens that stand for characters which a vocabulary does not have.

These are unk and, where characters fall back to bytes, single bytes of
characters that are not ASCII.
"""

import re

import numpy as np

_BYTE = re.compile(r'<0x[89A-F][0-9A-F]>')
# Byte-level BPE (GPT-2) writes a printable byte as the character of the same
# number. It numbers the others from 256 on; 256 to 289 are ASCII.
_ASCII_LETTERS = range(256, 290)


def find_ids(pieces, unk_id, is_byte_level=False):
  """Returns the ids of unknown characters: an int array.

  Args:
    pieces: {piece: id}.
    is_byte_level: whether pieces are those of byte-level BPE.
  """
  is_byte = _is_byte_letter if is_byte_level else _BYTE.fullmatch
  found = {i for piece, i in pieces.items() if is_byte(piece)}
  return np.array(sorted({unk_id, *found}))


def _is_byte_letter(piece):
  if len(piece) != 1:
    return False
  return ord(piece) >= 0xA1 and ord(piece) not in _ASCII_LETTERS


def share(vocabulary, ids):
  """Returns the share of ids that stand for unknown characters, 0 to 1."""
  ids = np.asarray(ids)
  if not ids.size:
    return 0.0
  return float(np.isin(ids, vocabulary.unknown_ids).mean())
