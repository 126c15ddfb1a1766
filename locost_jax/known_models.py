"""Lists public checkpoints with their facts, sources and commands.

  python -m locost_jax.models
  python -m locost_jax.models longt5 book

Words after the command choose: a checkpoint is listed if all words occur in
its facts. Nothing is downloaded. docs/models.md has the same facts as a table.
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
      values, 'what goes to stdout; json: an object for each checkpoint'
  )


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: words; the checkpoints with all of them are listed.

  Raises:
    InputError: no checkpoint has all words.
  """
  rows = [row for row in published.CHECKPOINTS if _has(row, arguments)]
  if not rows:
    raise InputError(
        f'{" ".join(arguments)!r}: no checkpoint has these words; without '
        'words, all are listed'
    )
  for row in rows:
    if values.format == 'json':
      object_ = row._asdict() | {'command': published.command(row)}
      print(json.dumps(object_, ensure_ascii=False))
    else:
      print(text(row))
  if values.format == 'text':
    print('None was downloaded here; the sources are in docs/models.md.')


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
