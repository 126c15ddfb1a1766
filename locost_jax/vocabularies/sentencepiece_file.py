"""PURE: the two protocol buffers of SentencePiece that are touched here."""


def ids_and_ends(proto):
  """The ids of an encoded line, and the bytes of it that each ends behind.

  Args:
    proto: a serialised SentencePieceText: field 2 repeats the pieces, each of
      which has its id in field 2 and its end in field 5. (Read here because
      the package's own readers differ between its releases.)
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
  """The bytes that, appended to a model, add the sentinels behind its pieces.

  A model is a protocol buffer whose field 1 repeats the pieces (1: piece, 2:
  score as a 32-bit float, 3: type, 4 = user defined); appending to a serialised
  message appends to its repeated fields. As in SeqIO, a sentinel includes the
  space before it.
  """
  added = b''
  for i in reversed(range(extra_ids)):
    name = f'\u2581<extra_id_{i}>'.encode()
    piece = b'\x0a' + bytes([len(name)]) + name + b'\x15\0\0\0\0\x18\x04'
    added += b'\x0a' + bytes([len(piece)]) + piece
  return added
