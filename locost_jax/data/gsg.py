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

PEGASUS's variants: `sequential` scores a sentence together with those already
chosen; `..._unique` takes the words of the two sides as sets S and R. Then
F1 = 2 |S & R| / (|S| + |R|) with |S| + |R| = |S & R| + (words of the document).
F1 grows with |S & R|, so sentences are ranked by that integer.
"""

from collections import Counter
import hashlib

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.data import words as words_lib
from locost_jax.errors import InputError

STRATEGIES = (
    'independent',
    'independent_unique',
    'sequential',
    'sequential_unique',
    'lead',
    'random',
)


def _count_words(words, unique):
  return dict.fromkeys(words, 1) if unique else Counter(words)


def _total(counts):
  total = Counter()
  for count in counts:
    total.update(count)
  return total


def _independent(counts, k):
  """Returns the k sentences that overlap most with the rest (equation 4)."""
  total = _total(counts)
  overlaps = [
      sum([min(n, total[w] - n) for w, n in count.items()]) for count in counts
  ]
  return sorted(range(len(counts)), key=lambda j: -overlaps[j])[:k]


def _sequential(counts, k, unique):
  """Chooses k sentences one by one, as PEGASUS's sequential strategy.

  A candidate is scored together with the sentences already chosen, against the
  remaining ones, and ranked by the overlap. Let u(w) be the count of w in the
  chosen sentences. Candidate j changes the overlap by

    gain_j = sum_w o(u + c_j, C - u - c_j) - o(u, C - u),

  where o is the minimum (unique: at most 1). A choice changes only the terms of
  its own words.
  """
  total = _total(counts)
  most = 1 if unique else max(total.values(), default=0)
  postings = {}
  for j, count in enumerate(counts):
    for w, n in count.items():
      postings.setdefault(w, []).append((j, n))
  # A word that is in one sentence only cannot overlap.
  postings = {
      w: np.array(found).T for w, found in postings.items() if len(found) > 1
  }
  used = dict.fromkeys(postings, 0)
  gains = np.zeros(len(counts), np.int64)

  def add(w, sign):
    js, ns = postings[w]
    u, rest = used[w], total[w] - used[w]
    gains[js] += sign * (
        np.minimum(np.minimum(u + ns, rest - ns), most) - min(u, rest, most)
    )

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
    strategy: one of STRATEGIES. 'independent' is the paper's (equation 4);
      'sequential' scores a sentence with those already chosen; '_unique' counts
      a word once on each side; 'lead' takes the first K.
    seed: seed of 'random'; equal documents give equal choices.

  Returns:
    K indices in increasing order; [] if M ratio < 1.

  Raises:
    InputError: the ratio is outside [0, 1], or the strategy is unknown.
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
  unique = strategy.endswith('_unique')
  is_latin = words_lib.is_latin(sentences)
  tokenize = words_lib.latin if is_latin else words_lib.of_any_script
  counts = [_count_words(tokenize(sentence), unique) for sentence in sentences]
  if strategy.startswith('independent'):
    return sorted(_independent(counts, k))
  return sorted(_sequential(counts, k, unique))


def gap_sentences(text, ratio=0.2, strategy='independent', mask='', seed=0):
  """Makes a source and a target from a document.

  Args:
    mask: string that replaces each chosen sentence in the source, such as
      PEGASUS's '<extra_id_0>'; '' removes the sentence, as in the paper.

  Returns:
    (source, target). The sentences of the target are joined by spaces; those of
    the source keep the newlines and blank lines of the document. None if the
    document is too short: no sentence is chosen, or none is left.
  """
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
    if source:
      source.append('\n' * newlines or ' ')
    source.append(mask if j in chosen else sentences[j])
    newlines = 0
  target = ' '.join(sentences[j] for j in sorted(chosen))
  return ''.join(source), target
