"""Comparison of our models with PyTorch models, if PyTorch is installed."""

import pytest

from locost_jax.benchmarks import compare_models
from locost_jax.benchmarks import machine
from locost_jax.benchmarks import peers
from locost_jax.benchmarks import processes
from tests.benchmarks.measuring import make_spec
from tests.benchmarks.measuring import ThisProcess


def test_longest_input(monkeypatch):
  """Doubles the length, then tries 1.5 times; memory sizes are scripted."""

  class Scripted(ThisProcess):

    def __init__(self, spec, limit):
      self.length = spec['length']
      if self.length > limit:
        raise processes.OutOfMemory(limit)

    def measure(self):
      return dict(seconds=1.0, peak_bytes=self.length * 10)

  monkeypatch.setattr(processes, 'WorkerProcess', Scripted)
  find = lambda limit, seconds=5.0: compare_models.find_longest(
      dict(limit=limit, seconds=seconds), 'longt5', 64, lambda text: None
  )
  assert find(1000) == dict(
      subject='longt5', length=768, peak_bytes=7680, ended_at=1024
  )
  assert find(700) == dict(
      subject='longt5', length=512, peak_bytes=5120, ended_at=768
  )
  assert find(10)['length'] is None
  assert find(1000, seconds=0.5) == dict(
      subject='longt5', length=64, peak_bytes=640, ended_at=None
  )


@pytest.mark.parametrize('name', peers.NAMES)
def test_a_peer_has_our_size_and_returns_states(name):
  """The same width as ours and, for T5, the expected number of parameters."""
  pytest.importorskip('torch', reason='peers need the extra `peers`')
  pytest.importorskip('transformers', reason='peers need the extra `peers`')
  spec = make_spec(what='peer', peer=name, length=64)
  known, call = peers.prepare(spec, lambda text: None)
  answer = call()
  assert answer['seconds'] > 0
  assert known['threads'] == machine.cores()
  D, F, V = 32, 64, 60
  if name == 't5':
    attention, feed_forward = 4 * D * D, 3 * D * F
    # Two layers each; norms; relative biases; tied embeddings or a head.
    expected = (
        2 * (attention + feed_forward + 2 * D)
        + 2 * (2 * attention + feed_forward + 3 * D)
        + 2 * D
        + 2 * 32 * 4
    )
    assert known['parameters'] - expected in (V * D, 2 * V * D)


def test_comparison_with_peers():
  pytest.importorskip('torch', reason='peers need the extra `peers`')
  pytest.importorskip('transformers', reason='peers need the extra `peers`')
  spec = make_spec(what='encode')
  found = compare_models.compare(
      spec, [compare_models.KERNELS_MADE, 'longt5'], 64, {}, lambda text: None
  )
  ours, theirs = found
  assert theirs['ratio_made'] == theirs['seconds'] / ours['seconds']
  assert theirs['peak_ratio'] == ours['peak_bytes'] / theirs['peak_bytes']
  assert len(ours['times']) == len(theirs['times']) == 2


def test_train_step_comparison():
  """Ours and each peer have times and ratios."""
  pytest.importorskip('torch', reason='peers need the extra `peers`')
  pytest.importorskip('transformers', reason='peers need the extra `peers`')
  spec = make_spec(what='train', tokens=8)
  names = compare_models.names_of(spec, ['t5'])
  assert names == ['locost', 't5', 't5, recomputing']
  ours, *theirs = compare_models.compare(spec, names, 64, {}, lambda text: None)
  assert ours['ratio'] == 1 and ours['samples_per_second'] == (
      1 / ours['seconds']
  )
  for row in theirs:
    assert row['ratio'] == row['seconds'] / ours['seconds']
    assert row['peak_ratio'] == ours['peak_bytes'] / row['peak_bytes']
    assert len(row['times']) == 2


def test_comparison_of_whole_models():
  """Both generate the given number of tokens."""
  pytest.importorskip('torch', reason='peers need the extra `peers`')
  pytest.importorskip('transformers', reason='peers need the extra `peers`')
  spec = make_spec(what='generate', writes=True, tokens=4)
  names = compare_models.names_of(spec, list(peers.NAMES))
  ours, *theirs = compare_models.compare(spec, names, 64, {}, lambda text: None)
  assert ours['ratio'] == 1 and len(theirs) == len(peers.NAMES)
  for row in theirs:
    assert row['samples_per_second'] == 1 / row['seconds']
    assert row['ratio'] == row['seconds'] / ours['seconds']


@pytest.mark.parametrize('name', peers.NAMES)
def test_a_peer_generates_the_given_number_of_tokens(name):
  torch = pytest.importorskip('torch', reason='peers need the extra `peers`')
  pytest.importorskip('transformers', reason='peers need the extra `peers`')
  spec = make_spec(what='peer', tokens=4)
  make = (
      peers._make_bart_like if name in ('led', 'bart') else peers._make_t5_like
  )
  model = make(name, spec['model'], 64).eval()
  inputs = dict(
      input_ids=torch.full((2, 64), 5),
      attention_mask=torch.ones((2, 64), dtype=torch.long),
  )
  written = peers._make_generation(spec, model, inputs)()
  assert written.shape == (2, 1 + 4)  # the start mark first


def test_train_steps_are_compared_in_pairs(monkeypatch):
  """A model that ran out of memory is not run again; processes are scripted."""
  loaded, most = set(), []

  class Scripted(ThisProcess):

    def __init__(self, spec, limit):
      self.seconds = 1.0 if spec['what'] == 'learner' else 2.0
      self.prepared = dict(peak_bytes=1)
      loaded.add(self)
      most.append(len(loaded))

    def close(self):
      loaded.discard(self)

    def measure(self):
      return dict(seconds=self.seconds, peak_bytes=10)

  monkeypatch.setattr(processes, 'WorkerProcess', Scripted)
  spec = dict(
      learns=True, writes=False, limit=None, repeats=2, seconds=60, batch_size=1
  )
  names = compare_models.names_of(spec, ['t5'])
  compare = lambda ended: [
      (row['subject'], row['ratio'])
      for row in compare_models.compare_all(
          spec, names, 64, ended, lambda text: None
      )
  ]
  assert compare({}) == [
      ('locost, next to t5', 1),
      ('t5', 2),
      ('locost, next to t5, recomputing', 1),
      ('t5, recomputing', 2),
  ]
  assert max(most) == 2
  assert compare({'t5': 64}) == [
      ('locost, next to t5, recomputing', 1),
      ('t5, recomputing', 2),
  ]
  assert compare({'t5': 64, 't5, recomputing': 64}) == [('locost', 1)]


def test_our_train_step_in_a_comparison(here):
  spec = make_spec(what='train', tokens=8)
  (ours,) = compare_models.compare(spec, ['locost'], 64, {}, lambda text: None)
  assert ours['temp_bytes'] > 64 * 32 * 4 and min(ours['times']) > 0


def test_a_peer_trains_in_bfloat16_under_autocast(monkeypatch):
  """Matrix products are in bfloat16, parameters stay in float32."""
  torch = pytest.importorskip('torch', reason='peers need the extra `peers`')
  pytest.importorskip('transformers', reason='peers need the extra `peers`')
  made, make, products = [], peers._make_t5_like, set()
  monkeypatch.setattr(
      peers, '_make_t5_like', lambda *args: made.append(make(*args)) or made[0]
  )
  spec = make_spec(
      what='peer',
      peer='t5',
      length=64,
      dtype='bfloat16',
      learns=True,
      recomputes=False,
      tokens=8,
  )
  _, call = peers.prepare(spec, lambda text: None)
  made[0].encoder.block[0].layer[0].SelfAttention.q.register_forward_hook(
      lambda module, inputs, output: products.add(output.dtype)
  )
  assert call()['seconds'] > 0
  assert products == {torch.bfloat16}
  assert {p.dtype for p in made[0].parameters()} == {torch.float32}
