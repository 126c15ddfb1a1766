"""The arithmetic of the benchmarks: times, growth, tables, energy."""

import time

import numpy as np
import pytest

from locost_jax.benchmarks import growth
from locost_jax.benchmarks import picture
from locost_jax.benchmarks import tables
from locost_jax.benchmarks import text_tables
from locost_jax.benchmarks import timing
from locost_jax.benchmarks import units
from locost_jax.telemetry import energy


@pytest.mark.parametrize('power', [0.5, 1.0, 1.05, 2.0])
def test_exponent_of_a_power_law(power):
  lengths = np.array([1024, 4096, 16384, 600000])
  assert growth.fit_exponent(lengths, 3e-7 * lengths**power) == (
      pytest.approx(power, abs=1e-9)
  )


def test_exponent_is_least_squares():
  generator = np.random.default_rng(0)
  lengths = 2 ** np.arange(4, 12)
  seconds = lengths**1.1 * np.exp(generator.normal(size=8))
  expected = np.polyfit(np.log(lengths), np.log(seconds), 1)[0]
  assert growth.fit_exponent(lengths, seconds) == pytest.approx(expected)
  assert growth.fit_exponent([64, 64], [1.0, 2.0]) is None


def test_growth_is_relative_to_16k():
  rows_ = [
      dict(length=length, seconds={'a': length * per_token})
      for length, per_token in ((1024, 3.0), (16384, 2.0), (65536, 2.5))
  ]
  found = tables.column_growth(rows_, 'seconds.a')
  assert found['base'] == 16384 and found['per_token'] == pytest.approx(1.25)


def test_runs_are_interleaved():
  order = []

  def make(name, ends_after=99):
    def call():
      order.append(name)
      return None if order.count(name) > ends_after else order.count(name)

    return call

  times = timing.time_interleaved({'a': make('a'), 'b': make('b', 2)}, 3, 60)
  assert order == ['a', 'b', 'a', 'b', 'a', 'b', 'a']
  assert times == {'a': [2, 3, 4], 'b': [2]}
  # Too slow for a second round: the first one counts.
  assert timing.time_interleaved({'a': lambda: 1.0}, 3, 0) == {'a': [1.0]}


def test_table():
  columns = (
      ('model', 'name', 't'),
      tables.LENGTH,
      ('time', 'seconds.a', 's'),
      ('memory', 'bytes', 'B'),
  )
  text = text_tables.format_table(
      'Heading',
      columns,
      [
          dict(name='ours', length=1024, seconds={'a': 0.001}, bytes=3 << 20),
          dict(
              name='their own', length=16384, seconds={'a': 0.032}, bytes=None
          ),
      ],
  )
  assert text.splitlines() == [
      'Heading',
      'model                        length     time  memory',
      '─' * 52,
      'ours                           1024  1.00 ms   3 MiB',
      'their own                     16384  32.0 ms       -',
      '┄' * 52,
      '                     time ~ length^    1.250',
      '           per token, 16384 / 16384   1.000x',
  ]


@pytest.mark.parametrize(
    'value, unit, expected',
    [
        (1500.0, 's', '1500 s'),
        (61.0, 's', '61 s'),
        (2.5, 's', '2.50 s'),
        (0.99991, 's', '1.00 s'),
        (0.99949, 's', '999 ms'),
        (9.9999e-4, 's', '1.00 ms'),
        (0.0123, 's', '12.3 ms'),
        (0.1, 's', '100 ms'),
        (4e-5, 's', '40.0 us'),
        (2e-7, 's', '200 ns'),
        (None, 's', '-'),
        (512, 'B', '512 B'),
        (13 << 20, 'B', '13 MiB'),
        (int(1.5 * 2**30), 'B', '1.5 GiB'),
        (1234.5, 'n', '1234'),
        (2.345, 'x', '2.35x'),
        (0.756, '%', '75.6%'),
        (1.23e-6, 'e', '1.2e-06'),
        (0.0001234, 'g', '0.000123'),
    ],
)
def test_numbers_with_units(value, unit, expected):
  assert units.format_value(value, unit) == expected


def test_joules_of_counters_that_wrap(tmp_path, monkeypatch):
  """Sums packages but not their parts; a counter wraps to 0."""
  monkeypatch.setattr(energy, '_gpu_watts', lambda: None)
  counts = {'intel-rapl:0': 9_000_000, 'intel-rapl:1': 500, 'intel-rapl:0:0': 1}

  def put(name, value):
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / 'energy_uj').write_text(f'{value}\n')
    (tmp_path / name / 'max_energy_range_uj').write_text('10000000\n')

  for name, value in counts.items():
    put(name, value)
  with energy.Meter(tmp_path) as meter:
    put('intel-rapl:0', 2_000_000)  # 1 J up to the wrap, 2 J after it
    put('intel-rapl:1', 500_500)  # half a joule
    put('intel-rapl:0:0', 5_000_000)
  assert meter.joules == pytest.approx(3.5)
  assert meter.source == 'RAPL'


def test_a_failed_reading_of_a_counter_loses_no_energy(tmp_path, monkeypatch):
  monkeypatch.setattr(energy, '_gpu_watts', lambda: None)
  package = tmp_path / 'intel-rapl:0'
  package.mkdir()
  (package / 'max_energy_range_uj').write_text('10000000\n')
  (package / 'energy_uj').write_text('1000000\n')
  meter = energy.Meter(tmp_path, seconds=0.001)
  meter.start()
  (package / 'energy_uj').unlink()
  time.sleep(0.05)
  (package / 'energy_uj').write_text('3000000\n')
  deadline = time.monotonic() + 10
  while meter.joules < 2 and time.monotonic() < deadline:
    time.sleep(0.01)
  assert meter.joules == pytest.approx(2)
  meter.stop()


def test_the_emissions_of_the_papers_pretraining():
  """16 GPUs, 190 W, 140 hours, 58 g per kWh: approximately 25 kg."""
  joules = 16 * 190 * 140 * 3600
  assert energy.grams_co2(joules, 58) == pytest.approx(24_684.8)


def test_joules_of_a_gpu_are_its_power_over_time(tmp_path, monkeypatch):
  monkeypatch.setattr(energy, '_gpu_watts', lambda: 300.0)
  now = iter([10.0, 12.0])
  monkeypatch.setattr(energy.time, 'monotonic', lambda: next(now))
  with energy.Meter(tmp_path) as meter:
    pass
  assert meter.joules == pytest.approx(600)
  assert meter.source == 'nvidia-smi'


def test_a_model_has_one_colour_in_the_picture(monkeypatch, tmp_path):
  figures = pytest.importorskip(
      'matplotlib.figure', reason='the picture needs matplotlib'
  )
  drawn = []
  monkeypatch.setattr(
      figures.Figure, 'savefig', lambda figure, *_, **__: drawn.append(figure)
  )
  picture.draw(
      dict(
          command='encode',
          device='cpu',
          settings=dict(dtype='float32'),
          rows=[
              dict(
                  length=64,
                  seconds={'kernels made': 1.0, 'kernels given': 0.5},
                  temp_bytes=5,
              )
          ],
          contest=[
              dict(subject=name, length=64, seconds=2.0, peak_bytes=9)
              for name in ('locost, kernels made', 'led')
          ],
      ),
      tmp_path / 'encode.png',
  )
  seconds, kept = (
      {line.get_label(): line.get_color() for line in axis.lines}
      for axis in drawn[0].axes
  )
  assert len(set(seconds.values())) == 4
  assert kept == {
      'one layer, temporary': seconds['one layer, kernels made'],
      'locost, kernels made, peak of process': (
          seconds['locost, kernels made, encoder']
      ),
      'led, peak of process': seconds['led, encoder'],
  }
