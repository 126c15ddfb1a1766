"""Measures speed and memory against length.

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

kernel   the kernels of one layer: two-level product, materialised array
encode   one encoder layer: kernels made, kernels given, its matrix products
         alone; then the whole encoder, each form in a process of its own, and
         with --against PyTorch's models too
decode   time to the first token, time per token, bytes kept of the input
generate a whole model: it reads, and writes --tokens; samples per second; with
         --against PyTorch's models too
pages    of a model that reads pages: the whole encoder, and the time per token
         compared with BART with one row per page, and with one decoder
         over all pages
select   of SimCAS: reading and writing with the selector and with all tokens
         kept, and the selector's share of the time
turn     of SimCAS: a train step with and without a turn of the selector
train    forward pass and whole step, by what is kept for the backward pass;
         an encoder layer, forward and backward: as its equations read, as
         the model has it as a whole, and in pieces; with --against a step as
         `main` takes it, and PyTorch's models
run      a whole run: a step that saves and an ordinary one, waiting for data,
         and the time until a new process continues from a checkpoint
cost     seconds, joules where they can be read, money of one document
gsg      gap sentences of documents of --lengths words, per core, compared
         with rouge_score

The weights are random, of --config's model; with --config.decode.num_beams=4
decode and cost write with beams. Each length is measured in a process of its
own; runs that are compared are interleaved. A table goes to stdout, with raw
times, machine and versions as JSON, and a picture, to --output.
"""

import json
import os

from locost_jax.command_line import allocator

if __name__ == '__main__':  # before JAX is imported; its children inherit it
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
      'input lengths in tokens, shortest first '
      f'[{",".join(spec_lib.LENGTHS)}]; gsg: in words '
      f'[{",".join(spec_lib.WORDS)}]',
      flag_values=values,
  )
  flags.DEFINE_integer(
      'batch_size', 1, 'documents at once', lower_bound=1, flag_values=values
  )
  flags.DEFINE_integer(
      'tokens',
      None,
      f'tokens written; decode, pages, select [{spec_lib.DECODE_TOKENS}], generate, '
      'cost [config.decode.max_length]; of a target, train, turn '
      '[config.data.max_target_length]',
      lower_bound=1,
      flag_values=values,
  )


def _define_precision(values):
  flags.DEFINE_enum(
      'dtype',
      'float32',
      ['float32', 'bfloat16'],
      'of matrix products and activations',
      flag_values=values,
  )
  flags.DEFINE_integer('seed', 0, 'of weights and inputs', flag_values=values)


def _define_rounds(values):
  flags.DEFINE_integer(
      'repeats',
      5,
      'rounds that count; the tables show medians',
      lower_bound=1,
      flag_values=values,
  )
  flags.DEFINE_float(
      'seconds',
      600.0,
      'no new round of a comparison after that many seconds',
      lower_bound=0,
      flag_values=values,
  )
  flags.DEFINE_string(
      'memory_limit',
      None,
      'most memory of a measured process, like 8GiB; one that needs more is '
      f'ended [{spec_lib.SHARE_OF_MEMORY:.0%} of what is available]',
      flag_values=values,
  )


def _define_comparison(values):
  flags.DEFINE_list(
      'against',
      [],
      'encode, generate, train: PyTorch models to compare ours with: '
      f'{", ".join(peers.NAMES)}',
      flag_values=values,
  )
  flags.DEFINE_bool(
      'longest',
      False,
      'encode, generate, train: also look for the longest input '
      'of every model within --memory_limit',
      flag_values=values,
  )


def _define_prices(values):
  for name, text in (
      ('price_per_hour', 'of the machine'),
      ('price_per_kwh', 'of energy'),
      ('carbon_intensity', 'grams of CO2 per kWh'),
  ):
    flags.DEFINE_float(
        name, None, f'cost: {text}', lower_bound=0, flag_values=values
    )


def _define_output(values):
  flags.DEFINE_string(
      'output',
      'runs/bench',
      'DIR for COMMAND.json and COMMAND.png',
      flag_values=values,
  )
  commands.define_format(values, 'what goes to stdout')
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
  if values.program_cache:  # for the processes that measure
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
  """Raises an InputError for a command that does not measure this model."""
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
