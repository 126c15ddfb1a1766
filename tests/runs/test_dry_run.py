"""The dry run: FLOPs and memory equal hand counts and XLA; its report."""

import re

import jax
import pytest

from configs import default
from locost_jax import main
from locost_jax.devices import topology
from locost_jax.errors import InputError
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import dry_run
from locost_jax.workdir import phases as phases_lib
from tests import mesh_program
from tests import tiny_run
from tests.runs import test_main


def make_config():
  config = tiny_run.make_config()
  config.data.update(max_input_length=64, max_target_length=16)
  config.train.update(batch_size=4, remat='none')
  return config


def make_setup(config):
  return assemble.Setup(phases_lib.Phase('', None, config))


def compile_step(config):
  return dry_run.compile_step(make_setup(config))


def test_the_memory_of_a_step():
  """Its parts add up to the total; pieces of a batch need less."""
  config = make_config()
  result = compile_step(config)
  assert result['batch'] == dict(documents=4, input_tokens=64, target_tokens=16)
  taken = result['memory']
  used = sum(taken[key] for key in ('arguments', 'temporary', 'output'))
  assert taken['total'] == used - taken['reused']
  # AdamW has two numbers per parameter; counters and a key are extra.
  params = 4 * parameters.count(make_setup(config).shapes)
  assert 0 <= taken['state'] - 3 * params < 100
  batch = 4 * 4 * (64 + 3 * 16)
  assert taken['arguments'] == taken['state'] + batch
  assert taken['reused'] == taken['state']
  config.train.accumulate = 2
  half = compile_step(config)
  assert half['memory']['temporary'] < taken['temporary']
  assert half['flops'] == result['flops']
  # Query and value kernels, 16 x 16, of two attentions.
  config.train.lora.rank = 2
  state = compile_step(config)['memory']['state']
  assert 0 <= state - params - 3 * 4 * 4 * (2 * 16 + 16 * 2) < 100


def test_what_is_too_large_to_compile_is_one_error():
  setup = make_setup(make_config())
  setup.config.data.max_target_length = 10**8
  with pytest.raises(InputError, match='its largest batch is too large'):
    dry_run.measure_phase(setup)


def evaluation_of(name):
  config = make_config()
  if name != 'locost':
    sizes, config.model = dict(config.model), default.simcas()
    same = {*sizes} & {*config.model} - {'name', 'feed_forward'}
    config.model.update({key: sizes[key] for key in same})
    config.data.update(pages='chunks', page_length=16)
  config.decode.update(max_length=8, num_beams=1)
  return config


@pytest.mark.parametrize('name', ['locost', 'simcas'])
@pytest.mark.parametrize(
    'key, value',
    [
        ('decode.num_beams', 9),
        ('decode.max_length', 72),
        ('eval.batch_size', 27),
    ],
)
def test_the_memory_of_an_evaluation(name, key, value):
  """Of its parameters; more beams, tokens and documents need more."""
  config, found, read = evaluation_of(name), [], []
  config.eval.batch_size = 3
  for _ in range(2):
    setup = make_setup(config)
    result = dry_run.compile_summaries(setup)
    found.append(result['memory'])
    read.append(result['reading']['total'])
    assert read[-1] <= found[-1]['total']
    assert found[-1]['state'] == 4 * parameters.count(setup.shapes)
    parts = sum(found[-1][x] for x in ('state', 'temporary', 'output'))
    # At least the tokens that are read or, by 9 beams, the states of 64 tokens.
    is_written = name != 'locost' and setup.config.decode.num_beams == 9
    assert found[-1]['total'] - parts >= 768 * (16 if is_written else 1)
    config.update_from_flattened_dict({key: value})
  assert found[1]['temporary'] > 1.2 * found[0]['temporary']
  assert (read[1] > read[0]) == (key == 'eval.batch_size')


def needed(name, data):
  """Returns the bytes of a device besides parameters, for an evaluation."""
  config = evaluation_of(name)
  config.eval.batch_size, config.mesh.data = 64, data
  taken = dry_run.compile_summaries(make_setup(config))['memory']
  return taken['total'] - taken['state']


@pytest.mark.parametrize('name', ['locost', 'simcas'])
def test_an_evaluation_is_split_over_devices(name):
  """Also what a second program takes from a first."""
  there = dict(module='tests.runs.test_dry_run', devices=4)
  assert mesh_program.run('needed', name, 4, **there) < 0.4 * needed(name, 1)


def test_the_size_of_a_vocabulary_that_will_be_trained():
  config = make_config()
  config.model.vocab_size, config.data.vocabulary_size = 0, 77
  setup = make_setup(config)
  assert parameters.count(setup.shapes)  # also if they were asked for before
  setup.expect_vocabulary(None)
  shapes = parameters.flatten(setup.shapes)
  assert shapes['token_embedding/embedding'].shape[0] == 77


def test_the_largest_batch_of_pages_and_of_chunks():
  config = default.get_config()
  config.data.update(
      max_input_length=16_384,
      page_length=512,
      num_pages=7,
      max_target_length=64,
      pages='spatial',
  )
  config.train.batch_size = 2
  assert dry_run.largest_batch(config) == (2, 7, 512, 64)
  config.data.pages = 'chunks'  # longer inputs have more chunks
  assert dry_run.largest_batch(config) == (2, 33, 512, 64)


def arguments(tmp_path):
  rows = test_main.write_rows(tmp_path / 'rows.jsonl', test_main.pairs(0, 100))
  return [
      test_main.CONFIG,
      '--dry_run',
      f'--workdir={tmp_path / "run"}',
      *test_main.TINY,
      *tiny_run.flags(
          f'data.vocabulary=byte data.train_files={rows} '
          'data.max_input_length=64 train.batch_size=4'
      ),
  ]


def test_the_command_writes_only_a_report(succeed, tmp_path):
  out, _ = succeed(main, *arguments(tmp_path), '--evaluate')
  assert out.startswith('evaluation on jsonl; nothing was run\n')
  assert 'FLOPs' not in out and 'optimiser' not in out
  assert '8 documents, 64 -> 256 tokens' in out
  assert sorted(p.name for p in tmp_path.iterdir()) == ['rows.jsonl']


def script_target(monkeypatch, temporary, refused=None):
  """Replaces a compiler and its answer; returns the options it was given.

  A step takes 2 x 3 GiB besides `temporary`. A chip of a topology has 16 GiB.
  """
  given, GiB = [], 1 << 30
  found = dict(
      batch=dict(documents=32, input_tokens=4096, target_tokens=904),
      mesh=dict(data=1, fsdp=1, tensor=2, sequence=1),
      device='TPU v5 lite',
      flops=2e15,
      memory=None,
      refused=refused,
  )
  if not refused:
    sizes = dict(state=3, arguments=3, output=3, reused=0, temporary=temporary)
    sizes['total'] = sum(sizes.values()) - 3
    found['memory'] = {key: int(x * GiB) for key, x in sizes.items()}
  target = topology.Target(jax.devices(), 16 * GiB, {}, 0.25, 'Low effort.')
  monkeypatch.setattr(topology, 'find', lambda name: target)

  def compile_step(setup, options):
    given.append(options)
    return found

  monkeypatch.setattr(dry_run, 'compile_step', compile_step)
  reading = found | dict(flops=None, reading=found['memory'])
  monkeypatch.setattr(dry_run, 'compile_summaries', lambda *_: reading)
  return given


@pytest.mark.parametrize(
    'available, refused, words',
    [
        (8 << 30, None, '    available      8.0 GiB\n  IT DOES NOT FIT: try '),
        (40 << 30, None, '  it fits: 50% of what is available\n'),
        (None, None, '  the compiler takes it; the free memory is unknown\n'),
        (
            None,
            'No room on HBM.',
            '  the compiler refuses the step:\n    No room on HBM.\n  IT DOES NOT',
        ),
    ],
)
def test_the_verdict(succeed, tmp_path, monkeypatch, available, refused, words):
  given = script_target(monkeypatch, 14, refused)
  monkeypatch.setattr(
      dry_run.memory, 'available_bytes', lambda parts: available
  )
  out, _ = succeed(main, *arguments(tmp_path))
  assert words in out and given == [None]
  assert '2e+15 FLOPs, 1e+15 on each device' in out


@pytest.mark.parametrize(
    'temporary, refused, words',
    [
        # 3 + 3 + 1.25 x 7.9 GiB
        (
            7.9,
            None,
            '    margin         2.0 GiB  see below\n'
            '    total         15.9 GiB\n'
            '    available     16.0 GiB\n'
            '  it fits: 99% of what is available\n'
            '  Low effort.\n'
            '  15.9 GiB of 16.0 GiB a device, 2e+15 FLOPs a step, ',
        ),
        (
            8.1,
            None,
            'or more devices\n  Low effort.\n  16.1 GiB of 16.0 GiB a device, ',
        ),
        (0, 'No room.', 'more than 16.0 GiB a device, 2e+15 FLOPs a step, '),
    ],
)
def test_devices_that_are_not_here(
    succeed, tmp_path, monkeypatch, temporary, refused, words
):
  """A margin is added; the speed is that of the data sheet."""
  given = script_target(monkeypatch, temporary, refused)
  out, err = succeed(main, *arguments(tmp_path), '--topology=v5e:4x4')
  assert words in out and given == [{}]
  assert ('IT DOES NOT FIT' in out) == (temporary != 7.9)
  # 32 x 5,000 tokens on two chips of 197 TFLOP/s.
  assert out.endswith('at best 31,520 tokens/s by the data sheet\n')
  assert 'the step: compiling' in err
  out, _ = succeed(
      main, *arguments(tmp_path), '--topology=v5e:4x4', '--evaluate'
  )
  read = [] if refused else re.findall('total(.*)\n    to read only(.*)\n', out)
  assert all(total.split() == alone.split() for total, alone in read)
  assert len(read) == (not refused)


def test_devices_that_are_not_here_need_no_corpus(
    succeed, run_command, tmp_path, monkeypatch
):
  """Nor the vocabulary, nor a model to start from; keys are checked."""
  script_target(monkeypatch, 1)
  command = [
      *arguments(tmp_path),
      '--topology=v5e:4x4',
      '--config.data.train_files=nowhere.jsonl',
      '--config.data.vocabulary=spiece.model',
      '--config.train.init_from=hf://nobody/nothing',
  ]
  out, err = succeed(main, *command)
  assert 'spiece.model: no such vocabulary' in err
  assert 'assuming model.vocab_size=50265' in err
  assert 'init_from=hf://nobody/nothing: not read for --topology' in err
  (before,) = re.findall(r'parameters +([\d.]+)M', out)
  out, err = succeed(main, *command, '--config.model.vocab_size=100265')
  assert 'assuming' not in err
  # Embedding and logits are one array, 16 wide.
  (after,) = re.findall(r'parameters +([\d.]+)M', out)
  assert (before, after) == ('0.8', '1.6')
  status, _, err = run_command(main, *command, '--config.train.steps=-1')
  assert status == 2 and 'train.steps=-1' in err
  assert not (tmp_path / 'run').exists()
