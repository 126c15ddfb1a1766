"""T5's ids of marks and sentinels, for SentencePiece and byte vocabularies."""

import hashlib
import re

PAD_ID, EOS_ID, UNK_ID = 0, 1, 2
EXTRA_IDS = 100  # sentinels; '<extra_id_0>' is the last id
# The name of a sentinel, with or without SentencePiece's mark of a space.
SENTINEL = re.compile(r'\u2581?<extra_id_\d+>')


def fingerprint(model, extra_ids):
  """Returns a hash that distinguishes vocabularies.

  Args:
    model: bytes that stand for the vocabulary without its sentinels.
    extra_ids: number of its sentinels.
  """
  return hashlib.sha256(b'%d:' % extra_ids + model).hexdigest()
