"""Shared by the jobs of `tests.on_gpu`; each has a process of its own.

python -m tests.on_gpu.KIND JOB PATH: JOB is JSON, see `__main__.plan`; rows are
added to PATH as lines of JSON, each when it is known.
"""

import json
import sys
import traceback

import jax


def attempt(name, make):
  """Returns the row make(), or one with the first line of its error."""
  try:
    return dict(name=name, **make())
  except Exception as error:  # any: the other rows are still wanted
    traceback.print_exc()
    text = (str(error).strip().splitlines() or [''])[0]
    return dict(name=name, error=f'{type(error).__name__}: {text}')


def main(run):
  """Adds the rows of run(job) to a file."""
  _, job, path = sys.argv
  for row in run(json.loads(job)):
    device = jax.local_devices()[0].device_kind
    with open(path, 'a', encoding='utf-8') as file:
      line = json.dumps(row | dict(device=device, jax=jax.__version__))
      file.write(line + '\n')
