"""Exceptions shown to the user as one line: bad input, or a requested stop."""

import difflib
import errno
import os
import re

# No room: on the disk, in a quota, in a file.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# C0 and C1, line separators, marks of direction, lone surrogates.
_UNSEEN = re.compile(
    '[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069'
    '\ud800-\udfff\ufeff]'
)


class InputError(ValueError):
  """A wrong file, key, field or value; the message is one clear line.

  The message names the culprit, what was expected and what came. Command lines
  print it without a traceback and exit with status 2.
  """


class Stopped(Exception):
  """The command was asked to stop and has; the message is one clear line.

  Command lines print it and exit with `status`, as a shell does for a process
  that a signal ended: 128 and the signal's number.
  """

  def __init__(self, message, status):
    super().__init__(message)
    self.status = status


def visible(text):
  """Returns a text with what a terminal would obey, or not show, as escapes.

  These are control characters, newlines, marks of the direction of writing, and
  bytes of a file's name that are no text.
  """
  return _UNSEEN.sub(
      lambda found: found[0].encode('unicode_escape').decode(), str(text)
  )


def check_choice(key, value, choices):
  """Raises an InputError where a value is none of the choices.

  Args:
    key: what the user set, 'model.variant' for example.
    value: what it was set to.
    choices: an iterable of the values that are possible.
  """
  if value not in choices:
    raise InputError(
        f'{key}={value!r} must be one of {", ".join(map(repr, choices))}'
    )


def disk_error(error):
  """Returns what the system said of a write that failed; None: it was not one.

  Args:
    error: an OSError, or the ValueError with which TensorStore quotes one.
  """
  if isinstance(error, OSError):
    return error.strerror or str(error)
  code = re.search(r"os_error_code='(\d+)'", str(error))
  return os.strerror(int(code[1])) if code else None


def suggest(name, known, prefix=''):
  """Returns '; did you mean PREFIXname?' for the nearest known name, or ''.

  A dotted name whose last part is right is nearest, then one that is spelt
  alike, then one whose last part is.
  """
  last = name.rsplit('.', 1)[-1]
  last_parts = {key.rsplit('.', 1)[-1]: key for key in known}
  near = (
      [last_parts[last]]
      if last in last_parts
      else (difflib.get_close_matches(name, known, 1, 0.75))
  )
  if not near:
    parts = difflib.get_close_matches(last, last_parts, 1, 0.75)
    near = [last_parts[part] for part in parts]
  return f'; did you mean {prefix}{near[0]}?' if near else ''
