"""PyTorch's models next to ours; needs the extra `peers`."""

import os

import pytest

from bench import peers
from bench import rounds
from tests.bench.test_bench import make_spec

REASON = 'peers need the extra `peers`'
torch = pytest.importorskip('torch', reason=REASON)
pytest.importorskip('transformers', reason=REASON)


@pytest.mark.parametrize('name', peers.NAMES)
def test_a_peer_has_our_size_and_returns_states(name):
  """The same width as ours and, for T5, the expected number of parameters."""
  call, facts = peers.prepare(make_spec('encode', name))[name]
  states = call()[0]
  assert states.shape == (1, 64, 32)
  assert facts['threads'] == len(os.sched_getaffinity(0))
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
    assert facts['parameters'] - expected in (V * D, 2 * V * D)


@pytest.mark.parametrize('name', peers.NAMES)
def test_a_peer_generates_the_given_number_of_tokens(name):
  spec = make_spec('generate', name, batch_size=2)
  ((call, facts),) = peers.prepare(spec).values()
  assert call().shape == (2, 1 + 5)  # the start mark first
  assert facts['written'] == 5


def test_a_peer_trains_in_bfloat16_under_autocast(monkeypatch):
  """Matrix products are in bfloat16, parameters stay in float32."""
  made, make, products = [], peers.make_t5_like, set()
  monkeypatch.setattr(
      peers, 'make_t5_like', lambda *args: made.append(make(*args)) or made[0]
  )
  spec = make_spec('train', 't5, recomputing', dtype='bfloat16')
  ((call, _),) = peers.prepare(spec).values()
  made[0].encoder.block[0].layer[0].SelfAttention.q.register_forward_hook(
      lambda module, inputs, output: products.add(output.dtype)
  )
  call()
  assert products == {torch.bfloat16}
  assert {p.dtype for p in made[0].parameters()} == {torch.float32}


def test_comparison_with_a_peer():
  """Interleaved, each in a process of its own."""
  spec = make_spec('generate', '')
  parts = ['locost, ours', 't5, memory kept']
  rows, _ = rounds.measure(spec, parts, set(), lambda text: None)
  ours, theirs = rows
  assert [ours['name'], theirs['name']] == parts
  assert theirs['ratio'] == theirs['seconds'] / ours['seconds']
  assert len(ours['times']) == len(theirs['times']) == 2
  assert min(ours['peak_bytes'], theirs['peak_bytes']) > 1e7
