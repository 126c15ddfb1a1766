"""Built-in models are found by name, small, and have a model card."""

import json
from pathlib import Path
import re

import ml_dtypes
import numpy as np
import pytest

import locost_jax
from locost_jax import summarize
from locost_jax.errors import InputError
from locost_jax.hugging_face import find_builtin
from locost_jax.models import parameters
from locost_jax.training import warm_start
from tests import make_builtin
from tests import tiny_run

MOST_BYTES = 6_000_000
TEXT = """\
The array is searched from its beginning. If a value occurs more than once, the
index of the first occurrence is returned. An error is raised if it does not
occur at all. The array is not changed, and need not be sorted.
"""


@pytest.fixture
def tiny(tmp_path, monkeypatch):
  """Makes `tiny` the only built-in model, from a tiny run; returns the run."""
  run, directory = tmp_path / 'run', tmp_path / 'builtin'
  tiny_run.make(run)
  directory.mkdir()
  make_builtin.make(run, directory / 'tiny')
  monkeypatch.setattr(find_builtin, '_HERE', directory)
  return run


def test_made_from_a_run(tiny):
  """The built-in model equals the run, with parameters rounded to bfloat16."""
  run, builtin = locost_jax.load(tiny), locost_jax.load('builtin:tiny')
  assert builtin.config == run.config and builtin.settings == run.settings
  assert builtin.vocabulary.encode('a b') == run.vocabulary.encode('a b')
  ours, theirs = map(parameters.flatten, (builtin.params, run.params))
  assert ours.keys() == theirs.keys()
  for path, array in theirs.items():
    rounded = np.asarray(array).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(ours[path], rounded, path)
    assert ours[path].dtype == np.float32
  source = warm_start.read('builtin:tiny')  # training starts from it, too
  assert source.name == 'locost' and source.params.keys() == theirs.keys()


def test_documents_of_one_length_share_kernels(tiny, monkeypatch):
  """From the first document on, though they are read one by one."""
  model, given = locost_jax.load(tiny), []
  get = model.kernels.get
  monkeypatch.setattr(
      model.kernels, 'get', lambda n: given.append(get(n)) or given[-1]
  )
  model.summarize(['a b', 'b a'], batch_size=1, max_length=4)
  assert len(given) == 2 and given[0] is given[1] is not None


def test_unknown_name(tiny):
  with pytest.raises(InputError, match='builtin:x: expected builtin:tiny'):
    locost_jax.load('builtin:x')
  for name in 'builtin:', 'builtin:..', 'builtin:../run':
    with pytest.raises(InputError, match='expected builtin:tiny'):
      locost_jax.load(name)


def list_models():
  assert 'documentation' in find_builtin.names()
  return [find_builtin.find_directory(name) for name in find_builtin.names()]


@pytest.mark.parametrize('directory', list_models(), ids=find_builtin.names())
def test_shipped(directory):
  """Small, with a model card, without paths of the machine that made it."""
  files = [path for path in Path(directory).rglob('*') if path.is_file()]
  assert sum(path.stat().st_size for path in files) <= MOST_BYTES
  config = json.loads((Path(directory) / 'config.json').read_text())
  assert not re.search('"/', json.dumps(config))
  card = (Path(directory) / find_builtin.CARD).read_text()
  headings = re.findall('^## (.*)', card, re.M)
  assert headings == ['Use', 'Training', 'Results', 'Limits', 'Licence']
  assert f'{config["train"]["steps"]:,} steps' in card
  count = parameters.count(locost_jax.load(directory).params)
  assert f'{count / 1e6:.1f}M parameters' in card


def test_summarizes(tmp_path, run_command):
  """The summary uses words of the text; no network is needed."""
  path = tmp_path / 'search.txt'
  path.write_text(TEXT)
  page = tmp_path / 'page.html'
  command = '--checkpoint=builtin:documentation', f'--report={page}', path
  status, out, err = run_command(summarize, *command)
  said = 'This small model knows only documentation of Python'
  assert said in err and said in page.read_text()
  words = set(re.findall('[a-z]+', out.lower()))
  assert status == 0 and len(words) >= 5
  assert len(words & {'array', 'index', 'value', 'first', 'occurrence'}) >= 2
