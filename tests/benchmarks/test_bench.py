"""The bench command: every measurement at small size, and its numbers."""

import functools
import importlib.util
import json
import os
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from locost_jax import bench
from locost_jax import models
from locost_jax.benchmarks import compare_models
from locost_jax.benchmarks import document_cost
from locost_jax.benchmarks import gap_sentences
from locost_jax.benchmarks import jax_programs
from locost_jax.benchmarks import machine
from locost_jax.benchmarks import one_layer
from locost_jax.benchmarks import processes
from locost_jax.benchmarks import run_benchmark
from locost_jax.benchmarks import test_cases
from locost_jax.benchmarks import text_tables
from locost_jax.benchmarks import train_steps
from locost_jax.benchmarks import whole_model
from locost_jax.benchmarks import whole_run
from locost_jax.errors import InputError
from locost_jax.generation import decode_settings
from locost_jax.generation import generate
from locost_jax.models import low_memory_encoder
from locost_jax.ops import tokenwise
from locost_jax.telemetry import energy
from tests.benchmarks.measuring import make_spec
from tests.benchmarks.measuring import SIZES
from tests.benchmarks.measuring import TINY


@pytest.fixture
def call(run_command, tmp_path):
  """Runs the command; returns (status, stdout, stderr, its JSON file)."""

  def call(*arguments):
    ended = run_command(bench, f'--output={tmp_path}', *arguments)
    path = tmp_path / f'{arguments[0]}.json' if arguments else tmp_path
    result = json.loads(path.read_text()) if path.is_file() else None
    return *ended, result

  return call


def run(call, command, *arguments, lengths=(64,)):
  """Runs a command that must succeed; returns stdout and the result."""
  given = ','.join(map(str, reversed(lengths)))
  status, out, err, result = call(
      command, f'--lengths={given}', '--repeats=2', *TINY, *arguments
  )
  assert status == 0, err
  for row, length in zip(result['rows'], lengths, strict=True):
    assert row['length'] == length
    assert row['peak_bytes'] > 1e7
    for name, times in row['times'].items():
      assert len(times) == 2 and min(times) > 0
      assert row['seconds'][name] == np.median(times)
  assert result['machine']['cores'] == machine.cores()
  assert result['versions'].keys() >= {'jax', 'python', 'locost_jax'}
  assert result['settings']['model']['d_model'] == 32
  assert result['command_line'].startswith('python -m locost_jax.bench')
  return out, result


def test_kernel(call, here):
  out, result = run(call, 'kernel', lengths=(64, 128))
  for row in result['rows']:
    L = row['length']
    assert row['channels'] == 32
    assert row['difference'] < 2e-5
    assert row['materialised_bytes'] == 2 * 32 * 8 * L * 4
    assert row['temp_bytes'] > 0
    assert row['ratio'] == pytest.approx(
        row['seconds']['materialised'] / row['seconds']['two-level']
    )
  growth = result['growth']['Kernels of one layer, both directions']
  assert growth['two-level']['base'] == 64
  assert 'time ~ length^' in out and 'per token, 128 / 64' in out


def test_generate(call, here):
  """Alone and in a comparison, with 3 generated tokens."""
  out, result = run(call, 'generate', '--tokens=3', lengths=(64, 128))
  assert 'samples/s' in out and 'contest' not in result
  for row in result['rows']:
    assert row['tokens'] == 3 and row['temp_bytes'] > 0
    assert row['samples_per_second'] == 1 / row['seconds']['whole']
  spec = make_spec(what='generate', writes=True, tokens=3, batch_size=2)
  assert compare_models.names_of(spec, ['t5']) == ['locost', 't5']
  (ours,) = compare_models.compare(spec, ['locost'], 64, {}, lambda text: None)
  assert ours['samples_per_second'] == 2 / ours['seconds']
  whole, _ = whole_model.compile_whole(dict(spec, length=64))
  model, params = test_cases.make(spec)
  inputs, mask = test_cases.make_inputs(dict(spec, length=64))
  settings = decode_settings.Settings(max_length=3, min_length=3)
  tokens, _ = generate.generate(model, params, inputs, mask, settings)
  np.testing.assert_array_equal(whole(), tokens)


def test_a_slice_of_channels_is_scaled_to_all_of_them(here, monkeypatch):
  monkeypatch.setattr(one_layer, 'SLICE_BYTES', 8 * 8 * 64 * 5)
  row = run_benchmark.measure_row(make_spec(what='kernel', length=64))
  seconds = row['seconds']
  assert row['channels'] == 5
  assert seconds['materialised'] == pytest.approx(
      seconds['materialised slice'] * 32 / 5
  )


def test_encode(call, here):
  out, result = run(call, 'encode')
  for row in result['rows']:
    assert row['times'].keys() == {
        'kernels made',
        'kernels given',
        'products alone',
    }
    assert row['difference'] <= 2e-6
    assert row['temp_LD4'] == row['temp_bytes'] / (row['length'] * 32 * 4)
    seconds = row['seconds']
    assert row['of_products'] == (
        seconds['products alone'] / seconds['kernels given']
    )
    assert row['us_per_token']['kernels made'] == pytest.approx(
        1e6 * seconds['kernels made'] / row['length']
    )
  encoders = result['contest']
  assert [(row['length'], row['subject']) for row in encoders] == [
      (64, name)
      for name in (compare_models.KERNELS_MADE, compare_models.KERNELS_KEPT)
  ]
  for row in encoders:
    assert len(row['times']) == 2
    assert row['tokens_per_second'] == row['length'] / row['seconds']
    assert row['peak_bytes'] >= row['loaded_peak_bytes'] > 1e7
  assert encoders[0]['ratio_made'] == encoders[1]['ratio_kept'] == 1
  assert encoders[1]['ratio_made'] * encoders[0]['ratio_kept'] == (
      pytest.approx(1)
  )
  assert encoders[1]['kernel_bytes'] > 2 * 2 * 32 * 64 * 4
  assert 'One encoder layer' in out
  assert f'The whole encoder: {compare_models.KERNELS_KEPT}' in out


def test_decode(call, here):
  out, result = run(call, 'decode', '--tokens=5', '--config.decode.num_beams=2')
  for row in result['rows']:
    # Keys and values of two layers, compared with the states once.
    assert row['cache_bytes'] == {
        'keys and values': 2 * 2 * row['length'] * 32 * 4,
        'absorbed': row['length'] * 32 * 4,
    }
    for form in row['cache_bytes']:
      seconds = row['seconds']
      assert row['first_token'][form] == pytest.approx(
          seconds['encode'] + seconds[f'cache {form}'] + seconds[f'step {form}']
      )
    assert row['same_tokens'] is True
  assert 'to first token' in out
  assert '64 tokens: the caches give the same tokens' in out


def test_decode_with_selected_states(call, here):
  """7 tokens are selected; the smallest bucket has 64 states."""
  status, _, err, result = call(
      'decode',
      '--lengths=64,256',
      '--repeats=2',
      '--tokens=5',
      '--config=configs/finetune.py:simcas_locost',
      '--config.model.select=first_k',
      '--config.model.limit=7',
      '--config.model.vocab_size=50',
      '--config.model.d_model=32',
      '--config.model.d_state=8',
      '--config.model.num_layers=1',
  )
  assert status == 0, err
  for row in result['rows']:
    assert row['cache_bytes'] == {
        'keys and values': 2 * 2 * row['length'] * 4 * 32 * 4,
        'absorbed': row['length'] * 32 * 4,
        'selected': 2 * 2 * 64 * 4 * 32 * 4,
    }
    assert {'cache selected', 'step selected'} < row['times'].keys()
    assert row['same_tokens'] is True


PAGES = (
    '--config=configs/finetune.py:pagesum',
    '--config.data.page_length=32',
    '--config.model.vocab_size=50',
    '--config.model.d_model=32',
    '--config.model.d_ff=32',
    '--config.model.decoder_d_ff=32',
    '--config.model.num_heads=2',
    '--config.model.num_layers=1',
    '--config.model.num_decoder_layers=2',
)


def test_pages(call, here):
  status, out, err, result = call(
      'pages',
      '--lengths=32,128',
      '--repeats=2',
      '--tokens=5',
      *PAGES,
      '--config.decode.num_beams=2',
  )
  assert status == 0, err
  assert [row['pages'] for row in result['rows']] == [1, 4]
  for row in result['rows']:
    P, seconds = row['pages'], row['seconds']
    assert row['times'].keys() == {'encode', 'pages', 'rows', 'global'}
    assert row['to_rows'] == seconds['pages'] / seconds['rows']
    assert row['to_global'] == seconds['pages'] / seconds['global']
    # Keys and values of two layers, of the input and of the generated tokens.
    read, own = (2 * 2 * n * 32 * 4 for n in (32, 5))
    assert row['cache_bytes'] == {
        'pages': P * (read + own),
        'rows': P * (read + own),
        'global': P * read + own,
    }
  assert 'Pages: read, and written from' in out and 'rows alone' in out
  growth = result['growth']['Pages: read, and written from']
  assert growth['encode']['base'] == 32


@pytest.mark.parametrize(
    'arguments, expected',
    (
        (
            (),
            'locost reads no pages; expected --config=configs/finetune.py:pag',
        ),
        ((*PAGES, '--lengths=80'), '--lengths=80: expected multiples of'),
    ),
)
def test_models_and_lengths_without_pages_are_refused(
    arguments, expected, call, here
):
  status, out, err, _ = call('pages', *arguments)
  assert status == 2 and out == '' and expected in err


SELECTS = (
    '--config=configs/simcas.py:arxiv',
    '--config.data.page_length=32',
    *(PAGES[2:]),
    '--repeats=2',
    '--tokens=5',
)


def test_select(call, here):
  """All tokens are kept: all but the start marks, plus g_0."""
  status, out, err, result = call('select', '--lengths=32,128', *SELECTS)
  assert status == 0, err
  one, four = result['rows']
  assert one['selected'] == 31 + 1 and 1 < four['selected'] <= 4 * 31 + 1
  assert (one['slots'], one['chunks'], four['chunks']) == (32, 1, 4)
  for row in result['rows']:
    seconds = row['seconds']
    assert row['times'].keys() == {
        'encode',
        'encode all',
        'select',
        'compact',
        'write',
        'write all',
    }
    assert row['share_of_encode'] == seconds['select'] / seconds['encode']
    assert row['share_of_all'] == pytest.approx(
        (seconds['select'] + seconds['compact'])
        / (seconds['encode'] + seconds['compact'] + seconds['write'])
    )
  growth = result['growth']['The selector: read, and written from']
  assert growth['encode']['base'] == 32 and 'time ~ length^' in out


def test_turn(call, here):
  """Half of the steps, also of warm-up, have a turn; share assumes 1 in 50."""
  status, out, err, result = call('turn', '--lengths=64', *SELECTS)
  assert status == 0, err
  (row,) = result['rows']
  step, with_turn = row['seconds']['step'], row['seconds']['step with turn']
  assert row['turns'] == 3 and row['every'] == 50
  turn = max(0, with_turn - step)
  assert row['turn_in_steps'] == pytest.approx(turn / step)
  assert row['share'] == pytest.approx(turn / (50 * step + turn))
  assert 'turn / step' in out


@pytest.mark.parametrize(
    'arguments, expected',
    (
        ((), "name='locost' with select=None has no active selector"),
        ((*SELECTS, '--config.model.select=none'), "select='none' has no"),
        ((*SELECTS, '--lengths=80'), '--lengths=80: expected multiples of'),
    ),
)
def test_models_and_lengths_without_a_selector_are_refused(
    arguments, expected, call, here
):
  status, out, err, _ = call('select', *arguments)
  assert status == 2 and out == '' and expected in err


@pytest.mark.parametrize('command', ('encode', 'train'))
def test_models_without_convolutions_are_refused(command, call, here):
  status, out, err, _ = call(command, *SELECTS)
  assert status == 2 and out == '' and err.count('\n') == 1
  assert f'bench {command}: takes a layer of LOCOST apart' in err
  assert "name='simcas': expected a config of LOCOST; bench pages" in err


@pytest.mark.slow
def test_train(call, here, monkeypatch):
  """A layer of 512 tokens needs less memory in pieces of 64 than whole."""
  monkeypatch.setattr(tokenwise, 'CPU_PIECE', 64)
  out, result = run(call, 'train', '--tokens=6', lengths=(512,))
  (row,) = result['rows']
  assert row['target_tokens'] == 6
  assert row['times'].keys() == {
      'forward',
      'step none',
      'step pieces',
      'step full',
      'plain layer',
      'layer',
      'layer in pieces',
  }
  seconds = row['seconds']
  assert row['tokens_per_second'] == pytest.approx(
      (512 + 6) / min(seconds[f'step {name}'] for name in train_steps.POLICIES)
  )
  assert row['temp_bytes']['pieces'] < row['temp_bytes']['none']
  assert row['temp_LD4']['full'] == row['temp_bytes']['full'] / (512 * 32 * 4)
  assert row['layer_ratio'] == pytest.approx(
      seconds['layer in pieces'] / seconds['plain layer']
  )
  assert row['layer_LD4']['layer in pieces'] < row['layer_LD4']['layer']
  assert row['layer_LD4']['layer'] < row['layer_LD4']['plain layer']
  assert 'temporary, none' in out and 'forward and backward' in out


@pytest.mark.slow
def test_a_step_that_does_not_fit_is_not_timed(here, monkeypatch):
  monkeypatch.setattr(jax_programs, 'SHARE_OF_FREE_MEMORY', 0)
  row = run_benchmark.measure_row(make_spec(what='train', length=32, tokens=4))
  assert row['times'].keys() == {'forward'}
  assert row['tokens_per_second'] is None and row['layer_ratio'] is None
  assert (
      row['temp_bytes'].keys()
      == row['temp_LD4'].keys()
      == {'none', 'pieces', 'full'}
  )


def test_run(call, here, tmp_path):
  """Two saves, a step after the first, and a process that continues."""
  status, out, err, result = call(
      'run',
      '--lengths=64',
      '--tokens=6',
      '--repeats=1',
      *TINY,
      '--config.optim.groups=((".*embedding.*", 0.5),)',
      '--config.train.batch_tokens=1',
  )
  assert status == 0, err
  (row,) = result['rows']
  times, seconds = row['times'], row['seconds']
  assert row['done'].keys() == {
      str(step) for step in range(1, 2 * whole_run.BETWEEN + 1)
  }
  assert row['saved'].keys() == {
      str(whole_run.BETWEEN),
      str(2 * whole_run.BETWEEN),
  }
  assert len(times['step'] + times['saving'] + times['during']) == (
      2 * whole_run.BETWEEN - 1
  )
  assert len(times['saving']) == 1 and len(times['writing']) == 2
  assert row['saving_ratio'] == seconds['saving'] / seconds['step']
  # Compiling takes longer than a step of such a small model.
  assert seconds['ready'] > 5 * seconds['step'] > 0
  assert 0 <= row['data_wait'] < 1
  assert row['state_bytes'] > 3 * 4 * 60 * 32  # the embedding only
  assert 'step that saves' in out and 'ready again after' in out
  assert not list(tmp_path.glob('run-*'))


def test_step_times_of_a_run():
  """A save after step 2, on disk while step 4 runs, and one after step 6."""
  done = dict(zip(range(1, 8), (10, 11, 13.5, 14.75, 15.75, 16.75, 19)))
  assert whole_run.step_times(done, {2: 14, 6: 20}) == dict(
      step=[1, 1, 1], saving=[2.5, 2.25], during=[1.25], writing=[3, 3.25]
  )


def test_steps_of_one_poll_are_spread_since_the_previous_poll(
    monkeypatch, tmp_path
):
  """Polls at 10, 12 and 18; the last finds three steps and half a line."""
  looks = iter((10.0, 12.0, 18.0))
  monkeypatch.setattr(
      whole_run, 'time', types.SimpleNamespace(time=lambda: next(looks))
  )
  watcher, file = whole_run.RunWatcher(tmp_path), tmp_path / 'metrics.jsonl'
  line = '{"step": %d, "train/loss": 1.0}\n'
  file.write_text(line % 1)
  watcher._poll()
  file.write_text(
      ''.join(line % step for step in (1, 2, 3))
      + '{"step": 3, "eval/loss": 1.0}\n'
      + line % 4
      + '{"step"'
  )
  watcher._poll()
  assert watcher.seen()['done'] == {1: 12.0, 2: 14.0, 3: 16.0, 4: 18.0}


def test_run_without_record_files_says_what_to_install(monkeypatch):
  monkeypatch.setitem(__import__('sys').modules, 'array_record', None)
  with pytest.raises(InputError, match='bench run needs array_record'):
    whole_run.make_batches({}, None, None)


def test_cost(call, here, monkeypatch):
  """Ten joules per document; money is for machine time and energy."""

  class Ten:
    joules, source = 10.0, 'a made-up meter'

    def __enter__(self):
      return self

    def __exit__(self, *_):
      pass

  monkeypatch.setattr(energy, 'Meter', Ten)
  out, result = run(
      call,
      'cost',
      '--tokens=4',
      '--price_per_hour=7.2',
      '--price_per_kwh=0.36',
      '--carbon_intensity=58',
  )
  for row in result['rows']:
    assert row['joules'] == 10
    assert row['money'] == pytest.approx(row['seconds_per_book'] * 0.002 + 1e-6)
    assert row['grams_co2'] == pytest.approx(58 * 10 / 3.6e6)
  assert 'energy: a made-up meter' in out


@pytest.mark.slow
def test_gap_sentences(call, here, monkeypatch):
  """Choices equal rouge_score's; checks how many documents are measured."""
  monkeypatch.setattr(gap_sentences, 'WORDS', 1500)
  out, result = run(call, 'gsg', lengths=(60, 500))
  for row, documents in zip(result['rows'], (25, 3), strict=True):
    seconds = row['seconds']
    assert row['same'] and row['documents'] == documents
    assert row['cores'] == pytest.approx(256 * seconds['make and tokenise'])
    assert row['documents_per_second'] == pytest.approx(
        1 / seconds['make and tokenise']
    )
    assert row['ratio'] > 0
  assert 'per token' not in out and 'per word, 500 / 60' in out
  assert out.endswith('one thread, medians of up to 2\n')


@pytest.mark.slow
def test_different_gap_sentences_are_reported(call, here, monkeypatch):
  monkeypatch.setattr(gap_sentences, 'WORDS', 120)
  monkeypatch.setattr(gap_sentences, 'loop', lambda sentences: [0])
  out, result = run(call, 'gsg', lengths=(60,))
  assert not result['rows'][0]['same']
  assert '60 words: rouge_score chooses OTHER sentences' in out


def test_cost_without_energy_says_so(tmp_path, monkeypatch):
  monkeypatch.setattr(energy, '_gpu_watts', lambda: None)
  with energy.Meter(tmp_path) as meter:
    pass
  assert meter.joules is None
  assert meter.source == (
      f'not readable here: no RAPL counters below {tmp_path}, no nvidia-smi'
  )
  prices = dict(per_hour=7.2, per_kwh=0.36, carbon_intensity=None)
  assert document_cost.money(prices, 3600, None) == 7.2
  assert document_cost.money(dict(prices, per_hour=None), 3600, None) is None
  said = list(
      text_tables.notes(
          dict(
              command='cost',
              device='cpu',
              machine=dict(cores=2),
              settings=dict(
                  prices=prices, dtype='float32', batch_size=1, repeats=5
              ),
              rows=[dict(joules=None, energy_source=meter.source, length=64)],
          )
      )
  )
  assert said[:2] == [f'energy: {meter.source}', 'money: without energy']


@pytest.mark.parametrize(
    'change',
    [
        {},
        dict(gating=False, bidirectional=False, feed_forward='relu'),
        dict(variant='paper'),
    ],
)
def test_the_plain_layer_equals_the_layer(change):
  """Output and gradients, with and without padding, whole and in pieces."""
  config = default.get_config().model
  config.update(SIZES, dropout_rate=0.0, **change)
  random = np.random.default_rng(0)
  with jax.enable_x64(True):
    model = models.build(config, dtype='float64')
    layer = low_memory_encoder.make_layer(model)
    h, d_out = (jnp.asarray(random.normal(size=(2, 50, 32))) for _ in range(2))
    mask = jnp.arange(50) < jnp.array([[50], [37]])
    params = jax.tree.map(
        lambda x: jnp.asarray(0.3 * random.normal(size=x.shape)),
        jax.eval_shape(lambda: layer.init(jax.random.key(0), h, mask, True)),
    )

    def run(form):
      out, pull = jax.vjp(form, params, h)
      return out, pull(d_out)

    want = run(
        lambda params, h: test_cases.plain_layer(
            model.config, params['params'], h, mask
        )
    )
    for pieces in False, True:
      got = run(
          lambda params, h, pieces=pieces: layer.apply(
              params, h, mask, True, pieces
          )[0]
      )
      jax.tree.map(
          functools.partial(np.testing.assert_allclose, rtol=1e-8, atol=1e-8),
          got,
          want,
      )


def test_products_equal_matrix_products():
  config = types.SimpleNamespace(
      d_model=6, d_ff=10, gating=True, feed_forward='gated-gelu'
  )
  weights = one_layer.product_weights(config, np.float32)
  h = np.random.default_rng(0).normal(size=(2, one_layer.PIECE * 2 + 1, 6))
  square, (gate, up), (down,) = weights
  expected = h[:, :-1]
  for matrix in square:
    expected = expected @ matrix
  expected = (expected @ gate + expected @ up) @ down
  result = one_layer.products(h.astype(np.float32), weights).swapaxes(0, 1)
  assert np.allclose(result.reshape(expected.shape), expected, atol=1e-4)


def test_worker_process(monkeypatch):
  """Measures the same as this process, with its own peak memory."""
  spec = make_spec(what='kernel', length=64)
  with processes.WorkerProcess(spec, spec['limit']) as process:
    assert process.prepared['platform'] == 'cpu'
    row = process.measure()
    assert row['difference'] < 2e-5
    assert row['peak_bytes'] >= process.prepared['peak_bytes'] > 1e7
    assert process.measure().keys() == row.keys()


def test_out_of_memory(call):
  """A process over its limit is stopped; later measurements are reported."""
  status, out, _, result = call(
      'encode', '--lengths=64,128', *TINY, '--memory_limit=1MiB'
  )
  assert status == 0
  (row,) = result['rows']
  assert row['memory_ended'] and row['peak_bytes'] > 1 << 20
  assert [(row['subject'], row['length']) for row in result['contest']] == [
      (compare_models.KERNELS_MADE, 64),
      (compare_models.KERNELS_KEPT, 64),
  ]
  assert all(row['memory_ended'] for row in result['contest'])
  assert '64 tokens: out of memory at' in out


@pytest.mark.parametrize(
    'body, expected',
    [
        ("raise MemoryError('no more')", processes.OutOfMemory),
        (
            "raise RuntimeError('RESOURCE_EXHAUSTED: 1 TB')",
            processes.OutOfMemory,
        ),
        ('import os; os.kill(os.getpid(), 9)', processes.OutOfMemory),
        ("raise errors.InputError('model.d_model is odd')", InputError),
        ("raise RuntimeError('a bug')", RuntimeError),
        ("print('noise'); return {}, None", None),
    ],
)
def test_failures_of_a_worker_process(tmp_path, monkeypatch, body, expected):
  (tmp_path / 'ends.py').write_text(
      'from locost_jax import errors\n'
      'from locost_jax.benchmarks import processes\n'
      f'def prepare(spec):\n  {body}\n'
      'processes.serve(prepare)\n'
  )
  monkeypatch.setenv(
      'PYTHONPATH',
      os.pathsep.join(
          [str(tmp_path), os.getcwd(), os.environ.get('PYTHONPATH', '')]
      ),
  )
  if expected is None:
    with processes.WorkerProcess({}, module='ends') as process:
      assert process.prepared.keys() == {'peak_bytes'}
    return
  with pytest.raises(expected):
    processes.WorkerProcess({}, module='ends')


def test_picture(call, here, tmp_path):
  pytest.importorskip('matplotlib', reason='the picture needs matplotlib')
  run(call, 'kernel')
  assert (tmp_path / 'kernel.png').read_bytes().startswith(b'\x89PNG')


def test_without_matplotlib_one_line_says_so(call, here, monkeypatch):
  monkeypatch.setitem(__import__('sys').modules, 'matplotlib.figure', None)
  status, _, err, result = call('kernel', '--lengths=64', '--repeats=1', *TINY)
  assert status == 0 and result['rows']
  assert "pip install 'locost_jax[plot]'" in err


@pytest.mark.parametrize(
    'arguments, expected',
    [
        ((), 'expected one of kernel, encode, decode, generate, train, run'),
        (('encod',), 'did you mean encode?'),
        (('kernel', 'encode'), 'expected one of'),
        (('kernel', '--lengths=64,x'), '--lengths=64,x: expected positive'),
        (('kernel', '--lengths=0'), '--lengths=0: expected positive'),
        (('kernel', '--repeats=0'), 'repeats'),
        (
            ('kernel', '--against=t5'),
            '--against belongs to encode, generate, train, not to kernel',
        ),
        (
            ('generate', '--config=configs/pagesum.py:arxiv'),
            "bench generate: config.model.name='pagesum' reads pages",
        ),
        (
            ('generate', '--config=configs/finetune.py:bart', '--lengths=2048'),
            '2048',
        ),
        (
            ('encode', '--against=gpt'),
            '--against=gpt: expected some of t5,longt5',
        ),
        (('kernel', '--memory_limit=8'), '--memory_limit=8: expected a number'),
        (('train', '--price_per_hour=1'), '--price_per_hour belongs to cost'),
        (('kernel', '--dtype=float16'), 'float32|bfloat16'),
        (('kernel', '--config=nowhere.py'), 'nowhere.py: no such file'),
        (('kernel', '--config.model.d_modle=3'), 'config.model.d_modle'),
        (
            ('encode', '--config.model.d_ff=0'),
            'model.d_ff=0: expected an integer, 1 <= d_ff',
        ),
    ],
)
def test_bad_flags_give_one_line(call, here, arguments, expected):
  status, out, err, result = call(*arguments)
  *_, line = err.strip().splitlines()
  assert status == 2 and out == '' and result is None
  assert line.startswith('error: ') and expected in line
  assert 'Traceback' not in err


def test_against_without_torch_says_what_to_install(call, monkeypatch):
  found = importlib.util.find_spec
  monkeypatch.setattr(
      importlib.util,
      'find_spec',
      lambda name, *args: None if name == 'torch' else found(name, *args),
  )
  status, _, err, _ = call('encode', '--against=t5')
  assert status == 2
  assert err == (
      'error: --against needs torch, which is not installed: '
      "pip install 'locost_jax[peers]'\n"
  )
