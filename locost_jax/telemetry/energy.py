"""Measures energy in joules, if the machine reports it, and CO2 in grams.

CPU packages: Linux's RAPL counters in /sys/class/powercap, often readable by
root only. NVIDIA GPUs: the power that nvidia-smi reports, sampled and summed
over time. Elsewhere `Meter.joules` is None and `Meter.source` says why.
"""

from pathlib import Path
import re
import subprocess
import threading
import time

POWERCAP = '/sys/class/powercap'
JOULES_PER_KWH = 3.6e6


def grams_co2(joules, intensity):
  """Returns the emissions of producing the energy, in grams of CO2.

  The paper (LOCOST, section 8): 16 GPUs of 190 W on average for 140 hours use
  16 * 190 * 140 * 3600 = 1.53e9 J = 425.6 kWh; at 58 g per kWh 24.7 kg, its
  "approximately 25 kg". This counts the GPUs only, without CPUs and cooling.

  Args:
    joules: energy.
    intensity: carbon intensity of the electricity, in g CO2 per kWh.
  """
  return joules / JOULES_PER_KWH * intensity


class Meter:
  """Measures energy: `with Meter() as meter: work()`, then `meter.joules`.

  Attributes:
    joules: energy of all CPU packages and NVIDIA GPUs of the machine, including
      other processes' use; None if neither can be read. While the meter runs,
      the value of the last sample.
    source: what was read, or why nothing could be read.
  """

  def __init__(self, powercap=None, seconds=0.5):
    """Finds the counters that can be read.

    Args:
      powercap: directory of the RAPL counters; None: POWERCAP.
      seconds: between samples. A package's counter wraps after minutes.
    """
    self._seconds = seconds
    self._packages, cpu = _find_packages(Path(powercap or POWERCAP))
    watts = _gpu_watts()
    self._has_gpu = watts is not None
    parts = [] if not self._packages else [cpu]
    parts += ['nvidia-smi'] if self._has_gpu else []
    missing = [] if self._packages else [cpu]
    missing += [] if self._has_gpu else ['no nvidia-smi']
    self.source = ' and '.join(parts) or (
        'not readable here: ' + ', '.join(missing)
    )
    self.joules = 0.0 if parts else None

  def __enter__(self):
    self.start()
    return self

  def __exit__(self, *_):
    self.stop()

  def start(self):
    """Starts to measure."""
    if self.joules is not None:
      self._last = [_read(package) for package, _ in self._packages]
      self._time = time.monotonic()
      self._stop = threading.Event()
      self._thread = threading.Thread(target=self._watch, daemon=True)
      self._thread.start()

  def stop(self):
    """Takes the last sample and stops."""
    if self.joules is not None:
      self._stop.set()
      self._thread.join()
      self._sample()

  def _watch(self):
    while not self._stop.wait(self._seconds):
      self._sample()

  def _sample(self):
    # After a failed reading the next sample covers the missing time. A meter
    # must not end the work that it measures.
    for i, (package, wraps_at) in enumerate(self._packages):
      try:
        now = _read(package)
      except (OSError, ValueError):
        continue
      difference = now - self._last[i]
      # The counter starts again from 0 after wraps_at.
      self.joules += (difference + (wraps_at if difference < 0 else 0)) / 1e6
      self._last[i] = now
    watts = _gpu_watts() if self._has_gpu else None
    if watts is not None:
      now = time.monotonic()
      self.joules += watts * (now - self._time)
      self._time = now


def _find_packages(powercap):
  """Returns ([(directory, wrap-around in microjoules)], source or reason)."""
  # intel-rapl:0 is a package, of AMD too; intel-rapl:0:1 is a part of it.
  packages = sorted(
      path
      for path in powercap.glob('intel-rapl:*')
      if re.fullmatch(r'intel-rapl:\d+', path.name)
  )
  if not packages:
    return [], f'no RAPL counters below {powercap}'
  try:
    for package in packages:
      _read(package)
    return [
        (package, int((package / 'max_energy_range_uj').read_text()))
        for package in packages
    ], 'RAPL'
  except PermissionError:
    return [], 'RAPL counters need root'
  except (OSError, ValueError):
    return [], 'RAPL counters cannot be read'


def _read(package):
  return int((package / 'energy_uj').read_text())


def _gpu_watts():
  """Returns the power of all NVIDIA GPUs in watts; None: not readable."""
  try:
    reported = subprocess.run(
        [
            'nvidia-smi',
            '--query-gpu=power.draw',
            '--format=csv,noheader,nounits',
        ],
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    ).stdout
    return sum(float(line) for line in reported.split())
  except (OSError, subprocess.SubprocessError, ValueError):
    return None
