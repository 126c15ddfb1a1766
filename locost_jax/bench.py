"""Measures speed and memory by input length.

  python -m locost_jax.bench kernel --lengths=4096,16384
  python -m locost_jax.bench encode --lengths=16384,65536,262144
  python -m locost_jax.bench encode --lengths=4096 --batch_size=4 \\
      --against=longt5,led
  python -m locost_jax.bench decode --lengths=16384 --dtype=bfloat16
  python -m locost_jax.bench generate --lengths=4096 --against=longt5,t5
  python -m locost_jax.bench pages --config=configs/pagesum.py:arxiv
  python -m locost_jax.bench select --config=configs/simcas.py:arxiv
  python -m locost_jax.bench turn --config=configs/simcas.py:arxiv
  python -m locost_jax.bench train --lengths=1024,4096 --against=longt5
  python -m locost_jax.bench run --lengths=16384 --dtype=bfloat16
  python -m locost_jax.bench cost --lengths=600000 --price_per_hour=0.40
  python -m locost_jax.bench gsg

kernel   the kernels of one layer: two-level product, or one H x N x L array
encode   one encoder layer: with kernels computed, with kernels given, only its
         matrix products; then the whole encoder in each form; with --against
         also PyTorch's models
decode   time to the first token, time per token, and the bytes that decoding
         keeps of the input
generate samples per second of a whole model that reads an input and writes
         --tokens; with --against also PyTorch's models
pages    PageSum: the whole encoder, and the time per token compared with BART
         with one row per page, and with one decoder over all pages
select   SimCAS: reading and writing with the selector and with all tokens kept,
         and the selector's share of the time
turn     SimCAS: a train step with and without training of the selector
train    forward pass and whole step for each train.remat; an encoder layer,
         forward and backward: written like its equations, whole as in the
         model, and in pieces; with --against a step of `main` and PyTorch's
         models
run      a whole run: a step with and without a checkpoint, waiting for data,
         and the time a new process takes to resume from a checkpoint
cost     seconds, joules (if the machine reports them) and money per document
gsg      gap sentences of documents of --lengths words, per core, compared
         with rouge_score

The model is that of --config, with random weights. decode and cost use beam
search with --config.decode.num_beams=4. Each length is measured in a separate
process; compared runs are interleaved. A table goes to stdout; raw times,
machine and versions (JSON) and a picture go to --output.
"""

import json
import os

from locost_jax.command_line import allocator

if __name__ == '__main__':  # before JAX is imported; subprocesses inherit it
  allocator.restart_with_huge_pages()

# pylint: disable=g-import-not-at-top
from absl import flags

from locost_jax.benchmarks import peers
from locost_jax.benchmarks import run_benchmark
from locost_jax.benchmarks import spec as spec_lib
from locost_jax.benchmarks import text_tables
from locost_jax.command_line import commands
from locost_jax.command_line.progress import Line

DEFAULT_CONFIG = 'configs/default.py'


def define_flags(values, argv):
  """Defines this command's flags."""
  commands.define_config(values, argv, DEFAULT_CONFIG)
  _define_sizes(values)
  _define_precision(values)
  _define_rounds(values)
  _define_comparison(values)
  _define_prices(values)
  _define_output(values)


def _define_sizes(values):
  flags.DEFINE_list(
      'lengths',
      None,
      'N,N,...: input lengths in tokens, shortest first '
      f'[{",".join(spec_lib.LENGTHS)}]; gsg: in words '
      f'[{",".join(spec_lib.WORDS)}]',
      flag_values=values,
  )
  flags.DEFINE_integer(
      'batch_size', 1, 'documents per batch', lower_bound=1, flag_values=values
  )
  flags.DEFINE_integer(
      'tokens',
      None,
      'tokens to write: decode, pages, select '
      f'[{spec_lib.DECODE_TOKENS}], generate, cost [config.decode.max_length]; '
      'tokens of a target: train, turn [config.data.max_target_length]',
      lower_bound=1,
      flag_values=values,
  )


def _define_precision(values):
  flags.DEFINE_enum(
      'dtype',
      'float32',
      ['float32', 'bfloat16'],
      'type of matrix products and activations',
      flag_values=values,
  )
  flags.DEFINE_integer(
      'seed', 0, 'random seed of weights and inputs', flag_values=values
  )


def _define_rounds(values):
  flags.DEFINE_integer(
      'repeats',
      5,
      'number of measurements; the tables show medians',
      lower_bound=1,
      flag_values=values,
  )
  flags.DEFINE_float(
      'seconds',
      600.0,
      'stop repeating a comparison after N seconds',
      lower_bound=0,
      flag_values=values,
  )
  flags.DEFINE_string(
      'memory_limit',
      None,
      'SIZE: end a measured process that uses more memory, for example 8GiB '
      f'[{spec_lib.SHARE_OF_MEMORY:.0%} of the available memory]',
      flag_values=values,
  )


def _define_comparison(values):
  flags.DEFINE_list(
      'against',
      [],
      'NAME,NAME,...: encode, generate, train: PyTorch models to compare with: '
      f'{", ".join(peers.NAMES)}',
      flag_values=values,
  )
  flags.DEFINE_bool(
      'longest',
      False,
      'encode, generate, train: also find the longest input of each model '
      'within --memory_limit',
      flag_values=values,
  )


def _define_prices(values):
  for name, text in (
      ('price_per_hour', 'price of the machine per hour'),
      ('price_per_kwh', 'price of energy per kWh'),
      ('carbon_intensity', 'grams of CO2 per kWh'),
  ):
    flags.DEFINE_float(
        name, None, f'cost: {text}', lower_bound=0, flag_values=values
    )


def _define_output(values):
  flags.DEFINE_string(
      'output',
      'runs/bench',
      'DIR: write COMMAND.json and COMMAND.png here',
      flag_values=values,
  )
  commands.define_format(values, 'format of the result on stdout')
  commands.define_program_cache(values)


def main(values, arguments):
  """Runs the command.

  Args:
    values: the flags of `define_flags`.
    arguments: one of `spec.COMMANDS`.
  """
  command = spec_lib.check(values, arguments)
  config, _ = commands.get_config(values)
  spec = spec_lib.make_spec(command, values, config)
  lengths = spec_lib.read_lengths(command, values.lengths)
  _check_model(command, config, lengths)
  if values.program_cache:  # inherited by the processes that measure
    os.environ[commands.PROGRAM_CACHE] = values.program_cache
  os.makedirs(values.output, exist_ok=True)
  line = Line(seconds=10.0, at_once=True)
  result = run_benchmark.run(
      command,
      spec,
      lengths,
      values.against,
      values.longest,
      lambda text: line.show([f'bench {command}: {text}']),
  )
  line.wipe()
  run_benchmark.save(result, values.output)
  if values.format == 'json':
    print(json.dumps(result))
  else:
    print(text_tables.format_result(result), end='')


def _check_model(command, config, lengths):
  """Raises an InputError if a command cannot measure this model."""
  from locost_jax.benchmarks import one_layer
  from locost_jax.benchmarks import page_models
  from locost_jax.benchmarks import selector_cost
  from locost_jax.benchmarks import whole_model

  if command in ('encode', 'train'):
    one_layer.check(command, config)
  elif command == 'pages':
    page_models.check(config, lengths)
  elif command == 'generate':
    whole_model.check(config, lengths)
  elif command in selector_cost.COMMANDS:
    selector_cost.check(config, lengths)


if __name__ == '__main__':
  commands.run(main, define_flags, __doc__)
