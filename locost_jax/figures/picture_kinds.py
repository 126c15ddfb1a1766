"""The kinds of pictures that `plot` draws, with their inputs and functions.

A kind's function takes the inputs of the command line and the command's
options, and returns a matplotlib Figure.
"""

import os
import textwrap
from typing import Callable, NamedTuple

from locost_jax import untrusted
from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.figures import comparisons
from locost_jax.figures import costs
from locost_jax.figures import curves
from locost_jax.figures import finished_runs
from locost_jax.figures import kernels
from locost_jax.figures import one_document
from locost_jax.figures import points
from locost_jax.figures import selection_layers
from locost_jax.figures import sentence_distance
from locost_jax.figures import time_scales
from locost_jax.summarizing import documents
from locost_jax.summarizing import pretrained

_MANY = 1000  # largest number of inputs of a picture
_MOST_BYTES = 1 << 28  # largest JSON file


class Options(NamedTuple):
  """The values of the flags of `plot`."""

  keys: tuple = curves.KEYS
  channel: int = 0
  length: int = 2048
  split: str = ''
  protocol: str = 'locost'


class Kind(NamedTuple):
  """A kind of picture.

  Attributes:
    description: shown by --help.
    inputs: the inputs as --help shows them.
    least, most: smallest and largest number of inputs.
    draw: (inputs, Options) -> Figure.
  """

  description: str
  inputs: str
  least: int
  most: int
  draw: Callable


def find(name):
  """Returns the Kind with this name.

  Raises:
    InputError: unknown name; the message lists all kinds.
  """
  if name not in KINDS:
    raise InputError(
        f'{name!r}: no such picture{suggest(name, KINDS) or ":"} expected one '
        f'of {", ".join(KINDS)}'
    )
  return KINDS[name]


def draw(name, inputs, options=Options()):
  """Returns the Figure of a kind.

  Args:
    name: the name of a Kind.
    inputs: list of paths.
    options: an Options.

  Raises:
    InputError: unknown kind, too few or too many inputs, or an unreadable one.
  """
  kind = find(name)
  if not kind.least <= len(inputs) <= kind.most:
    raise InputError(
        f'{name}: expected {kind.inputs or "no inputs"}, got '
        f'{len(inputs)} inputs'
    )
  return kind.draw(inputs, options)


def describe():
  """Returns a paragraph for each kind, for --help."""
  indents = dict(initial_indent=' ' * 6, subsequent_indent=' ' * 6)
  return '\n'.join(
      f'  {name} {kind.inputs}\n'
      + textwrap.fill(kind.description, 80, **indents)
      for name, kind in KINDS.items()
  )


def _load(directory):
  return pretrained.load(directory)


def _kernels(inputs, options):
  return kernels.draw_kernels(_load(inputs[0]), options.length, options.channel)


def _kernel_map(inputs, options):
  return kernels.draw_map(_load(inputs[0]), options.length)


def _context(inputs, options):
  runs = [(_name(path), _load(path)) for path in inputs]
  return kernels.draw_contexts(runs, options.length)


def _time_scales(inputs, options):
  del options
  if not inputs:
    return time_scales.draw()
  models = [finished_runs.find_run(path).config['model'] for path in inputs]
  for path, model in zip(inputs, models):
    if 'dt_min' not in model or 'd_state' not in model:
      raise InputError(f'{path}: has no model.dt_min; expected a LOCOST')
  return time_scales.draw(
      sorted({model['d_state'] for model in models}),
      sorted({(model['dt_min'], model['dt_max']) for model in models}),
  )


def _curves(inputs, options):
  names = _names(inputs)
  runs = [
      (name, finished_runs.find_metrics(path))
      for name, path in zip(names, inputs)
  ]
  return curves.draw(runs, options.keys)


def _points(inputs, options, needed):
  return points.read(inputs, needed, options.split, options.protocol)


def _score_memory(inputs, options):
  return comparisons.draw_memory(_points(inputs, options, comparisons.MEMORY))


def _score_length(inputs, options):
  return comparisons.draw_lengths(_points(inputs, options, comparisons.LENGTH))


def _low_resource(inputs, options):
  found = _points(inputs, options, comparisons.EXAMPLES)
  return comparisons.draw_examples(found)


def _cost(inputs, options):
  del options
  return costs.draw(costs.read([(path, _json(path)) for path in inputs]))


def _page_weights(inputs, options):
  del options
  return one_document.draw_pages(
      *one_document.weights_of_pages(*_document(inputs))
  )


def _attention(inputs, options):
  del options
  return one_document.draw_attention(
      *one_document.attention(*_document(inputs))
  )


def _start_states(inputs, options):
  del options
  summarizer, text, _ = _document(inputs)
  return one_document.draw_start_states(summarizer, text)


def _selection_training(inputs, options):
  del options
  (path,) = inputs
  limit = None
  if os.path.isdir(path):
    limit = finished_runs.find_run(path).config['model'].get('limit')
  return selection_layers.draw_training(finished_runs.find_metrics(path), limit)


def _selection_lengths(inputs, options):
  del options
  return selection_layers.draw_lengths(inputs[0])


def _similarity(inputs, options):
  del options
  rows = [list(sources.read_jsonl([path])) for path in inputs]
  return sentence_distance.draw_similarity(list(zip(_names(inputs), rows)))


def _interdependent(inputs, options):
  del options
  return sentence_distance.draw_distances(
      [(path, _json(path)) for path in inputs]
  )


def _document(inputs):
  """Reads WORKDIR, DOCUMENT and SUMMARY.

  Returns:
    (summarizer, document, summary or None).
  """
  directory, document, *summary = inputs
  found = _read_one(document)
  text = found.text if found.as_read is None else found.as_read
  written = [_read_one(path).text for path in summary] or [None]
  return _load(directory), text, *written


def _read_one(path):
  """Returns the Document of a file; it must have exactly one."""
  problems = []
  found, _ = documents.read([path], report=problems.append)
  if problems:
    raise InputError(problems[0].removeprefix('error: '))
  if len(found) != 1:
    raise InputError(f'{path}: has {len(found):,} documents; expected one')
  return found[0]


def _json(path):
  try:
    return untrusted.read_object(path, _MOST_BYTES)
  except (FileNotFoundError, NotADirectoryError):
    raise InputError(f'{path}: no such file') from None


def _name(path):
  name = os.path.basename(os.path.normpath(path))
  return name.partition('.')[0] if os.path.isfile(path) else name


def _names(paths):
  """Returns short names of paths; the paths if short names are not unique."""
  names = list(map(_name, paths))
  return names if len(set(names)) == len(names) else list(paths)


_TEXT = 'WORKDIR DOCUMENT'
_WRITTEN = f'{_TEXT} [SUMMARY]'
KINDS = {
    'curves': Kind(
        'training curves of several runs (--keys)',
        'WORKDIR|metrics.jsonl ...',
        1,
        _MANY,
        _curves,
    ),
    'kernels': Kind(
        'kernels of one channel in every layer, and their decay (LOCOST, '
        'figures 3 and 6; --channel, --length)',
        'WORKDIR',
        1,
        1,
        _kernels,
    ),
    'kernel_map': Kind(
        'kernels of all channels and layers (LOCOST, figure 7; --length)',
        'WORKDIR',
        1,
        1,
        _kernel_map,
    ),
    'context': Kind(
        'effective context of each channel (LOCOST, section 4.1; --length)',
        'WORKDIR ...',
        1,
        _MANY,
        _context,
    ),
    'time_scales': Kind(
        'kernels before training: of these runs, or for the two ranges of dt '
        'in docs/time_scales.md',
        '[WORKDIR ...]',
        0,
        _MANY,
        _time_scales,
    ),
    'score_memory': Kind(
        'ROUGE against memory (LOCOST, figure 1)',
        'POINTS.jsonl ...',
        1,
        _MANY,
        _score_memory,
    ),
    'score_length': Kind(
        'ROUGE against the input length of training (LOCOST, figure 5; '
        '--split, --protocol)',
        'WORKDIR|POINTS.jsonl ...',
        1,
        _MANY,
        _score_length,
    ),
    'cost': Kind(
        'memory and throughput against length (LOCOST, figure 4)',
        'encode.json|train.json ...',
        1,
        _MANY,
        _cost,
    ),
    'page_weights': Kind(
        'the weight of each page for each word (PageSum, figure 3)',
        _WRITTEN,
        2,
        3,
        _page_weights,
    ),
    'similarity': Kind(
        'similarity of sentences by their distance (PageSum, figure 1)',
        'ROWS.jsonl ...',
        1,
        _MANY,
        _similarity,
    ),
    'interdependent': Kind(
        'distances of sentences that a summary fuses (PageSum, figure 4)',
        'TASK.json ...',
        1,
        _MANY,
        _interdependent,
    ),
    'selection_training': Kind(
        'selected tokens and reward in training (SimCAS, figure 2, left)',
        'WORKDIR|metrics.jsonl',
        1,
        1,
        _selection_training,
    ),
    'selection_lengths': Kind(
        'selected tokens and time by length (SimCAS, figure 2, right)',
        'SUMMARIES.jsonl',
        1,
        1,
        _selection_lengths,
    ),
    'low_resource': Kind(
        'ROUGE against training examples (SimCAS, figure 4; --split, '
        '--protocol)',
        'WORKDIR|POINTS.jsonl ...',
        1,
        _MANY,
        _low_resource,
    ),
    'attention': Kind(
        'attention over the document, and the selected tokens (SimCAS, '
        'figure 6)',
        _WRITTEN,
        2,
        3,
        _attention,
    ),
    'start_states': Kind(
        "similarity of the chunks' start states (SimCAS, figure 8)",
        _TEXT,
        2,
        2,
        _start_states,
    ),
}
