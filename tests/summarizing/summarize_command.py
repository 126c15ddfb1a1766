"""Helpers for tests of the summarize command."""

import dataclasses
import json

import locost_jax
from locost_jax.summarizing.summarizer import Summarizer


def rows_of(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def write_rows(path, rows):
  """Writes a JSONL file and returns its path."""
  path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
  return path


def write_documents(path, texts):
  """Writes a JSONL file of documents and returns its path."""
  return write_rows(path, [{'document': text} for text in texts])


def error_line(err):
  """Returns the only line of stderr that is an error."""
  (line,) = [line for line in err.splitlines() if line.startswith('error: ')]
  return line


def changed(summarizer, **pages):
  """Returns the same model with changed `Pages`."""
  return Summarizer(
      summarizer.model,
      summarizer.params,
      summarizer.vocabulary,
      summarizer.settings,
      dataclasses.replace(summarizer.pages, **pages),
  )


def use(monkeypatch, summarizer):
  """Makes the command load this model, with the options of its flags."""
  monkeypatch.setattr(
      locost_jax,
      'load',
      lambda *_, dtype, **keys: changed(
          summarizer, **{k: v for k, v in keys.items() if v is not None}
      ),
      raising=False,
  )
  monkeypatch.setattr(
      'locost_jax.summarizing.facts.describe_origin', lambda *_: {}
  )
