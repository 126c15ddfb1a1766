"""Calls functions in processes that are forked from one with all imports."""

from concurrent import futures
import importlib
import multiprocessing
import os

# Imported in the process that the others are forked from. No array may be made
# there: each of them chooses its own devices.
IMPORTED = ['tests.faulty_run', 'tests.page_mesh_program']
SECONDS = 600  # that a call may take


def _context():
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload(IMPORTED)
  return context


def start(module, function, log, *arguments):
  """Returns a running process; stdout and stderr are appended to a file.

  `module` is only imported in the other processes: it may block imports.
  """
  process = _context().Process(
      target=_run, args=(module, function, str(log), *arguments), daemon=True
  )
  process.start()
  return process


def _run(module, function, log, *arguments):
  file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
  os.dup2(file, 1)
  os.dup2(file, 2)
  _call(module, function, arguments)


def call(module, function, *arguments, **environment):
  """Returns what a function returns, with these environment variables."""
  with futures.ProcessPoolExecutor(1, _context(), _set, [environment]) as pool:
    try:
      return pool.submit(_call, module, function, arguments).result(SECONDS)
    except futures.TimeoutError:
      for process in multiprocessing.active_children():
        process.kill()
      raise


def _set(environment):
  os.environ.update(environment)


def _call(module, function, arguments):
  return getattr(importlib.import_module(module), function)(*arguments)
