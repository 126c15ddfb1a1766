"""Summarises documents and writes the summaries: to stdout or into a file.

Progress, one line per document and errors go to stderr. With a report, every
document also gets a page that shows the sources of its summary.
"""

import contextlib
import os
import sys
from typing import NamedTuple

from locost_jax.command_line.progress import Progress
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import attribution
from locost_jax.summarizing import facts
from locost_jax.summarizing import hierarchical
from locost_jax.summarizing import hierarchical_attribution
from locost_jax.summarizing import interrupts
from locost_jax.summarizing import outputs
from locost_jax.summarizing import page_origin
from locost_jax.summarizing import part_by_part
from locost_jax.summarizing import results
from locost_jax.summarizing import source_page
from locost_jax.summarizing import streamed_output
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
  stream: bool = False  # print words as they are written


def write(summarizer, documents, settings, options):
  """Summarises the documents and writes the summaries.

  Args:
    summarizer: of `locost_jax.load`.
    documents: list of `documents.Document`.
    settings: dict: the fields of `decode_settings.Settings`, seed, and
      max_input_length (None: all of a document).
    options: Options.

  Returns:
    The number of documents that could not be summarised.
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
  pages = _Pages(summarizer, settings, options, jobs, progress)
  with contextlib.ExitStack() as stack:
    target = (
        _File(jobs, made_with, options, progress)
        if options.output
        else _Stdout(jobs, options, progress, summarizer.vocabulary)
    )
    stack.callback(target.close)
    target.skip_done(pages)
    stack.enter_context(interrupts.end_at_once(progress, options.output))
    failures = 0
    for done in _summarize(summarizer, target, settings, progress, options):
      row = None if done.error else {**done.row, **made_with}
      target.add(done.job.number, row)
      if done.error:
        failures += 1
        progress.note(visible(f'error: {done.error}'))
      else:
        progress.note(visible(facts.describe_done(done, len(jobs))))
        pages.add(done.job, row, done)
        done = done._replace(memory=None)  # free it for the next batch
    target.finish()
  pages.write_index()
  return failures + pages.failures


def _summarize(summarizer, target, settings, progress, options):
  """Yields a Done for each document, as `summaries` or `part_by_part`."""
  if target.stream:
    yield from _stream(summarizer, target, settings, progress, options)
    return
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


def _stream(summarizer, target, settings, progress, options):
  """Yields a Done for each document in order, one after the other."""
  quiet = streamed_output.QuietWhileWriting(progress)
  for job in target.todo:
    yield from summaries.summarize(
        summarizer,
        [job],
        settings,
        quiet,
        1,
        options.available,
        bool(options.report),
        target.stream.on_tokens,
    )


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
    stream: a `streamed_output.Stream`, or None.
  """

  def __init__(self, jobs, options, progress, vocabulary):
    self.todo, self._as_json = jobs, options.as_json
    self._progress, self._ready, self._printed = progress, {}, 0
    self.stream = None
    if options.stream:
      self.stream = streamed_output.Stream(vocabulary, progress)

  def skip_done(self, pages):
    """Skips nothing."""

  def add(self, number, row):
    """Adds the row of a document, None if there is no summary."""
    self._ready[number] = row
    while self._printed in self._ready:
      row = self._ready.pop(self._printed)
      self._printed += 1
      if self.stream:
        self.stream.end(row and results.text_line(row))
      elif row is not None:
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

  stream = None  # a file is written row by row

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


class _Pages:
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
          summarizer, options.checkpoint, options.dtype
      )
    self._jobs, self._progress, self._entries = jobs, progress, {}
    self.failures = 0
    if self._path and not options.overwrite:
      self._refuse_others()

  def add(self, job, row, done=None):
    """Writes the page of a document.

    Args:
      job: summaries.Job.
      row: its row, with the summary and the time it took.
      done: summaries.Done; None: an earlier call wrote the summary.
    """
    if self._path:
      self._progress.show('the page of', job.number + 1, len(self._jobs))
      self._try(job.document.id, lambda: self._write(job, row, done))

  def write_index(self):
    """Writes the list of the pages of several documents."""
    if len(self._jobs) > 1 and self._entries:
      self._try('all summaries', self._write_index)

  def _write(self, job, row, done):
    source, document = None, job.document
    tokens = done and done.tokens
    if tokens is None:
      tokens = attribution.summary_tokens(self._summarizer, row['prediction'])
    elif len(done.levels or ()) > 1:
      source = hierarchical_attribution.attribute(
          self._summarizer, document.text, done.levels
      )
    self._entries[job.number] = source_page.write(
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
        self._keys()[-1],
    )

  def _try(self, name, write_page):
    """Writes a page; a failure is reported and counted, not raised."""
    try:
      write_page()
    except Exception as error:  # the summary itself is already written
      self.failures += 1
      if isinstance(error, OSError):
        error = f'{error.filename}: {disk_error(error)}'
      elif not isinstance(error, InputError):
        error = f'{type(error).__name__}: {error}'
      self._progress.note(visible(f'error: the page of {name}: {error}'))

  def _refuse_others(self):
    """Raises an InputError if a page would replace a different file."""
    paths = outputs.page_paths(self._path, len(self._jobs))
    for path, key in zip(paths, self._keys()):
      if os.path.exists(path) and not source_page.has_key(path, key):
        outputs.refuse_existing(path, 'report')

  def _keys(self):
    """Returns the keys of the pages, then the key of the index."""
    keys = [
        source_page.page_key(
            job.document.id, job.document.as_read, self._settings
        )
        for job in self._jobs
    ]
    return [*keys, source_page.page_key(keys)]
