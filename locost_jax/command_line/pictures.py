"""Draws pictures of a command's result, if matplotlib is installed."""

import sys


def draw(function, result, path):
  """Calls function(result, path), or says on stderr what it needs.

  Args:
    function: draws a result into a PNG; imports matplotlib.
    result: of the command.
    path: of the PNG.

  Returns:
    Whether there is a picture.
  """
  try:
    function(result, path)
  except ImportError:
    print(
        "no picture: matplotlib is not installed: pip install "
        "'locost_jax[plot]'",
        file=sys.stderr,
    )
    return False
  return True
