"""Summarises thousands of documents on a cluster, with Apache Beam.

  python launch/summarize_beam.py --checkpoint=DIR --output=FILE.jsonl books/
  python launch/summarize_beam.py --checkpoint=hf://org/name \\
      --output=gs://BUCKET/summaries.jsonl gs://BUCKET/books -- \\
      --runner=DataflowRunner --region=REGION --project=PROJECT \\
      --temp_location=gs://BUCKET/tmp

Flags, documents and rows are those of `python -m locost_jax.summarize`; FILE may
be on any file system of Beam. What follows `--` are Beam's options. Every worker
needs this package, and local paths as given here. Each process loads the model:
on a GPU, start one (--experiments=no_use_multiple_sdk_containers).

FILE.jsonl.errors has a line for each document without a summary. Until the end,
each row is in FILE.jsonl.partial, named after its document, text and model: a
bundle that Beam repeats, or the same command again, writes what is missing.
"""

import contextlib
import functools
import io
import itertools
import json
import os
import sys
import threading

from absl import flags

from locost_jax import summarize as command
from locost_jax.config import commands
from locost_jax.config import progress
from locost_jax.config import summarize_flags
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.errors import visible
from locost_jax.summarizing import document_files
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing import provenance
from locost_jax.summarizing import results
from locost_jax.summarizing import summary_form
from locost_jax.summarizing import write_summaries
from locost_jax.workdir import find
from locost_jax.workdir import phases

try:
  import apache_beam as beam
  from apache_beam.io.filesystems import FileSystems
  from apache_beam.options.pipeline_options import PipelineOptions
  from apache_beam.utils.shared import Shared
except ImportError:
  sys.exit("error: apache-beam is missing: pip install 'locost_jax[beam]'")

# _NEIGHBOURS documents in a row are one piece of work, of which `stream` makes
# batches by length; one of _LONG characters fills a batch and is a piece itself.
_NEIGHBOURS, _LONG = 128, 2**15
_COUNTERS = 'documents', 'tokens', 'bad_documents'
# argparse exits; the others are of Beam.
_WRONG = SystemExit, AttributeError, ImportError, OSError, ValueError

define_flags = summarize_flags.define


def main(values, arguments):
  """Runs the command; returns 2 if a document could not be summarised."""
  names = list(itertools.takewhile(lambda x: x[:2] != '--', arguments))
  summarize_flags.check_input(values, names)
  _check_output(values)
  pipeline = _make_pipeline([x for x in arguments[len(names) :] if x != '--'])
  find_files = functools.partial(document_files.find, report=progress.note)
  paths = itertools.chain.from_iterable(map(find_files, names))
  given, shared = {name: values[name].value for name in values}, Shared()
  model = shared.acquire(functools.partial(Model, given))
  if os.path.isdir(values.checkpoint):  # a run may save a better one meanwhile
    given['checkpoint'] = model.summarizer.source
  _ = (
      pipeline
      | beam.Create(list(enumerate(paths)))
      | beam.Reshuffle()
      | 'read' >> beam.FlatMap(read, given, model.asked)
      | beam.GroupByKey()
      | 'summarise' >> beam.FlatMap(summarize, given, shared)
      | beam.combiners.ToList()
      | 'write' >> beam.Map(write, values.output)
  )
  result = pipeline.run()
  result.wait_until_finish()
  with contextlib.suppress(OSError):  # in a bucket, '/' is what is below it
    partial = values.output + results.PARTIAL
    FileSystems.delete([partial + '/' * ('://' in partial)])
  found = result.metrics().query()['counters']
  counts = {x.key.metric.name: x.result for x in found}
  done, tokens, bad = (counts.get(name, 0) for name in _COUNTERS)
  line = f'{done:,} documents ({tokens:,} tokens) summarised, {bad:,} left out'
  progress.note(f'{line}; see {values.output} and {values.output}.errors')
  return 2 if bad else 0


@contextlib.contextmanager
def _named(where):
  """Turns errors of Beam into an InputError that begins with `where`."""
  said = io.StringIO()
  try:
    with contextlib.redirect_stderr(said):
      yield
  except _WRONG as error:
    reason = said.getvalue().rpartition('error: ')[2] or str(error)
    raise InputError(f'{where}: {" ".join(reason.split())}') from None


def _check_output(values):
  """Raises an InputError if --output cannot be written."""
  where = f'--output={values.output or ""}'
  if not where.endswith('.jsonl') or values.report or values['format'].present:
    raise InputError(f'{where}: expected FILE.jsonl, no --report, no --format')
  with _named(where):
    exists = FileSystems.exists(values.output)
  if exists and not values.overwrite:
    raise InputError(f'{where}: exists; expected a new file, or --overwrite')


def _make_pipeline(words):
  """Returns the Pipeline of Beam's options; an InputError if they are wrong."""
  with _named('after --'):
    options = PipelineOptions(words)
    known = options.get_all_options()
    every = options.get_all_options(retain_unknown_options=True)
    pipeline = beam.Pipeline(options=options)
  for name in sorted(every.keys() - known.keys()):
    if hint := suggest(name, known, '--'):  # others may be the runner's
      raise InputError(f'--{name} is not an option of Beam{hint}')
  return pipeline


class Model:
  """The model that flags {name: value} name, once in each process."""

  def __init__(self, given):
    values = flags.FlagValues()
    define_flags(values, ())
    values.mark_as_parsed()
    for name in given.keys() & set(values):
      values[name].value = given[name]
    self.summarizer, checkpoint, self.options = command.prepare(values)
    made = self.summarizer, self.options
    how = provenance.describe_settings(*made)
    self.made_with = provenance.describe_origin(made[0], how, made[1])
    self.key = results.compared(self.made_with)
    run = find.find_run(checkpoint)
    self.asked = run and phases.load_queries(run[0])  # None: unknown
    self.lock = threading.Lock()  # its memory is that of one batch

  def row_path(self, output, job):
    """Returns the file of a row: by document, text with question, and model."""
    key = job.document.source, job.document.id, job.sha256, self.key
    name = provenance.hash_text(json.dumps(key))
    return f'{output}{results.PARTIAL}/{name}.json'


def read(file, given, asked):
  """Yields (piece, (place, Document or LeftOut)) for what is in a file."""
  # A place is (number of the file, of the document in it).
  number, path = file
  names = 'input_field', 'reference_field', 'query_field'
  fields = documents_lib.Fields(*map(given.get, names))
  found, lost = document_files.read_all(
      [path], fields, progress.note, given['max_document_bytes']
  )
  try:
    ask = given['query'], asked, given['ask_anyway'], progress.note
    found = documents_lib.ask(found, *ask)
  except InputError as error:
    found, lost = [], [documents_lib.LeftOut(0, path, str(error))]
  for entry in lost:
    yield (1, number, 0), ((number, entry.place), entry)
  for document in found:
    most = 1 if len(document.text) >= _LONG else _NEIGHBOURS
    piece = most, number // most, document.place // most
    yield piece, ((number, document.place), document._replace(places=()))


def summarize(piece, given, shared):
  """Yields (place, row or LeftOut) of a piece; keeps each row in FILE.partial."""
  model = shared.acquire(functools.partial(Model, given))
  summarizer, (_, pairs) = model.summarizer, piece
  entries = dict(sorted(pairs, key=lambda pair: pair[0]))
  places = [
      x for x, y in entries.items() if isinstance(y, documents_lib.Document)
  ]
  jobs = write_summaries.make_jobs(
      [entries[place] for place in places],
      summarizer.pages,
      progress.note,
      summarizer.prefix,
  )
  todo = []
  for place, job in zip(places, jobs):
    if row := _load(model.row_path(given['output'], job)):
      entries[place] = row
    else:
      todo.append(job)
  with model.lock:
    for done in summarizer.stream(todo, model.options, progress.Progress()):
      entry = write_summaries.entry(done, model.made_with)
      if not done.error:
        path = model.row_path(given['output'], done.job)
        write_file(path, json.dumps(entry).encode())
      entries[places[done.job.number]] = entry
  yield from entries.items()


def _load(path):
  """Returns the row of a file; None: none, or its writer was killed."""
  if FileSystems.exists(path):
    with contextlib.suppress(ValueError), FileSystems.open(path) as file:
      return json.loads(file.read())
  return None


def write(entries, output):
  """Writes FILE.jsonl and its errors, in the order of the places."""
  entries = [entry for _, entry in sorted(dict(entries).items())]
  rows = [x for x in entries if isinstance(x, dict)]
  errors = [x for x in entries if not isinstance(x, dict)]
  lines = [visible(f'{x.name}: {x.reason}') + '\n' for x in errors]
  whole = f'{output}{results.PARTIAL}/all'  # its writer may be killed
  text = summary_form.Form('jsonl').render(rows)
  for path, text in (output + '.errors', ''.join(lines)), (output, text):
    write_file(whole, text.encode())
    FileSystems.rename([whole], [path])
  # Counted here, because some runners count bundles that failed.
  counts = len(rows), sum(row['tokens_read'] for row in rows), len(errors)
  for name, count in zip(_COUNTERS, counts):
    beam.metrics.Metrics.counter('locost_jax', name).inc(count)


def write_file(path, data):
  """Writes a file, with its directory, on any file system of Beam."""
  with FileSystems.create(path) as file:
    file.write(data)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
