"""--help of every command: its docstring, then its flags under headings.

A flag has the same heading in all commands. The beginning of its text names its
value: 'FILE: ...', or '<a|b>: ...' for a choice, which absl adds. A text of
several lines explains one choice per line after the first.
"""

import re
import shutil
import textwrap

from ml_collections import config_flags
from ml_collections import ConfigDict

# Heading -> flags, in the order of the page. Each flag has one heading.
_GROUPS = {
    'Input': (
        'config checkpoint source task raw predictions compare split '
        'documents query query_field ask_anyway input_field reference_field '
        'max_input_length max_document_bytes allow_download keys channel '
        'length lengths tokens'
    ),
    'Output': 'workdir target output report format overwrite',
    'Instead of training': (
        'evaluate dry_run topology preflight expect_hosts expect_devices '
        'expect_vocabulary expect_files'
    ),
    'Writing summaries': (
        'max_length min_length num_beams length_penalty length_penalty_form '
        'early_stopping no_repeat_ngram_size encoder_no_repeat_ngram_size '
        'repetition_penalty method temperature top_k top_p'
    ),
    'Pages and parts of a document': (
        'pages num_pages page_length document_length empty_page parts '
        'part_length summary_length'
    ),
    'Scores': 'protocol metrics by_length',
    'Random numbers': 'seed',
    'Metrics that use a model': 'model layer',
    'Measuring': 'against repeats seconds',
    'Speed and memory': 'dtype batch_size memory_limit processes program_cache',
    'Logs': 'profile peak_tflops',
    'Several hosts': 'coordinator hosts host',
}
GROUPS = {heading: names.split() for heading, names in _GROUPS.items()}
_COLUMN = 26  # where the texts begin
_CONFIG = """Config keys:
  --config.KEY=VALUE sets a key of the config; --help=config lists all keys,
  --help=config.optim those of a section."""


def make(doc, values):
  """Returns the page of a command: its docstring and its FlagValues."""
  width = min(shutil.get_terminal_size().columns, 100)
  lines = [doc.strip()]
  known = {name for group in GROUPS.values() for name in group}
  others = [name for name in values if '.' not in name and name not in known]
  for heading, names in (*GROUPS.items(), ('Other flags', others)):
    names = [name for name in names if name in values]
    if names:
      lines += ['', f'{heading}:']
    for name in names:
      lines += _entry(name, values[name], width)
  if 'config' in values:
    lines += ['', _CONFIG]
  return '\n'.join(lines)


def _entry(name, flag, width):
  """Returns the lines of a flag: --NAME=VALUE and its text."""
  text, shown = flag.help, f'--{name}'
  match = re.match(r'(?:\[=(\w+)\]|<(.*?)>|([A-Z]\S*)): ', text)
  if match:
    text = text[match.end() :]
    optional, choices, kind = match.groups()
    if choices and len(choices) > 24:
      if '\n' not in text:
        text = f'{choices.replace("|", ", ")}: {text}'
      choices = 'NAME'
    shown += f'[={optional}]' if optional else f'={choices or kind}'
  elif not flag.boolean:
    is_number = flag.flag_type() in ('int', 'float')
    shown += '=N' if is_number else '=NAME'
  first, *choices = text.split('\n')
  lines = textwrap.wrap(
      first + _default(flag), width - _COLUMN, break_on_hyphens=False
  )
  for choice in choices:
    lines += textwrap.wrap(
        choice,
        width - _COLUMN,
        subsequent_indent='  ',
        break_on_hyphens=False,
    )
  indented = [' ' * _COLUMN + line for line in lines]
  if len(shown) > _COLUMN - 4:
    return [f'  {shown}', *indented]
  return [f'  {shown}'.ljust(_COLUMN) + lines[0], *indented[1:]]


def _default(flag):
  """Returns ' [default]', or '' without one or if the flag's text has it."""
  default = flag.default
  if isinstance(default, ConfigDict):  # the file, not all its keys
    default = config_flags.get_config_filename(flag)
  in_text = flag.help.partition('\n')[0].endswith(']')
  if default in (None, '', False, []) or in_text:
    return ''
  if isinstance(default, (list, tuple)):
    default = ','.join(map(str, default))
  if isinstance(default, float):
    default = f'{default:g}'
  return f' [{default}]'
