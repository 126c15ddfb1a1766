"""Lists public checkpoints with their facts, sources and commands.

  python -m locost_jax.known_models
  python -m locost_jax.known_models longt5 book

Lists only the checkpoints whose facts contain all words that are given. Nothing
is downloaded. docs/models.md has the same facts as a table.
"""

import json
import textwrap

from locost_jax.command_line import commands
from locost_jax.errors import InputError
from locost_jax.hugging_face import published

_TITLES = {
    'architecture': 'architecture',
    'corpus': 'trained on',
    'longest_input': 'longest input',
    'licence': 'licence',
    'download': 'weights',
    'rouge': 'ROUGE-1/2/L',
    'protocol': 'protocol',
    'use': 'good for',
    'where': 'to get it',
}


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  commands.define_format(
      values, 'format of the list; json: one object per line and checkpoint'
  )


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: words that the facts of a listed checkpoint contain.

  Raises:
    InputError: no checkpoint's facts contain all words.
  """
  rows = [row for row in published.CHECKPOINTS if _has(row, arguments)]
  if not rows:
    raise InputError(
        f'{" ".join(arguments)!r}: no checkpoint has all these words; give '
        'fewer words, or none to list all checkpoints'
    )
  for row in rows:
    if values.format == 'json':
      object_ = row._asdict() | {'command': published.command(row)}
      print(json.dumps(object_, ensure_ascii=False))
    else:
      print(text(row))
  if values.format == 'text':
    print('The facts are those of the sources in docs/models.md.')


def _has(row, words):
  facts = ' '.join(map(str, row)).lower()
  return all(word.lower() in facts for word in words)


def text(row):
  """Returns the lines of a checkpoint, with an empty line at the end."""
  lines = [row.name]
  for key, title in _TITLES.items():
    value = getattr(row, key)
    if value and value != 'hub':
      lines += textwrap.wrap(
          value,
          80,
          initial_indent=f'  {title:<15}',
          subsequent_indent=' ' * 17,
          break_on_hyphens=False,
          break_long_words=False,
      )
  if command := published.command(row):
    lines.append(f'  {command}')
  return '\n'.join(lines) + '\n'


def run():
  """Runs the command with the words of the command line, and exits."""
  commands.run(main, define_flags, __doc__)


if __name__ == '__main__':
  run()
