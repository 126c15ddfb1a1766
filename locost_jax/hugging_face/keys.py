"""One key of a config.json: taken if its value can be."""

from locost_jax import untrusted
from locost_jax.errors import InputError

_KINDS = {
    bool: untrusted.BOOLEAN,
    str: untrusted.TEXT,
    float: untrusted.number(0, 1),  # rates and epsilons
    int: untrusted.integer(0, 10**9),
}


def take(path, theirs, ours, key, default):
  """Returns a key's value, of the kind that our key has.

  Args:
    path: of the config.json.
    theirs: what it holds.
    ours: our key; one that is no size of a model takes values of the type of
      its default.
    key: theirs.
    default: where it is missing or null; None: it must be there, an integer.

  Raises:
    InputError: it is missing, or no such value.
  """
  value = theirs.get(key)
  if value is None:
    value = default
  if value is None:
    raise InputError(f'{path} lacks the key {key!r}')
  kind = _KINDS[int if default is None else type(default)]
  untrusted.check(path, key, value, untrusted.MODEL_SIZES.get(ours, kind))
  return float(value) if isinstance(default, float) else value
