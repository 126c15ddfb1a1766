"""Helpers for tests of the summarize command, and of what it reads."""

import copy
import dataclasses

import locost_jax
from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.summarizing import reading
from locost_jax.summarizing import token_places
from locost_jax.summarizing.summarizer import Summarizer
from tests.data.rows import write_jsonl
from tests.models import small


def write_documents(path, texts):
  """Writes a JSONL file of documents and returns its name."""
  return write_jsonl(path, [{'document': text} for text in texts])


def error_line(err):
  """Returns the only line of stderr that is an error."""
  (line,) = [line for line in err.splitlines() if line.startswith('error: ')]
  return line


def make_row(prediction, tokens):
  """Returns a row of a summary as the command makes it."""
  counts = 'tokens_total', 'tokens_read', 'peak_memory_bytes'
  times = dict(seconds=1.0, seconds_encoding=0.5, seconds_decoding=0.5)
  return dict(prediction=prediction, **dict.fromkeys(counts, tokens), **times)


def read_and_locate(vocabulary, text, *pages_and_most):
  """Returns what is read and the places of its tokens, which are checked."""
  read = reading.read(vocabulary, text, *pages_and_most)
  places = token_places.places(vocabulary, text, *pages_and_most)
  assert [len(x) for x in places] == [len(x) for x in read.pages]
  for ids, ends in zip(read.pages, places):
    for token, end in zip(ids, ends):
      letter = vocabulary.decode([token]).strip()
      assert not letter or end < 0 or text.text[end - 1] == letter
  return read, places


def random_model(name, vocabulary, pages, **config):
  """Returns a small model of a family, with random weights."""
  config = small.FAMILIES[name] | config | dict(vocab_size=vocabulary.size)
  if 'pad_id' in config:
    config['pad_id'] = vocabulary.pad_id
  model = models.build(config)
  params = small.drawn_params(model, 0.3)
  settings = decode_settings.Settings(max_length=12, num_beams=1)
  return Summarizer(model, params, vocabulary, settings, pages)


def changed(summarizer, **pages):
  """Returns the same model with changed `Pages`."""
  made = copy.copy(summarizer)
  made.pages = dataclasses.replace(summarizer.pages, **pages)
  return made


def with_config(summarizer, params=None, **keys):
  """Returns a model with changed keys of its config."""
  config = dataclasses.replace(summarizer.config, **keys)
  model = dataclasses.replace(summarizer.model, config=config)
  rest = summarizer.vocabulary, summarizer.settings, summarizer.pages
  return Summarizer(model, params or summarizer.params, *rest)


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
      'locost_jax.summarizing.provenance.describe_origin', lambda *_: {}
  )
