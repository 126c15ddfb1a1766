"""Helpers for tests of convert."""

import json

from safetensors.numpy import load_file
from safetensors.numpy import save_file

from locost_jax import files
from locost_jax.workdir import checkpoint
from tests.python import ROOT

GOLDEN = ROOT / 'tests' / 'golden'
WEIGHTS = 'model.safetensors'


def change_json(path, **values):
  """Changes keys of a JSON file."""
  path.write_text(json.dumps(json.loads(path.read_text()) | values))


def shard(directory):
  """Splits the weights into two files with an index, the first one smaller."""
  tensors = load_file(directory / WEIGHTS)
  names = sorted(tensors)
  parts = names[: len(names) // 4], names[len(names) // 4 :]
  index = {}
  for i, part in enumerate(parts, 1):
    name = f'model-0000{i}-of-00002.safetensors'
    save_file({key: tensors[key] for key in part}, directory / name)
    index |= dict.fromkeys(part, name)
  (directory / WEIGHTS).unlink()
  path = directory / f'{WEIGHTS}.index.json'
  path.write_text(json.dumps({'weight_map': index}))


def rewrite(directory, change):
  """Applies a change to the directory's dict of tensors."""
  tensors = load_file(directory / WEIGHTS)
  change(tensors)
  save_file(tensors, directory / WEIGHTS)


def save_run(home, config, params):
  """Writes a run with a model's config and parameters."""
  decode = dict(pad_id=config.get('pad_id', 0))
  content = dict(model=dict(config), decode=decode, train=dict(steps=0))
  files.write(home / 'config.json', json.dumps(content))
  checkpoint.save_params(home / 'checkpoints' / '0', params)
