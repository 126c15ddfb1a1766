"""Makes the training example of a row of a corpus.

The steps, of which those in brackets are optional:

  [gap sentences] -> [pages] or tokens -> [corrupt spans] -> prepend bos, if any
  -> trim -> append eos

data/blocks.py writes the examples to a cache, data/inspect.py measures them,
and data/seqio_tasks.py hands them to SeqIO, which trims them itself.
"""

import itertools
import json

from locost_jax.data import gsg
from locost_jax.data import pages
from locost_jax.data import span_corruption


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
  spans = found.span_corruption
  corrupt = spans and span_corruption.maker(vocabulary, data, spans)

  def gap_example(row):
    pair = gsg.gap_sentences(row['text'], **found.gsg)
    if pair is None:
      return None
    text, reference = pair
    if spans and span_corruption.is_drawn(
        row['id'], spans['share'], spans['seed']
    ):
      text = row['text']
    ids = vocabulary.encode(text), vocabulary.encode(reference)
    made = corrupt and corrupt(ids[0], row['id'])
    if made is not None:
      ids = [side.tolist() for side in made]
      text, reference = (vocabulary.decode(side, True) for side in ids)
    inputs, targets = (bos + side for side in ids)
    return dict(
        id=row['id'],
        text=text,
        reference=reference,
        inputs=inputs,
        targets=targets,
    )

  def make(row, keep_empty=False):
    # '?' replaces a lone surrogate, which UTF-8 does not have.
    row = {
        key: value.encode('utf-8', 'replace').decode()
        for key, value in row.items()
    }
    if found.gsg is not None:
      return gap_example(row)
    if not keep_empty and not (
        row['inputs'].strip() and row['targets'].strip()
    ):
      return None
    made = dict(
        id=row['id'],
        text=row['inputs'],
        reference=row['targets'],
        references=json.loads(row['references'] or 'null'),
        targets=bos + vocabulary.encode(row['targets']),
    )
    if data.pages:
      cut = pages.of_row(
          json.loads(row['inputs'] or pages.NOTHING), data, vocabulary
      )
      made['inputs'] = list(itertools.chain.from_iterable(cut))
      made['pages'] = list(map(len, cut))
    else:
      made['inputs'] = bos + vocabulary.encode(row['inputs'])
    return made

  return make


def trim(example, data, vocabulary):
  """Trims the sides of an example in place and appends eos.

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
      lengths[side] = len(example[side]) + 1
      example[side] = [*example[side][: most - 1], vocabulary.eos_id]
  return lengths
