"""A corpus, and how rows of files become its rows.

A row for summarising may have a query (its field `query`, or
config.data.query_field). The query and a blank line precede the document, as in
SCROLLS. With `config.data.pages` documents are cut into pages or chunks
(data/pages.py); config.data.query_in selects the pages that begin with the
query.
"""

import functools
import json
import os
from typing import Callable, NamedTuple

from locost_jax.config import kinds
from locost_jax.config import object_store
from locost_jax.data import gsg
from locost_jax.data import pages
from locost_jax.data import sources
from locost_jax.data import text as text_lib
from locost_jax.errors import InputError


class Corpus(NamedTuple):
  """Rows of text on disk, dicts of strings.

  For gap sentences a row has id and text. For summarising it has id, inputs,
  targets and references. With config.data.pages, inputs is JSON of the query
  and the document, sections or documents. references is a JSON list if there
  are several references, else ''.
  """

  name: str  # of the task
  splits: dict  # split -> list of names of its shards
  read: Callable  # (split, name of a shard) -> iterator of rows
  gsg: dict | None  # keyword arguments of gap_sentences; None: summarising
  made_of: Callable  # split -> JSON object that changes if rows may change
  held_out: bool = False  # whether validation is held out of training files
  sizes: dict = {}  # split -> expected number of rows
  count: Callable | None = None  # split -> actual number, of those expected
  has_files: bool = False  # whether the shards are local files
  # The version of `plain_text` of its records (record_versions): 0 has texts as
  # they are, 1 a blank between Chinese gap sentences.
  plain_text: int = 2
  script: dict | None = None  # of `cache.locate`'s key; None: see its rows

  def rows(self, split):
    """Yields the rows of all shards of a split."""
    for shard in self.splits[split]:
      yield from self.read(split, shard)


def stat_files(files):
  """Returns [[absolute or gs:// path, bytes, time, hash or generation]]."""
  sizes = []
  for file in files:
    if isinstance(file, kinds.Function):
      sizes.append([file, 0, _hash_rows(file.call)])
    elif '://' in file:
      from etils import epath

      stat = epath.Path(file).stat()
      sizes.append([file, stat.length, stat.mtime])
    elif origin := object_store.origin(file):
      sizes.append([origin[0], os.path.getsize(file), origin[1]])
    else:
      stat = os.stat(file)
      sizes.append([os.path.abspath(file), stat.st_size, stat.st_mtime_ns])
  return sizes


@functools.cache
def _hash_rows(function):
  """Hashes the rows of a function, which reads them once more."""
  found = 0
  for row in function():
    row = json.dumps(row, sort_keys=True, default=str)
    found = sources.hash_key(f'{found} {row}')
  return found


def make_rows(config, settings, file, rows):
  """Yields (original row, `make_row` of it) for the rows of a file.

  Args:
    file: its path, for errors and for the ids of rows without id.
  """
  name = os.path.basename(file)

  def make(number, row):
    row = {'id': None, **row}
    if row['id'] is None:
      row['id'] = f'{name}:{number}'
    return row, make_row(config, settings, f'{name}: row {number + 1}', row)

  makers = (functools.partial(make, *pair) for pair in enumerate(rows))
  yield from sources.good_rows(name, makers)


def make_row(config, settings, where, row):
  """Converts a row with document, summary, ... to a row of a Corpus.

  Args:
    settings: keyword arguments of gap_sentences; None: summarising.
    where: file and number of the row, for errors.
  """
  name = sources.id_of(where, row)
  if settings is not None:
    return dict(id=name, text=row['text'])
  sources.check_parts(where, row)
  query, form = row.get('query') or '', config.data.pages
  field = 'document'
  if form:
    field = pages.FIELDS.get(form, field)
    if form == 'discourse' and not pages.has_text(row.get(field)):
      field = 'document'  # which `pages.pieces` cuts as in 'spatial'
    if row.get(field) is None:
      raise InputError(
          f'{where}: no field {field!r}, which config.data.pages='
          f'{form!r} needs'
      )
    # The processes that tokenise cut it into pages.
    inputs = json.dumps({'query': query, field: row[field]})
  else:
    inputs = '\n\n'.join(filter(None, (query, row['document'])))
  if not pages.has_text(row[field]):
    inputs = ''  # even if there is a query
  references = row.get('references') or []
  return dict(
      id=name,
      inputs=inputs,
      targets=row['summary'],
      references=json.dumps(references) if len(references) > 1 else '',
  )


def plain(row, paged):
  """Returns a row of a Corpus whose texts are plain (`places.plain`).

  Args:
    paged: whether inputs is JSON.
  """
  made = dict(row)
  for name in made.keys() - {'id'}:
    is_json = name == 'references' or (paged and name == 'inputs')
    if not is_json:
      made[name] = text_lib.plain(row[name])
    elif '\\u' in row[name]:  # without one it is in ASCII
      made[name] = json.dumps(text_lib.plain(json.loads(row[name])))
  return made


def count_pages(rows, data):
  """Counts sections or documents beyond data.num_pages: a dict.

  It has dropped_pages, dropped_in (rows that have them), without_sections (rows
  cut as 'spatial' instead); nothing for other data.pages.
  """
  field = pages.FIELDS.get(data.pages)
  if field is None:
    return {}
  found = [json.loads(row['inputs']) for row in rows if row['inputs']]
  count = lambda row: pages.count_dropped(row, data.pages, data.num_pages)
  dropped = list(map(count, found))
  return dict(
      dropped_pages=sum(dropped),
      dropped_in=sum(map(bool, dropped)),
      without_sections=sum(field not in row for row in found),
  )


def is_usable(row, settings):
  """Whether a row gives a training example."""
  if settings is None:
    return bool(row['inputs'].strip() and row['targets'].strip())
  return gsg.gap_sentences(row['text'], **settings) is not None


def texts(row, paged):
  """Lists the strings of a row that a model reads or writes."""
  if 'text' in row:
    return [row['text']]
  inputs = row['inputs']
  if paged and inputs:
    inputs = '\n'.join(pages.texts(json.loads(inputs)))
  return [inputs, row['targets']]
