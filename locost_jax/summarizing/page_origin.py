"""Facts on a source page about the model and the call that wrote a summary."""

import os

from locost_jax import models
from locost_jax.models import parameters
from locost_jax.summarizing.page_html import escape
from locost_jax.workdir import checkpoint as checkpoint_lib


def describe_model(summarizer, checkpoint, dtype):
  """Returns {name: value} of the model, the same for every document.

  A page is for others too, so a local checkpoint is named without the
  directories above its WORKDIR.

  Args:
    checkpoint: directory or name that was loaded.
    dtype: name of the dtype of the activations.
  """
  name, step = checkpoint, None
  if os.path.isdir(checkpoint):
    path = os.path.abspath(summarizer.source)
    step = checkpoint_lib.step_of(path)
    parts = 1 if step is None else 3  # quickstart/checkpoints/1200
    name = '/'.join(path.split('/')[-parts:])
  return {
      'model': _model_name(summarizer.config),
      'parameters': f'{parameters.count(summarizer.params):,}',
      'checkpoint': name,
      'step': None if step is None else f'{step:,}',
      'dtype': dtype,
  }


def describe_row(row):
  """Returns {name: value} of one summary: time and tokens.

  Args:
    row: of `stream.stream`, or of an earlier call's output file.
  """
  batch = row['documents_in_batch']
  share = f', its share of a batch of {batch} documents' if batch > 1 else ''
  return {
      'tokens read': f'{row["tokens_kept"]:,} of {row["tokens_read"]:,}',
      'seconds': (
          f'{row["seconds"]:.1f} (encoding {row["seconds_encoding"]:.1f}, '
          f'decoding {row["seconds_decoding"]:.1f}{share})'
      ),
  }


def without_unused(settings):
  """Returns settings without the seed, unless tokens were sampled."""
  is_sampled = settings.get('method') == 'sample'
  return {
      key: value
      for key, value in settings.items()
      if key != 'seed' or is_sampled
  }


def render_line(origin):
  """Returns one line that names the model and links to all settings.

  Args:
    origin: {name: value} of `describe_model` and `describe_row`, or {}.
  """
  if not origin:
    return ''
  parts = [
      escape(origin['model']),
      f'{origin["parameters"]} parameters',
      *([f'step {origin["step"]}'] if origin.get('step') else []),
      f'{origin["seconds"].partition(" ")[0]} s',
      '<a href="#settings">all settings</a>',
  ]
  return f'<p class="note">{" · ".join(parts)}</p>'


def _model_name(config):
  """Returns the name of a config's model in `models.MODELS`."""
  return next(
      name
      for name, (Config, _) in models.MODELS.items()
      if type(config) is Config
  )
