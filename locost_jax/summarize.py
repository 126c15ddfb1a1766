"""Writes summaries: text in, one summary per document out.

  python -m locost_jax.summarize --checkpoint=runs/quickstart report.txt
  cat report.txt | python -m locost_jax.summarize --checkpoint=runs/quickstart -
  python -m locost_jax.summarize --checkpoint=DIR --num_beams=4 \\
      --output=summaries.jsonl books/ part-*.jsonl

A FILE is a text (.txt, .md, anything else), a page (.html, .htm), a book
(.epub), JSONL (.jsonl), each of whose rows is a document, a directory, which
stands for all of these in it and below, or - for a text on standard input;
texts, pages and JSONL may be compressed (.gz). Only summaries go to stdout, one
line per document in the order given; stderr tells how much of each was read.
Settings that are not given are those of the run that trained the checkpoint.

With --output the command may be interrupted at any moment: given again, it does
what is missing. A document that cannot be summarised is told on stderr, the
others are done, and the exit status is 2.
"""

import contextlib
import dataclasses
import os
import signal
import sys
import threading

from absl import flags

from locost_jax import allocator
from locost_jax import commands
from locost_jax import documents as documents_lib
from locost_jax.errors import InputError

# The flags that are fields of `decode.Settings`.
_SETTINGS = (
    'method', 'max_length', 'min_length', 'num_beams', 'length_penalty',
    'length_penalty_form', 'no_repeat_ngram_size', 'early_stopping',
    'temperature', 'top_k', 'top_p')


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv

  def integer(name, lower, text, default=None):
    flags.DEFINE_integer(name, default, text, lower_bound=lower,
                         flag_values=values)

  def number(name, text):
    flags.DEFINE_float(name, None, text, flag_values=values)

  def choice(name, default, choices, text):
    flags.DEFINE_enum(name, default, choices, text, flag_values=values)

  def string(name, default, text):
    flags.DEFINE_string(name, default, text, flag_values=values)

  string('checkpoint', None, 'DIR: a WORKDIR (its best checkpoint, or its '
         'latest), a checkpoint in one, or a Hugging Face directory')
  integer('max_length', 1, 'most tokens of a summary')
  integer('min_length', 0, 'fewest tokens of a summary')
  choice('method', None, ['greedy', 'beam', 'sample'], 'how the next token is '
         'found; beam when there are beams, sample when there is a temperature')
  integer('num_beams', 1, 'beams of a beam search')
  number('length_penalty', 'of beams: power of the length a score is divided '
         'by; above 0 longer summaries are preferred')
  choice('length_penalty_form', None, ['hugging_face', 'gnmt'],
         'the length itself, or (5 + length) / 6')
  integer('no_repeat_ngram_size', 0, 'n-grams of this size are written at most '
          'once; 0: no limit')
  flags.DEFINE_boolean('early_stopping', None, 'of beams: end when as many '
                       'summaries as beams are finished', flag_values=values)
  number('temperature', 'of sampling: logits are divided by it')
  integer('top_k', 0, 'of sampling: among the most probable k tokens; 0: all')
  number('top_p', 'of sampling: among the fewest tokens of this probability')
  integer('seed', 0, 'of sampling', default=0)
  integer('max_input_length', 2, 'tokens read of a document [all of them]')
  string('input_field', 'document', 'of JSONL rows: where the document is')
  choice('format', 'text', ['text', 'json'], 'text: a line per summary; json: '
         'an object per line with the prediction and all that reproduces it')
  string('output', None, 'FILE: where the summaries go instead of stdout; JSON '
         'lines when it ends in .jsonl. Until all are done they are in '
         'FILE.partial')
  string('report', None, 'FILE.html: a page that shows which passages each '
         'sentence of the summary attended to; with several documents it lists '
         'their pages, FILE-1.html, FILE-2.html, ...')
  flags.DEFINE_boolean('overwrite', False, 'replace what --output has, instead '
                       'of doing what it lacks', flag_values=values)
  integer('batch_size', 1, 'most documents computed at once, of like length '
          '[as many as have 32768 tokens]')
  choice('dtype', 'float32', ['float32', 'bfloat16'],
         'of matmuls and activations')
  flags.DEFINE_float('memory_limit', None, 'GiB that may be taken [what is '
                     'available]', lower_bound=0, flag_values=values)
  string('program_cache', None, 'DIR: where compiled programs are kept between '
         'calls; off: nowhere [LOCOST_JAX_CACHE or ~/.cache/locost_jax]')


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: the FILEs.

  Returns:
    The exit status: 2 when a document could not be summarised.
  """
  if values.checkpoint is None:
    raise InputError('--checkpoint=DIR is missing: whose model?')
  if not arguments:
    raise InputError('no FILE given; - reads standard input')
  choose_settings(values)  # what is wrong with any checkpoint
  for flag in ('output', 'report'):
    path = values[flag].value
    folder = os.path.dirname(os.path.abspath(path or ''))
    if path and not os.path.isdir(folder):
      raise InputError(f'--{flag}={path}: no directory {folder}')
    if path and os.path.isdir(path):
      raise InputError(f'--{flag}={path}: is a directory; expected the name of '
                       'a file')
  tell = lambda line: print(line, file=sys.stderr, flush=True)
  documents, failures = documents_lib.read(arguments, values.input_field, tell)
  if not documents:
    return 2
  # Only now: it takes a second, and the documents may be wrong.
  import locost_jax
  from locost_jax import memory
  from locost_jax import models
  from locost_jax import programs
  from locost_jax.hugging_face import hub
  programs.keep(values.program_cache)
  allocator.trim_after_compiling()
  available = memory.available_bytes() if values.memory_limit is None else (
      int(values.memory_limit * 2**30))
  values.checkpoint = hub.find_directory(values.checkpoint)
  summarizer = locost_jax.load(values.checkpoint, dtype=values.dtype)
  if summarizer.vocabulary is None:
    raise InputError(f'{values.checkpoint}: has no vocabulary (spiece.model '
                     'or tokenizer.json)')
  settings = choose_settings(values, summarizer.settings)
  for key in ('max_length', 'max_input_length'):
    models.check_length(summarizer.config, settings[key] or 0, f'--{key}')
  failures += write(summarizer, documents, settings, available, values)
  return 2 if failures else 0


def choose_settings(values, trained=None):
  """What every summary is written with.

  Args:
    values: the flags; None stands for what was trained.
    trained: a `decode.Settings`, the checkpoint's; None: not known yet, and
      only what no checkpoint allows is refused.

  Returns:
    A dict: the fields of `decode.Settings`, seed, max_input_length (None: all).

  Raises:
    InputError: flags that contradict each other or what was trained.
  """
  from locost_jax import decode
  given = {key: values[key].value for key in _SETTINGS}
  if trained is None:
    trained = decode.Settings(method='beam', num_beams=2, max_length=2**30)
  settings = decode.change(trained, given)
  try:
    decode.check(settings)
  except InputError as error:
    raise InputError(f'--{error}') from None
  return {**dataclasses.asdict(settings), 'method': decode.method_of(settings),
          'seed': values.seed, 'max_input_length': values.max_input_length}


def describe(summarizer, settings, values):
  """What every row holds besides its summary: all that reproduces it."""
  import jax
  import locost_jax
  from locost_jax import pretrained
  from locost_jax import summaries
  run = pretrained.find_run(values.checkpoint)
  path = os.path.abspath(values.checkpoint if run is None else run[1])
  device = jax.local_devices()[0]
  return dict(
      settings=settings, dtype=values.dtype,
      checkpoint=dict(
          path=path, step=None if run is None else int(os.path.basename(path)),
          fingerprint=summaries.fingerprint(summarizer)),
      versions=dict(locost_jax=locost_jax.__version__, jax=jax.__version__),
      backend=device.platform, device=device.device_kind)


def write(summarizer, documents, settings, available, values):
  """Summarises the documents and puts the summaries where they belong.

  Args:
    summarizer: of `locost_jax.load`.
    documents: list of `documents.Document`.
    settings: of `choose_settings`.
    available: bytes that may be taken, or None.
    values: the flags.

  Returns:
    The number of documents that could not be summarised.
  """
  from locost_jax import results
  from locost_jax import source_page
  from locost_jax import summaries
  from locost_jax.progress import Progress
  as_json = values.format == 'json' or (values.output or '').endswith('.jsonl')
  progress = Progress()
  made_with = describe(summarizer, settings, values) if (
      as_json or values.output) else {}
  jobs = [summaries.Job(number, document, summaries.hash_text(document.text))
          for number, document in enumerate(documents)]
  keys = [(job.document.id, job.sha256) for job in jobs]
  pages = {}

  def add_page(job, tokens, memory=None):
    if values.report:
      progress.show('the page of', job.number + 1, len(jobs))
      pages[job.number] = source_page.write(
          values.report, summarizer, job.document.id, job.document.text, tokens,
          dict(settings, checkpoint=values.checkpoint), job.number + 1,
          len(jobs), settings['max_input_length'], memory)

  with contextlib.ExitStack() as stack:
    output, todo = None, jobs
    if values.output:
      output = stack.enter_context(contextlib.closing(results.Results(
          values.output, made_with, as_json, values.overwrite)))
      todo = [job for job, key in zip(jobs, keys) if not output.get(*key)]
      if len(todo) < len(jobs):
        progress.note(f'{values.output}: {len(jobs) - len(todo)} of '
                      f'{len(jobs)} documents were done before')
        for job, key in zip(jobs, keys):
          if output.get(*key):
            add_page(job, summarizer.tokenize(output.get(*key)['prediction']))
    stack.enter_context(ends_at_once(progress, values.output))
    failures, ready, printed = 0, {}, 0
    for done in summaries.summarize(
        summarizer, todo, settings, progress, values.batch_size, available,
        keep_memory=bool(values.report)):
      if done.error:
        failures += 1
        progress.note(f'error: {done.error}')
      else:
        row = {**done.row, **made_with}
        progress.note(line_of(done, len(jobs)))
        add_page(done.job, done.tokens, done.memory)
        done = done._replace(memory=None)  # the next batch needs the room
      if output:
        if not done.error:
          output.add(row)
        continue
      ready[done.job.number] = None if done.error else (
          results.json_line(row) if as_json else results.text_line(row))
      while printed in ready:
        line = ready.pop(printed)
        printed += 1
        if line is not None:
          progress.wipe()
          print(line, flush=True)
    if output:
      others = output.finish(keys)
      if others:
        progress.note(f'{values.output}: keeps {others} summaries of documents '
                      'that were not named now')
  if len(jobs) > 1 and pages:
    source_page.write_index(
        values.report, [pages[number] for number in sorted(pages)])
  return failures


def line_of(done, total):
  """What stderr tells of a document."""
  from locost_jax import memory
  row = done.row
  return (
      f'{done.job.number + 1:{len(str(total))}}/{total}  {row["id"]}: '
      f'{row["tokens_read"]:,} tokens read, {row["tokens_kept"]:,} kept, '
      f'{row["seconds"]:.1f} s (encoding {row["seconds_encoding"]:.1f}, '
      f'decoding {row["seconds_decoding"]:.1f}), peak memory '
      f'{memory.show(row["peak_memory_bytes"])}')


@contextlib.contextmanager
def ends_at_once(progress, output):
  """In this context Ctrl-C and SIGTERM end the process at once.

  Python's own handlers run between two of its instructions, and one layer of a
  book may take minutes. What is done is on disk already (`results`).
  """
  wanted = [number for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) != signal.SIG_IGN]  # as under nohup
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  reader, writer = os.pipe()
  os.set_blocking(writer, False)

  def wait():
    received = os.read(reader, 1)  # a signal's number; b'' at the end
    if received:
      progress.wipe()
      print('interrupted' + (
          f'; what is done is in {output}.partial, and the same command goes '
          'on from there' if output else ''), file=sys.stderr, flush=True)
      os._exit(128 + received[0])

  before = [signal.signal(number, lambda *_: None) for number in wanted]
  signal.set_wakeup_fd(writer)
  thread = threading.Thread(target=wait, daemon=True)
  thread.start()
  try:
    yield
  finally:
    signal.set_wakeup_fd(-1)
    for number, handler in zip(wanted, before):
      signal.signal(number, handler)
    os.close(writer)
    thread.join()
    os.close(reader)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
