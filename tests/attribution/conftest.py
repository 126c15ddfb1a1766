"""Fixtures for tests of pages that the summarize command writes."""

from tests.summarizing.conftest import call
from tests.summarizing.conftest import call_json
from tests.summarizing.conftest import run

__all__ = 'call', 'call_json', 'run'
