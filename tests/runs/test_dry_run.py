"""The dry run: FLOPs and memory equal hand counts and XLA; its report."""

import contextlib
import json
import types

import pytest

from configs import default
from locost_jax import main
from locost_jax.errors import InputError
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import checks
from locost_jax.runs import dry_run
from locost_jax.workdir import phases as phases_lib
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


def test_a_token_budget_sets_the_batch_size():
  config = make_config()
  config.train.batch_tokens = 64 * 11
  assert dry_run.largest_batch(config) == (8, 64, 16)


@pytest.mark.parametrize(
    'tokens, devices', [(99, 1), (399, 4), (400, 3), (-1, 1)]
)
def test_invalid_budgets(tokens, devices):
  config = make_config()
  config.data.max_input_length = 100
  for tokens, devices, is_valid in (400, 4, True), (tokens, devices, False):
    config.train.batch_tokens = tokens
    mesh = types.SimpleNamespace(shape={'data': devices, 'fsdp': 1})
    problem = f'batch_tokens={tokens} must be 0 or'
    expected = pytest.raises(InputError, match=problem)
    with contextlib.nullcontext() if is_valid else expected:
      checks.check_budget(config, mesh)


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
  out, _ = succeed(main, *arguments(tmp_path), '--format=json')
  (phase,) = json.loads(out)['phases']
  assert phase['fits']
  assert phase['memory']['total'] > phase['memory']['state'] > 1e4
  assert phase['flops'] > 1e6 and phase['batch']['documents'] == 4
  assert sorted(p.name for p in tmp_path.iterdir()) == ['rows.jsonl']


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
  """With scripted bytes instead of XLA's."""
  sizes = dict.fromkeys(('state', 'arguments', 'output', 'reused'), 3 << 30)
  found = dict(
      batch=dict(documents=4, input_tokens=64, target_tokens=16),
      mesh=dict(data=2, fsdp=1, tensor=1, sequence=1),
      device='cpu',
      flops=2e15,
      memory=None if refused else dict(sizes, temporary=9, total=20 << 30),
      refused=refused,
  )
  monkeypatch.setattr(dry_run, 'compile_step', lambda setup: found)
  monkeypatch.setattr(
      dry_run.memory, 'available_bytes', lambda parts: available
  )
  out, _ = succeed(main, *arguments(tmp_path))
  assert words in out
  assert '2e+15 FLOPs, 1e+15 on each device' in out


def test_a_dry_run_refuses_bad_data(run_command, tmp_path):
  status, out, err = run_command(
      main, *arguments(tmp_path), '--config.data.target_field=title'
  )
  assert status == 2 and out == ''
  assert "no field 'title'" in err
  status, _, err = run_command(main, *arguments(tmp_path), '--evaluate')
  assert status == 2 and 'expected one of them' in err
