"""Writes the source pages of the summaries of one call, and their index."""

import glob
import os
import re

from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import hierarchical_attribution
from locost_jax.summarizing import outputs
from locost_jax.summarizing import page_origin
from locost_jax.summarizing import parts
from locost_jax.summarizing import reading
from locost_jax.summarizing import source_page


class Pages:
  """Writes a page for each document, if there is a report.

  Attributes:
    failures: the number of pages that could not be written.
  """

  def __init__(self, summarizer, settings, options, jobs, progress):
    self._summarizer, self._path = summarizer, options.report
    self._settings = dict(settings, checkpoint=options.checkpoint)
    self._model = {}
    if self._path:
      self._model = page_origin.describe_model(
          summarizer, options.name or options.checkpoint, options.dtype
      )
    self._jobs, self._progress, self._entries = jobs, progress, {}
    self.failures = 0
    self._keys = [
        source_page.page_key(
            job.document.id, job.document.as_read, self._settings
        )
        for job in jobs
        if self._path
    ]
    if self._path and not options.overwrite:
      self._refuse_others()

  def add(self, job, row, done=None):
    """Writes the page of a document.

    Args:
      job: stream.Job.
      row: its row, with the summary and the time it took.
      done: stream.Done; None: an earlier call wrote the summary.
    """
    if self._path:
      self._progress.head(visible(job.document.id))
      self._progress.show('page', 0, 1)
      self._try(job.document.id, lambda: self._write(job, row, done))

  def write_index(self):
    """Writes the list of the pages of several documents.

    Returns:
      Whether the report exists: this list, or the page of the only document.
    """
    if len(self._jobs) > 1 and self._entries:
      return self._try('all summaries', self._write_index)
    return bool(self._entries)

  def _write(self, job, row, done):
    source, document = None, job.document
    own = outputs.page_path(self._path, job.number + 1, len(self._jobs))
    if (
        done is None
        and not document.query  # the tabs may lead to other pages now
        and os.path.exists(own)
        and source_page.read_key(own) == self._keys[job.number]
    ):
      # The page of the earlier call, made from the tokens that were written.
      entry = os.path.basename(own), document.id, row['prediction']
      self._entries[job.number] = entry
      return
    tokens = done and done.tokens
    if tokens is None:
      tokens = reading.summary_tokens(self._summarizer, row['prediction'])
    if row.get('levels', 1) > 1:
      levels = done and done.levels
      source = hierarchical_attribution.attribute(
          self._summarizer,
          document.text,
          levels or parts.read_levels(self._summarizer, document.text, row),
          self._progress.show,
          document.places,
      )
    entry = source_page.write(
        self._path,
        self._summarizer,
        document.id,
        document.as_read,
        tokens,
        self._settings,
        job.number + 1,
        len(self._jobs),
        self._settings['max_input_length'],
        done and done.memory,
        {**self._model, **page_origin.describe_row(row)},
        document.places,
        self._tabs(job),
        source,
    )
    self._entries[job.number] = _with_query(entry, document)

  def _tabs(self, job):
    """Returns the questions about a document and the files of their pages."""
    of = lambda job: (job.document.source, job.document.id)
    return [
        (
            other.document.query,
            ''
            if other.number == job.number
            else os.path.basename(
                outputs.page_path(self._path, other.number + 1, len(self._jobs))
            ),
        )
        for other in self._jobs
        if other.document.query and of(other) == of(job)
    ]

  def _write_index(self):
    source_page.write_index(
        self._path,
        [self._entries[number] for number in sorted(self._entries)],
        source_page.page_key(self._keys),
    )

  def _try(self, name, write_page):
    """Writes a page, returns whether it could; reports and counts a failure."""
    try:
      write_page()
      return True
    except Exception as error:  # the summary itself is already written
      self.failures += 1
      if isinstance(error, OSError):
        error = f'{error.filename}: {disk_error(error)}'
      elif not isinstance(error, InputError):
        error = f'{type(error).__name__}: {error}'
      self._progress.note(visible(f'error: the page of {name}: {error}'))
      return False

  def _refuse_others(self):
    """Raises an InputError if a file would be replaced and not made again.

    Pages of the documents of this call are made again, maybe under another
    number, and so is an index of such pages.
    """
    stem, extension = os.path.splitext(self._path)
    numbered = [
        path
        for path in glob.glob(f'{glob.escape(stem)}-*{extension}')
        if re.fullmatch(
            r'\d+', path[len(stem) + 1 : len(path) - len(extension)]
        )
    ]
    are_ours = numbered and all(
        source_page.read_key(p) in self._keys for p in numbered
    )
    for path in outputs.page_paths(self._path, len(self._jobs)):
      if not os.path.exists(path):
        continue
      key = source_page.read_key(path)
      is_index = key is not None and path == self._path
      if key not in self._keys and not (is_index and are_ours):
        outputs.refuse_existing(path, 'report')


def _with_query(entry, document):
  """Returns an entry of the index that names the question, if there is one."""
  file, name, summary = entry
  return file, name + (document.query and f': {document.query}'), summary
