"""The table of GPUs, and names of devices that are not here."""

import importlib.util
import math
import os
import re
import types

import jax
import pytest

from locost_jax.devices import topology
from locost_jax.errors import InputError
from locost_jax.telemetry import step_times

# Of the data sheets: nominal GiB, TB/s, float32 TFLOP/s; and the operations of
# a core's bfloat16 (T4: float16) units in a cycle, by NVIDIA's whitepapers.
SHEETS = {
    't4': (16, 0.32, 8.1, 1024),
    'l4': (24, 0.3, 30.3, 1024),
    'a100': (80, 2.039, 19.5, 2048),
    'h100': (80, 3.35, 67, 4096),
    'h200': (141, 4.8, 67, 4096),
    'b200': (180, 8.0, 75, 8192),
}


def fields(text):
  """Returns {field: number} of a proto's text; its messages are flattened."""
  return {key: float(x) for key, x in re.findall(r'(\w+): ([\d.]+)\b', text)}


@pytest.mark.parametrize('name', topology.CARDS)
def test_a_card_is_what_its_data_sheet_says(name):
  """By the text that the compiler reads."""
  text = topology.describe(topology.CARDS[name])
  assert text.count('{') == text.count('}') == 4
  card = fields(text.partition('platform_name')[0])
  memory, bandwidth, tflops, operations = SHEETS[name]
  assert 0.9 < card['device_memory_size'] / 2**30 / memory < 1
  assert card['memory_bandwidth'] == pytest.approx(bandwidth * 1e12, rel=0.05)
  cycles = card['core_count'] * card['clock_rate_ghz'] * 1e9
  found = 2 * cycles * card['fpus_per_core']
  assert found == pytest.approx(tflops * 1e12, rel=0.01)
  (kind,) = re.findall('device_description_str: "(.*)"', text)
  # The sheet's clock for these units may be lower than the highest one.
  peak = step_times.peak_flops(kind)
  assert 1 <= cycles * operations / peak * 1.001 < 1.1
  # CUDA's guide: a block may have all shared memory of a core, but for 1 KiB
  # since 8.0; blocks of 1,024 threads fill the core's threads.
  rest = card['shared_memory_per_core'] - card['shared_memory_per_block_optin']
  assert rest == (0 if name == 't4' else 1024)
  assert card['threads_per_core_limit'] % 512 == 0
  assert card['major'] * 10 + card['minor'] == topology.CARDS[name].capability


@pytest.fixture
def asked(monkeypatch):
  """The keywords of the last description that a stand-in was asked for."""
  keywords = {}

  def get_topology_desc(name, platform, **given):
    keywords.update(given, name=name, platform=platform)
    return types.SimpleNamespace(devices=['a device'])

  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: True)
  monkeypatch.setattr(os, 'environ', dict(os.environ))
  monkeypatch.setattr(
      topology.topologies, 'get_topology_desc', get_topology_desc
  )
  return keywords


def test_the_share_of_a_card(asked):
  """JAX allocates 0.75 of its memory; the compiler never refuses."""
  target = topology.find('h100:2x8')
  assert asked['topology'] == '1x2x8' and asked['platform'] == 'cuda'
  whole = fields(asked['target_config'])['device_memory_size']
  assert math.isclose(target.available, 0.75 * whole, rel_tol=1e-6)
  assert target.devices == ['a device'] and target.margin == 0
  assert target.options == {'xla_gpu_enable_triton_gemm': False}
  assert jax.config.jax_platforms == 'cpu'


def test_the_margin_of_low_effort(asked):
  """It covers what was seen: temporary memory 3 to 17% below the default's."""
  target = topology.find('v5e:4x4')
  assert asked == dict(platform='tpu', name='v5e:4x4')
  assert target.options == {'exec_time_optimization_effort': -1.0}
  # GB: a step at 16,384 tokens on v5e:4x4, and one at 4,096 on v6e:4x4.
  for low, default in (3.55, 4.27), (8.45, 8.72):
    assert default <= (1 + target.margin) * low < 1.25 * default
  assert 15 << 30 < target.available < 16 << 30
  assert os.environ['ALLOW_MULTIPLE_LIBTPU_LOAD'] == '1'


@pytest.mark.parametrize(
    'name, words',
    [
        (
            'h100:1x8',
            'GPUs needs jax_cuda12_plugin, which is not installed: pip install '
            f"'locost_jax[gpu-aot]' jax-cuda12-plugin=={jax.__version__}",
        ),
        (
            'v5e:4x4',
            'TPUs needs libtpu, which is not installed: pip install '
            "'locost_jax[tpu-aot]'",
        ),
    ],
)
def test_a_compiler_that_is_not_installed(monkeypatch, name, words):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(InputError) as caught:
    topology.find(name)
  assert str(caught.value) == f'--topology={name}: compiling for {words}'
