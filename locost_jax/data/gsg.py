"""Gap-sentence generation (GSG): a summarising task made from plain text.

Of the M sentences of a document, K = floor(ratio M) are chosen; joined in
document order they are the target, and the rest is the source. A sentence's
score is its ROUGE-1 F1 against the rest of the document (LOCOST, equation 4,
after PEGASUS). With c_j the word counts of sentence j and C = sum_j c_j,

  F1_j = 2 overlap_j / |C|,   overlap_j = sum_w min(c_j(w), C(w) - c_j(w)),

because precision and recall have |c_j| and |C| - |c_j| below the line. |C| is
the same for every j: the ranking is by the integer overlap_j, and ties are
exact and go to the earlier sentence. Words are those of Google's rouge_score
without stemming: lower case, runs of a-z and 0-9.
"""

import re
from collections import Counter

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.errors import InputError

STRATEGIES = ('independent', 'sequential', 'lead')
_WORD = re.compile(r'[a-z0-9]+')


def _words(sentence):
  return _WORD.findall(sentence.lower())


def _total(counts):
  total = Counter()
  for count in counts:
    total.update(count)
  return total


def _independent(counts, k):
  """The k sentences of the largest overlap with the rest (equation 4)."""
  total = _total(counts)
  overlaps = [
      sum([min(n, total[w] - n) for w, n in count.items()]) for count in counts
  ]
  return sorted(range(len(counts)), key=lambda j: -overlaps[j])[:k]


def _sequential(counts, k):
  """k times the sentence that, with those before it, overlaps the rest most.

  PEGASUS's sequential choice: the score is that of the chosen sentences and the
  candidate together against what then remains, again 2 overlap / |C|. With u(w)
  the count of w in the chosen ones, candidate j changes the overlap by
  gain_j = sum_w min(u + c_j, C - u - c_j) - min(u, C - u); a choice changes the
  terms of its own words only.
  """
  total = _total(counts)
  postings = {}
  for j, count in enumerate(counts):
    for w, n in count.items():
      postings.setdefault(w, []).append((j, n))
  # Words of one sentence only overlap with nothing.
  postings = {
      w: np.array(found).T for w, found in postings.items() if len(found) > 1
  }
  used = dict.fromkeys(postings, 0)
  gains = np.zeros(len(counts), np.int64)

  def add(w, sign):
    js, ns = postings[w]
    u, rest = used[w], total[w] - used[w]
    gains[js] += sign * (np.minimum(u + ns, rest - ns) - min(u, rest))

  for w in postings:
    add(w, 1)
  chosen = np.zeros(len(counts), bool)
  for _ in range(k):
    best = int(np.argmax(np.where(chosen, np.iinfo(np.int64).min, gains)))
    chosen[best] = True
    for w, n in counts[best].items():
      if w in postings:
        add(w, -1)
        used[w] += n
        add(w, 1)
  return np.flatnonzero(chosen).tolist()


def select_sentences(sentences, ratio=0.2, strategy='independent'):
  """Chooses the sentences of a document that become the target.

  Args:
    sentences: list of M strings.
    ratio: K = floor(ratio M) are chosen; in [0, 1].
    strategy: 'independent' (the paper's, equation 4), 'sequential' (each choice
      knows those before it) or 'lead' (the first K).

  Returns:
    K indices in increasing order; none when M ratio < 1.

  Raises:
    InputError: the ratio or the strategy is none of these.
  """
  if not 0 <= ratio <= 1:
    raise InputError(f'gsg.ratio={ratio} must lie between 0 and 1')
  if strategy not in STRATEGIES:
    raise InputError(
        f'gsg.strategy={strategy!r} must be one of {", ".join(STRATEGIES)}')
  # 0.29 * 100 is 28.999999999999996 in floating point.
  k = int(ratio * len(sentences) + 1e-9)
  if k == 0:
    return []
  if strategy == 'lead':
    return list(range(k))
  counts = [Counter(_words(sentence)) for sentence in sentences]
  choose = _independent if strategy == 'independent' else _sequential
  return sorted(choose(counts, k))


def gap_sentences(text, ratio=0.2, strategy='independent', mask=''):
  """Makes a source and a target from a document.

  Args:
    text: the document.
    ratio: share of the sentences that become the target.
    strategy: see `select_sentences`.
    mask: '': chosen sentences are removed from the source, as in the paper;
      otherwise each is replaced by this string (PEGASUS; '<extra_id_0>').

  Returns:
    (source, target): the sentences of the target are joined by spaces; those of
    the source keep a newline (or a blank line) where the document has one.
    None when the document is too short: nothing chosen, or nothing left.
  """
  spans = text_lib.sentence_spans(text)
  sentences = [text_lib.squeeze(text[start:end]) for start, end in spans]
  chosen = set(select_sentences(sentences, ratio, strategy))
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
    if source:
      source.append('\n' * newlines or ' ')
    source.append(mask if j in chosen else sentences[j])
    newlines = 0
  target = ' '.join(sentences[j] for j in sorted(chosen))
  return ''.join(source), target
