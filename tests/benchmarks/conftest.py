"""Fixtures for tests of bench."""

import pytest

from locost_jax.benchmarks import processes
from tests.benchmarks.measuring import ThisProcess


@pytest.fixture
def here(monkeypatch):
  """Measures in the test's own process, without starting another."""
  monkeypatch.setattr(processes, 'WorkerProcess', ThisProcess)
