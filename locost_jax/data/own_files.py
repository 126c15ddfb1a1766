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


def find(data):
  """Finds the files that a config names.

  Returns:
    split -> sorted paths, for the splits that the config names.

  Raises:
    InputError: a glob matches no file.
  """
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


_FIRST = 100  # rows to examine for queries


def has_queries(data):
  """Whether one of the first training rows has a query."""
  field = data.query_field or 'query'
  if file_formats.MARK in field:
    return True
  for path in find(data).get('train', ())[:1]:
    rows = file_formats.read_rows(path, (data.input_field,), data.text_unit)
    return any(row.get(field) for row in itertools.islice(rows, _FIRST))
  return False


class OwnFiles:
  """Reads the rows of a split from the user's files.

  Attributes:
    files: split -> paths. A held-out validation split has the paths of the
      training split.
    held_out: whether validation rows are held out of the training files.
    fields: name of a field in this package -> its name in the files.
  """

  def __init__(self, config, files, settings):
    """Decides which fields to read; reads no file.

    Args:
      settings: keyword arguments of gap_sentences; None: summarising.
    """
    data = config.data
    self.held_out = 'train' in files and 'validation' not in files
    self.files = dict(files)
    if self.held_out:
      self.files['validation'] = files['train']
    if settings:
      # Without config.gsg the task makes gap sentences, of `text`.
      field = 'text' if config.gsg is None else data.input_field
      self.fields = dict(text=field)
    else:
      self.fields = dict(document=data.input_field, summary=data.target_field)
      if data.query_field:
        self.fields['query'] = data.query_field
    file_formats.list_of(self.fields.values())
    self._config, self._settings = config, settings

  def made_of(self, split):
    """Returns the settings that, with the files, determine a split's rows."""
    made = dict(held_out=self.held_out, fields=self.fields)
    if any(map(file_formats.is_text, self.files[split])):
      made['text_unit'] = self._config.data.text_unit
    if self._config.data.references_field:
      made['references_field'] = self._config.data.references_field
    return made

  def read(self, split, file):
    """Yields the rows of a file that belong to a split; see `Corpus.read`."""
    for document, row in self._rows(file):
      if self.held_out and split != 'test':
        is_validation = (
            sources.is_held_out(document) or document == self._stand_in
        )
        if is_validation != (split == 'validation'):
          continue
      yield row

  def _rows(self, file):
    """Yields (document, row) of all rows of a file."""
    data, fields = self._config.data, tuple(self.fields.values())
    plain = [field for field in fields if file_formats.MARK not in field]
    rows = file_formats.read_rows(file, tuple(plain), data.text_unit)
    if len(plain) < len(fields):
      rows = file_formats.expand_lists(rows, fields, file)
    renamed = (
        {
            **row,
            **{name: row[field] for name, field in self.fields.items()},
            **self._references(row),
        }
        for row in rows
    )
    for row, made in corpus_rows.make_rows(
        self._config, self._settings, file, renamed
    ):
      yield row[next(iter(self.fields))], made

  def _references(self, row):
    """The references of a row, if they have another name in the files."""
    field = self._config.data.references_field
    return {'references': row.get(field)} if field else {}

  @functools.cached_property
  def _stand_in(self):
    """The document to hold out if the hash chooses none, else None."""
    smallest = None
    for file in self.files['train']:
      for document, row in self._rows(file):
        if corpus_rows.is_usable(row, self._settings):
          if sources.is_held_out(document):
            return None
          key = hashlib.sha256(document.encode()).digest()
          smallest = min(smallest or (key, document), (key, document))
    return smallest and smallest[1]
