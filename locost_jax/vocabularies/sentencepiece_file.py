"""PURE: reads and extends two protocol buffers of SentencePiece."""


def ids_and_ends(proto):
  """Returns (ids, ends) of an encoded line; ends count bytes of the line.

  The readers of the sentencepiece package differ between its releases, so the
  protocol buffer is parsed here.

  Args:
    proto: a serialised SentencePieceText. Its repeated field 2 has the pieces,
      each with its id in field 2 and its end in field 5.
  """

  def varint(at):
    value = shift = 0
    while proto[at] & 0x80:
      value |= (proto[at] & 0x7F) << shift
      at, shift = at + 1, shift + 7
    return value | proto[at] << shift, at + 1

  ids, ends, at = [], [], 0
  while at < len(proto):
    tag, at = varint(at)
    kind = tag & 7
    if kind == 5:  # the score, a float
      at += 4
      continue
    value, at = varint(at)
    if kind == 2 and tag >> 3 != 2:  # the line itself
      at += value
    elif kind == 2:
      stop, field = at + value, {}
      while at < stop:
        tag, at = varint(at)
        field[tag >> 3], at = varint(at)
        if tag & 7 == 2:  # the piece, or its part of the line
          at += field[tag >> 3]
      ids.append(field.get(2, 0))
      ends.append(field.get(5, 0))
  return ids, ends


def sentinel_pieces(extra_ids):
  """Returns bytes that, appended to a model, add sentinels after its pieces.

  A model is a protocol buffer with the pieces in its repeated field 1 (1:
  piece, 2: score as a 32-bit float, 3: type, where 4 is user defined).
  Appending bytes to a serialised message appends to its repeated fields. As in
  SeqIO, a sentinel includes the space before it.

  Args:
    extra_ids: number of sentinels.
  """
  added = b''
  for i in reversed(range(extra_ids)):
    name = f'\u2581<extra_id_{i}>'.encode()
    piece = b'\x0a' + bytes([len(name)]) + name + b'\x15\0\0\0\0\x18\x04'
    added += b'\x0a' + bytes([len(piece)]) + piece
  return added
