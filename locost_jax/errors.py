"""What the user gave cannot be used: the one exception that means it."""

import difflib


class InputError(ValueError):
  """A wrong file, key, field or value; the message is one clear line.

  The message names the culprit, what was expected and what came. Command lines
  print it without a traceback and exit with status 2.
  """


def suggest(name, known, prefix=''):
  """Returns '; did you mean PREFIXname?' for the nearest known name, or ''.

  A dotted name whose last part is right is nearest, then one that is spelt
  alike, then one whose last part is.
  """
  last = name.rsplit('.', 1)[-1]
  last_parts = {key.rsplit('.', 1)[-1]: key for key in known}
  near = [last_parts[last]] if last in last_parts else (
      difflib.get_close_matches(name, known, 1, 0.75))
  if not near:
    parts = difflib.get_close_matches(last, last_parts, 1, 0.75)
    near = [last_parts[part] for part in parts]
  return f'; did you mean {prefix}{near[0]}?' if near else ''
