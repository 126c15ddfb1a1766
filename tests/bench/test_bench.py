"""Numbers of `bench` are right, and every question runs at a tiny size."""

import json
import os
import sys
import types

import numpy as np
import pytest

from bench import __main__ as command
from bench import encode
from bench import layer_cycles
from bench import rounds
from bench import workers
from locost_jax.errors import InputError

SIZES = dict(vocab_size=60, d_model=32, d_state=8, d_ff=64, d_kv=8, num_heads=4)
SIZES |= dict(num_layers=2, num_decoder_layers=2)
TINY = [f'--config.model.{key}={value}' for key, value in SIZES.items()]
PAGES = (
    'data.page_length=32 model.vocab_size=60 model.d_model=32 model.d_ff=32 '
    'model.decoder_d_ff=32 model.num_heads=2 model.num_layers=1 '
    'model.num_decoder_layers=1'
)
PAGES = [f'--config.{key}' for key in PAGES.split()]
SELECTING = 'encode, encode all, select, compact'


class Here(workers.Measurement):
  """A `workers.Worker` that measures in this process."""

  def __enter__(self):
    return self

  def __exit__(self, *_):
    pass


@pytest.fixture
def here(monkeypatch):
  monkeypatch.setattr(workers, 'Worker', Here)


@pytest.fixture
def call(run_command, tmp_path):
  """Runs the command; returns (status, stdout, stderr, its JSON file)."""

  def call(*arguments):
    ended = run_command(command, f'--output={tmp_path}', *arguments)
    path = tmp_path / f'{arguments[0]}.json' if arguments else tmp_path
    result = json.loads(path.read_text()) if path.is_file() else None
    return *ended, result

  return call


def run(call, question, *arguments):
  """Runs a question that must succeed; returns {name: row}."""
  status, out, err, result = call(question, '--repeats=2', *arguments)
  assert status == 0, err
  assert result['complete'] and result['question'] == question
  assert result['machine'].keys() >= {'cpu', 'cores', 'load', 'variables'}
  assert result['versions'].keys() >= {'jax', 'locost_jax'}
  for row in result['rows']:
    assert row['name'] in out
    assert len(row['times']) == 2 and min(row['times']) > 0
    assert row['seconds'] == np.median(row['times'])
    assert row['cpu_seconds'] == np.median(row['cpu_times'])
    assert row['peak_bytes'] > 1e7
  return {row['name']: row for row in result['rows']}


def test_encode(call, here):
  rows = run(call, 'encode', '--lengths=64', '--batch_size=2', *TINY)
  layers = ['layer, kernels made', 'layer, kernels given']
  made, kept = 'locost, kernels made, ours', 'locost, kernels kept, ours'
  assert list(rows) == [*layers, made, kept]
  made, kept = rows[made], rows[kept]
  assert kept['ratio'] == kept['seconds'] / made['seconds']
  assert made['samples_per_second'] == 2 / made['seconds']
  assert made['tokens_per_second'] == 2 * 64 / made['seconds']
  assert kept['kernel_bytes'] > 2 * 32 * 64 * 4


def test_generate(call, here):
  """Of a model with attention, and of LOCOST."""
  led = ['--config=configs/finetune.py:led']
  led += [f for f in TINY if 'd_state' not in f and 'd_kv' not in f]
  row = run(call, 'generate', '--lengths=64', '--tokens=3', *led)['led, ours']
  assert row['written'] == 3 and row['temp_bytes'] > 0
  assert row['samples_per_second'] == 1 / row['seconds']
  ((write, _),) = encode.prepare(make_spec('generate', 'all')).values()
  assert write().shape == (1, 5)


def test_train(call, here):
  rows = run(call, 'train', '--lengths=64', '--tokens=6', *TINY)
  steps = [f'step, {remat}' for remat in ('none', 'pieces', 'full')]
  assert list(rows) == ['forward', *steps]
  row = rows['step, full']
  assert row['tokens_per_second'] == (64 + 6) / row['seconds']
  assert row['temp_bytes'] > 64 * 32 * 4


@pytest.mark.parametrize(
    'config, expected',
    [
        ('finetune.py:pagesum', 'encode, write'),
        ('simcas.py:arxiv', f'{SELECTING}, write, write all'),
    ],
)
def test_pages(call, here, config, expected):
  arguments = f'--config=configs/{config}', '--lengths=64', '--tokens=5'
  rows = run(call, 'pages', *arguments, *PAGES)
  assert list(rows) == expected.split(', ')
  assert rows['encode']['pages'] == 2 and rows['write']['written'] == 5
  if 'select' in rows:  # all but the start marks at most, plus g_0
    assert 1 < rows['select']['selected'] <= 2 * 31 + 1


def make_spec(question, part, **values):
  """Makes the spec of a worker."""
  from configs import default

  config = default.get_config()
  config.model.update(SIZES)
  spec = dict(
      question=question, part=part, module=rounds.module_of(question, part)
  )
  spec |= dict(config=config.to_dict(), length=64, tokens=5, dtype='float32')
  spec |= dict(batch_size=1, repeats=2, seconds=600.0, limit=None)
  return spec | values


@pytest.fixture
def fake(tmp_path, monkeypatch):
  """fake(body): the spec of a module whose `prepare` has this body."""
  monkeypatch.syspath_prepend(str(tmp_path))

  def make(body, **values):
    (tmp_path / 'measured.py').write_text(
        f'import numpy, os, time\nfrom locost_jax import errors\n'
        f'def prepare(spec):\n  {body}\n'
    )
    monkeypatch.delitem(sys.modules, 'measured', raising=False)
    return make_spec('generate', 'all', module='measured', **values)

  return make


def test_a_sleep_takes_its_time_but_no_cpu(fake):
  spec = fake("return {'a': (lambda: time.sleep(0.3), dict(documents=3))}")
  answer = workers.Measurement(spec).run('a')
  assert 0.3 <= answer['seconds'] < 3
  assert answer['cpu_seconds'] < 0.2
  row = rounds.summarise(dict(documents=3), [answer])
  assert row['samples_per_second'] == 3 / row['seconds']


def test_the_peak_of_a_process_has_a_known_array(fake):
  """128 MiB more in its own process, and not in the next one."""
  body = "return {{'a': (lambda: numpy.ones({} << 17), {{}})}}"
  peaks = []
  for mebibytes in 128, 1:
    with workers.Worker(fake(body.format(mebibytes))) as worker:
      assert worker.names == ['a'] and worker.device == 'cpu'
      peaks.append(worker.run('a')['peak_bytes'] / 2**20)
  assert peaks[0] - peaks[1] == pytest.approx(127, abs=20)


@pytest.mark.parametrize(
    'body, limit, expected',
    [
        ("raise MemoryError('no more')", None, workers.OutOfMemory),
        ("raise RuntimeError('RESOURCE_EXHAUSTED')", None, workers.OutOfMemory),
        ('os.kill(os.getpid(), 9)', None, workers.OutOfMemory),
        ('time.sleep(60)', 1 << 20, workers.OutOfMemory),
        ("raise errors.InputError('d_model is odd')", None, InputError),
        ("raise RuntimeError('a bug')", None, RuntimeError),
    ],
)
def test_failures_of_a_worker_process(fake, body, limit, expected):
  with pytest.raises(expected):
    workers.Worker(fake(body, limit=limit))


class Fake(types.SimpleNamespace):
  """A `workers.Worker` with these attributes."""

  __enter__, __exit__ = Here.__enter__, Here.__exit__


def test_a_model_out_of_memory_is_not_tried_again(here, monkeypatch):
  def start(spec):
    if spec['part'] == 'longt5':
      raise workers.OutOfMemory(7)
    return Fake(
        facts={spec['part']: {}},
        names=[spec['part']],
        device='cpu',
        run=lambda name: dict(seconds=1.0, cpu_seconds=2.0, peak_bytes=5),
    )

  monkeypatch.setattr(workers, 'Worker', start)
  ended = set()
  measure = lambda length: rounds.measure(
      make_spec('train', '', length=length),
      ['locost, ours', 'longt5'],
      ended,
      lambda text: None,
  )[0]
  ours, theirs = measure(64)
  assert ours['seconds'] == 1 and ours['cpu_seconds'] == 2
  failed = dict(out_of_memory=True, peak_bytes=7)
  assert theirs == dict(failed, length=64, name='longt5')
  assert [row['name'] for row in measure(128)] == ['locost, ours']


def test_cycles_count_turns_of_loops():
  text = """%body (x: s32[]) -> s32[] {
  %a = s32[] add(x), backend_config={"estimated_cycles":"5"}
}
%condition (x: s32[]) -> pred[] {
  %c = s32[]{:T(128)} constant(7)
}
ENTRY %main (x: s32[]) -> s32[] {
  %w = while(x), condition=%condition, body=%body, {"estimated_cycles":"1"}
}
"""
  assert layer_cycles.cycles(text) == 1 + 7 * 5


def test_runs_are_interleaved():
  order = []

  def make(name, ends_after=99):
    def call():
      order.append(name)
      count = order.count(name)
      return None if count > ends_after else dict(seconds=count)

    return call

  answers = rounds.interleave({'a': make('a'), 'b': make('b', 2)}, 3, 60)
  assert order == ['a', 'b', 'a', 'b', 'a', 'b', 'a']
  assert [answer['seconds'] for answer in answers['a']] == [2, 3, 4]
  assert [answer['seconds'] for answer in answers['b']] == [2]
  # Too slow for a second round: the first one counts.
  one = {'a': lambda: dict(seconds=1.0)}
  assert rounds.interleave(one, 3, 0) == {'a': [dict(seconds=1.0)]}


def test_an_interrupt_keeps_what_is_measured(call, here, monkeypatch):
  """Control-C at the second length."""
  measure = rounds.measure

  def interrupted(spec, *rest):
    if spec['length'] == 128:
      raise KeyboardInterrupt
    return measure(spec, *rest)

  monkeypatch.setattr(rounds, 'measure', interrupted)
  status, _, err, result = call(
      'generate', '--lengths=64,128', '--repeats=1', '--tokens=3', *TINY
  )
  assert status == 130 and 'interrupted' in err
  assert {row['length'] for row in result['rows']} == {64}
  assert not result['complete']


def test_train_steps_are_compared_in_pairs():
  pairs = [['locost, ours', 't5'], ['locost, ours', 't5, recomputing']]
  assert rounds.groups('train', 'locost', ['t5']) == [['steps'], *pairs]
  assert rounds.groups('generate', 'led', ['t5']) == [['led, ours', 't5']]


def test_a_peer_keeps_its_memory(fake):
  """Its process has the allocator of its name, ours that of the machine."""
  body = "return {{'a': (None, dict(env=os.environ.get({!r})))}}"
  spec = fake(body.format('GLIBC_TUNABLES'))
  before = os.environ.get('GLIBC_TUNABLES')
  for part, expected in (
      ('longt5, memory kept', workers.KEPT_TUNABLES),
      ('longt5', before),
  ):
    with workers.Worker(dict(spec, part=part)) as worker:
      assert worker.facts['a']['env'] == expected
    assert os.environ.get('GLIBC_TUNABLES') == before


def test_table():
  rows = [
      dict(length=64, name='ours', seconds=0.0123456, peak_bytes=3 << 20),
      dict(length=4096, name='theirs', out_of_memory=True),
  ]
  assert command.format_table(rows).splitlines() == [
      'length    name  seconds  peak bytes  out of memory',
      '    64    ours   0.0123       3 MiB              -',
      '  4096  theirs        -           -           True',
  ]


@pytest.mark.parametrize(
    'words, expected',
    [
        ('', 'expected one of encode, generate, train, pages'),
        ('encod', 'did you mean encode?'),
        ('train encode', 'expected one of'),
        ('train --lengths=64,x', '--lengths=64,x: expected positive'),
        ('train --repeats=0', 'repeats'),
        ('pages --against=t5', 'expected one of encode, generate, train'),
        ('encode --against=gpt', '--against=gpt: expected some of t5,'),
        ('train --dtype=float16', 'float32|bfloat16'),
        ('train --output=/dev/null/x', '/dev/null is not a directory'),
        ('train --config=nowhere.py', 'nowhere.py: no such file'),
        ('encode --config.model.d_ff=0', 'model.d_ff=0: expected an int'),
        ('pages', "name='locost': expected a model that reads pages"),
        (
            'pages --config=configs/simcas.py:arxiv --lengths=80',
            '--lengths: multiples of config.data.page_length',
        ),
        ('generate --config=configs/finetune.py:bart --lengths=2048', '2048'),
        (
            'generate --config=configs/pagesum.py:arxiv',
            "name='pagesum': expected LOCOST; bench pages measures",
        ),
    ],
)
def test_bad_flags_give_one_line(call, here, words, expected):
  status, out, err, result = call(*words.split())
  *_, line = err.strip().splitlines()
  assert status == 2 and out == '' and result is None
  assert line.startswith('error: ') and expected in line
  assert 'Traceback' not in err


def test_an_output_that_is_a_directory_is_refused_first(call, tmp_path):
  (tmp_path / 'train.json').mkdir()
  status, out, err, _ = call('train', '--lengths=64')
  assert status == 2 and out == '' and 'is a directory' in err


def test_without_torch_a_line_says_what_to_install(call, monkeypatch):
  monkeypatch.setattr(
      command.peers.importlib.util, 'find_spec', lambda name: None
  )
  status, _, err, _ = call('encode', '--against=t5')
  assert status == 2 and "pip install 'locost_jax[peers]'" in err
