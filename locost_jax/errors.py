"""Exceptions shown to the user as one line: bad input, or a requested stop."""

import difflib
import errno
import functools
import logging
import os
import re
import sys

# Error codes of a write without room: disk full, quota, file size limit.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Last parts of names in other libraries -> in this one.
_ALIASES = dict(
    lr='learning_rate', epochs='steps', length='max_length', model='checkpoint'
)
# C0 and C1 controls, line separators, direction marks, unpaired surrogates.
_UNSEEN = re.compile(
    '[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069'
    '\ud800-\udfff\ufeff]'
)
_LONGEST = 600  # characters of an error line

AGAIN = 75  # exit status: run the same command again (EX_TEMPFAIL)


class InputError(ValueError):
  """A wrong file, key, field or value; the message is one clear line.

  The message names the file or key, its value and the expected value. Commands
  print it without a traceback and exit with `status`.
  """

  status = 2


class Unavailable(InputError):
  """A server that did not answer after all retries, but may answer later."""

  status = AGAIN


class Stopped(Exception):
  """The command has stopped on request; the message is one clear line.

  Commands print it and exit with `status`: 128 plus the signal's number, as a
  shell reports a process that a signal ended.
  """

  def __init__(self, message, status):
    super().__init__(message)
    self.status = status


def not_finite(where, name):
  """Returns the InputError for a parameter with NaN or infinity."""
  return InputError(
      f'{where}: a value of {name} is not a finite number (NaN or Inf): such a '
      'model writes nothing'
  )


def visible(text):
  """Escapes characters that a terminal would interpret or not show.

  Escaped are control characters, newlines, direction marks, and bytes of a file
  name that cannot be decoded.
  """
  return _UNSEEN.sub(
      lambda found: found[0].encode('unicode_escape').decode(), str(text)
  )


def one_line(error):
  """Returns a message on one line; long values and lists are cut."""
  line = ' '.join(str(error).split())
  if len(line) > _LONGEST:
    line = f'{line[: _LONGEST - 200]} ... {line[-200:]}'
  return line


def check_choice(key, value, choices):
  """Raises an InputError if a key's value is not one of the choices."""
  if value not in choices:
    raise InputError(
        f'{key}={value!r} must be one of {", ".join(map(repr, choices))}'
    )


def disk_error(error):
  """Returns the system's message of an OSError, or one that TensorStore quotes."""
  if isinstance(error, OSError):
    return error.strerror or str(error)
  code = re.search(r"os_error_code='(\d+)'", str(error))
  return os.strerror(int(code[1])) if code else None


def silence_failed_saves():
  """Filters the logs and tracebacks of failed saves; may be called repeatedly.

  `Checkpointer` reports the error in one line. Orbax also logs it from each of
  its threads; TensorStore writes that fail later find Orbax's event loop closed,
  which Python prints as an unraisable exception; asyncio logs abandoned writes.
  """
  logging.getLogger('absl').addFilter(_is_no_orbax_error)
  logging.getLogger('asyncio').addFilter(_is_no_write)
  if getattr(sys.unraisablehook, 'func', None) is not _print:
    sys.unraisablehook = functools.partial(_print, sys.unraisablehook)


def _is_no_orbax_error(record):
  return record.levelno < logging.ERROR or 'orbax' not in record.pathname


def _is_no_write(record):
  return not (record.exc_info and disk_error(record.exc_info[1]))


def _print(otherwise, unraisable):
  if str(unraisable.exc_value) != 'Event loop is closed':
    otherwise(unraisable)


def suggest(name, known, prefix=''):
  """Returns '; did you mean PREFIXname?' for the nearest known names, or ''.

  Prefers up to three names with the same last part, then a similarly spelt
  name, then a name with a similarly spelt last part.
  """
  last = name.rpartition('.')[2]
  parts = {}
  for key in known:
    parts.setdefault(key.rpartition('.')[2], []).append(key)
  near = difflib.get_close_matches(name, known, 1, 0.75)
  if not near:
    near = difflib.get_close_matches(last, parts, 1, 0.75)
    near = [parts[part][0] for part in near]
  near = parts.get(_ALIASES.get(last, last), near)
  names = ' or '.join(f'{prefix}{key}' for key in near[:3])
  return f'; did you mean {names}?' if near else ''
