"""Trains SentencePiece models with T5's ids."""

import hashlib
import io
import tempfile
import unicodedata

from locost_jax import files
from locost_jax.errors import InputError
from locost_jax.vocabularies import sentencepiece_vocabulary
from locost_jax.vocabularies import token_ids

# Training text per id. With 4,000 ids and 25 MB of documentation, training on
# 2 MB gives 0.6% more pieces on unseen text than training on all of it, in a
# quarter of the time (6 s on two cores). BPE takes 1 s and gives another 0.4%
# more. T5 uses unigram.
_BYTES_PER_ID = 500
_LONGEST_LINE = 1000  # characters; longer lines are cut between words
# Marks of layout, which are no part of a word.
_UNSEEN = '\xad\u034f\u200b\u200e\u200f\u2060\ufeff'
# Characters that get a piece even if they are rare: those of plain English, and
# the quotation marks and dashes of printed books; of a corpus that has them,
# raised digits and fractions.
_REQUIRED = ''.join(map(chr, range(33, 127))) + '‘’“”–—'
_IF_USED = frozenset('…⁰¹²³⁴⁵⁶⁷⁸⁹⁻¼½¾')


def train(texts, path, size, seed=0):
  """Trains a unigram SentencePiece model with T5's ids and writes it.

  Text is composed (NFC) and loses what is not seen, such as soft hyphens; no
  number changes, as 10⁶ would under the NFKC of T5's vocabulary.

  It trains on distinct lines. If they have more than 500 bytes per id, a part
  chosen by the hash of (seed, line) is used. So the result depends only on the
  set of lines and the seed.

  Args:
    size: number of ids, the 100 sentinels included. A small corpus gives a
      smaller vocabulary; see its `size`.
    seed: selects the part of a large corpus.

  Raises:
    InputError: there is no text, or `size` is too small for its characters.
  """
  import sentencepiece as spm
  from sentencepiece import sentencepiece_model_pb2

  used = set()

  def noting_used():
    for text in texts:
      used.update(_IF_USED.intersection(text))
      yield text

  lines = _training_lines(noting_used(), seed, _BYTES_PER_ID * size)
  if not lines:
    raise InputError('cannot train a vocabulary: the corpus has no text')
  model, rules = io.BytesIO(), tempfile.NamedTemporaryFile('w')
  try:
    rules.write(_normal_forms())
    rules.flush()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type='unigram',
        vocab_size=size - token_ids.EXTRA_IDS,
        hard_vocab_limit=False,
        pad_id=token_ids.PAD_ID,
        eos_id=token_ids.EOS_ID,
        unk_id=token_ids.UNK_ID,
        bos_id=-1,
        user_defined_symbols=['\n'],
        character_coverage=0.9999,
        required_chars=_REQUIRED + ''.join(sorted(used)),
        normalization_rule_tsv=rules.name,
        max_sentence_length=8 * _LONGEST_LINE,
        num_threads=2,
        minloglevel=2,
    )
  except RuntimeError as e:
    reason = str(e).split(']')[-1].strip() or str(e)
    raise InputError(
        f'cannot train a vocabulary of {size} ids ({token_ids.EXTRA_IDS} of '
        f'them sentinels): {reason}'
    ) from None
  finally:
    rules.close()
  made = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
  # The name of the temporary file would make equal models differ.
  made.normalizer_spec.ClearField('normalization_rule_tsv')
  files.write(path, made.SerializeToString())
  return sentencepiece_vocabulary.SentencePieceVocabulary(path)


def _normal_forms():
  """Returns SentencePiece's rules for text: 'FROM<tab>TO' in code points.

  White space becomes a space, `_UNSEEN` nothing, a ligature its letters, and
  canonical decompositions their characters (NFC); all else stays.
  """
  forms = dict.fromkeys(_UNSEEN, '')
  forms |= {c: unicodedata.normalize('NFKC', c) for c in 'ﬀﬁﬂﬃﬄﬅﬆ'}
  for c in map(chr, range(0x20000)):
    parts = unicodedata.normalize('NFD', c)
    if c.isspace() and c not in ' \n':
      forms[c] = ' '
    elif parts != c and unicodedata.is_normalized('NFC', c):
      forms[parts] = c
  points = lambda text: ' '.join(f'{ord(c):X}' for c in text)
  return ''.join(f'{points(a)}\t{points(b)}\n' for a, b in forms.items())


def _training_lines(texts, seed, max_bytes):
  """Returns distinct lines of the texts, at most `max_bytes` bytes.

  The lines with the smallest hashes are kept, in the order of the hashes.
  """
  kept, total, limit = {}, 0, 1 << 64  # hash -> line in UTF-8
  prefix = b'%d:' % seed
  for text in texts:
    for line in _short_lines(text):
      data = line.encode('utf-8', errors='replace')
      key = int.from_bytes(
          hashlib.blake2b(prefix + data, digest_size=8).digest(), 'big'
      )
      if key < limit and key not in kept:
        kept[key] = data
        total += len(data)
      if total > 2 * max_bytes:
        kept, total, limit = _smallest(kept, max_bytes)
  kept, _, _ = _smallest(kept, max_bytes)
  return [data.decode() for data in kept.values()]


def _smallest(lines, max_bytes):
  """Returns (lines with the smallest hashes, bytes, first hash left out)."""
  kept, total = {}, 0
  for key in sorted(lines):
    if total + len(lines[key]) > max_bytes:
      return kept, total, key
    kept[key] = lines[key]
    total += len(lines[key])
  return kept, total, 1 << 64


def _short_lines(text):
  """Yields the lines of a text with single spaces; cuts long lines."""
  for line in text.split('\n'):
    line = ' '.join(line.split())
    while len(line) > _LONGEST_LINE:
      cut = line.rfind(' ', 0, _LONGEST_LINE)
      cut = cut if cut > 0 else _LONGEST_LINE
      yield line[:cut]
      line = line[cut:].lstrip()
    if line:
      yield line
