"""Two baselines that summarise a document part by part.

Models that cannot read a whole book summarise its paragraphs one by one:

  join   the summaries of all parts, in order
  rank   the summaries that the model is most confident of, in the order of the
         document (BookSum, Kryscinski et al. 2021; the rows of BART, T5
         and PEGASUS in table 7 of LOCOST, section 5.6)

A part is as many whole paragraphs as fit; a longer paragraph is cut between
sentences, a longer sentence between words. The confidence in a summary is the
mean log-probability of its tokens (`generation.confidence`).
"""

import re
from typing import NamedTuple

import numpy as np

from locost_jax import models
from locost_jax.data import buckets
from locost_jax.data import text as text_lib
from locost_jax.errors import InputError
from locost_jax.generation import confidence
from locost_jax.summarizing import batching
from locost_jax.summarizing import documents
from locost_jax.summarizing import summaries
from locost_jax.summarizing import texts
from locost_jax.vocabularies import vocabulary as vocabulary_lib

RANK = 'rank'  # the other is 'join'
_PARAGRAPH, _SENTENCE = '\n\n', ' '  # separators before a unit
_ROWS = 8  # summaries whose probabilities are computed at once


class Parts(NamedTuple):
  """How a document is read part by part."""

  parts: str  # 'join' or 'rank'
  part_length: int  # maximum tokens of a part, with bos and eos
  summary_length: int  # maximum tokens of the summary; 0: no limit


def of_flags(values, summarizer):
  """Returns the Parts of the flags of `part_options`; None without --parts.

  Raises:
    InputError: the model cannot read such parts.
  """
  if not values.parts:
    return None
  parts = Parts(values.parts, values.part_length, values.summary_length)
  check(parts, summarizer)
  return parts


def check(parts, summarizer):
  """Raises an InputError for a model that cannot read such parts."""
  if summarizer.pages:
    raise InputError(
        f'--parts={parts.parts}: this model reads pages or chunks by itself; '
        'expected a model that reads one sequence'
    )
  models.check_length(summarizer.config, parts.part_length, '--part_length')


def split(text, most, count):
  """Cuts a text into parts.

  Args:
    text: str.
    most: most tokens of a part, 1 or more.
    count: text -> its number of tokens.

  Returns:
    List of str, with all words of the text in order; a single character that
    has more tokens than `most` is a part of its own.
  """
  parts = []
  for before, unit in _units(text, most, count):
    joined = parts[-1] + before + unit if parts else unit
    if parts and count(joined) <= most:
      parts[-1] = joined
    else:
      parts.append(unit)
  return parts or [text]


def _units(text, most, count):
  """Yields (separator before it, text): paragraphs, or pieces of them."""
  for paragraph in re.split(r'\n\s*\n', text):
    before = _PARAGRAPH
    for piece in _cut(paragraph.strip(), most, count):
      yield before, piece
      before = _SENTENCE


def _cut(paragraph, most, count):
  """Yields a paragraph, or its sentences, or pieces of these."""
  if not paragraph:
    return
  if count(paragraph) <= most:
    yield paragraph
    return
  for sentence in text_lib.split_sentences(paragraph):
    yield from _halve(sentence, most, count)


def _halve(text, most, count):
  """Yields a text, halved between words (or in one) until each piece fits."""
  if count(text) <= most or len(text) < 2:
    yield text
    return
  words = text.split()
  if len(words) > 1:
    middle = len(words) // 2
    halves = ' '.join(words[:middle]), ' '.join(words[middle:])
  else:
    middle = len(text) // 2
    halves = text[:middle], text[middle:]
  for half in halves:
    yield from _halve(half, most, count)


def choose(lengths, sureness, most):
  """Chooses summaries in order of confidence, as long as they fit together.

  Args:
    lengths: tokens of each summary.
    sureness: confidence in each; of equal ones, the first is taken.
    most: maximum tokens of all chosen summaries; 0: no limit.

  Returns:
    Sorted list of indices; at least one unless `lengths` is empty.
  """
  chosen, total = [], 0
  for i in sorted(range(len(lengths)), key=lambda i: (-sureness[i], i)):
    if not most or not chosen or total + lengths[i] <= most:
      chosen.append(i)
      total += lengths[i]
  return sorted(chosen)


def summarize(
    summarizer, jobs, settings, progress, parts, batch_size=None, available=None
):
  """Yields a `summaries.Done` for each document.

  Its row has two more fields: `parts`, the number of parts, and `parts_used`,
  the indices of the parts whose summaries were taken.

  Args:
    summarizer, jobs, settings, progress, batch_size, available: as of
      `summaries.summarize`; settings without max_input_length.
    parts: Parts.
  """
  vocabulary = summarizer.vocabulary
  count = lambda text: len(vocabulary.encode(text))
  room = parts.part_length - len(vocabulary_lib.surround(vocabulary, []))
  for job in jobs:
    found = [
        summaries.Job(
            number,
            documents.Document(
                f'{job.document.id}, part {number + 1}',
                text,
                job.document.source,
                texts.Text(text),
            ),
            '',
        )
        for number, text in enumerate(split(job.document.text, room, count))
    ]
    done = sorted(
        summaries.summarize(
            summarizer, found, settings, progress, batch_size, available
        ),
        key=lambda one: one.job.number,
    )
    yield _merge(summarizer, job, done, parts, count)


def _merge(summarizer, job, done, parts, count):
  """Returns the Done of a document from those of its parts."""
  error = next((one.error for one in done if one.error), None)
  if error is not None:
    return summaries.Done(job, error=error)
  rows = [one.row for one in done]
  done = [one for one in done if one.row['prediction'].strip()] or done[:1]
  sureness = np.zeros(len(done))
  if parts.parts == RANK:
    sureness = measure(summarizer, done)
  lengths = [count(one.row['prediction']) for one in done]
  chosen = [done[i] for i in choose(lengths, sureness, parts.summary_length)]
  total = lambda key: sum(row[key] for row in rows)
  row = dict(
      rows[0],
      id=job.document.id,
      prediction=' '.join(one.row['prediction'].strip() for one in chosen),
      sha256=job.sha256,
      **dict(job.document.references),
      tokens_read=total('tokens_read'),
      tokens_kept=total('tokens_kept'),
      **{
          key: round(total(key), 3)
          for key in ('seconds', 'seconds_encoding', 'seconds_decoding')
      },
      peak_memory_bytes=max(row['peak_memory_bytes'] for row in rows),
      parts=len(rows),
      parts_used=[one.job.number for one in chosen],
  )
  return summaries.Done(job, row)


def measure(summarizer, done):
  """Returns how sure the model is of each summary: float [n].

  Args:
    summarizer: of `locost_jax.load`.
    done: list of n `summaries.Done` of a model that reads one sequence.
  """
  settings, sureness = summarizer.settings, np.zeros(len(done))
  written = [_without_padding(one.tokens, settings.pad_id) for one in done]
  shape_of = lambda i: (
      batching.padded_shape(summarizer.config, done[i].job.pages, False),
      batching.padded_length(
          summarizer.config, len(written[i]), buckets.SMALLEST
      ),
  )
  for (shape, length), batch in batching.make_batches(
      range(len(done)), shape_of, lambda _: _ROWS
  ):
    inputs, mask = batching.pad(
        [done[i].job.pages for i in batch], shape, settings.pad_id
    )
    targets, weights = batching.pad(
        [[written[i]] for i in batch], (length,), settings.pad_id
    )
    start = np.full((len(batch), 1), settings.start_id, np.int32)
    sureness[batch] = confidence.mean_log_probs(
        summarizer.model,
        summarizer.params,
        inputs,
        mask,
        np.concatenate([start, targets[:, :-1]], axis=1),
        targets,
        weights.astype(np.float32),
    )
  return sureness


def _without_padding(tokens, pad_id):
  """Returns the tokens of a row up to the last that is not padding; >= 1."""
  last = np.flatnonzero(tokens != pad_id).max(initial=0)
  return tokens[: last + 1]
