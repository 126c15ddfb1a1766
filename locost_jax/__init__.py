"""locost_jax: summarising documents that are far too long for a transformer.

  s = locost_jax.load('runs/finetune')   # a directory -> a Summarizer
  s.summarize('A long text ...')         # -> ['Its summary.']
  s.summarize(locost_jax.read('book.pdf'))

Importing this package touches no device and no TensorFlow.
"""

import importlib
import signal
import sys
import typing

if sys.platform == 'win32':
  raise ImportError('locost_jax runs on Linux and macOS; on Windows, in WSL')

if typing.TYPE_CHECKING:
  from locost_jax.summarizing.document_files import read
  from locost_jax.summarizing.summarization_pipeline import pipeline
  from locost_jax.summarizing.summarizer import load
  from locost_jax.summarizing.summarizer import Summarizer

__all__ = ('Summarizer', 'load', 'pipeline', 'read')

# The public names and their modules, which are imported on first use.
_MODULES = {
    '__version__': 'locost_jax.config.versions',
    'Summarizer': 'locost_jax.summarizing.summarizer',
    'load': 'locost_jax.summarizing.summarizer',
    'pipeline': 'locost_jax.summarizing.summarization_pipeline',
    'read': 'locost_jax.summarizing.document_files',
}

if sys.argv[:1] == ['-m'] and (
    signal.getsignal(signal.SIGINT) is signal.default_int_handler
):
  # `python -m locost_jax.COMMAND`: imports would swallow Ctrl-C. Until
  # `commands.run` handles it, it ends the process.
  signal.signal(signal.SIGINT, signal.SIG_DFL)


def __getattr__(name: str) -> typing.Any:
  """Imports the public names on first use, so that importing stays instant."""
  if name not in _MODULES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
  """Lists the public names, including the version."""
  return [*__all__, '__version__']
