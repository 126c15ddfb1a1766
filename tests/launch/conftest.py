"""Fixtures for the tests of launch/."""

import pytest

from tests.launch.launching import Fakes


@pytest.fixture
def fakes(tmp_path):
  return Fakes(tmp_path / 'fakes')
