"""Gap-sentence generation (GSG): a summarising task made from plain text.

K = floor(ratio M) of the M sentences of a document are chosen. Joined in
document order they are the target; the rest is the source. A sentence's
score is its ROUGE-1 F1 against the rest of the document (LOCOST, equation 4,
after PEGASUS). With c_j the word counts of sentence j and C = sum_j c_j,

  F1_j = 2 overlap_j / |C|,   overlap_j = sum_w min(c_j(w), C(w) - c_j(w)),

because the denominators of precision and recall are |c_j| and |C| - |c_j|. |C|
is the same for every j, so sentences are ranked by the integer overlap_j; ties
are exact and go to the earlier sentence. Words are those of Google's
rouge_score without stemming: lower case, runs of a-z and 0-9; or those of any
script, in a document that is not written in a-z (`words.is_latin`).
"""

from collections import Counter
import hashlib
import itertools

from locost_jax.data import text as text_lib
from locost_jax.data import words as words_lib
from locost_jax.documents import places
from locost_jax.errors import InputError

STRATEGIES = 'independent', 'lead', 'random'


def _independent(counts, k):
  """Returns the k sentences that overlap most with the rest (equation 4)."""
  total = Counter()
  for count in counts:
    total.update(count)
  overlaps = [
      sum([min(n, total[w] - n) for w, n in count.items()]) for count in counts
  ]
  return sorted(range(len(counts)), key=lambda j: -overlaps[j])[:k]


def _random(sentences, k, seed):
  """Chooses k sentences by hashes of seed, number and whole document."""
  document = hashlib.blake2b(
      '\n'.join(sentences).encode('utf-8', 'replace'), digest_size=16
  ).digest()

  def draw(j):
    return hashlib.blake2b(b'%d %d' % (seed, j), key=document).digest()

  return sorted(range(len(sentences)), key=draw)[:k]


def select_sentences(sentences, ratio=0.2, strategy='independent', seed=0):
  """Chooses the sentences of a document that become the target.

  Args:
    ratio: K = floor(ratio M) are chosen; in [0, 1].
    strategy: 'independent' (equation 4), 'lead' (the first K) or 'random'.
    seed: seed of 'random'; equal documents give equal choices.

  Returns:
    K indices in increasing order; [] if M ratio < 1.
  """
  if not 0 <= ratio <= 1:
    raise InputError(f'gsg.ratio={ratio} must lie between 0 and 1')
  if strategy not in STRATEGIES:
    raise InputError(
        f'gsg.strategy={strategy!r} must be one of {", ".join(STRATEGIES)}'
    )
  # 0.29 * 100 is 28.999999999999996 in floating point.
  k = int(ratio * len(sentences) + 1e-9)
  if k == 0:
    return []
  if strategy == 'lead':
    return list(range(k))
  if strategy == 'random':
    return sorted(_random(sentences, k, seed))
  is_latin = words_lib.is_latin(sentences)
  tokenize = words_lib.latin if is_latin else words_lib.of_any_script
  return sorted(_independent([Counter(tokenize(s)) for s in sentences], k))


def gap_sentences(
    text, ratio=0.2, strategy='independent', mask='', seed=0, spaced=True
):
  """Makes a source and a target from a document.

  Args:
    mask: string that replaces each chosen sentence in the source, such as
      PEGASUS's '<extra_id_0>'; '' removes the sentence, as in the paper.
    spaced: whether there is a blank also between two sentences in Chinese or
      Japanese, as in records of plain_text=1.

  Returns:
    (source, target). The sentences of the target are joined by spaces; those of
    the source keep the newlines and blank lines of the document. None if the
    document is too short: no sentence is chosen, or none is left.
  """
  between = (lambda *_: ' ') if spaced else places.between
  spans = text_lib.sentence_spans(text)
  sentences = [text_lib.squeeze(text[start:end]) for start, end in spans]
  chosen = set(select_sentences(sentences, ratio, strategy, seed))
  if not chosen or len(chosen) == len(sentences):
    return None
  source = []
  newlines = 0  # of the widest gap since the last sentence kept
  for j, (start, _) in enumerate(spans):
    if j:
      gap = text.count('\n', spans[j - 1][1], start)
      newlines = max(newlines, min(gap, 2))
    if j in chosen and not mask:
      continue
    sentence = mask if j in chosen else sentences[j]
    if source:
      source.append('\n' * newlines or between(source[-1], sentence))
    source.append(sentence)
    newlines = 0
  target = [sentences[j] for j in sorted(chosen)]
  joins = ['', *itertools.starmap(between, itertools.pairwise(target))]
  return ''.join(source), ''.join(map(''.join, zip(joins, target)))
