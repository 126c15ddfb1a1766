"""Summarises documents and writes the summaries: to stdout or into a file.

Progress, one line per document and errors go to stderr. With a report, every
document also gets a page that shows the sources of its summary.
"""

import contextlib
import sys
from typing import NamedTuple

from locost_jax.command_line.progress import Progress
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import facts
from locost_jax.summarizing import hierarchical
from locost_jax.summarizing import interrupts
from locost_jax.summarizing import part_by_part
from locost_jax.summarizing import report
from locost_jax.summarizing import results
from locost_jax.summarizing import summaries
from locost_jax.summarizing import texts


class Options(NamedTuple):
  """Where to write which form of summary, and how to compute it."""

  checkpoint: str  # directory or name that was loaded
  dtype: str
  as_json: bool  # a row of JSON for each document, otherwise a line of text
  output: str | None  # FILE; None: stdout
  overwrite: bool  # replaces FILE
  report: str | None  # FILE.html
  batch_size: int | None  # maximum documents in a batch
  available: int | None  # bytes of device memory that may be used
  parts: part_by_part.Parts | None = None  # read part by part
  name: str = ''  # of the checkpoint, as the user gave it


def write(summarizer, documents, settings, options, unread=0):
  """Summarises the documents and writes the summaries.

  Args:
    settings: dict: the fields of `decode_settings.Settings`, seed, and
      max_input_length (None: all of a document).
    unread: number of other documents, which could not be read.

  Returns:
    The number of summaries and pages that could not be written.
  """
  progress = Progress()
  made_with = {}
  if options.as_json or options.output:
    made_with = facts.describe_origin(summarizer, settings, options)
  documents = [_with_text(document, summarizer.pages) for document in documents]
  _report_missing_parts(documents, summarizer.pages, progress)
  jobs = [
      summaries.Job(number, document, _hash(document))
      for number, document in enumerate(documents)
  ]
  pages = report.Pages(summarizer, settings, options, jobs, progress)
  with contextlib.ExitStack() as stack:
    target = (
        _File(jobs, made_with, options, progress)
        if options.output
        else _Stdout(jobs, options, progress)
    )
    stack.callback(target.close)
    target.skip_done(pages)
    stack.enter_context(interrupts.end_at_once(progress, options.output))
    failed = []
    for done in _summarize(summarizer, target, settings, progress, options):
      row = None if done.error else {**done.row, **made_with}
      target.add(done.job.number, row)
      if done.error:
        failed.append(done.job)
        progress.note(visible(f'error: {done.error}'))
      else:
        progress.note(visible(facts.describe_done(done, len(jobs))))
        pages.add(done.job, row, done)
        done = done._replace(memory=None)  # free it for the next batch
    target.finish()
  end = facts.describe_end(jobs, failed, unread, options, pages.write_index())
  if end:
    progress.note(visible(end))
  return len(failed) + pages.failures


def _summarize(summarizer, target, settings, progress, options):
  """Yields a Done for each document, as `summaries` or `part_by_part`."""
  arguments = summarizer, target.todo, settings, progress
  limits = options.batch_size, options.available
  if options.parts is not None:
    read = (
        hierarchical
        if options.parts.parts == hierarchical.NAME
        else part_by_part
    )
    found = read.summarize(*arguments, options.parts, *limits)
  else:
    found = summaries.summarize(
        *arguments, *limits, keep_memory=bool(options.report)
    )
  yield from found


def _with_text(document, pages):
  """Returns a document with the text the model reads."""
  text = texts.text_of(document.as_read or document.text, pages)
  if document.query:
    text = text._replace(query=document.query)
  return document._replace(text=text.text, as_read=text)


def _hash(document):
  """The hash of what is read: the question too, if there is one."""
  text = document.text
  if document.query:
    text = f'{document.query}\n\n{text}'
  return summaries.hash_text(text)


def _report_missing_parts(documents, pages, progress):
  """Reports once which documents lack the parts that `pages` needs."""
  field = texts.field_of(pages)
  lacking = [d.id for d in documents if field and d.as_read.parts is None]
  if lacking:
    more = f' and {len(lacking) - 1} more' if lacking[1:] else ''
    progress.note(
        f'{visible(lacking[0])}{more}: no {field}, which {pages.pages!r} pages are made '
        "of; cut into 'spatial' pages instead"
    )


class _Stdout:
  """Prints summaries in the order of the documents, as early as possible.

  Attributes:
    todo: list of summaries.Job.
  """

  def __init__(self, jobs, options, progress):
    self.todo, self._as_json = jobs, options.as_json
    self._progress, self._ready, self._printed = progress, {}, 0

  def skip_done(self, pages):
    """Skips nothing."""

  def add(self, number, row):
    """Adds the row of a document, None if there is no summary."""
    self._ready[number] = row
    while self._printed in self._ready:
      row = self._ready.pop(self._printed)
      self._printed += 1
      if row is not None:
        self._progress.wipe()
        self._print(row)

  def _print(self, row):
    line = (
        results.json_line(row, sys.stdout.encoding or 'utf-8')
        if self._as_json
        else results.text_line(row)
    )
    try:
      print(line, flush=True)
    except BrokenPipeError:  # the reader has closed the pipe
      raise
    except OSError as error:
      sys.stdout = None  # the flush at exit would fail again
      raise InputError(f'standard output: {disk_error(error)}') from None

  def finish(self):
    """Does nothing: all summaries are printed."""

  def close(self):
    """Does nothing."""


class _File:
  """Writes summaries into FILE, see `results`.

  Attributes:
    todo: list of summaries.Job that have no summary in FILE.
  """

  def __init__(self, jobs, made_with, options, progress):
    self._results = results.Results(
        options.output, made_with, options.as_json, options.overwrite
    )
    self._path, self._progress, self._jobs = options.output, progress, jobs
    self.todo = [job for job in jobs if not self._old_row(job)]

  def skip_done(self, pages):
    """Writes the pages of documents that an earlier call summarised."""
    done_before = len(self._jobs) - len(self.todo)
    if not done_before:
      return
    self._progress.note(
        f'{self._path}: {done_before} of '
        f'{len(self._jobs)} documents were done before'
    )
    for job in self._jobs:
      row = self._old_row(job)
      if row:
        pages.add(job, row)

  def add(self, number, row):
    """Adds the row of a document, None if there is no summary."""
    del number
    if row is not None:
      self._results.add(row)

  def finish(self):
    """Replaces FILE with the finished rows."""
    others = self._results.finish([_key(job) for job in self._jobs])
    if others:
      self._progress.note(
          f'{self._path}: keeps {others} summaries of documents '
          'that were not named now'
      )

  def close(self):
    """Closes FILE.partial."""
    self._results.close()

  def _old_row(self, job):
    return self._results.get(_key(job))


def _key(job):
  return job.document.source, job.document.id, job.sha256
