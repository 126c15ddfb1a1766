"""Metrics of texts that only papers' tables need, for `papers.score`.

- novelty (See et al. 2017, section 6): the share of a summary's distinct
  n-grams that are not in its document.
- fragments (Grusky et al. 2018, section 4): the fragments F of a summary S are
  the longest word sequences that it shares with its document, found from left
  to right (their figure 3). coverage = sum of |f| over F, / |S|; density = sum
  of |f|^2 over F, / |S|; compression = |document| / |S|. Unlike the paper's
  tokens, words exclude punctuation.
- entities: the share of a summary's numbers and names that stand in its
  document. Numbers are runs of digits with points and commas between them
  (1,200 equals 1200); names are words of two letters or more that begin with a
  capital, of a sentence's first word only those with another capital (NASA).
  Each counts once; names match without regard to case.
- bounds: ROUGE of three texts without a model. lead: the first k sentences of
  the document, k the mean number of the references. constant: the reference
  with the highest mean 2/3 ROUGE-1 + 1/3 ROUGE-2 over the references (of at
  most 500), not scored on its own document. oracle: sentences of the document
  chosen with knowledge of the reference (`baselines.select_sentences`).

Words are those of `words.of_any_script`.
"""

import collections
import dataclasses
import re

import numpy as np

from locost_jax.data import text as text_lib
from locost_jax.data import words
from locost_jax.evaluation import baselines
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import protocols
from locost_jax.evaluation.metrics import rouge
from locost_jax.evaluation.metrics import texts

_NUMBER = re.compile(r'\d+(?:[.,]\d+)*')
_WORD = re.compile(r"[^\W\d_]+(?:[-'\u2019][^\W\d_]+)*")
_POSSESSIVE = re.compile(r"['\u2019]s$", re.IGNORECASE)
_MOST_REFERENCES = 500


def novelty(prediction, document):
  """Returns {'novel_N': (percent that the document lacks, 1)}."""
  sums = {}
  for n in texts.SIZES:
    if ours := set(texts.ngrams(prediction, n)):
      novel = ours.difference(texts.ngrams(document, n))
      sums[f'novel_{n}'] = (100 * len(novel) / len(ours), 1)
  return sums


def find_fragments(summary, document):
  """Returns the fragments as (start, end), words of the summary, in order.

  Args:
    summary: list of words.
    document: list of words.
  """
  places = collections.defaultdict(list)
  for j, word in enumerate(document):
    places[word].append(j)
  found, i = [], 0
  while i < len(summary):
    longest = 0
    for j in places.get(summary[i], ()):
      # Skip a match that cannot be longer: its next word differs.
      if summary[i + longest : i + longest + 1] == (
          document[j + longest : j + longest + 1]
      ):
        longest = max(longest, _shared(summary, i, document, j))
    if longest:
      found.append((i, i + longest))
    i += max(longest, 1)
  return found


def _shared(summary, i, document, j):
  """Returns the number of equal words from summary[i] and document[j] on."""
  most, length = min(len(summary) - i, len(document) - j), 0
  while length < most and summary[i + length] == document[j + length]:
    length += 1
  return length


def fragments(prediction, document):
  """Returns {key: (number, 1)} of one document; {} for an empty summary."""
  ours, theirs = words.of_any_script(prediction), words.of_any_script(document)
  if not ours:
    return {}
  lengths = [end - start for start, end in find_fragments(ours, theirs)]
  return {
      'coverage': (sum(lengths) / len(ours), 1),
      'density': (sum(length**2 for length in lengths) / len(ours), 1),
      'compression': (len(theirs) / len(ours), 1),
  }


def numbers(text):
  """Returns the set of numbers of a text, as strings without commas."""
  return {found.replace(',', '') for found in _NUMBER.findall(text)}


def names(text):
  """Returns the set of names of a text, case-folded."""
  found = set()
  for sentence in text_lib.split_sentences(text):
    for i, word in enumerate(_plain_words(sentence)):
      is_name = len(word) > 1 and word[0].isupper()
      if is_name and (i or any(map(str.isupper, word[1:]))):
        found.add(word.casefold())
  return found


def _plain_words(text):
  return [_POSSESSIVE.sub('', word) for word in _WORD.findall(text)]


def entities(prediction, document):
  """Returns {'numbers' or 'names': (percent in the document, 1)}."""
  found = {}
  known = {word.casefold() for word in _plain_words(document)}
  for key, ours, theirs in (
      ('numbers', numbers(prediction), numbers(document)),
      ('names', names(prediction), known),
  ):
    if ours:
      found[key] = (100 * len(ours & theirs) / len(ours), 1)
  return found


def bounds(rows, settings):
  """Scores lead, constant and oracle by ROUGE: a `metric.Result`."""
  first = [row.references[0] for row in rows]
  counts = [len(text_lib.split_sentences(text)) for text in first]
  k = max(1, round(np.mean(counts)))
  step = -(-len(first) // _MOST_REFERENCES)
  constant = baselines.best_constant(
      first[::step], first[::step], 1, settings.protocol
  )
  oracles = []
  for i, row in enumerate(rows):
    settings.show('oracle', i, len(rows))
    oracles.append(
        baselines.oracle(row.document, row.references[0], settings.protocol)
    )
  written = {
      f'lead-{k}': [baselines.lead(row.document, k) for row in rows],
      'constant': [constant] * len(rows),
      'oracle': oracles,
  }
  entry = rouge.of_protocol(settings.protocol)
  values = {
      name: metric.of_rows(entry, rows, settings, one)
      for name, one in written.items()
  }
  own = [constant in row.references for row in rows]
  values['constant'][own] = np.nan
  return metric.Result(
      entry.columns,
      values,
      (protocols.method(protocols.signature(settings.protocol, len(rows))),),
      more=dict(constant=constant, lead_sentences=k),
  )


def _of_texts(name, what, sums, columns, part='words:1'):
  """Returns the Metric of a function of two texts.

  Args:
    sums: (prediction, document) -> {key: (number, weight)}.
    columns: list of (key, title, digits).
    part: of the signature.
  """
  columns = tuple(metric.Column(*column) for column in columns)
  return metric.Metric(
      name, columns, sums, metric.DOCUMENT, (part,), None, what, True
  )


METRICS = {
    entry.name: entry
    for entry in (
        _of_texts(
            'novelty',
            '% of n-grams not in the document',
            novelty,
            [(f'novel_{n}', f'{n}-grams', 1) for n in texts.SIZES],
        ),
        _of_texts(
            'fragments',
            'extractive fragments (Grusky et al. 2018)',
            fragments,
            [
                ('coverage', 'coverage', 3),
                ('density', 'density', 2),
                ('compression', 'compression', 1),
            ],
        ),
        dataclasses.replace(texts.REPETITION, what='% of repeated n-grams'),
        dataclasses.replace(
            texts.LENGTH, what='words, and words / words of the reference'
        ),
        _of_texts(
            'entities',
            '% of numbers and names that are also in the document',
            entities,
            [('numbers', 'numbers', 1), ('names', 'names', 1)],
            'rules:1',
        ),
        metric.Metric(
            'bounds',
            needs=metric.DOCUMENT,
            what='ROUGE of lead, best constant summary and extractive oracle',
            run=bounds,
        ),
    )
}
