"""Reads a command line before its flags are defined and parsed."""

import re


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
