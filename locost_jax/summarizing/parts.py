"""Summaries of documents that are read part by part.

Models that cannot read a whole book summarise its parts one by one. A part has
as many whole paragraphs as fit. A paragraph that is too long is split between
sentences, and a sentence that is too long between words. The summary of the
book is, in the order of the document,

  join          the summaries of all parts
  rank          the summaries in which the model is most confident: the mean
                log-probability of the tokens (BookSum, Kryscinski et al. 2021;
                BART, T5 and PEGASUS in table 7 of LOCOST, section 5.6), as the
                search counts it: 0 for a token that is forced
  hierarchical  the summary of these summaries, level by level, with one model
                for all levels (Wu et al. 2021): they are the text of the next
                level, a paragraph each, until one part is left

A hierarchical level of n parts of at most P tokens gives each summary

  P // n               tokens, if that is at least 16: the next level is the last
  P // 2 - 4           otherwise, or --max_length if that is less

Two neighbouring parts have more than P tokens together, so every level is
shorter than the one before.
"""

import dataclasses
import re

import numpy as np

from locost_jax import models
from locost_jax.data import text as text_lib
from locost_jax.errors import InputError
from locost_jax.generation import decode
from locost_jax.summarizing import documents
from locost_jax.summarizing import stream as stream_lib
from locost_jax.vocabularies import vocabulary as vocabulary_lib

RANK, HIERARCHICAL = 'rank', 'hierarchical'
_PARAGRAPH, _SENTENCE = '\n\n', ' '  # separators before a unit
_LEAST = 16  # tokens of a summary that say something
_JOINT = 4  # tokens that a blank line between two summaries may have


def check(parts, summarizer):
  """Raises an InputError for a model that cannot read such `stream.Parts`."""
  if summarizer.pages:
    raise InputError(
        f'--parts={parts.parts}: this model reads pages or chunks by itself; '
        'expected a model that reads one sequence'
    )
  models.check_length(summarizer.config, parts.part_length, '--part_length')
  room, _ = measures(summarizer, parts.part_length)
  least = 2 * _LEAST + 2 * _JOINT
  if parts.parts == HIERARCHICAL and room < least:
    raise InputError(
        f'--part_length={parts.part_length}: expected at least '
        f'{least + parts.part_length - room} with --parts=hierarchical'
    )


def measures(summarizer, part_length):
  """Returns the maximum tokens of a part's text, and text -> its tokens."""
  vocabulary = summarizer.vocabulary
  front = vocabulary.encode(summarizer.prefix)
  room = part_length - len(vocabulary_lib.surround(vocabulary, front, True))
  return room, lambda text: len(vocabulary.encode(text))


def split(text, max_tokens, count):
  """Splits a text into parts of at most `max_tokens` tokens, 1 or more.

  Args:
    count: text -> number of tokens.

  Returns:
    List of str with all words of the text in order. A single character with
    more tokens is a part by itself.
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
  for paragraph in filter(str.strip, re.split(r'\n\s*\n', text)):
    before, pieces = _PARAGRAPH, [paragraph.strip()]
    if count(pieces[0]) > max_tokens:
      sentences = text_lib.split_sentences(pieces[0])
      pieces = (x for s in sentences for x in _halve(s, max_tokens, count))
    for piece in pieces:
      yield before, piece
      before = _SENTENCE


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
    confidences: of equal ones the first counts more.
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


def budget(parts, room, most):
  """Returns the most tokens of the summary of a part.

  Args:
    parts: n, the number of parts of the level, 2 or more.
    room: P, tokens of a part without bos and eos.
    most: --max_length.
  """
  share = room // parts
  if share < _LEAST:
    share = room // 2 - _JOINT
  return max(1, min(most, share))


def stream(summarizer, jobs, options, progress):
  """Yields a `stream.Done` for each document.

  Its row has two more fields: `parts`, the number of parts, and `parts_used`,
  the indices of the parts whose summaries were chosen; of a hierarchical one
  those whose summary has words, and also `levels` and `level_summaries` (the
  texts of all levels but the last).

  Args:
    options: `stream.Options` with parts and without max_input_length.
  """
  vocabulary = summarizer.vocabulary
  room, count = measures(summarizer, options.parts.part_length)
  cut = lambda text: split(text, room, count)

  def write(job, name, parts, settings):
    given = dataclasses.replace(options, settings=settings)
    of_parts = []
    for i, part in enumerate(parts):
      document = documents.Document(
          f'{name}, part {i + 1}',
          part,
          job.document.source,
          documents.Text(part),
      )
      of_parts.append(stream_lib.Job(i, document))
    return stream_lib.stream(summarizer, of_parts, given, progress, name)

  for job in jobs:
    ids = vocabulary.encode(job.document.text)
    stream_lib.report_unknown(vocabulary, job, [ids], progress)
    if options.parts.parts == HIERARCHICAL:
      yield summarize_levels(job, options, room, cut, write)
    else:
      yield join(summarizer, job, options, cut, write)


def join(summarizer, job, options, cut, write):
  """Returns the Done of a document whose parts are joined or ranked.

  Args:
    cut: text -> its parts.
    write: (job, name, parts, settings) -> a Done for each part.
  """
  name, text = job.document.id, job.document.text
  every, error = _collect(write(job, name, cut(text), options.settings))
  if error:
    return stream_lib.Done(job, error=error)
  done = [x for x in every if x.row['prediction'].strip()] or every[:1]
  confidences = [0.0] * len(done)
  if options.parts.parts == RANK:
    confidences = [confidence(options.settings, one) for one in done]
  encode, most = summarizer.vocabulary.encode, options.parts.summary_length
  lengths = [len(encode(one.row['prediction'])) for one in done]
  chosen = [done[i] for i in choose(lengths, confidences, most)]
  used = [one.job.number for one in chosen]
  row = _row(job, [[one.row for one in every]], used)
  row['prediction'] = ' '.join(one.row['prediction'].strip() for one in chosen)
  row.pop('cut_at', None)  # of the first part
  if cut := [one.row['cut_at'] for one in chosen if 'cut_at' in one.row]:
    row.update(cut_at=cut[0], parts_cut=len(cut))
  return stream_lib.Done(job, row)


def summarize_levels(job, options, room, cut, write):
  """Returns the Done of a document that is summarised level by level.

  Args:
    room: tokens of a part without bos and eos.
    cut, write: see `join`.
  """
  settings, summaries, rows = options.settings, [], []
  text, last = job.document.text, options.parts.summary_length
  while not rows or len(rows[-1]) > 1:
    found, length = cut(text), last or settings.max_length
    if len(found) > 1:
      length = budget(len(found), room, settings.max_length)
    name = f'{job.document.id}, level {len(rows) + 1}'
    least = min(settings.min_length, length)
    limited = dataclasses.replace(settings, max_length=length, min_length=least)
    done, error = _collect(write(job, name, found, limited))
    if error:
      return stream_lib.Done(job, error=error)
    rows.append([one.row for one in done])
    summaries.append([one.row['prediction'].strip() for one in done])
    text = _PARAGRAPH.join(filter(None, summaries[-1]))
  used = [i for i, summary in enumerate(summaries[0]) if summary]
  row = _row(job, rows, used or [0])
  row.update(levels=len(rows), level_summaries=summaries[:-1])
  return stream_lib.Done(job, row)


def _collect(found):
  """Returns the Dones of parts in their order, and the first error or None."""
  done = sorted(found, key=lambda one: one.job.number)
  return done, next((one.error for one in done if one.error), None)


def _row(job, levels, used):
  """Returns the row of a document.

  Args:
    levels: lists of the rows of parts; those of the first are the document's.
    used: indices of these.
  """
  rows = [row for level in levels for row in level]
  total = lambda rows, key: sum(row[key] for row in rows)
  return dict(
      levels[-1][0],
      id=job.document.id,
      sha256=job.sha256,
      **dict(job.document.references),
      tokens_total=total(levels[0], 'tokens_total'),
      tokens_read=total(levels[0], 'tokens_read'),
      **{
          key: round(total(rows, key), 3)
          for key in ('seconds', 'seconds_encoding', 'seconds_decoding')
      },
      peak_memory_bytes=max(row['peak_memory_bytes'] for row in rows),
      parts=len(levels[0]),
      parts_used=used,
  )


def confidence(settings, done):
  """Returns the mean log-probability per token of a Done: its score, unscaled."""
  length = max(1, np.count_nonzero(done.tokens != settings.pad_id))
  ended = (done.tokens == settings.eos_id).any()
  return done.score * float(decode.penalty(settings, length, ended)) / length
