"""Runs the commands: flags, streams, one-line errors, exit statuses.

absl alone reports an unknown config key with a traceback and status 1, and a
missing config file only when its first value is used. Here every mistake of the
user is one line on stderr and exit status 2.

Each command has its own flags (an `absl.flags.FlagValues`), so that several
commands can run in one process.
"""

import contextlib
import difflib
import importlib.util
import os
from pathlib import Path
import re
import select
import signal
import sys
import traceback

from absl import app
from absl import flags
from ml_collections import config_flags
from ml_collections import ConfigDict

from locost_jax.config import config_files
from locost_jax.config import help_pages
from locost_jax.config import kinds
from locost_jax.config import object_store
from locost_jax.config import schema
from locost_jax.errors import FULL
from locost_jax.errors import InputError
from locost_jax.errors import one_line
from locost_jax.errors import Stopped
from locost_jax.errors import suggest
from locost_jax.errors import visible

# The config of --help=config without --config.
DEFAULT_CONFIG = 'configs/default.py'
FORMATS = 'text', 'json'  # choices of --format
# Rows of `define` for several commands.
PROGRAM_CACHE = {
    'program_cache': (
        'DIR: where to keep compiled programs for later commands; off: nowhere '
        '[LOCOST_JAX_CACHE or ~/.cache/locost_jax]'
    )
}
TASK = {'task': 'a corpus or mixture; short for --config.data.task'}
_DEFINE = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
    list: flags.DEFINE_list,
}
_HELP = re.compile(r'-h|--?help(full|short)?|--help=.*')


def run(main, define_flags, doc, argv=None):
  """Runs a command and exits.

  Args:
    main: (values, arguments) -> exit status or None. values: the parsed flags;
      arguments: the other words of the command line.
    define_flags: (values, argv) -> None; defines the flags in `values`.
    doc: the command's docstring, for --help.
    argv: the command line, beginning with the program's name; None: sys.argv.
  """

  def parse(argv):
    values = flags.FlagValues()
    values.set_gnu_getopt(True)  # flags may follow file names
    with one_line_errors():
      if words := [word for word in argv[1:] if _HELP.fullmatch(word)]:
        print(_help(words[0], doc, values, define_flags, argv))
        sys.exit(0)
      if any(re.match('--?flagfile(=|$)', word) for word in argv):
        # absl would read it, and only after the config is chosen.
        raise InputError('--flagfile is not a flag; --help lists them')
      argv = config_files.resolve(argv)
      define_flags(values, argv)
      arguments = parse_flags(values, argv)
    flags.FLAGS.mark_as_parsed()  # required by app.run
    # Only warnings and errors: JAX logs every backend that is missing.
    flags.FLAGS.verbosity = -1
    return values, arguments

  def run_main(parsed):
    with one_line_errors():
      return main(*parsed)

  if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # locost_jax/__init__
    signal.signal(signal.SIGINT, signal.default_int_handler)
  open_closed_streams()
  with end_with_the_reader():
    app.run(run_main, argv=argv, flags_parser=parse)


def _help(word, doc, values, define_flags, argv):
  """Returns the page of --help or --help=config[.KEY]."""
  define_flags(values, argv[:1])
  topic = word.partition('=')[2]
  if not topic:
    return help_pages.make(doc, values)
  if 'config' not in values:
    raise InputError(f'{word}: this command has no config; expected --help')
  if topic != 'config' and not topic.startswith('config.'):
    raise InputError(
        f'{word}: expected --help, --help=config or --help=config.SECTION'
    )
  path = find_value(config_files.resolve(argv), 'config')
  path = config_files.find(path or DEFAULT_CONFIG)
  return schema.help_page(load_config(path), path, topic[len('config.') :])


def open_closed_streams():
  """Opens closed streams on the null device, so that no output goes elsewhere.

  A file opened while a stream is closed would get the stream's number, and the
  stream's output. If stderr is closed, Python prints its output on stdout.
  `sys.stdout` stays None if it is closed. Characters that a stream's encoding
  lacks are written as escapes.
  """
  for number in range(3):
    try:
      os.fstat(number)
    except OSError:
      os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
  if sys.stderr is None:
    sys.stderr = open(os.devnull, 'w', encoding='utf-8')
  for stream in sys.stdout, sys.stderr:
    if hasattr(stream, 'reconfigure'):
      stream.reconfigure(errors='backslashreplace')


@contextlib.contextmanager
def end_with_the_reader():
  """Ends the program quietly, as SIGPIPE would, when `| head` stops reading."""
  try:
    try:
      yield
    finally:
      for stream in sys.stdout, sys.stderr:
        if stream is not None and not stream.closed:
          stream.flush()
  except BrokenPipeError:
    if not _silence_broken():
      raise
    sys.exit(141)


def _silence_broken():
  """Drops the buffers of streams without a reader; returns if there are any."""
  found = False
  for stream in sys.stdout, sys.stderr:
    poll = select.poll()
    if stream is not None:
      poll.register(stream.fileno(), 0)  # reports errors even without a mask
    if any(event & select.POLLERR for _, event in poll.poll(0)):
      found = True
      os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
  return found


@contextlib.contextmanager
def one_line_errors():
  """A context in which an InputError ends the program: one line, status 2.

  A full disk and an error about a path do the same; `Stopped` and `Unavailable`
  have other statuses.
  """
  try:
    yield
  except InputError as error:
    line = one_line(object_store.original(str(error)))
    line, status = f'error: {line}', error.status
  except Stopped as error:
    line, status = error, error.status
  except OSError as error:
    if error.errno not in FULL and not error.filename:
      raise
    where = f'{error.filename}: ' if error.filename else ''
    line, status = f'error: {where}{error.strerror}', 2
  except KeyboardInterrupt:
    print('\ninterrupted', file=sys.stderr)
    sys.exit(130)
  else:
    return
  print(visible(line), file=sys.stderr)
  sys.exit(status)


def parse_flags(values, argv):
  """Parses argv into `values` and returns the words that are not flags."""
  _check_has_value(values, argv)
  try:
    arguments = values(argv)[1:]
    # argv[0] is DIR/score.py, or the name of a module.
    command = Path(argv[0]).name.removesuffix('.py').rpartition('.')[2]
    schema.check_flags({name: values[name].value for name in values}, command)
    return arguments
  except flags.UnrecognizedFlagError as error:
    name, known = error.flagname, list(values)
    if name.startswith('config.') and 'config' in values:
      raise InputError(
          f'--{name} is a key of a config: expected --config=FILE, '
          'such as configs/finetune.py'
      ) from None
    if 'config' in values:
      config = values['config'].value or schema.make_config()
      keys = _usable_keys(dict(schema.leaves(config)))
      known += [f'config.{key}' for key in keys]
    hint = suggest(name, known, '--') + '; --help lists them'
    raise InputError(f'--{name} is not a flag{hint}') from None
  except flags.Error as error:
    message = str(error)
    for pattern, better in (
        (r'^flag (.*): invalid literal for int.*', r'\1: expected an integer'),
        (r'^flag (.*): could not convert .*', r'\1: expected a number'),
    ):
      message = re.sub(pattern, better, message)
    raise InputError(message) from None


def _check_has_value(values, argv):
  """Raises an InputError for '--workdir --dry_run', which absl would accept."""
  for word, following in zip(argv[1:], argv[2:]):
    name = word.lstrip('-')
    if word == '--':
      return
    if (
        word.startswith('-')
        and name in values
        and not values[name].boolean
        and following.startswith('--')
    ):
      raise InputError(
          f'{word} has no value: {following} comes next; expected '
          f'--{name}=VALUE'
      )


def define_config(values, argv, default=None, run=None):
  """Defines --config=FILE and its overrides --config.KEY=VALUE.

  Args:
    default: the FILE if none is given; None: no default.
    run: (config, its path) of an existing run, used instead of a FILE.
  """
  if run is not None:
    _check_keys(*run, argv)
    config_flags.DEFINE_config_dict(
        'config', run[0], flag_values=values, sys_argv=argv
    )
    return
  default = default and config_files.find(default)
  path = find_value(argv, 'config')
  path = default if path is None else path
  if path is not None:
    _check_keys(load_config(path), path, argv)
  config_flags.DEFINE_config_file(
      'config',
      default,
      'FILE: the config, for example configs/quickstart.py',
      flag_values=values,
      sys_argv=argv,
  )


def _check_keys(config, path, argv):
  """Raises an InputError if argv sets a key that it cannot set."""
  known = dict(schema.leaves(config))
  usable = _usable_keys(known)
  for key in find_keys(argv):
    if known.get(key, '') is None:
      raise InputError(
          f'config.{key} is None in {path}: it can only be set in a config file'
      )
    if key in usable:
      continue
    hint = suggest(key, usable, 'config.')
    if key in schema.RENAMED:
      hint = f': it is now config.{schema.RENAMED[key]}'
    if key.endswith('epochs'):
      hint += '; an epoch is rows / train.batch_size steps'
    what = 'selector for' if key in known else 'key'
    raise InputError(f'{path} has no {what} config.{key}{hint}')


def _usable_keys(known):
  """Returns the keys of a config in the order of the table of keys, a list.

  Those of `selector` are left out if the model has no selector.
  """
  unusable = () if 'model.select' in known else 'selector.'
  keys = dict.fromkeys((*schema.table.KEYS, *known))
  return [x for x in keys if x in known and not x.startswith(unusable)]


def find_keys(argv):
  """Returns the config keys that a command line sets: ['train.steps', ...]."""
  found = (re.match(r'--?(no)?config\.([^=]*)', arg) for arg in argv[1:])
  return [match[2] for match in found if match]


def find_value(argv, name):
  """Returns the value of --NAME in a command line; None if it is missing."""
  for i, arg in enumerate(argv):
    match = re.fullmatch(rf'--?{name}=(.*)', arg, re.DOTALL)
    if match:
      return match[1]
    if arg in (f'--{name}', f'-{name}') and i + 1 < len(argv):
      return argv[i + 1]
  return None


def define(values, table):
  """Defines flags.

  Args:
    table: {name: text, or (default, text), or (default, text, choices)};
      choices may be {value: meaning}. A flag without default has the type of
      its Kind in `config.keys`.
  """
  for name, row in table.items():
    default, text, *choices = (None, row) if isinstance(row, str) else row
    if choices:
      (known,) = choices
      if isinstance(known, dict):
        text = explain(text, known)
      flags.DEFINE_enum(name, default, list(known), text, flag_values=values)
      continue
    kind = type(default)
    if default is None:
      kind = schema.table.FLAGS.get(name, kinds.TEXT).type
    _DEFINE[kind](name, default, text, flag_values=values)


def explain(text, meanings):
  """Returns the text of a flag and a line for each {value: meaning}."""
  lines = (f'{value}: {meaning}' for value, meaning in meanings.items())
  return '\n'.join((text, *lines))


def allow_download(flag):
  """The row of `define` for --allow_download, for the flag of a model."""
  text = (
      f'if the directory --{flag}=org/name does not exist, download the model '
      'of this name from the Hugging Face Hub'
  )
  return {'allow_download': (False, text)}


def expect_flags_only(arguments):
  """Raises an InputError for arguments that are not flags."""
  if arguments:
    raise InputError(
        f'{arguments[0]!r}: expected flags only; --help lists them'
    )


def take_words(values, arguments, *names):
  """Gives the words of a command line to the flags that are not given."""
  free = [name for name in names if not values[name].present]
  expect_flags_only(arguments[len(free) :])
  for name, word in zip(free, arguments):
    schema.check_flags({name: word}, '')
    values[name].value = word


def get_config(values):
  """Returns the config and the keys that the command line set.

  Returns:
    (ConfigDict, {'train.steps': 100, ...}).
  """
  sys.modules.pop('config_config', None)  # other processes cannot import it
  if values.config is None:
    raise InputError(
        '--config=FILE is missing: expected a config, for example '
        '--config=configs/quickstart.py'
    )
  missing = [name for name in schema.SECTIONS if name not in values.config]
  if missing:
    raise InputError(
        f'{config_flags.get_config_filename(values["config"])}: get_config() '
        f'returned a config without {", ".join(missing)}: expected one that '
        'begins with default.get_config(), as in configs/quickstart.py'
    )
  if 'task' in values and values.task:
    values.config.data.task = values.task
  schema.check_config(values.config)
  overrides = config_flags.get_override_values(values['config'])
  return values.config, dict(overrides)


def load_config(path):
  """Runs get_config() of FILE, or get_config(WORD) of FILE:WORD.

  An InputError says that the file does not exist, or which line failed.
  """
  path, _, word = path.partition(':')
  if not os.path.isfile(path):
    ours, own = config_files.directory(), Path(path).parent
    names = {p.stem: f'configs/{p.name}' for p in ours.glob('[!_]*.py')}
    names |= {p.stem: str(p) for p in own.glob('[!_]*.py')}
    near = difflib.get_close_matches(Path(path).stem, names, 3, 0.6)
    near = ' or '.join(names[name] for name in near)
    hint = f'; did you mean {near}?' if near else ''
    raise InputError(f'--config={path}: no such file{hint}')
  config_files.make_importable()
  try:
    spec = importlib.util.spec_from_file_location('_config', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config(*filter(None, [word]))
    is_config = type(config) is ConfigDict  # not a frozen one
    dict(schema.leaves(config) if is_config else ())  # no key 1, no circle
  # A user's Python file may raise anything.
  except (Exception, SystemExit, GeneratorExit) as error:
    reason = traceback.format_exception_only(error)[-1].strip()
    raise InputError(
        f'--config={path}: {_where(error, path)}{reason}'
    ) from None
  if not is_config:
    raise InputError(
        f'--config={path}: get_config() returned '
        f'{type(config).__name__}, expected a ConfigDict'
    )
  return config


def _where(error, path):
  """Returns 'line 12: ', the last line of `path` in the traceback, or ''."""
  lines = [getattr(error, 'lineno', None)]
  for frame in traceback.extract_tb(error.__traceback__):
    if os.path.abspath(frame.filename) == os.path.abspath(path):
      lines.append(frame.lineno)
  line = lines[-1]
  return f'line {line}: ' if line else ''


def define_optional_number(values, name, default, text):
  """Defines --NAME, which means --NAME=default, --NAME=NUMBER, and 0 without."""
  flags.DEFINE_flag(
      flags.Flag(
          _NumberParser(default),
          None,
          name,
          0,
          f'[=NUMBER]: {text} [{default}]',
          boolean=True,
      ),
      flag_values=values,
  )


class _NumberParser(flags.ArgumentParser):
  """Parses --name (the default), --noname (0) and --name=NUMBER."""

  def __init__(self, default):
    super().__init__()
    self._default = default

  def parse(self, argument):
    if argument in ('true', 'false'):  # absl's words for a flag without value
      return self._default if argument == 'true' else 0
    return int(argument)
