"""Draws a picture of a command's result, if matplotlib is installed."""

import sys


def draw(function, result, path):
  """Calls function(result, path); without matplotlib, prints how to install it.

  Args:
    function: draws a result into a PNG; imports matplotlib.
    result: the command's result.
    path: the PNG to write.

  Returns:
    Whether the picture was drawn.
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
