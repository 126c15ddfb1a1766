"""The dry run: FLOPs and memory equal hand counts and XLA; its report."""

import json
import math

import jax
import jax.numpy as jnp
import pytest

from configs import default
from locost_jax import main
from locost_jax.evaluation import evaluate
from locost_jax.generation import generate
from locost_jax.models import parameters
from locost_jax.runs import assemble
from locost_jax.runs import dry_run
from locost_jax.workdir import phases as phases_lib
from tests import counted_flops
from tests import tiny_run
from tests.runs import test_main


def counted(function, *args):
  return counted_flops.count(jax.jit(function).trace(*args).jaxpr)


def test_flops_of_loops_count_every_iteration():
  x, w = jnp.ones((5, 8)), jnp.ones((8, 8))
  once = 2 * 5 * 8 * 8
  assert counted(lambda x: x @ w, x) == once
  loop = lambda x: jax.lax.fori_loop(0, 7, lambda _, x: x @ w, x)
  assert counted(loop, x) == 7 * once
  two = jax.checkpoint(lambda x: x @ w @ w)
  body = lambda x, _: (two(x), None)
  scan = lambda x: jax.lax.scan(body, x, None, length=3)[0]
  assert counted(scan, x) == 6 * once
  # The backward pass of a product with a constant adds one product.
  assert counted(jax.grad(lambda x: ((x @ w) ** 2).sum()), x) == 2 * once
  branches = lambda x: x @ w, lambda x: x @ w @ w
  assert counted(lambda x: jax.lax.cond(x[0, 0] > 0, *branches, x), x) == (
      2 * once
  )
  product = lambda x: jnp.einsum('bij,bkj->bik', x, x)
  assert counted(product, jnp.ones((3, 5, 8))) == 3 * 2 * 5 * 5 * 8


@pytest.mark.parametrize('groups', [1, 16])
def test_flops_of_convolutions(groups):
  """Gradients are convolutions with as many FLOPs."""

  def square(x, w):
    y = jax.lax.conv_general_dilated(
        x,
        w,
        (1,),
        'SAME',
        dimension_numbers=('NWC', 'WIO', 'NWC'),
        feature_group_count=groups,
    )
    return (y**2).sum()

  x, w = jnp.ones((2, 64, 16)), jnp.ones((5, 16 // groups, 16))
  once = 2 * (2 * 64 * 16) * 5 * (16 // groups)
  assert counted(square, x, w) == once
  assert counted(jax.grad(square, (0, 1)), x, w) == 3 * once


def test_flops_of_transforms():
  x = jnp.ones((3, 16))
  assert counted(jnp.fft.fft, x) == 3 * 5 * 16 * 4
  assert counted(jnp.fft.rfft, x) == 3 * 2.5 * 16 * 4
  assert counted(lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), x) == (
      2 * 3 * 2.5 * 16 * 4
  )


def make_config():
  config = tiny_run.make_config()
  config.data.update(max_input_length=64, max_target_length=16)
  config.train.update(batch_size=4, remat='none')
  return config


def make_setup(config):
  return assemble.Setup(phases_lib.Phase('', None, config))


def compile_programs(config):
  return dry_run.compile_programs(make_setup(config))


def test_the_memory_of_a_step():
  """Its parts add up to the total; pieces of a batch need less."""
  config = make_config()
  config.eval.metrics = ('loss',)
  result = compile_programs(config)
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
  assert result['evaluating'] is None
  half = compile_programs(dry_run.changed(config, {'train.accumulate': 2}))
  assert half['memory']['temporary'] < taken['temporary']
  assert half['flops'] == pytest.approx(result['flops'], rel=0.2)
  assert config.train.accumulate == 1


def test_adapters_need_little_optimiser_memory_and_are_merged_to_generate():
  config = make_config()
  config.train.lora.rank = 2
  config.decode.max_length = 4
  result = compile_programs(config)
  params = 4 * parameters.count(make_setup(config).shapes)
  # Query and value kernels, 16 x 16, of two attentions.
  adapters, kernels = 4 * 4 * (2 * 16 + 16 * 2), 4 * 4 * 16 * 16
  state = result['memory']['state']
  assert 0 <= state - params - 3 * adapters < 100
  evaluating = result['evaluating']
  inputs = 4 * evaluating['documents'] * evaluating['input_tokens']
  known = state + kernels + inputs + evaluating['temporary']
  assert known < evaluating['total'] < known + 4096  # generated tokens


def test_a_token_budget_sets_the_batch_size():
  config = make_config()
  config.train.batch_tokens = 64 * 11
  assert dry_run.largest_batch(config) == (8, 64, 16)


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
  *_, last = dry_run.propose_changes(make_setup(config))
  assert last['data.max_input_length'] == 8192


def test_proposed_changes_come_in_order():
  config = default.get_config()
  config.train.batch_size = 8
  config.mesh.data = 1
  propose = lambda *fits: list(
      dry_run.propose_changes(make_setup(config), *fits)
  )
  full, less = {'train.remat': 'full'}, {'data.max_input_length': 2048}
  pieces = full | {'train.accumulate': 8}
  assert propose() == [full, pieces, pieces | less]
  config.eval.batch_size = 4
  one = {'eval.batch_size': 1}
  assert propose(True) == [one, one | less]
  config.train.update(remat='full', accumulate=8)
  assert propose() == [less]


def scripted(monkeypatch, available, totals, evaluating=None, refused=None):
  """Replaces the available bytes and XLA's numbers."""
  totals = iter(totals)

  def compile_programs(setup):
    total = next(totals)
    return dict(
        batch=dict(documents=4, input_tokens=64, target_tokens=16),
        mesh=dict(data=2, fsdp=1, tensor=1, sequence=1),
        device='cpu',
        flops=2e15,
        memory=None
        if refused
        else dict(
            state=3 << 30,
            arguments=3 << 30,
            temporary=total - (3 << 30),
            output=3 << 30,
            reused=3 << 30,
            total=total,
        ),
        evaluating=evaluating,
        refused=refused,
    )

  monkeypatch.setattr(dry_run, 'compile_programs', compile_programs)
  monkeypatch.setattr(dry_run, 'available_bytes', lambda: available)


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
  assert phase['fits'] and phase['changes'] == []
  assert phase['memory']['total'] > phase['memory']['state'] > 1e4
  assert phase['flops'] > 1e6 and phase['batch']['documents'] == 4
  assert sorted(p.name for p in tmp_path.iterdir()) == ['rows.jsonl']


def test_a_program_that_does_not_fit_is_reported_with_changes(
    succeed, tmp_path, monkeypatch
):
  scripted(monkeypatch, 8 << 30, [20 << 30, 9 << 30, 7 << 30])
  out, _ = succeed(main, *arguments(tmp_path))
  *_, last, first, second = out.rstrip().splitlines()
  assert last == '  IT DOES NOT FIT; with'
  assert ' '.join(first.split()) == (
      '9.0 GiB does not fit --config.train.remat=full'
  )
  assert ' '.join(second.split()) == (
      '7.0 GiB fits --config.train.remat=full --config.train.accumulate=4'
  )
  assert '2e+15 FLOPs' in out and '1e+15 on each device' in out


def test_a_state_that_does_not_fit_is_reported(succeed, tmp_path, monkeypatch):
  scripted(monkeypatch, 2 << 30, [20 << 30] * 4)
  out, _ = succeed(main, *arguments(tmp_path))
  assert 'the parameters and the optimiser alone do not fit' in out
  assert out.count('does not fit') == 3


def evaluating(documents, temporary, total):
  sizes = dict(documents=documents, input_tokens=64, tokens=16)
  return dict(sizes, temporary=temporary << 30, total=total << 30)


def test_evaluations_that_do_not_fit_are_reported(
    run_command, tmp_path, monkeypatch
):
  scripted(monkeypatch, 8 << 30, [4 << 30] * 3, evaluating(8, 6, 9))
  _, out, _ = run_command(main, *arguments(tmp_path))
  assert (
      '    evaluating     9.0 GiB  6.0 GiB of it to write 8 documents, '
      '64 -> 16 tokens'
  ) in out.splitlines()
  assert 'train.remat' not in out and 'evaluating alone' not in out
  assert '    9.0 GiB  does not fit  --config.eval.batch_size=1' in out
  # Alone they may fit.
  scripted(monkeypatch, 8 << 30, [20 << 30] * 4, evaluating(1, 3, 6))
  _, out, _ = run_command(main, *arguments(tmp_path))
  assert out.rstrip().endswith(
      '    evaluating alone fits, as --evaluate of a run does'
  )
  assert 'IT DOES NOT FIT' in out


def test_the_memory_of_evaluations():
  config = make_config()
  config.eval.update(metrics=('loss', 'rouge'), batch_size=2)
  config.decode.update(max_length=7, temperature=0.5)
  result = compile_programs(config)['evaluating']
  found = [result[key] for key in ('documents', 'input_tokens', 'tokens')]
  assert found == [2, 64, 7]
  params = 4 * parameters.count(make_setup(config).shapes)
  kept = result['total'] - result['temporary']
  assert kept == pytest.approx(3 * params, rel=0.01)


def test_the_memory_of_evaluations_with_compaction():
  """The larger program counts: the encoder, or beams over all states."""
  config = make_config()
  config.model = default.simcas()
  config.model.update(
      vocab_size=50,
      d_model=16,
      d_ff=32,
      decoder_d_ff=32,
      num_heads=2,
      num_layers=1,
      num_decoder_layers=1,
  )
  config.model.select = 'first_k'
  config.data.update(pages='chunks', page_length=16)
  config.eval.update(metrics=('rouge',), batch_size=1)
  config.decode.max_length = 4
  setup = make_setup(config)
  model, (_, *read, _) = setup.model, dry_run.largest_batch(config)
  inputs = jax.ShapeDtypeStruct((1, *read), jnp.int32)
  params = setup.shapes
  memory = jax.eval_shape(
      lambda params, inputs: generate.read(model, params, inputs, None),
      params,
      inputs,
  )

  def taken_by(program):
    size = program.compile().memory_analysis()
    return (
        size.argument_size_in_bytes
        + size.temp_size_in_bytes
        + size.output_size_in_bytes
    )

  encoder = taken_by(generate.read.lower(model, params, inputs, None))
  for beams in 1, 16:
    config.decode.num_beams = beams
    settings = evaluate.settings_of(config)
    result = compile_programs(config)['evaluating']
    decoder = taken_by(generate.write.lower(model, params, memory, settings))
    assert result['input_tokens'] == math.prod(read)
    own = 4 * parameters.count(params)
    assert result['temporary'] == max(encoder, decoder) - own
    assert (encoder > decoder) == (beams == 1)


def test_the_compiler_s_message_is_quoted(succeed, tmp_path, monkeypatch):
  """For absent devices the compiler reports that memory is too small."""
  scripted(monkeypatch, None, [20 << 30] * 4, refused='No room on HBM.')
  out, _ = succeed(main, *arguments(tmp_path))
  refusal = '  the compiler refuses the step:\n    No room on HBM.\n'
  assert refusal + '  IT DOES NOT FIT; with\n' in out
  assert '               does not fit  --config.train.remat=full\n' in out
  assert out.splitlines()[-1].startswith('    still too large')


def test_a_dry_run_refuses_bad_data(run_command, tmp_path):
  status, out, err = run_command(
      main, *arguments(tmp_path), '--config.data.target_field=title'
  )
  assert status == 2 and out == ''
  assert "no field 'title'" in err
  status, _, err = run_command(main, *arguments(tmp_path), '--evaluate')
  assert status == 2 and 'expected one of them' in err
