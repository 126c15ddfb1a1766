"""Two baselines that summarise a document part by part.

Models that cannot read a whole book summarise its parts one by one. The summary
of the book joins, in the order of the document,

  join   the summaries of all parts
  rank   the summaries in which the model is most confident (BookSum, Kryscinski
         et al. 2021; BART, T5 and PEGASUS in table 7 of LOCOST, section 5.6)

A part has as many whole paragraphs as fit. A paragraph that is too long is
split between sentences, and a sentence that is too long between words. The
confidence in a summary is the mean log-probability of its tokens
(`generation.confidence`).
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
from locost_jax.summarizing import time_left as time_left_lib
from locost_jax.summarizing import unknown_script
from locost_jax.vocabularies import vocabulary as vocabulary_lib

RANK = 'rank'  # the other mode is 'join'
_PARAGRAPH, _SENTENCE = '\n\n', ' '  # separators before a unit
_ROWS = 8  # batch size for computing confidence


class Parts(NamedTuple):
  """Options for summarising part by part."""

  parts: str  # 'join' or 'rank'
  part_length: int  # maximum tokens of a part, with bos and eos
  summary_length: int  # maximum tokens of the summary; 0: no limit


def from_flags(values, summarizer):
  """Returns the Parts that the flags of `part_options` give.

  Args:
    values: the parsed flags.

  Returns:
    Parts; None without --parts.

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


def measures(vocabulary, part_length):
  """Returns the maximum tokens of a part's text, and text -> its tokens."""
  room = part_length - len(vocabulary_lib.surround(vocabulary, []))
  return room, lambda text: len(vocabulary.encode(text))


def split(text, max_tokens, count):
  """Splits a text into parts.

  Args:
    max_tokens: maximum tokens of a part, 1 or more.
    count: function text -> number of tokens.

  Returns:
    List of str with all words of the text in order. A single character with
    more than `max_tokens` tokens is a part by itself.
  """
  parts = []
  for before, unit in _units(text, max_tokens, count):
    joined = parts[-1] + before + unit if parts else unit
    if parts and count(joined) <= max_tokens:
      parts[-1] = joined
    else:
      parts.append(unit)
  return parts or [text]


def _units(text, max_tokens, count):
  """Yields (separator before it, text) of paragraphs, or pieces of them."""
  for paragraph in re.split(r'\n\s*\n', text):
    before = _PARAGRAPH
    for piece in _split_paragraph(paragraph.strip(), max_tokens, count):
      yield before, piece
      before = _SENTENCE


def _split_paragraph(paragraph, max_tokens, count):
  """Yields a paragraph if it fits, else its sentences or pieces of them."""
  if not paragraph:
    return
  if count(paragraph) <= max_tokens:
    yield paragraph
    return
  for sentence in text_lib.split_sentences(paragraph):
    yield from _halve(sentence, max_tokens, count)


def _halve(text, max_tokens, count):
  """Halves a text, if possible between words, until each piece fits."""
  if count(text) <= max_tokens or len(text) < 2:
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
    yield from _halve(half, max_tokens, count)


def choose(lengths, confidences, max_tokens):
  """Chooses summaries in order of confidence, skipping those that do not fit.

  Args:
    lengths: tokens of each summary.
    confidences: confidence in each summary; of equal ones the first counts
      more.
    max_tokens: maximum tokens of all chosen summaries; 0: no limit.

  Returns:
    Sorted list of indices; at least one unless `lengths` is empty.
  """
  chosen, total = [], 0
  for i in sorted(range(len(lengths)), key=lambda i: (-confidences[i], i)):
    if not max_tokens or not chosen or total + lengths[i] <= max_tokens:
      chosen.append(i)
      total += lengths[i]
  return sorted(chosen)


def summarize(
    summarizer, jobs, settings, progress, parts, batch_size=None, available=None
):
  """Yields a `summaries.Done` for each document.

  Its row has two more fields: `parts`, the number of parts, and `parts_used`,
  the indices of the parts whose summaries were chosen.

  Args:
    summarizer, jobs, settings, progress, batch_size, available: see
      `summaries.summarize`; settings without max_input_length.
  """
  room, count = measures(summarizer.vocabulary, parts.part_length)
  time_left = time_left_lib.TimeLeft(jobs)
  for job in jobs:
    unknown_script.report(summarizer.vocabulary, [job], progress)
    share = time_left_lib.Share(
        job.document.id, time_left, len(job.document.text)
    )
    part_jobs = [
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
            summarizer,
            part_jobs,
            settings,
            progress,
            batch_size,
            available,
            share=share,
        ),
        key=lambda one: one.job.number,
    )
    yield _merge(summarizer, job, done, parts, count)


def _merge(summarizer, job, done, parts, count):
  """Combines the Dones of a document's parts to one Done."""
  error = next((one.error for one in done if one.error), None)
  if error is not None:
    return summaries.Done(job, error=error)
  rows = [one.row for one in done]
  done = [one for one in done if one.row['prediction'].strip()] or done[:1]
  confidences = np.zeros(len(done))
  if parts.parts == RANK:
    confidences = measure_confidence(summarizer, done)
  lengths = [count(one.row['prediction']) for one in done]
  chosen = [done[i] for i in choose(lengths, confidences, parts.summary_length)]
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


def measure_confidence(summarizer, done):
  """Returns the mean log-probability per token of each summary: float [n].

  Args:
    done: list of n `summaries.Done` of a model that reads one sequence.
  """
  settings, confidences = summarizer.settings, np.zeros(len(done))
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
    confidences[batch] = confidence.mean_log_probs(
        summarizer.model,
        summarizer.params,
        inputs,
        mask,
        np.concatenate([start, targets[:, :-1]], axis=1),
        targets,
        weights.astype(np.float32),
    )
  return confidences


def _without_padding(tokens, pad_id):
  """Removes padding at the end of a row of tokens; keeps at least one token."""
  last = np.flatnonzero(tokens != pad_id).max(initial=0)
  return tokens[: last + 1]
