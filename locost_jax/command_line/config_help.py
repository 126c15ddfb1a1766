"""--help=config: every key of a config, with its default and its meaning.

The meanings are the comments in configs/default.py, right above a key and
behind it. Those of decoding options are in `decode_settings`; the ranges are in
`values.ranges`.
"""

import ast
import functools
import io
import re
import textwrap
import tokenize

from ml_collections import ConfigDict

from locost_jax.command_line import config_files
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.generation import decode_settings
from locost_jax.values import kinds
from locost_jax.values import ranges

# The config whose comments explain the keys.
DEFAULT = 'configs/default.py'
# A comment that refers to the same key of another model.
_ELSEWHERE = re.compile('as (above|in LOCOST)')
_WIDTH = 80


def make(config, path, prefix=''):
  """Returns the page.

  Args:
    config: the config whose values are shown.
    prefix: show only keys below this one, for example 'optim'; '': all.

  Raises:
    InputError: no key begins with the prefix.
  """
  keys = dict(_leaves(config))
  chosen = [
      key
      for key in keys
      if not prefix or key == prefix or key.startswith(f'{prefix}.')
  ]
  if not chosen:
    sections = {part for key in keys for part in _prefixes(key)}
    raise InputError(
        f'--help=config.{prefix}: {path} has no such key'
        f'{suggest(prefix, sorted(sections), "config.")}'
    )
  found = comments(config_files.find(DEFAULT))
  lines = [
      f'Keys of {path} and their values. --config.KEY=VALUE sets one, like',
      '--config.train.steps=100; tuples need quotes.',
  ]
  section = None
  places = {key: place for place, (_, key) in enumerate(found)}
  for key in sorted(chosen, key=lambda key: _place(key, places)):
    above = key.rpartition('.')[0]
    if above != section or not above:
      section = above
      lines += ['', *_section(section, found)]
    lines += _entry(key, keys[key], _meaning(key, config, found))
  return '\n'.join(lines)


def _place(key, places):
  """Returns a sort key: the order of sections and keys in configs/default.py."""
  section, _, name = key.rpartition('.')
  model = section == 'model'
  return (
      places.get(section or key, len(places)),
      places.get(name if model else key, len(places)),
  )


def _leaves(config, prefix=''):
  """Yields (dotted key, value) of all keys that are not sections."""
  for key, value in config.items():
    if isinstance(value, ConfigDict):
      yield from _leaves(value, f'{prefix}{key}.')
    else:
      yield prefix + key, value


def _prefixes(key):
  """'a.b.c' -> 'a', 'a.b', 'a.b.c'."""
  parts = key.split('.')
  return ['.'.join(parts[: i + 1]) for i in range(len(parts))]


def _section(section, found):
  """Returns the lines of a section's heading and the comment above it."""
  if not section:
    return []
  about = found.get(('get_config', section), '')
  return [f'{section}:'] + textwrap.wrap(
      about, _WIDTH, initial_indent='  ', subsequent_indent='  '
  )


def _entry(key, value, meaning):
  """Returns the lines of a key."""
  expected = _range(ranges.kind_of(key))
  if expected:
    meaning = f'{meaning.removesuffix(".")} ({expected})'
  return [f'  --config.{key}={value!r}'] + textwrap.wrap(
      meaning, _WIDTH, initial_indent='      ', subsequent_indent='      '
  )


def _range(kind):
  """Returns the range of a number in words; '' if every number is valid."""
  if isinstance(kind, kinds.Integer):
    if kind.most >= 10_000:
      return f'at least {kind.least}' if kind.least > 0 else ''
    return f'{kind.least} to {kind.most}'
  if isinstance(kind, kinds.Number):
    text = kind.problem('x', None).removeprefix('expected ')
    return text.removeprefix('a finite number').removeprefix(', ')
  return ''


def _meaning(key, config, found):
  """Returns the text of a key, or ''."""
  section, _, name = key.rpartition('.')
  if section == 'decode' and name in decode_settings.OPTIONS:
    return decode_settings.OPTIONS[name].metadata['text']
  if section != 'model':
    return found.get(('get_config', key), '')
  own = _called(config.model.name, config_files.find(DEFAULT))
  for function in [*own, *(function for function, _ in found)]:
    text = found.get((function, name), '')
    if text and not _ELSEWHERE.match(text):
      return text
  return ''


@functools.cache
def _called(name, path):
  """Returns a model's function and all that it calls, the nearest first.

  Args:
    name: config.model.name; a model without a function is like 't5'.
    path: configs/default.py.
  """
  with open(path, encoding='utf-8') as file:
    tree = ast.parse(file.read())
  calls = {
      node.name: [
          call.func.id
          for call in ast.walk(node)
          if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
      ]
      for node in tree.body
      if isinstance(node, ast.FunctionDef)
  }
  found = [name if name in calls else 't5']
  for function in found:  # grows in the loop
    found += [call for call in calls.get(function, ()) if call in calls]
  return found


def comments(path):
  """Returns the comments of a config file.

  Args:
    path: the file. Its keys are keywords of `dict(...)`, its sections are
      assigned to `config.NAME`.

  Returns:
    {(function, key): text}. The keys of get_config are dotted ('optim.name';
    'optim' for the comment above a section), those of other functions are not.
  """
  with open(path, encoding='utf-8') as file:
    source = file.read()
  lines, at = source.splitlines(), {}
  for token in tokenize.generate_tokens(io.StringIO(source).readline):
    if token.type == tokenize.COMMENT:
      at[token.start[0]] = token.string.lstrip('# ').rstrip()

  def text(first, last):
    above, row = [], first - 1
    while row in at and lines[row - 1].lstrip().startswith('#'):
      above.insert(0, at[row])
      row -= 1
    return ' '.join([*above, *([at[last]] if last in at else [])])

  found, rows = {}, {}

  def add(key, node, last):
    if key not in found:
      found[key], rows[key] = text(node.lineno, last), node.lineno

  for function in ast.walk(ast.parse(source)):
    if not isinstance(function, ast.FunctionDef):
      continue
    for node in ast.walk(function):
      section = ''
      if isinstance(node, ast.Assign):
        target = ast.unparse(node.targets[0])
        if not target.startswith('config.'):
          continue
        section = target.removeprefix('config.')
        add((function.name, section), node, 0)
      elif not isinstance(node, ast.Return):
        continue
      for inner in ast.walk(node):
        for key in _keys(inner):
          dotted = '.'.join(filter(None, [section, key]))
          add((function.name, dotted), inner, inner.end_lineno)
    if function.name == 'get_config':
      continue
    for node in ast.walk(function):  # config.update(dict(...)) of a model
      if isinstance(node, ast.keyword) and node.arg:
        add((function.name, node.arg), node, node.end_lineno)
  return dict(sorted(found.items(), key=lambda item: rows[item[0]]))


def _keys(node):
  """Returns the keys that a node of dict(key=...) or dict(**{...}) sets."""
  if isinstance(node, ast.keyword):
    return [node.arg] if node.arg else []
  if isinstance(node, ast.Dict):
    return [key.value for key in node.keys if isinstance(key, ast.Constant)]
  return []
