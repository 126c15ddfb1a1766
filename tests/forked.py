"""Starts functions in processes that are forked from one with all imports."""

import importlib
import multiprocessing
import os


def start(module, function, log, *arguments):
  """Returns a running process; stdout and stderr are appended to a file.

  `module` is only imported in the other processes: it may block imports.
  """
  context = multiprocessing.get_context('forkserver')
  context.set_forkserver_preload([module])
  process = context.Process(
      target=_run, args=(module, function, str(log), *arguments), daemon=True
  )
  process.start()
  return process


def _run(module, function, log, *arguments):
  file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
  os.dup2(file, 1)
  os.dup2(file, 2)
  getattr(importlib.import_module(module), function)(*arguments)
