"""Facts on a source page about the model and the call that wrote a summary."""

import os

from locost_jax import models
from locost_jax.models import parameters
from locost_jax.summarizing.page_html import escape
from locost_jax.workdir import find


def describe_model(summarizer, checkpoint, dtype):
  """Returns {name: value} of the model, the same for every document.

  A page is for others too, so a local checkpoint is named without the
  directories above its WORKDIR.

  Args:
    summarizer: of `locost_jax.load`.
    checkpoint: directory or name that was loaded.
    dtype: name of the dtype of the activations.
  """
  run = find.find_run(checkpoint) if os.path.isdir(checkpoint) else None
  name = _checkpoint_name(checkpoint, run)
  step = os.path.basename(name)
  return {
      'model': _model_name(summarizer.config),
      'parameters': f'{parameters.count(summarizer.params):,}',
      'checkpoint': name,
      'step': f'{int(step):,}' if run and step.isdigit() else None,
      'dtype': dtype,
  }


def describe_row(row):
  """Returns {name: value} of one summary: time and tokens.

  Args:
    row: of `summaries.summarize`, or of an earlier call's output file.
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


def _checkpoint_name(checkpoint, run):
  """Returns e.g. `quickstart/checkpoints/1200`, or a name on the Hub."""
  if run is None:
    is_here = os.path.isdir(checkpoint)
    return (
        os.path.basename(os.path.abspath(checkpoint)) if is_here else checkpoint
    )
  home, path, _ = run
  return os.path.relpath(path, os.path.dirname(home))


def _model_name(config):
  """Returns the name of a config's model in `models.MODELS`."""
  return next(
      name
      for name, (Config, _) in models.MODELS.items()
      if type(config) is Config
  )
