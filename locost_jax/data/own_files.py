"""The user's own files: config.data.train_files, validation_files, test_files.

Files without validation files lend 2% of their rows to validation, by a hash of
the document, so that copies fall on one side. Files are made into gap sentences
if config.gsg says so, or config.data.task names a task of gap sentences (then
of their field `text`). data/file_formats.py reads them.
"""

import functools
import hashlib
import itertools

from locost_jax.data import corpus_rows
from locost_jax.data import file_formats
from locost_jax.data import sources


def find(data):
  """Finds the files that a config names.

  Args:
    data: config.data.

  Returns:
    split -> sorted paths, without the splits for which none are named.

  Raises:
    InputError: a glob without a match.
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


_FIRST = 100  # rows that say whether there are queries


def has_queries(data):
  """Whether one of the first training rows has a query.

  Args:
    data: config.data.
  """
  field = data.query_field or 'query'
  for path in find(data).get('train', ())[:1]:
    rows = file_formats.read_rows(path, (data.input_field,), data.text_unit)
    return any(row.get(field) for row in itertools.islice(rows, _FIRST))
  return False


class OwnFiles:
  """Reads the rows of a split from the user's files.

  Attributes:
    files: split -> paths. A validation split that is held out has those of the
      training split.
    held_out: whether validation is a part of the training files.
    fields: our name of a field -> its name in the files.
  """

  def __init__(self, config, files, settings):
    """Decides what is read; reads nothing yet.

    Args:
      config: the run's config.
      files: of `find`.
      settings: of gap sentences, or None.
    """
    data = config.data
    self.held_out = 'train' in files and 'validation' not in files
    self.files = dict(files)
    if self.held_out:
      self.files['validation'] = files['train']
    if settings:
      # Without config.gsg it is the task that asks for gap sentences.
      field = 'text' if config.gsg is None else data.input_field
      self.fields = dict(text=field)
    else:
      self.fields = dict(document=data.input_field, summary=data.target_field)
      if data.query_field:
        self.fields['query'] = data.query_field
    self._config, self._settings = config, settings

  def made_of(self, split):
    """Returns the settings that, with its files, decide the rows of a split."""
    made = dict(held_out=self.held_out, fields=self.fields)
    if any(map(file_formats.is_text, self.files[split])):
      made['text_unit'] = self._config.data.text_unit
    return made

  def read(self, split, file):
    """Yields the rows of a file that belong to a split; see `Corpus.read`."""
    for document, row in self._rows(file):
      if self.held_out and split != 'test':
        held = sources.is_held_out(document) or document == self._stand_in
        if held != (split == 'validation'):
          continue
      yield row

  def _rows(self, file):
    """Yields (document, row) of all rows of a file."""
    renamed = (
        {**row, **{ours: row[theirs] for ours, theirs in self.fields.items()}}
        for row in file_formats.read_rows(
            file, tuple(self.fields.values()), self._config.data.text_unit
        )
    )
    for row, made in corpus_rows.make_rows(
        self._config, self._settings, file, renamed
    ):
      yield row[next(iter(self.fields))], made

  @functools.cached_property
  def _stand_in(self):
    """The one document held back if the hash holds none back, else None."""
    smallest = None
    for file in self.files['train']:
      for document, row in self._rows(file):
        if corpus_rows.is_usable(row, self._settings):
          if sources.is_held_out(document):
            return None
          key = hashlib.sha256(document.encode()).digest()
          smallest = min(smallest or (key, document), (key, document))
    return smallest and smallest[1]
