"""Writes the pages that show where the summaries of one call come from."""

import glob
import os

from locost_jax import files
from locost_jax.attribution import attribution
from locost_jax.attribution import page
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import provenance
from locost_jax.summarizing import results
from locost_jax.summarizing import token_places


class Pages:
  """Writes a page for each document.

  Attributes:
    failures: the number of pages that could not be written.
  """

  def __init__(self, summarizer, settings, where, jobs, unread, progress):
    """Prepares the pages of `jobs`; where: `write_summaries.Where`."""
    self._summarizer, self._path = summarizer, where.report
    if len(jobs) == 1:  # several have a list, which shows what is left out
      names = [f'{other.name}: {other.reason}' for other in unread]
      settings = {**settings, 'left out': '; '.join(names) or None}
    self._settings = settings = dict(settings, checkpoint=where.checkpoint)
    self._jobs, self._progress, self._entries = jobs, progress, {}
    self.failures = 0
    self._model = provenance.describe_model(summarizer, where.name)
    self._model['about this model'] = where.warning or None
    self._keys = [
        provenance.hash_text(
            repr((job.document.id, job.document.as_read, settings))
        )
        for job in jobs
    ]
    if not where.overwrite:
      self._refuse_others()

  def add(self, job, row, done=None):
    """Writes the page of a document.

    Args:
      row: of the job, with the summary and the time it took.
      done: stream.Done; None: an earlier call wrote the summary.
    """
    self._progress.head(visible(job.document.id))
    self._progress.show('page', 0, 1)
    self._try(job.document.id, lambda: self._write(job, row, done))

  def write_index(self, left_out):
    """Writes the list of pages and `documents.LeftOut`; returns if any is."""
    if len(self._jobs) > 1 and self._entries:
      entries = [self._entries[number] for number in sorted(self._entries)]
      key = provenance.hash_text(repr((self._keys,)))
      shown = {**self._settings, **self._model}
      write = lambda: files.write(
          self._path, page.render_index(entries, key, left_out, shown)
      )
      return self._try('all summaries', write)
    return bool(self._entries)

  def _write(self, job, row, done):
    document, number = job.document, job.number + 1
    path = results.page_path(self._path, number, len(self._jobs))
    key, name, summary = self._keys[job.number], document.id, row['prediction']
    # The page of an earlier call was made from the tokens that were written.
    if (
        done is not None
        or not os.path.exists(path)
        or page.read_key(path) != key
    ):
      tokens = done and done.tokens
      if tokens is None:
        tokens = token_places.summary_tokens(self._summarizer, summary)
      source = attribution.attribute(
          self._summarizer,
          document.as_read,
          tokens,
          self._settings['max_input_length'],
          done and done.memory,
      )
      summary = source.summary
      origin = {**self._model, **provenance.describe_row(row)}
      html = page.render(
          name,
          source,
          self._settings,
          key,
          origin,
          document.places,
          document.query,
      )
      files.write(path, html)
    name += document.query and f': {document.query}'
    self._entries[job.number] = os.path.basename(path), name, summary

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
    numbered = glob.glob(f'{glob.escape(stem)}-[0-9]*{extension}')
    are_ours = numbered and all(
        page.read_key(path) in self._keys for path in numbered
    )
    for path in results.page_paths(self._path, len(self._jobs)):
      if not os.path.exists(path):
        continue
      key = page.read_key(path)
      is_index = key is not None and path == self._path
      if key not in self._keys and not (is_index and are_ours):
        results.refuse_existing(path, 'report')
