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

from typing import NamedTuple

from locost_jax.documents import places as places_lib
from locost_jax.errors import InputError
from locost_jax.summarizing import documents
from locost_jax.summarizing import part_by_part
from locost_jax.summarizing import summaries
from locost_jax.summarizing import texts
from locost_jax.vocabularies import vocabulary as vocabulary_lib

NAME = 'hierarchical'  # the value of --parts
_LEAST = 16  # tokens of a summary that say something
_JOINT = 4  # tokens that a blank line between two summaries may have
_BETWEEN = '\n\n'


class Piece(NamedTuple):
  """A text of a level and what it was written from.

  Attributes:
    text: str.
    span: (start, end), the characters of the document behind it.
    parts: (first, last), the numbers of the document's parts, from 1.
    behind: ((character of the text, Piece), ...), the summaries it consists of.
  """

  text: str
  span: tuple
  parts: tuple
  behind: tuple = ()


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


def summarize(
    summarizer, jobs, settings, progress, parts, batch_size=None, available=None
):
  """Yields a `summaries.Done` for each document; see `part_by_part.summarize`.

  Its row has `levels`, `parts` (of the first level) and `parts_used` (those
  whose summary has words). The document of its job is what the last summary
  was written from, with the parts as places.
  """
  vocabulary = summarizer.vocabulary
  count = lambda text: len(vocabulary.encode(text))
  room = parts.part_length - len(vocabulary_lib.surround(vocabulary, []))
  if room < 2 * _LEAST + 2 * _JOINT:
    raise InputError(
        f'--part_length={parts.part_length}: expected at least '
        f'{2 * _LEAST + 2 * _JOINT + parts.part_length - room} with '
        '--parts=hierarchical'
    )
  most = parts.summary_length or settings['max_length']
  run = lambda jobs, options: summaries.summarize(
      summarizer, jobs, options, progress, batch_size, available
  )
  for job in jobs:
    yield _of_document(job, settings, room, most, count, run)


def _of_document(job, settings, room, most, count, run):
  """The Done of a document; arguments as in `summarize`."""
  pieces = cut(
      [Piece(job.document.text, (0, len(job.document.text)), (1, 1))],
      room,
      count,
      number=True,
  )
  rows, first, level = [], pieces, 0
  used = None
  while True:
    level += 1
    is_last = len(pieces) == 1
    length = (
        most if is_last else budget(len(pieces), room, settings['max_length'])
    )
    options = dict(
        settings,
        max_length=length,
        min_length=min(settings.get('min_length') or 0, length),
    )
    done = sorted(
        run(
            [_job(job, level, i, piece) for i, piece in enumerate(pieces)],
            options,
        ),
        key=lambda one: one.job.number,
    )
    error = next((one.error for one in done if one.error), None)
    if error is not None:
      return summaries.Done(job, error=error)
    rows += [one.row for one in done]
    if is_last:
      return _result(job, pieces[0], done[0], rows, first, used, level)
    written = [
        piece._replace(text=one.row['prediction'].strip())
        for piece, one in zip(pieces, done)
    ]
    written = [piece for piece in written if piece.text] or written[:1]
    if used is None:
      used = [piece.parts[0] - 1 for piece in written]
    pieces = cut(written, room, count)


def cut(pieces, room, count, number=False):
  """Joins the texts of a level and cuts them into the parts of the next.

  Args:
    pieces: list of Piece.
    room: most tokens of a part.
    count: text -> its number of tokens.
    number: whether the parts of the document are counted, from 1.

  Returns:
    List of Piece; a part that has words of several pieces has the span from
    the first to the last.
  """
  joined = _BETWEEN.join(piece.text for piece in pieces)
  places, at = [], 0
  for piece in pieces:
    places.append((at, piece))
    at += len(piece.text) + len(_BETWEEN)
  found, position = [], 0
  for i, text in enumerate(part_by_part.split(joined, room, count), start=1):
    start, end = _find(joined, text, position)
    position = end
    if number:
      found.append(Piece(text, (start, end), (i, i)))
      continue
    behind = [
        (max(at - start, 0), piece)
        for at, piece in places
        if at < end and at + len(piece.text) > start
    ] or [(0, pieces[0])]
    (_, one), (_, other) = behind[0], behind[-1]
    found.append(
        Piece(
            text,
            (one.span[0], other.span[1]),
            (one.parts[0], other.parts[1]),
            tuple(behind),
        )
    )
  return found


def _find(text, part, position):
  """Returns (start, end) of a part that differs from a text in white space."""
  letters = sum(not letter.isspace() for letter in part)
  start = position
  while start < len(text) and text[start].isspace():
    start += 1
  end = start
  while letters and end < len(text):
    letters -= not text[end].isspace()
    end += 1
  return start, end


def _job(job, level, number, piece):
  """The Job of a part."""
  name = f'{job.document.id}, level {level}, part {number + 1}'
  return summaries.Job(
      number,
      documents.Document(
          name, piece.text, job.document.source, texts.Text(piece.text)
      ),
      '',
  )


def _result(job, last, done, rows, first, used, level):
  """The Done of a document, from that of its last level."""
  total = lambda key: sum(row[key] for row in rows)
  row = dict(
      done.row,
      id=job.document.id,
      sha256=job.sha256,
      **dict(job.document.references),
      tokens_read=sum(row['tokens_read'] for row in rows[: len(first)]),
      tokens_kept=sum(row['tokens_kept'] for row in rows[: len(first)]),
      **{
          key: round(total(key), 3)
          for key in ('seconds', 'seconds_encoding', 'seconds_decoding')
      },
      peak_memory_bytes=max(row['peak_memory_bytes'] for row in rows),
      levels=level,
      parts=len(first),
      parts_used=[0] if used is None else used,
  )
  document = job.document
  if level > 1:
    document = document._replace(
        as_read=texts.Text(last.text), places=_places(job.document, last)
    )
  return summaries.Done(
      job._replace(document=document), row, tokens=done.tokens
  )


def _places(document, last):
  """The places in the last level's text: the parts behind each summary."""
  found = []
  for at, piece in last.behind:
    first, end = piece.parts
    name = f'part {first}' if first == end else f'parts {first} to {end}'
    where = places_lib.label_of(document.places, piece.span)
    found.append(places_lib.Place(at, f'{name}, {where}' if where else name))
  return tuple(found)
