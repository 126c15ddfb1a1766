"""What the tasks `learned_confidence` and `learned_selection` share."""

import json
from pathlib import Path

from absl import flags
import numpy as np

from configs import default
from locost_jax import files


def make_config(model, **keys):
  """Returns a config with a small model like BART; keys: of config.model."""
  config = default.get_config()
  config.model = model
  config.model.update(
      d_model=64,
      num_heads=4,
      num_layers=2,
      num_decoder_layers=2,
      dropout_rate=0.0,
      scale_embedding=True,
      **keys,
  )
  config.optim.update(name='adamw', clip=0.0, label_smoothing=0.1)
  return config


def make_batch(inputs, targets, start):
  """Returns a batch as in `step.train_step`; every target counts."""
  before = np.pad(targets, ((0, 0), (1, 0)), constant_values=start)[:, :-1]
  return dict(
      encoder_input_tokens=inputs.astype(np.int32),
      decoder_input_tokens=before.astype(np.int32),
      decoder_target_tokens=targets.astype(np.int32),
      decoder_loss_weights=np.ones(targets.shape, np.float32),
  )


def draw(curves, path, panels):
  """Draws numbers against steps into a PNG.

  Args:
    curves: {(kind, seed): rows}.
    path: of the PNG.
    panels: list of (label, keys of rows, levels): the second key is dotted,
      levels are horizontal lines.

  Raises:
    ImportError: matplotlib is not installed.
  """
  from matplotlib.figure import Figure  # needs no display

  figure = Figure(figsize=(4.2 * len(panels), 3.6), layout='constrained')
  axes = figure.subplots(1, len(panels), sharex=True)
  for panel, (label, keys, levels) in zip(axes, panels):
    for number, ((kind, seed), rows) in enumerate(curves.items()):
      for key, style in zip(keys, '-:'):
        if key in rows[0]:
          panel.plot(
              [row['step'] for row in rows],
              [row[key] for row in rows],
              color=f'C{number}',
              linestyle=style,
              label=f'{kind}, seed {seed}' if style == '-' else None,
          )
    for level in levels:
      panel.axhline(level, color='grey', linewidth=0.8)
    names = (key.replace('_', ' ') for key in keys)
    panel.set_title(', dotted: '.join(names), fontsize=9)
    panel.set(xlabel='step', ylabel=label, ylim=(0, None))
  axes[0].legend(loc='center right', frameon=False, fontsize=8)
  figure.savefig(path, dpi=150)


def define_flags(values, output, **numbers):
  """Defines the flags in `values`; numbers: {flag: (default, help)}."""
  for name, (usual, words) in numbers.items():
    flags.DEFINE_integer(name, usual, words, lower_bound=1, flag_values=values)
  flags.DEFINE_string(
      'output', output, 'DIR for curves.json and curves.png', flag_values=values
  )


def write(output, kind, curves, panels):
  """Writes curves.json, where `kind` names the first key, and curves.png."""
  runs = [
      {kind: name, 'seed': seed, 'rows': rows}
      for (name, seed), rows in curves.items()
  ]
  output = Path(output)
  files.write(output / 'curves.json', json.dumps(runs, indent=1) + '\n')
  draw(curves, output / 'curves.png', panels)
