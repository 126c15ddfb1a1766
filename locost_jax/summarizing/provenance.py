"""Describes how a summary was made, in rows of --output and on pages."""

import dataclasses
import hashlib
import os

import jax
import numpy as np

from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.config import versions
from locost_jax.models import parameters
from locost_jax.summarizing import summary_form
from locost_jax.workdir import checkpoint as checkpoint_lib


def hash_text(text):
  """Returns the SHA-256 of a text's UTF-8 form, in hexadecimal."""
  return hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()


def fingerprint(summarizer):
  """Returns a hash of a model's parameters, config and vocabulary."""
  digest = hashlib.sha256(repr(summarizer.config).encode())
  digest.update(summarizer.vocabulary.fingerprint.encode())
  for path, leaf in parameters.flatten(summarizer.params).items():
    leaf = np.ascontiguousarray(leaf)
    digest.update(f'{path} {leaf.dtype.name}{leaf.shape}'.encode())
    digest.update(leaf.reshape(-1).view(np.uint8))
  return digest.hexdigest()[:16]


def describe_settings(summarizer, options):
  """Returns {name: value} of all that decides how a document is summarised."""
  pages = dataclasses.asdict(summarizer.pages) if summarizer.pages else {}
  pages.pop('query_in', None)
  return {
      **decode_settings.as_dict(options.settings),
      'method': decode_settings.method_of(options.settings),
      'seed': options.seed,
      'max_input_length': options.max_input_length,
      **({'prefix': summarizer.prefix} if summarizer.prefix else {}),
      **pages,
  }


def describe_origin(summarizer, settings, options):
  """Returns the fields of every row that reproduce its summary."""
  # Not chosen again: a run that trains may have a better one by now.
  path = os.path.abspath(summarizer.source)
  device = jax.local_devices()[0]
  how = options.parts._asdict() if options.parts else {}
  return dict(
      settings={**settings, **how},
      dtype=summarizer.model.dtype.name,
      checkpoint=dict(
          path=path,
          step=checkpoint_lib.step_of(path),
          fingerprint=fingerprint(summarizer),
      ),
      versions=dict(locost_jax=versions.__version__, jax=jax.__version__),
      backend=device.platform,
      device=device.device_kind,
  )


def describe_model(summarizer, checkpoint):
  """Returns {name: value} of the model, the same for every document.

  A page is for others too, so a local checkpoint is named without the
  directories above its WORKDIR.

  Args:
    checkpoint: directory or name that was loaded.
  """
  name, step = checkpoint, None
  if os.path.isdir(checkpoint):
    path = os.path.abspath(summarizer.source)
    step = checkpoint_lib.step_of(path)
    parts = 1 if step is None else 3  # quickstart/checkpoints/1200
    name = '/'.join(path.split('/')[-parts:])
  return {
      'model': next(
          name
          for name, (Config, _) in models.MODELS.items()
          if type(summarizer.config) is Config
      ),
      'parameters': f'{parameters.count(summarizer.params):,}',
      'checkpoint': name,
      'step': None if step is None else f'{step:,}',
      'dtype': summarizer.model.dtype.name,
  }


def describe_row(row):
  """Returns {name: value} of a summary's row: its tokens and its time."""
  batch = row['documents_in_batch']
  share = f', its share of a batch of {batch} documents' if batch > 1 else ''
  return {
      'tokens read': f'{row["tokens_read"]:,} of {row["tokens_total"]:,}',
      'summary': summary_form.describe_cut(row) or None,
      'seconds': (
          f'{row["seconds"]:.1f} (encoding {row["seconds_encoding"]:.1f}, '
          f'decoding {row["seconds_decoding"]:.1f}{share})'
      ),
  }
