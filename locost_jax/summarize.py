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

from locost_jax.config import commands
from locost_jax.config import decode_settings
from locost_jax.config import schema
from locost_jax.config import speed
from locost_jax.config import summarize_flags
from locost_jax.data import pages as pages_lib
from locost_jax.devices import memory
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing import results

# The flags that are fields of `documents.Pages`.
_PAGES = tuple(
    field.name
    for field in dataclasses.fields(documents_lib.Pages)
    if field.name != 'query_in'
)

define_flags = summarize_flags.define


def main(values, arguments):
  """Runs the command.

  Returns:
    The exit status: 2 if a document could not be summarised.
  """
  choose_settings(_given(values))
  form = _check(values, arguments)
  fields = documents_lib.Fields(
      values.input_field, values.reference_field, values.query_field
  )
  documents, left_out = documents_lib.read(
      arguments, fields, _report, values.max_document_bytes
  )
  if not documents:
    return 2
  results.check(
      {'output': values.output, 'report': values.report},
      values.overwrite,
      form == 'jsonl',
      documents_lib.inputs(arguments),
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
  # Before the parameters are loaded, which count, too.
  available = memory.available_bytes()
  if values.memory_limit is not None:
    available = int(values.memory_limit * 2**30)
  summarizer, checkpoint = _load(values)
  settings = choose_settings(_given(values), summarizer.settings, checkpoint)
  options = _make_options(values, settings, available, summarizer)
  return summarizer, checkpoint, options


def _given(values):
  return {key: values[key].value for key in summarize_flags.DECODING}


def _find_form(values):
  """Returns the form of the summaries; an InputError for a wrong ending."""
  if values.output is None:
    return {'json': 'jsonl'}.get(values.format, values.format)
  form = results.FORMS.get(os.path.splitext(values.output)[1].lower())
  if form is None:
    raise InputError(
        f'--output={values.output}: expected a name that ends in '
        '.txt, .json, .jsonl or .csv'
    )
  if values['format'].present and values.format[:4] != form[:4]:
    raise InputError(
        f'--format={values.format} and --output={values.output}: expected one '
        'of them; the ending is the format'
    )
  return form


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
      keep_memory=bool(values.report and not parts),
      parts=parts,
  )


def _report(line):
  print(visible(line), file=sys.stderr, flush=True)


def _load(values):
  """Returns the Summarizer of --checkpoint, and the directory it is in."""
  # Imported late, because it takes seconds and the documents may be wrong.
  import locost_jax
  from locost_jax.devices import compiling
  from locost_jax.hugging_face import hub
  from locost_jax.workdir import find

  speed.keep_programs(values.program_cache)
  compiling.announce()
  speed.trim_after_compiling()
  checkpoint = hub.find_directory(values.checkpoint, values.allow_download)
  summarizer = locost_jax.load(
      checkpoint,
      dtype=values.dtype,
      language=values.language,
      **{name: values[name].value for name in _PAGES},
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
    name_task_settings(checkpoint, values.prefix)
  return summarizer, checkpoint


def name_task_settings(checkpoint, given=None):
  """Reports a Hugging Face directory's settings; given is --prefix."""
  from locost_jax.hugging_face import configs

  prefix, own = configs.task_settings(checkpoint)
  if own := own | ({'prefix': prefix} if prefix and given is None else {}):
    shown = ', '.join(f'{key}={value!r}' for key, value in own.items())
    _report(
        f'{checkpoint}/config.json: task_specific_params.summarization is not '
        f'followed: {shown}; give them as flags'
    )


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


def _check(values, arguments):
  """Returns the form of the summaries; an InputError for flags nobody can use."""
  check_input(values, arguments)
  if sys.stdout is None and not values.output:
    raise InputError(
        'standard output is closed: expected --output=FILE for the summaries'
    )
  for path in arguments:
    schema.check_path('FILE', path)
  for flag in ('output', 'report'):
    path = values[flag].value
    folder = os.path.dirname(path or '') or '.'
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
  form = _find_form(values)
  if values.reference_field and form not in ('json', 'jsonl'):
    raise InputError(
        '--reference_field: expected --format=json or --output=FILE.jsonl'
    )
  return form


def check_input(values, arguments):
  """Raises an InputError for flags about documents that nobody can use."""
  if not values.checkpoint:
    raise InputError(
        '--checkpoint=DIR is missing: expected the WORKDIR of a run, a public '
        'checkpoint (docs/models.md), or builtin:documentation, a small example'
    )
  if not arguments:
    raise InputError(_missing_file(values))
  if not all(query.strip() for query in values.query or ()):
    raise InputError('--query is empty; expected a question')
  _check_parts(values)


def _check_parts(values):
  """Raises an InputError for flags that do not go together with --parts."""
  if values.parts is None:
    for name in ('part_length', 'summary_length'):
      if values[name].present:
        raise InputError(f'--{name} needs --parts')
    return
  if values.max_input_length is not None:
    wrong, why = 'max_input_length', '--parts reads the whole document'
  elif values.report is not None and values.parts != 'hierarchical':
    wrong, why = 'report', 'only --parts=hierarchical writes a page'
  else:
    return
  raise InputError(
      f'--{wrong} and --parts={values.parts}: expected one of them; {why}'
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


def _follow(path):
  """Resolves a link, so that the file it points to is replaced, not the link."""
  return os.path.realpath(path) if path and os.path.islink(path) else path


def choose_settings(given, trained=None, checkpoint=''):
  """Chooses how every summary is written: the flags, else the checkpoint's.

  Args:
    given: {option of decoding: value}; None takes the checkpoint's.
    trained: the checkpoint's `decode_settings.Settings`; None: not known yet,
      so only flags that no checkpoint allows are refused.

  Raises:
    InputError: flags that contradict each other or the checkpoint's settings,
      or a checkpoint with invalid settings.
  """
  if trained is None:
    trained = decode_settings.Settings(
        method='beam', num_beams=2, max_length=10**7
    )
  try:
    settings = decode_settings.change(trained, given)
    decode_settings.check(settings)
  except (InputError, TypeError) as error:
    _check_trained(trained, checkpoint)
    raise InputError(f'--{error}') from None
  return settings


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
