"""Summarises the parts of a document, then their summaries, level by level.

The recursive summarisation of Wu et al. (2021) with one model for all levels:
the document is cut into parts as in `part_by_part`; the summaries of the parts
are the text of the next level, a paragraph each, until one part is left. Its
summary is that of the document.

A level of n parts of at most P tokens gives each summary

  P // n               tokens, if that is at least 16: the next level is the last
  P // 2 - 4           otherwise, or --max_length if that is less

Two neighbouring parts have more than P tokens together, so every level is
shorter than the one before.
"""

from typing import Any, NamedTuple

from locost_jax.attribution import attribution
from locost_jax.errors import InputError
from locost_jax.summarizing import documents
from locost_jax.summarizing import part_by_part
from locost_jax.summarizing import summaries
from locost_jax.summarizing import texts
from locost_jax.summarizing import time_left as time_left_lib
from locost_jax.summarizing import unknown_script

NAME = 'hierarchical'  # the value of --parts
_LEAST = 16  # tokens of a summary that say something
_JOINT = 4  # tokens that a blank line between two summaries may have
_BETWEEN = '\n\n'


class Part(NamedTuple):
  """A part of a level and its summary.

  Attributes:
    text: str.
    tokens: ids of the summary, without padding.
    summary: their text without white space around it.
  """

  text: str
  tokens: Any
  summary: str


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


def _later_parts(parts, room, most):
  """Returns how many parts later levels have if all summaries are longest."""
  later = 0
  while parts > 1:
    parts = -(-parts * budget(parts, room, most) // room)
    later += parts
  return later


def summarize(
    summarizer, jobs, settings, progress, parts, batch_size=None, available=None
):
  """Yields a `summaries.Done` for each document; see `part_by_part.summarize`.

  Its row also has `levels`, `parts` (of the first level), `parts_used` (the
  indices of those whose summary has words) and `level_summaries` (the texts of
  all levels but the last).
  """
  vocabulary = summarizer.vocabulary
  room, count = part_by_part.measures(vocabulary, parts.part_length)
  if room < 2 * _LEAST + 2 * _JOINT:
    raise InputError(
        f'--part_length={parts.part_length}: expected at least '
        f'{2 * _LEAST + 2 * _JOINT + parts.part_length - room} with '
        '--parts=hierarchical'
    )
  most = parts.summary_length or settings['max_length']
  limits = batch_size, available
  time_left = time_left_lib.TimeLeft(jobs)

  def run(jobs, options, name, characters):
    share = time_left_lib.Share(name, time_left, characters)
    return summaries.summarize(
        summarizer, jobs, options, progress, *limits, share=share
    )

  for job in jobs:
    unknown_script.report(vocabulary, [job], progress)
    yield _of_document(job, settings, room, most, count, run, vocabulary.pad_id)


def read_levels(summarizer, text, row):
  """Returns the levels of an earlier call: a list of Part for each level.

  Args:
    row: of `summarize`, with its `settings`.

  Raises:
    InputError: the row does not have the summaries of the text's parts.
  """
  room, count = part_by_part.measures(
      summarizer.vocabulary, row['settings']['part_length']
  )
  levels = []
  for written in (*row.get('level_summaries', ()), [row['prediction']]):
    parts = part_by_part.split(text, room, count)
    if len(parts) != len(written):
      raise InputError(
          f'{len(written)} summaries of {len(parts)} parts in level_summaries: '
          'expected one of each; --overwrite writes them again'
      )
    levels.append(
        [
            Part(part, attribution.summary_tokens(summarizer, summary), summary)
            for part, summary in zip(parts, written)
        ]
    )
    text = _BETWEEN.join(summary for summary in written if summary)
  return levels


def _of_document(job, settings, room, most, count, run, pad_id):
  """Returns the Done of a document; arguments as in `summarize`."""
  text, levels, rows = job.document.text, [], []
  left = len(text)  # characters of the document that later levels stand for
  while not levels or len(levels[-1]) > 1:
    parts = part_by_part.split(text, room, count)
    options = _length_options(settings, len(parts), room, most)
    name = f'{job.document.id}, level {len(levels) + 1}'
    jobs = [_job(job, name, i, part) for i, part in enumerate(parts)]
    later = _later_parts(len(parts), room, settings['max_length'])
    own = left * len(parts) / (len(parts) + later)
    left -= own
    done = sorted(run(jobs, options, name, own), key=lambda one: one.job.number)
    error = next((one.error for one in done if one.error), None)
    if error is not None:
      return summaries.Done(job, error=error)
    levels.append([_part(one, pad_id) for one in done])
    rows.append([one.row for one in done])
    text = _BETWEEN.join(part.summary for part in levels[-1] if part.summary)
  return summaries.Done(
      job, _row(job, levels, rows), tokens=done[0].tokens, levels=levels
  )


def _length_options(settings, parts, room, most):
  """Returns the settings of a level of `parts` parts."""
  length = most if parts == 1 else budget(parts, room, settings['max_length'])
  least = min(settings.get('min_length') or 0, length)
  return dict(settings, max_length=length, min_length=least)


def _job(job, level, number, text):
  """Returns the Job of a part of a level."""
  name = f'{level}, part {number + 1}'
  return summaries.Job(
      number,
      documents.Document(name, text, job.document.source, texts.Text(text)),
      '',
  )


def _part(done, pad_id):
  """Returns the Part of a Done."""
  tokens = [int(token) for token in done.tokens if token != pad_id]
  return Part(done.job.document.text, tokens, done.row['prediction'].strip())


def _row(job, levels, rows):
  """Returns the row of a document from those of its parts, level by level."""
  every = [row for level in rows for row in level]
  total = lambda rows, key: sum(row[key] for row in rows)
  used = [i for i, part in enumerate(levels[0]) if part.summary]
  return dict(
      rows[-1][0],
      id=job.document.id,
      sha256=job.sha256,
      **dict(job.document.references),
      tokens_read=total(rows[0], 'tokens_read'),
      tokens_kept=total(rows[0], 'tokens_kept'),
      **{
          key: round(total(every, key), 3)
          for key in ('seconds', 'seconds_encoding', 'seconds_decoding')
      },
      peak_memory_bytes=max(row['peak_memory_bytes'] for row in every),
      levels=len(levels),
      parts=len(levels[0]),
      parts_used=used or [0],
      level_summaries=[
          [part.summary for part in level] for level in levels[:-1]
      ],
  )
