"""A flag with or without a number: --profile, --profile=20."""

from absl import flags


def define(values, name, default, text):
  """Defines --NAME, which means --NAME=default, and --NAME=NUMBER.

  The value is 0 if the flag is not given.
  """
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
