"""Draws the papers' figures and others from runs, checkpoints and small files.

  python -m papers.plot curves runs/a runs/b --output=curves.png
  python -m papers.plot kernels runs/finetune --output=kernels.svg
  python -m papers.plot page_weights runs/pagesum report.txt \\
      --output=weights.png

The first word is the kind of picture, the others are its inputs. The ending of
--output decides between PNG and SVG. papers/figures/points.py defines the files
of points. Needs matplotlib: pip install 'locost_jax[plot]'.
"""

import importlib.util
import inspect
import os

from locost_jax import files
from locost_jax.config import commands
from locost_jax.errors import InputError
from locost_jax.errors import suggest
from locost_jax.summarizing import results
from papers.figures import comparisons
from papers.figures import costs
from papers.figures import curves
from papers.figures import kernels
from papers.figures import one_document
from papers.figures import selection
from papers.figures import sentences
from papers.figures import start_states
from papers.figures import style

# Kind -> function: its positional arguments are the inputs, its keywords flags.
KINDS = {
    'curves': curves.draw,
    'kernels': kernels.draw_kernels,
    'kernel_map': kernels.draw_map,
    'score_memory': comparisons.draw_memory,
    'score_length': comparisons.draw_lengths,
    'cost': costs.draw,
    'page_weights': one_document.draw_pages,
    'similarity': sentences.draw_similarity,
    'interdependent': sentences.draw_distances,
    'selection_training': selection.draw_training,
    'low_resource': comparisons.draw_examples,
    'attention': one_document.draw_attention,
    'start_states': start_states.draw,
}
FORMATS = {'.png': 'png', '.svg': 'svg'}


def _parameters(kind):
  """Returns (inputs as --help shows them, names of the flags) of a kind."""
  words, keywords = [], []
  for name, one in inspect.signature(KINDS[kind]).parameters.items():
    if one.kind is one.KEYWORD_ONLY:
      keywords.append(name)
    elif one.kind is one.VAR_POSITIONAL:
      words.append(f'[{name.upper()} ...]')
    else:
      is_needed = one.default is one.empty
      words.append(name.upper() if is_needed else f'[{name.upper()}]')
  return ' '.join(words), keywords


def _describe(kind):
  words, keywords = _parameters(kind)
  line = inspect.getdoc(KINDS[kind]).splitlines()[0]
  options = '\n      options: ' * bool(keywords)
  options += ', '.join(f'--{name}' for name in keywords)
  return f'  {kind} {words}\n      {line}{options}'


__doc__ += '\nKinds:\n' + '\n'.join(map(_describe, KINDS)) + '\n'


def define_flags(values, argv):
  """Defines this command's flags."""
  del argv
  table = {
      'output': 'FILE.png or FILE.svg: the picture',
      'overwrite': (False, 'replace an existing --output'),
      'keys': (
          list(curves.KEYS),
          'KEY,KEY,...: the numbers of metrics.jsonl to draw; * matches '
          'anything',
      ),
      'channel': (0, 'the channel, counted from 0'),
      'length': (2048, 'length of the kernels in tokens'),
      'row': (
          0,
          'which document of a .jsonl file, from 1; 0: its only one',
      ),
      'reference_field': (
          'the field of a .jsonl row with its summary [the model writes one]'
      ),
      'split': (
          None,
          "the split of a WORKDIR's predictions [the newest file]",
          ('test', 'validation'),
      ),
      'protocol': (
          'locost',
          'how to compute ROUGE, see `python -m locost_jax.score --help`',
      ),
  }
  commands.define(values, table)


def main(values, arguments):
  """Runs the command."""
  kind, *inputs = arguments or ['']
  if kind not in KINDS:
    hint = suggest(kind, KINDS) if kind else ''
    raise InputError(
        f'{kind!r}: no such picture{hint or ":"} expected one of '
        f'{", ".join(KINDS)}, then its inputs'
    )
  words, keywords = _parameters(kind)
  options = {name: getattr(values, name) for name in keywords}
  try:
    inspect.signature(KINDS[kind]).bind(*inputs, **options)
  except TypeError:
    raise InputError(f'{kind}: expected {words}, got {inputs}') from None
  ending = _check_output(values.output, values.overwrite, inputs)
  if importlib.util.find_spec('matplotlib') is None:
    raise InputError(
        "matplotlib is not installed: pip install 'locost_jax[plot]'"
    )
  with style.settings():
    picture = style.render(KINDS[kind](*inputs, **options), FORMATS[ending])
  files.write(values.output, picture)


def _check_output(output, overwrite, inputs):
  """Returns the ending of --output; an InputError if it cannot be written."""
  if not output:
    raise InputError('--output=FILE is missing: where does the picture go?')
  ending = os.path.splitext(output)[1].lower()
  if ending not in FORMATS:
    raise InputError(f'--output={output}: expected FILE.png or FILE.svg')
  folder = os.path.dirname(output) or '.'
  if not os.path.isdir(folder):
    raise InputError(f'--output={output}: no directory {folder}')
  files.check_directory('--output', folder)
  results.check(dict(output=output, report=None), overwrite, False, inputs, 1)
  return ending


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
