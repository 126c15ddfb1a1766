"""Makes the training example of a row of a corpus.

The steps, of which those in brackets are optional:

  [plain text] -> [gap sentences] -> [pages] or tokens -> prepend bos, if any
  -> trim -> append eos

data/blocks.py writes the examples to a cache, data/inspect.py measures them,
and data/seqio_tasks.py hands them to SeqIO, which trims them itself.
"""

import itertools
import json

from locost_jax.data import corpus_rows
from locost_jax.data import gsg
from locost_jax.data import pages
from locost_jax.vocabularies import vocabulary as vocabulary_lib


def maker(found, data, vocabulary):
  """Returns the function that makes the example of a row.

  Args:
    found: the Corpus of the row.
    data: config.data.

  Returns:
    function (row, keep_empty=False) -> dict of
    - id, text (what was tokenised; JSON with config.data.pages), reference (the
      target's text), for summarising also references (list of str or None);
    - inputs and targets: lists of ids, with bos but not trimmed and without
      eos;
    - with config.data.pages: pages (the length of each); inputs are then the
      concatenated pages, with all marks.
    None if the row gives no example: it is too short for gap sentences, or
    (unless keep_empty) has an empty input or target.

  Raises:
    InputError: from the function: a query leaves no room in a page.
  """
  bos = [] if vocabulary.bos_id is None else [vocabulary.bos_id]

  def make(row, keep_empty=False):
    made = _texts(row, found, bool(data.pages))
    if made is None:
      return None
    text, reference = made['text'], made['reference']
    if not keep_empty and not (text.strip() and reference.strip()):
      return None
    made['targets'] = vocabulary.encode(reference)
    if data.pages:  # with their own marks
      cut = pages.of_row(json.loads(text or pages.NOTHING), data, vocabulary)
      made['inputs'] = list(itertools.chain.from_iterable(cut))
      made['pages'] = list(map(len, cut))
    else:
      made['inputs'] = vocabulary.encode(text)
    for side in ('targets',) if data.pages else ('inputs', 'targets'):
      made[side] = bos + made[side]
    return made

  return make


def _texts(row, found, paged):
  """Returns id, text and reference of a row's example, or None."""
  # '?' replaces a lone surrogate, which UTF-8 does not have.
  row = {
      key: value.encode('utf-8', 'replace').decode()
      for key, value in row.items()
  }
  if found.plain_text:
    row = corpus_rows.plain(row, paged)
  if found.gsg is None:
    return dict(
        id=row['id'],
        text=row['inputs'],
        reference=row['targets'],
        references=json.loads(row['references'] or 'null'),
    )
  spaced = found.plain_text < 2
  pair = gsg.gap_sentences(row['text'], **found.gsg, spaced=spaced)
  if pair is None:
    return None
  text, reference = pair
  return dict(id=row['id'], text=text, reference=reference)


def trim(example, data, vocabulary):
  """Trims the sides of an example in place and appends the last marks.

  The end mark is never cut. Pages are trimmed already.

  Returns:
    {side: number of tokens before, eos included}.
  """
  lengths = {}
  for side, most in (
      ('inputs', data.max_input_length),
      ('targets', data.max_target_length),
  ):
    if side == 'targets' or 'pages' not in example:
      last = [vocabulary.eos_id]
      if side == 'inputs':
        last += vocabulary_lib.after_input(vocabulary)
      lengths[side] = len(example[side]) + len(last)
      example[side] = [*example[side][: most - len(last)], *last]
  return lengths
