"""Writes summaries: text in, one summary per document out.

  python -m locost_jax.summarize --checkpoint=runs/quickstart report.txt
  cat report.txt | python -m locost_jax.summarize --checkpoint=runs/quickstart -
  python -m locost_jax.summarize --checkpoint=builtin:documentation report.txt
  python -m locost_jax.summarize --checkpoint=DIR --num_beams=4 \\
      --output=summaries.jsonl books/ part-*.jsonl

A FILE is one of these:

  .jsonl                one document per row
  .html .htm .xhtml     a web page
  .epub                 a book
  .pdf                  a document (extra `documents`)
  .docx .docm .dotx     a Word document
  .vtt .srt             subtitles
  .md or anything else  a text
  a directory           all such files in it and below it
  -                     a text on standard input

All but .epub, .pdf and Word's may be compressed (.gz). stdout gets one summary
per line, in the order of the documents; stderr reports how much of each
document was read. Settings that are not given are those of the run that trained
the checkpoint.

A command with --output can be interrupted; run it again to write the missing
summaries. If a document cannot be summarised, stderr says why, the other
documents are summarised, and the exit status is 2.
"""

import os
import sys

from locost_jax.config import commands
from locost_jax.config import speed
from locost_jax.config import summarize_flags
from locost_jax.data import pages as pages_lib
from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import document_files
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing import results

define_flags = summarize_flags.define


def main(values, arguments):
  """Runs the command.

  Returns:
    The exit status: 2 if a document could not be summarised.
  """
  summarize_flags.choose_settings(summarize_flags.given(values))
  form = summarize_flags.check(values, arguments)
  fields = documents_lib.Fields(
      values.input_field, values.reference_field, values.query_field
  )
  documents, left_out = document_files.read_all(
      arguments, fields, _report, values.max_document_bytes
  )
  if not documents:
    return 2
  if values.output or values.report:
    results.check(
        {'output': values.output, 'report': values.report},
        values.overwrite,
        form == 'jsonl',
        document_files.inputs(arguments),
        len(documents),
    )
  summarizer, checkpoint, options = prepare(values)
  from locost_jax.summarizing import write_summaries
  from locost_jax.workdir import find
  from locost_jax.workdir import phases

  run = find.find_run(checkpoint)
  documents = documents_lib.ask(
      documents,
      values.query,
      run and phases.load_queries(run[0]),  # None: unknown
      values.ask_anyway,
      _report,
  )
  where = write_summaries.Where(
      checkpoint=checkpoint,
      name=values.checkpoint,
      form=form,
      output=_follow(values.output),
      overwrite=values.overwrite,
      report=_follow(values.report),
      warning=_warn_of_training(run),
  )
  failed = write_summaries.write(
      summarizer, documents, options, where, left_out
  )
  return 2 if failed or left_out else 0


def prepare(values):
  """Loads the model that the flags name.

  Returns:
    (Summarizer, the directory it is in, `stream.Options`).

  Raises:
    InputError: there is no such model, or it cannot have these flags.
  """
  # Imported late, because it takes seconds and the documents may be wrong.
  with speed.importing():
    from locost_jax import load
  # Before the parameters are loaded, which count, too.
  available = memory.available_bytes()
  if values.memory_limit is not None:
    available = int(values.memory_limit * 2**30)
  summarizer, checkpoint = _load(values, load)
  settings = summarize_flags.choose_settings(
      summarize_flags.given(values), summarizer.settings, checkpoint
  )
  options = _make_options(values, settings, available, summarizer)
  return summarizer, checkpoint, options


def _make_options(values, settings, available, summarizer):
  """Returns the `stream.Options` of the flags.

  Raises:
    InputError: the model cannot have them.
  """
  from locost_jax import models
  from locost_jax.summarizing import parts as parts_lib
  from locost_jax.summarizing import stream

  most, pages = values.max_input_length, summarizer.pages
  if pages and most is not None and pages.pages in pages_lib.LOCALITIES:
    raise InputError(
        f'--max_input_length={most}: this model reads '
        'pages; expected --num_pages or --page_length'
    )
  lengths = {'max_length': settings.max_length}
  if not pages:  # pages and chunks are short
    lengths['max_input_length'] = most or 0
  for key, length in lengths.items():
    models.check_length(summarizer.config, length, f'--{key}')
  parts = None
  if values.parts:
    parts = stream.Parts(
        values.parts, values.part_length, values.summary_length
    )
    parts_lib.check(parts, summarizer)
  return stream.Options(
      settings,
      seed=values.seed,
      max_input_length=most,
      batch_size=values.batch_size,
      available=available,
      keep_memory=bool(values.report),
      parts=parts,
  )


def _report(line):
  print(visible(line), file=sys.stderr, flush=True)


def _load(values, load):
  """Returns the Summarizer of --checkpoint, and the directory it is in."""
  from locost_jax.devices import compiling
  from locost_jax.hugging_face import configs
  from locost_jax.hugging_face import hub
  from locost_jax.workdir import find

  speed.keep_programs(values.program_cache)
  compiling.announce()
  speed.trim_after_compiling()
  checkpoint = hub.find_directory(values.checkpoint, values.allow_download)
  summarizer = load(
      checkpoint,
      dtype=values.dtype,
      language=values.language,
      **{name: values[name].value for name in documents_lib.PAGE_OPTIONS},
  )
  if summarizer.vocabulary is None:
    raise InputError(
        f'{checkpoint}: has no vocabulary (spiece.model or tokenizer.json)'
    )
  if values.prefix and summarizer.pages:
    raise InputError(
        f'--prefix={values.prefix}: this model reads pages; expected a model '
        'that reads one sequence'
    )
  summarizer.prefix = values.prefix or ''
  if find.find_run(checkpoint) is None:
    names = 'prefix', *summarize_flags.DECODING
    given = {name for name in names if values[name].value is not None}
    if line := configs.describe_task_settings(checkpoint, given):
      _report(line)
  return summarizer, checkpoint


def _warn_of_training(run):
  """Reports and returns that a model is good for its training texts only."""
  task = run[2].get('data', {}).get('task') if run else ''
  if not str(task).startswith('python_docs'):  # of configs/quickstart.py
    return ''
  line = (
      'This small model knows only documentation of Python and writes nonsense '
      'about other texts. docs/models.md lists models for real work: '
      '--checkpoint=hf://org/name'
  )
  _report(line)
  return line


def _follow(path):
  """Resolves a link, so that the file it points to is replaced, not the link."""
  return os.path.realpath(path) if path and os.path.islink(path) else path


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
