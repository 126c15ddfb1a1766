"""The example of docs/summarizing.md runs and draws its pictures."""

import json
from pathlib import Path
import re

import numpy as np
import pytest

from locost_jax import models
from locost_jax.hugging_face import bart
from locost_jax.hugging_face import export
from locost_jax.models import parameters
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests import bart_files
from tests.models.test_bart import moved_params
from tests.models.test_bart import SMALL

PAGE = Path(__file__).parents[2] / 'docs' / 'summarizing.md'


def write_simcas(directory):
  """A SimCAS of random weights, as a Hugging Face directory."""
  vocabulary = vocabulary_lib.load_vocabulary(bart_files.write(directory))
  config = dict(SMALL, name='simcas', vocab_size=vocabulary.size)
  params = parameters.flatten(moved_params(config, 0.3)['params'])
  config = models.default_keys('simcas') | config
  export.Exported(config, params, 'float32').write(directory, params, 1 << 30)
  written = bart.released_config(config)
  (directory / 'config.json').write_text(json.dumps(written))


def test_the_example_runs(tmp_path, monkeypatch):
  pytest.importorskip('matplotlib', reason='the pictures need matplotlib')
  (block,) = (
      block
      for block in re.findall(
          r'^```python\n(.*?)^```', PAGE.read_text(), re.M | re.S
      )
      if 'figures' in block
  )
  monkeypatch.chdir(tmp_path)
  run = tmp_path / 'runs' / 'finetune-simcas'
  write_simcas(run)
  (tmp_path / 'report.txt').write_text('A house is old. ' * 12)
  row = {'step': 1, 'train/selected': 9.0, 'train/reward': 2.0}
  (run / 'metrics.jsonl').write_text(json.dumps(row) + '\n')
  row = {'tokens_kept': 64, 'tokens_selected': 9, 'seconds': 0.5}
  (tmp_path / 'lengths.jsonl').write_text(json.dumps(row) + '\n')
  names = {}
  exec(block, names)  # pylint: disable=exec-used
  states = np.asarray(names['states'])
  assert states.shape[:2] == (2, 1) and states.shape[3] == 32
  assert states.shape[2] == names['chunks'].shape[1] > 2
  for name in ('training', 'lengths', 'similarity'):
    assert (tmp_path / f'{name}.png').read_bytes().startswith(b'\x89PNG')
