"""Reads config.data.train_files, validation_files and test_files.

Without validation files, 2% of the training rows are held out for validation.
A hash of the document chooses them, so copies fall on one side. Rows become gap
sentences if config.gsg is set, or if config.data.task is a task of gap
sentences (which reads their field `text`). data/file_formats.py reads the
files.
"""

import functools
import hashlib
import itertools

from locost_jax.data import corpus_rows
from locost_jax.data import file_formats
from locost_jax.data import sources

_KEYS = 'input_field', 'target_field', 'query_field'
_FIRST = 100  # rows to examine for queries


def find(data):
  """Finds the files that a config names: split -> sorted paths."""
  given = dict(
      train=data.train_files,
      validation=data.validation_files,
      test=data.test_files,
  )
  return {
      split: sources.expand_globs(globs)
      for split, globs in given.items()
      if globs
  }


def has_queries(data):
  """Whether one of the first training rows has a query."""
  field = data.query_field or 'query'
  for path in find(data).get('train', ())[:1]:
    rows = file_formats.read_rows(path, (data.input_field,), data.text_unit)
    return any(row.get(field) for row in itertools.islice(rows, _FIRST))
  return False


def corpus(config, settings):
  """Returns the Corpus of the files that a config names; reads no file."""
  data, files = config.data, find(config.data)
  held_out = 'train' in files and 'validation' not in files
  if held_out:
    files['validation'] = files['train']
  fields = _fields(config, settings)
  keys = {data[key]: key for key in _KEYS}
  needed = {field: keys.get(field) for field in fields.values()}

  def rows_of(file):
    """Yields (document, row) of all rows of a file."""
    rows = (
        _rename(row, fields, data.references_field)
        for row in file_formats.read_rows(file, needed, data.text_unit)
    )
    for row, made in corpus_rows.make_rows(config, settings, file, rows):
      yield row[next(iter(fields))], made

  @functools.cache
  def stand_in():
    """The document to hold out if the hash chooses none, else None."""
    smallest = None
    for file in files['train']:
      for document, row in rows_of(file):
        if corpus_rows.is_usable(row, settings):
          if sources.is_held_out(document):
            return None
          key = hashlib.sha256(document.encode()).digest()
          smallest = min(smallest or (key, document), (key, document))
    return smallest and smallest[1]

  def read(split, file):
    for document, row in rows_of(file):
      if held_out and split != 'test':
        is_validation = sources.is_held_out(document) or document == stand_in()
        if is_validation != (split == 'validation'):
          continue
      yield row

  def made_of(split):
    made = dict(held_out=held_out, fields=fields)
    made['files'] = corpus_rows.stat_files(files[split])
    if any(map(file_formats.is_text, files[split])):
      made['text_unit'] = data.text_unit
    if data.references_field:
      made['references_field'] = data.references_field
    return made

  return corpus_rows.Corpus(
      name='jsonl',
      splits=files,
      read=read,
      gsg=settings,
      held_out=held_out,
      has_files=True,
      made_of=made_of,
  )


def _fields(config, settings):
  """Returns {name of a field in this package: its name in the files}."""
  data = config.data
  if settings:
    # Without config.gsg the task makes gap sentences, of `text`.
    return dict(text='text' if config.gsg is None else data.input_field)
  fields = dict(document=data.input_field, summary=data.target_field)
  if data.query_field:
    fields['query'] = data.query_field
  return fields


def _rename(row, fields, references_field):
  """Returns a row with the names of fields in this package."""
  renamed = {**row, **{name: row[field] for name, field in fields.items()}}
  if references_field:
    renamed['references'] = row.get(references_field)
  return renamed
