"""The one exception that means: what the user gave cannot be used."""


class InputError(ValueError):
  """A wrong file, key, field or value; the message is one clear line.

  The message names the culprit, what was expected and what came. Command lines
  print it without a traceback and exit with status 2.
  """
