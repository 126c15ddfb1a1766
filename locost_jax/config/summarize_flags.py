"""The flags of the summarize command: defaults, --help, and their checks."""

import os
import sys

from absl import flags

from locost_jax.config import commands
from locost_jax.config import decode_settings
from locost_jax.config import keys
from locost_jax.config import schema
from locost_jax.errors import InputError
from locost_jax.errors import visible

# The options of decoding that are flags.
DECODING = {
    name: field
    for name, field in decode_settings.OPTIONS.items()
    if field.metadata['is_flag']
}
# The flags, see `commands.define`, except --query.
FLAGS = {
    'checkpoint': (
        'DIR: a WORKDIR (its best checkpoint, or else the latest), a checkpoint '
        'in one, a Hugging Face directory, hf://org/name[@revision] on the '
        'Hugging Face Hub, or builtin:documentation, which comes with the '
        'package'
    ),
    'query_field': (
        'query',
        'FIELD: of a JSONL row, the field with the question',
    ),
    'input_field': (
        'document',
        'FIELD: of a JSONL row, the field with the document',
    ),
    'reference_field': (
        'FIELD: of a JSONL row, the field with the reference summary, or with a '
        'list of references; copied to the output, so that locost_jax.score can '
        'score the summaries'
    ),
    'prefix': (
        "TEXT: in front of every document, such as 'summarize: ' for a T5"
    ),
    'language': (
        "NAME: of mBART's token of the language that is read and written, such "
        "as ro_RO [the tokenizer's]"
    ),
    'empty_page': (
        'TEXT: the text of a page that has none; an empty TEXT leaves the page '
        'out [as trained]'
    ),
    'output': (
        'FILE: write the summaries here instead of to stdout, in the form of '
        'its ending: .txt, .json, .jsonl or .csv; they are in FILE.partial until '
        'all are written'
    ),
    'report': (
        'FILE.html: write a page that shows the passages that each sentence of '
        'the summary attended to, and the tokens that the model selected, if it '
        'selects tokens; for several documents it links to their pages, '
        'FILE-1.html, FILE-2.html, ...'
    ),
    'seed': (0, 'random seed of sampling'),
    'max_input_length': 'read only the first N tokens of a document [all]',
    'max_document_bytes': (
        'largest document in bytes: a file, after decompression, or a JSONL row '
        '[1 GiB, or an eighth of the free memory if that is less]'
    ),
    'part_length': (512, '--parts: maximum length of a part in tokens'),
    'summary_length': (
        0,
        '--parts: maximum length of the whole summary in tokens; 0: no limit',
    ),
    'batch_size': (
        'maximum number of documents per batch [as many as have 32768 tokens]'
    ),
    **{
        name: f'{keys.DATA[name].text} [as trained]'
        for name in ('num_pages', 'page_length', 'document_length')
    },
    'memory_limit': 'use at most N GiB of memory [all that is available]',
    'ask_anyway': (
        False,
        'accept questions even if the model was trained without them',
    ),
    'overwrite': (
        False,
        'replace existing files of --output and --report; without it, only '
        'summaries that are missing from --output are written',
    ),
    'pages': (
        None,
        'how to split a document into pages or chunks [as trained]',
        {
            'spatial': 'pages of consecutive sentences',
            'discourse': 'a page for each section of a JSONL row',
            'document': 'a page for each document of a JSONL row',
            'chunks': 'chunks of --page_length tokens',
            'sentence_chunks': 'chunks of whole sentences',
        },
    ),
    'parts': (
        None,
        'summarise a document part by part; a part has as many paragraphs as fit '
        'into --part_length [the whole document at once]',
        {
            'join': 'print the summaries of all parts',
            'rank': 'print those in which the model is most confident',
            'hierarchical': 'summarise the summaries again, until one is left',
        },
    ),
    'dtype': (
        'float32',
        'type of matrix products and activations',
        ('float32', 'bfloat16'),
    ),
    'format': (
        'text',
        'text: one summary per line; json: one object per line, with the '
        'summary and everything that is needed to reproduce it; csv: a table of '
        'file, summary, tokens, and what was left out',
        (*commands.FORMATS, 'csv'),
    ),
    **{
        name: (None, field.metadata['text'], field.metadata['choices'])
        if field.metadata['choices']
        else field.metadata['text']
        for name, field in DECODING.items()
    },
    **commands.allow_download('checkpoint'),
    **commands.PROGRAM_CACHE,
}
# The form of each ending of --output: a line each, a list of objects, an object
# on each line, or a table.
FORMS = {'.txt': 'text', '.json': 'json', '.jsonl': 'jsonl', '.csv': 'csv'}


def define(values, argv):
  """Defines the flags; most of those not given are None."""
  del argv
  commands.define(values, FLAGS)
  flags.DEFINE_string(
      'query',
      None,
      'TEXT: a question about each document',
      flag_values=values,
      allow_overwrite=False,  # a second one would replace the first unseen
  )


def given(values):
  """Returns {option of decoding: its flag's value}, for `choose_settings`."""
  return {key: values[key].value for key in DECODING}


def check(values, arguments):
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
  if values.query is not None and not values.query.strip():
    raise InputError('--query is empty; expected a question')
  _check_parts(values)


def _check_parts(values):
  """Raises an InputError for flags that do not go together with --parts."""
  if values.parts is None:
    for name in ('part_length', 'summary_length'):
      if values[name].present:
        raise InputError(f'--{name} needs --parts')
    return
  for wrong, why in (
      ('max_input_length', '--parts reads the whole document'),
      ('report', 'a page shows what was read at once'),
  ):
    if values[wrong].value is not None:
      raise InputError(
          f'--{wrong} and --parts={values.parts}: expected one of them; {why}'
      )


def _missing_file(values):
  """Returns the error for a command line without a FILE."""
  line = 'no FILE given; expected files, or - for standard input'
  for flag in ('output', 'report', 'query'):
    value = values[flag].value
    if value and os.path.isfile(value):
      line += f' (--{flag} took {visible(value)}: write --{flag}=VALUE)'
  return line


def _find_form(values):
  """Returns the form of the summaries; an InputError for a wrong ending."""
  if values.output is None:
    return {'json': 'jsonl'}.get(values.format, values.format)
  form = FORMS.get(os.path.splitext(values.output)[1].lower())
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
