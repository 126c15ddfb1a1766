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
  .pdf .docx            a document (extra `documents`)
  .vtt .srt             subtitles
  .md or anything else  a text
  a directory           all such files in it and below it
  -                     a text on standard input

All but .epub, .pdf and .docx may be compressed (.gz). stdout gets one summary
per line, in the order of the documents; stderr reports how much of each
document was read. Settings that are not given are those of the run that trained
the checkpoint.

A command with --output can be interrupted; run it again to write the missing
summaries. If a document cannot be summarised, stderr says why, the other
documents are summarised, and the exit status is 2.
"""

import dataclasses
import os
import sys

from absl import flags

from locost_jax.command_line import allocator
from locost_jax.command_line import commands
from locost_jax.command_line import part_options
from locost_jax.command_line import summary_options
from locost_jax.config import decode_settings
from locost_jax.config import schema
from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing import outputs
from locost_jax.summarizing import questions
from locost_jax.summarizing import texts

# The flags that are fields of `texts.Pages`.
_PAGES = tuple(
    f.name for f in dataclasses.fields(texts.Pages) if f.name != 'query_in'
)


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  flags.DEFINE_string(
      'checkpoint',
      None,
      'DIR: a WORKDIR (its best checkpoint, or else the latest), a checkpoint '
      'in one, a Hugging Face directory, hf://org/name[@revision] on the '
      'Hugging Face Hub, or builtin:documentation, which comes with the '
      'package',
      flag_values=values,
  )
  commands.define_allow_download(values, 'checkpoint')
  summary_options.define_decoding(values)
  summary_options.define_documents(values)
  summary_options.define_pages(values, texts.FORMS)
  part_options.define(values)
  _define_output(values)
  _define_computation(values)


def _define_output(values):
  commands.define_format(
      values,
      'text: one summary per line; json: one object per line, with the '
      'summary and everything that is needed to reproduce it',
  )
  flags.DEFINE_string(
      'output',
      None,
      'FILE: write the summaries here instead of to stdout, as JSON lines if '
      'FILE ends in .jsonl; they are in FILE.partial until all are written',
      flag_values=values,
  )
  flags.DEFINE_boolean(
      'overwrite',
      False,
      'replace existing files of --output and --report; without it, only '
      'summaries that are missing from --output are written',
      flag_values=values,
  )
  flags.DEFINE_string(
      'report',
      None,
      'FILE.html: write a page that shows the passages that each sentence of '
      'the summary attended to, and the tokens that the model selected, if it '
      'selects tokens; for several documents it links to their pages, '
      'FILE-1.html, FILE-2.html, ...',
      flag_values=values,
  )


def _define_computation(values):
  flags.DEFINE_integer(
      'batch_size',
      None,
      'maximum number of documents per batch [as many as have 32768 tokens]',
      lower_bound=1,
      flag_values=values,
  )
  flags.DEFINE_enum(
      'dtype',
      'float32',
      ['float32', 'bfloat16'],
      'type of matrix products and activations',
      flag_values=values,
  )
  flags.DEFINE_float(
      'memory_limit',
      None,
      'use at most N GiB of memory [all that is available]',
      lower_bound=0,
      flag_values=values,
  )
  commands.define_program_cache(values)


def main(values, arguments):
  """Runs the command.

  Returns:
    The exit status: 2 if a document could not be summarised.
  """
  as_json = values.format == 'json' or (values.output or '').endswith('.jsonl')
  _check(values, arguments, as_json)
  documents, failures = _read(values, arguments)
  if not documents:
    return 2
  outputs.check(
      values.output,
      values.report,
      values.overwrite,
      as_json,
      documents_lib.inputs(arguments),
      len(documents),
  )
  available = (
      memory.available_bytes()
      if values.memory_limit is None
      else int(values.memory_limit * 2**30)
  )
  summarizer, checkpoint = _load(values)
  documents = questions.ask(
      documents,
      values.query,
      _is_trained_with_queries(checkpoint),
      values.ask_anyway,
      _report,
  )
  settings = choose_settings(values, summarizer.settings, checkpoint)
  if summarizer.pages:
    settings.update(_settings_of_pages(values, summarizer.pages))
  _check_lengths(settings, summarizer)
  from locost_jax.summarizing import part_by_part
  from locost_jax.summarizing import write_summaries

  options = write_summaries.Options(
      checkpoint=checkpoint,
      dtype=values.dtype,
      as_json=as_json,
      output=_follow(values.output),
      overwrite=values.overwrite,
      report=_follow(values.report),
      batch_size=values.batch_size,
      available=available,
      parts=part_by_part.from_flags(values, summarizer),
      name=values.checkpoint,
  )
  failures += write_summaries.write(
      summarizer, documents, settings, options, unread=failures
  )
  return 2 if failures else 0


def _read(values, arguments):
  """Returns the documents, and how many could not be read."""
  return documents_lib.read(
      arguments,
      values.input_field,
      _report,
      values.max_document_bytes,
      reference_field=values.reference_field,
      query_field=values.query_field,
  )


def _report(line):
  print(visible(line), file=sys.stderr, flush=True)


def _load(values):
  """Returns the Summarizer of --checkpoint, and the directory it is in."""
  # Imported late, because it takes seconds and the documents may be wrong.
  import locost_jax
  from locost_jax.command_line import compiled_programs
  from locost_jax.devices import compiling
  from locost_jax.hugging_face import hub

  compiled_programs.keep(values.program_cache)
  compiling.announce()
  allocator.trim_after_compiling()
  checkpoint = hub.find_directory(values.checkpoint, values.allow_download)
  summarizer = locost_jax.load(
      checkpoint,
      dtype=values.dtype,
      **{name: values[name].value for name in _PAGES},
  )
  if summarizer.vocabulary is None:
    raise InputError(
        f'{checkpoint}: has no vocabulary (spiece.model or tokenizer.json)'
    )
  return summarizer, checkpoint


def _is_trained_with_queries(checkpoint):
  """Returns whether the run was trained with queries; None if unknown."""
  from locost_jax.workdir import find
  from locost_jax.workdir import trained_queries

  run = find.find_run(checkpoint)
  return run and trained_queries.load(run[0])


def _follow(path):
  """Resolves a link, so that the file it points to is replaced, not the link."""
  return os.path.realpath(path) if path and os.path.islink(path) else path


def _check(values, arguments, as_json):
  """Raises an InputError for flags that no checkpoint or document can use."""
  if not values.checkpoint:
    raise InputError('--checkpoint=DIR is missing: expected a model')
  if sys.stdout is None and not values.output:
    raise InputError(
        'standard output is closed: expected --output=FILE for the summaries'
    )
  if not arguments:
    raise InputError(_missing_file(values))
  choose_settings(values)
  questions.check(values.query)
  part_options.check(values)
  if values.reference_field and not as_json:
    raise InputError(
        '--reference_field: expected --format=json or --output=FILE.jsonl'
    )
  for path in arguments:
    schema.check_path('FILE', path)
  for flag in ('output', 'report'):
    path = values[flag].value
    folder = os.path.dirname(os.path.abspath(path or ''))
    if path and not os.path.isdir(folder):
      raise InputError(f'--{flag}={path}: no directory {folder}')
    if path and os.path.isdir(path):
      raise InputError(
          f'--{flag}={path}: is a directory; expected the name of a file'
      )
  report = values.report
  if report and not report.lower().endswith(('.html', '.htm')):
    raise InputError(
        f'--report={report}: expected a name that ends in .html or .htm'
    )


def _missing_file(values):
  """Returns the error for a command line without a FILE."""
  line = 'no FILE given; expected files, or - for standard input'
  for flag in ('output', 'report', 'query'):
    given = values[flag].value or ()
    for value in [given] if isinstance(given, str) else given:
      if os.path.isfile(value):
        line += f' (--{flag} took {visible(value)}: write --{flag}=VALUE)'
  return line


def _settings_of_pages(values, pages):
  """Returns the settings for splitting documents into pages or chunks."""
  if values.max_input_length is not None and pages.pages in texts.LOCALITIES:
    raise InputError(
        f'--max_input_length={values.max_input_length}: this model reads '
        'pages; expected --num_pages or --page_length'
    )
  return {name: getattr(pages, name) for name in _PAGES}


def _check_lengths(settings, summarizer):
  """Raises an InputError for sequences longer than the model's positions."""
  from locost_jax import models

  keys = ['max_length']
  if not summarizer.pages:  # pages and chunks are short
    keys.append('max_input_length')
  for key in keys:
    models.check_length(summarizer.config, settings[key] or 0, f'--{key}')


def choose_settings(values, trained=None, checkpoint=''):
  """Chooses the settings of every summary: the flags, else the checkpoint's.

  Args:
    values: the flags; a flag that is None takes the checkpoint's setting.
    trained: the checkpoint's `decode_settings.Settings`; None: not known yet,
      so only flags that no checkpoint allows are refused.

  Returns:
    A dict: the fields of `decode_settings.Settings`, seed and max_input_length
    (None: all).

  Raises:
    InputError: flags that contradict each other or the checkpoint's settings,
      or a checkpoint with invalid settings.
  """
  given = {key: values[key].value for key in summary_options.SETTINGS}
  if trained is None:
    trained = decode_settings.Settings(
        method='beam', num_beams=2, max_length=2**30
    )
  try:
    settings = decode_settings.change(trained, given)
    decode_settings.check(settings)
  except (InputError, TypeError) as error:
    _check_trained(trained, checkpoint)
    raise InputError(f'--{error}') from None
  return {
      **decode_settings.as_dict(settings),
      'method': decode_settings.method_of(settings),
      'seed': values.seed,
      'max_input_length': values.max_input_length,
  }


def _check_trained(settings, checkpoint):
  """Raises an InputError with the file of a checkpoint's invalid settings."""
  try:
    decode_settings.check(settings)
  except InputError as error:
    names = 'generation_config.json', 'config.json'
    paths = [os.path.join(checkpoint, name) for name in names]
    path = next(filter(os.path.isfile, paths), checkpoint)
    raise InputError(f'{path}: {error}') from None


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
