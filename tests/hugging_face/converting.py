"""Helpers for tests of convert."""

import json
from pathlib import Path

from safetensors.numpy import load_file
from safetensors.numpy import save_file

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / 'tests' / 'golden'
WEIGHTS = 'model.safetensors'


def change_json(path, **values):
  """Changes keys of a JSON file."""
  path.write_text(json.dumps(json.loads(path.read_text()) | values))


def rewrite(directory, change):
  """Applies a change to the directory's dict of tensors."""
  tensors = load_file(directory / WEIGHTS)
  change(tensors)
  save_file(tensors, directory / WEIGHTS)
