"""Writes the stream of summaries to stdout or into a file.

Progress, one line per document and errors go to stderr. With a report, every
document also gets a page that shows the sources of its summary.
"""

import collections
import contextlib
import sys
from typing import NamedTuple

from locost_jax.config.progress import Progress
from locost_jax.devices import memory
from locost_jax.devices import preemption
from locost_jax.errors import disk_error
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing import provenance
from locost_jax.summarizing import reading
from locost_jax.summarizing import stream
from locost_jax.summarizing import summary_form

_LeftOut = documents_lib.LeftOut


class Where(NamedTuple):
  """Where to write which form of summary, and the model's name there."""

  checkpoint: str  # directory that was loaded
  name: str  # of the checkpoint, as the user gave it
  form: str  # see `summary_form.Form`
  output: str | None  # FILE; None: stdout
  overwrite: bool  # replaces FILE
  report: str | None  # FILE.html
  warning: str = ''  # about the model, for stderr and the page


def write(summarizer, documents, options, where, unread=()):
  """Summarises the documents and writes the summaries.

  Args:
    documents: list of `documents.Document`.
    options: `stream.Options`.
    unread: list of `documents.LeftOut`, which could not be read.

  Returns:
    The number of summaries and pages that could not be written.
  """
  progress = Progress()
  settings = provenance.describe_settings(summarizer, options)
  made_with = {}
  if where.form != 'text' or where.output:
    made_with = provenance.describe_origin(summarizer, settings, options)
  jobs = make_jobs(
      documents, summarizer.pages, progress.note, summarizer.prefix
  )
  pages, todo = None, jobs
  if where.report:
    from locost_jax.summarizing import report  # its template engine is slow

    pages = report.Pages(summarizer, settings, where, jobs, unread, progress)
  # {a LeftOut, or the number of a job: its row, or why it is left out}
  found = {other: other for other in unread}
  places = {job.number: job.document.place for job in jobs}
  places |= {other: other.place for other in unread}
  order = sorted(places, key=places.get)
  many = bool(unread) or len({job.document.source for job in jobs}) > 1
  form = summary_form.Form(where.form, many)
  with contextlib.ExitStack() as stack:
    if where.output:
      from locost_jax.summarizing import results  # not needed for stdout

      file = results.Results(where.output, made_with, form, where.overwrite)
      stack.callback(file.close)
      todo = _skip_done(file, jobs, where.output, pages, progress)
      add = lambda _, entry: isinstance(entry, dict) and file.add(entry)
    else:
      add = _Printer(form, order, found, progress).add
    stack.enter_context(preemption.end_at_once(progress, where.output))
    for done in summarizer.stream(todo, options, progress):
      number = done.job.number
      found[number] = entry(done, made_with)
      add(number, found[number])
      progress.note(visible(_describe_done(done, len(jobs), summarizer.pages)))
      if pages and not done.error:
        pages.add(done.job, found[number], done)
      done = done._replace(memory=None)  # free it for the next batch
    lost = {x: y for x, y in found.items() if isinstance(y, _LeftOut)}
    if where.output:
      file.finish([lost.get(x) or _key(jobs[x]) for x in order], progress.note)
  failed = [job for job in jobs if job.number in lost]
  left_out = [*unread, *(lost[job.number] for job in failed)]
  has_report = bool(pages and pages.write_index(left_out))
  end = _describe_end(jobs, failed, len(unread), where, has_report)
  if end:
    progress.note(visible(end))
  return len(failed) + (pages.failures if pages else 0)


def entry(done, made_with):
  """Returns the row of a document, or its LeftOut."""
  if not done.error:
    return {**done.row, **made_with}
  document = done.job.document
  return documents_lib.left_out(document.place, document.id, done.error)


def _skip_done(file, jobs, output, pages, progress):
  """Returns the jobs without a summary in FILE; writes the pages of others."""
  done = [(job, row) for job in jobs if (row := file.get(_key(job)))]
  if done:
    progress.note(
        f'{output}: {len(done)} of {len(jobs)} documents were done before'
    )
  for job, row in done if pages else ():
    pages.add(job, row)
  return [job for job in jobs if not file.get(_key(job))]


def _key(job):
  return job.document.source, job.document.id, job.sha256


class _Printer:
  """Prints summaries in the order of the documents, as early as possible."""

  def __init__(self, form, order, ready, progress):
    self._form, self._progress = form, progress
    self._ready, self._todo = ready, collections.deque(order)
    self._print(form.head())

  def add(self, number, entry):
    """Adds what `summary_form.Form.show` takes for a job of this number."""
    self._ready[number] = entry
    while self._todo and self._todo[0] in self._ready:
      entry = self._ready[self._todo.popleft()]
      self._print(self._form.show(entry, sys.stdout.encoding or 'utf-8'))

  def _print(self, line):
    if line is None:
      return
    self._progress.wipe()
    try:
      print(line, flush=True)
    except BrokenPipeError:  # the reader has closed the pipe
      raise
    except OSError as error:
      sys.stdout = None  # the flush at exit would fail again
      raise InputError(f'standard output: {disk_error(error)}') from None


def make_jobs(documents, pages, note, prefix=''):
  """Returns a Job for each document, with the text that the model reads.

  Args:
    pages: `documents.Pages`; None: the model reads no pages.
    note: called with a line for the user.
    prefix: of the checkpoint, or --prefix.
  """
  jobs, lacking = [], []
  for number, document in enumerate(documents):
    text = documents_lib.text_of(document.as_read or document.text, pages)
    text = text._replace(prefix=prefix)
    if document.query:
      text = text._replace(query=document.query)
    if documents_lib.field_of(pages) and text.parts is None:
      lacking.append(document.id)
    document = document._replace(text=text.text, as_read=text)
    read = reading.front_of(text) + text.text
    jobs.append(stream.Job(number, document, provenance.hash_text(read)))
  if lacking:
    more = f' and {len(lacking) - 1} more' if lacking[1:] else ''
    note(
        f'{visible(lacking[0])}{more}: no {documents_lib.field_of(pages)}, which '
        f"{pages.pages!r} pages are made of; cut into 'spatial' pages instead"
    )
  return jobs


def _describe_done(done, total, pages):
  """Returns the line that reports a document on stderr."""
  if done.error:
    return f'error: {done.error}'
  row, dropped, details = done.row, done.job.dropped, []
  if dropped:
    which = 'part' if dropped == 1 else f'{dropped} parts'
    details.append(f'the last {which} not read')
  details.append(summary_form.describe_cut(row))
  if 'levels' in row:
    details.append(f'{row["parts"]} parts, {row["levels"]} levels')
    if left := row['parts'] - len(row['parts_used']):
      details.append(f'{left} parts without a summary')
  if 'tokens_selected' in row:
    details.append(f'{row["tokens_selected"]:,} selected')
  details = ''.join(f'{detail}, ' for detail in details if detail)
  return (
      f'{done.job.number + 1:{len(str(total))}}/{total}  {row["id"]}: '
      f'{describe_read(row, pages)}, {details}'
      f'{row["seconds"]:.1f} s (encoding {row["seconds_encoding"]:.1f}, '
      f'decoding {row["seconds_decoding"]:.1f}), peak memory '
      f'{memory.format_bytes(row["peak_memory_bytes"])}'
  )


def describe_read(row, pages):
  """Returns how much of a document was read, and what reads all of it."""
  read, total = row['tokens_read'], row['tokens_total']
  if read == total:
    return f'{total:,} tokens read'
  percent = min(99, max(1, round(100 * read / total)))
  which, remedy = 'the first ', '--parts=rank or hierarchical reads all of it'
  if pages and pages.are_chunks:
    remedy = 'a larger --max_input_length reads more'
  elif pages:
    which, remedy = '', 'a larger --num_pages or --page_length reads more'
  of = f'{read:,} of {total:,} tokens'
  return f'read {which}{percent}% ({of}; {remedy})'


def _describe_end(jobs, failed, unread, where, has_report):
  """Returns the line of how many documents and which files, or ''.

  unread: the number of documents that could not be read.
  """
  done, left_out = len(jobs) - len(failed), len(failed) + unread
  files = (where.output, 'summaries'), (has_report and where.report, 'report')
  places = [f'{what} in {file}' for file, what in files if file]
  if done + left_out == 1 and not places:
    return ''
  counts = f'{done:,} document{"" if done == 1 else "s"} summarised'
  counts += f', {left_out:,} left out' if left_out else ''
  return '; '.join([counts, *places])
