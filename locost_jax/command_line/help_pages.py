"""--help of every command: its docstring, then its flags under headings.

A flag stands under the same heading in all commands. The beginning of its text
names its value: 'FILE: ...', or '<a|b>: ...' for a choice.
"""

import re
import shutil
import textwrap

from ml_collections import config_flags
from ml_collections import ConfigDict

# Heading -> flags, in the order of the page. Each flag has one heading.
GROUPS = {
    'Input': (
        'config',
        'checkpoint',
        'source',
        'task',
        'raw',
        'predictions',
        'compare',
        'split',
        'documents',
        'query',
        'query_field',
        'ask_anyway',
        'input_field',
        'reference_field',
        'max_input_length',
        'max_document_bytes',
        'allow_download',
        'keys',
        'channel',
        'length',
        'lengths',
        'longest',
        'tokens',
        'examples',
    ),
    'Output': (
        'workdir',
        'target',
        'output',
        'report',
        'submission',
        'format',
        'stream',
        'overwrite',
        'max_shard_size',
    ),
    'Instead of training': (
        'evaluate',
        'dry_run',
        'topology',
        'preflight',
    ),
    'Several runs': ('seeds', 'by_length'),
    'Writing summaries': (
        'max_length',
        'min_length',
        'num_beams',
        'length_penalty',
        'length_penalty_form',
        'early_stopping',
        'no_repeat_ngram_size',
        'method',
        'temperature',
        'top_k',
        'top_p',
        'seed',
    ),
    'Pages and parts of a document': (
        'pages',
        'num_pages',
        'page_length',
        'document_length',
        'empty_page',
        'parts',
        'part_length',
        'summary_length',
    ),
    'Scores': ('protocol', 'metrics', 'correlation', 'verify'),
    'Metrics that use a model': (
        'model',
        'baseline',
        'layer',
        'idf',
        'threshold',
        'base_url',
        'judge_cache',
        'sample',
    ),
    'Measuring': (
        'against',
        'repeats',
        'seconds',
        'price_per_hour',
        'price_per_kwh',
    ),
    'Speed and memory': (
        'dtype',
        'batch_size',
        'memory_limit',
        'processes',
        'program_cache',
    ),
    'Logs': ('profile', 'wandb', 'peak_tflops', 'carbon_intensity'),
    'Several hosts': ('coordinator', 'hosts', 'host'),
}
_COLUMN = 26  # where the texts begin
_CONFIG = """Config keys:
  --config.KEY=VALUE sets a key of the config; --help=config lists all keys,
  --help=config.optim those of a section."""


def make(doc, values):
  """Returns the page of a command.

  Args:
    doc: the command's docstring.
    values: its `absl.flags.FlagValues`.
  """
  width = min(shutil.get_terminal_size().columns, 100)
  lines = [doc.strip()]
  for heading, names in GROUPS.items():
    names = [name for name in names if name in values]
    if names:
      lines += ['', f'{heading}:']
    for name in names:
      lines += _entry(name, values[name], width)
  if 'config' in values:
    lines += ['', _CONFIG]
  return '\n'.join(lines)


def _entry(name, flag, width):
  """The lines of a flag: --NAME=VALUE and its text."""
  text, shown = flag.help, f'--{name}'
  match = re.match(r'(?:\[=(\w+)\]|<(.*?)>|([A-Z]\S*)): ', text)
  if match:
    text = text[match.end() :]
    optional, choices, kind = match.groups()
    if choices and len(choices) > 24:
      text, choices = f'{choices.replace("|", ", ")}: {text}', 'NAME'
    shown += f'[={optional}]' if optional else f'={choices or kind}'
  elif not flag.boolean:
    is_number = flag.flag_type() in ('int', 'float')
    shown += '=N' if is_number else '=NAME'
  text += _default(flag)
  if len(shown) > _COLUMN - 4:
    first, indent = f'  {shown}', ' ' * _COLUMN
    rest = textwrap.wrap(text, width - _COLUMN)
    return [first, *(indent + line for line in rest)]
  return textwrap.wrap(
      text,
      width,
      initial_indent=f'  {shown}'.ljust(_COLUMN),
      subsequent_indent=' ' * _COLUMN,
      break_on_hyphens=False,
  )


def _default(flag):
  """' [default]', or '' without one."""
  default = flag.default
  if isinstance(default, ConfigDict):  # the file, not all its keys
    default = config_flags.get_config_filename(flag)
  if default in (None, '', False) or flag.help.endswith(']'):
    return ''
  if isinstance(default, (list, tuple)):
    default = ','.join(map(str, default))
  return f' [{default}]'
