"""Reads and checks single keys of a config.json."""

from locost_jax import untrusted
from locost_jax.config import keys as table
from locost_jax.config import kinds
from locost_jax.errors import InputError

_KINDS = {
    bool: kinds.BOOLEAN,
    str: kinds.TEXT,
    float: kinds.number(0, 1),  # rates and epsilons
    int: kinds.integer(0, 10**9),
}


def take(path, theirs, ours, key, default):
  """Returns the checked value of a key.

  Args:
    path: the config.json, for messages.
    theirs: its contents, a dict.
    ours: our name of the key; a key that no model has takes values of the type
      of its default.
    default: the value if the key is missing or null; None: the key is required
      and its value is an integer.

  Raises:
    InputError: the key is missing, or its value is not allowed.
  """
  value = theirs.get(key)
  if value is None:
    value = default
  if value is None:
    raise InputError(f'{path} lacks the key {key!r}')
  kind = _KINDS[int if default is None else type(default)]
  own = table.KEYS.get(f'model.{ours}')
  untrusted.check(path, key, value, own.kind if own else kind)
  return float(value) if isinstance(default, float) else value
