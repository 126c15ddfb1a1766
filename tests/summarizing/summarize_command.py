"""Helpers for tests of the summarize command."""

import json


def rows_of(path):
  return [json.loads(line) for line in path.read_text().splitlines()]
