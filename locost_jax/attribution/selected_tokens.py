"""The tokens that the decoder read, for a model that selects tokens.

SimCAS's decoder attends to the selected tokens, and to one vector in front of
them: the mean of the chunks' start states, at the first place of the memory.
Only tokens of the text are counted. Bos, eos and padding can be selected too,
but are not counted.

A page shows the document from left to right in COLUMNS columns of as many
tokens each: the share that was selected, and the part of the attention that
fell on them (the paper's figure 6).

`pages` are a document's ids, marks included: a list of arrays, one where the
model reads no chunks.
"""

from typing import Any, NamedTuple

import numpy as np

COLUMNS = 240  # at most


class Selection(NamedTuple):
  """The selected tokens of a document."""

  selected: int  # tokens of the text that were selected
  total: int  # tokens of the text
  # (start, end) in the text of the selected tokens, in order; adjacent tokens
  # form one span.
  spans: list
  columns: Any  # float [columns], the share of each that was selected
  mass: Any  # float [columns], the part of the summary's attention on each
  front: Any  # its part on the vector in front; None: this model has none
  marks: float  # its part on marks and padding
  passages: Any  # int [columns], the passage that each begins in


def is_text(summarizer, pages):
  """Returns which ids are tokens of the text: bool of all ids in order.

  It is false at bos, eos, padding and the place of the vector in front.
  """
  vocabulary = summarizer.vocabulary
  marks = vocabulary.bos_id, vocabulary.eos_id, vocabulary.pad_id
  ids = np.concatenate([np.asarray(page, int) for page in pages])
  found = ~np.isin(ids, [mark for mark in marks if mark is not None])
  if summarizer.pages is not None:  # the vector in front
    found[0] = False
  return found


def is_selected(summarizer, pages, mask):
  """Returns which tokens of a text were selected: bool of all ids in order.

  The mask of the model's memory is bool [pages, L] or [L].
  """
  rows = np.asarray(mask)
  rows = rows.reshape(-1, rows.shape[-1])
  read = np.concatenate([row[: len(p)] for row, p in zip(rows, pages)])
  return read & is_text(summarizer, pages)


def columns(summarizer, pages):
  """Divides the tokens of a text into columns.

  Returns:
    (for each page int of its ids, number of columns): the column of each token;
    -1 at marks and padding; the number at the place of the vector in front.
  """
  own = is_text(summarizer, pages)
  total = int(own.sum())
  number = min(COLUMNS, total)
  place = np.cumsum(own) - 1
  found = np.where(own, place * number // max(1, total), -1)
  if summarizer.pages is not None:
    found[0] = number
  return np.split(found, np.cumsum([len(page) for page in pages])[:-1]), number


def describe(summarizer, pages, ends, owners, mask, mass):
  """Makes the Selection of a document.

  Args:
    ends: of all ids in line, where they end in the text; -1: nowhere.
    owners: likewise, the passage of each; -1: none.
    mask: see `is_selected`.
    mass: float [number + 1], the part of the summary's attention on each of the
      `columns` and on the vector in front.
  """
  chosen = is_selected(summarizer, pages, mask)
  found, number = columns(summarizer, pages)
  column = np.concatenate(found)
  own = (0 <= column) & (column < number)
  tokens, kept = (
      np.bincount(column[which], minlength=number) for which in (own, chosen)
  )
  # Columns without text have the passage of the one before.
  placed = np.flatnonzero(own & (owners >= 0))
  passages = np.zeros(number, int)
  passages[column[placed][::-1]] = owners[placed][::-1]  # the first one stays
  total = float(mass.sum())
  return Selection(
      int(chosen.sum()),
      int(own.sum()),
      _spans(ends, chosen),
      kept / np.maximum(tokens, 1),
      mass[:number],
      None if summarizer.pages is None else float(mass[number]),
      max(0.0, 1 - total) if total else 0.0,  # none where nothing was written
      np.maximum.accumulate(passages),
  )


def _spans(ends, is_chosen):
  """Returns Selection.spans: of int [tokens] and bool [tokens]."""
  spans, before = [], 0
  for end, chosen in zip(ends.tolist(), is_chosen.tolist()):
    if end < 0:
      continue
    # Tokens of one character, its bytes, end at the same place.
    start = min(before, end - 1)
    if chosen and spans and start <= spans[-1][1]:
      spans[-1] = spans[-1][0], end
    elif chosen:
      spans.append((start, end))
    before = end
  return spans
