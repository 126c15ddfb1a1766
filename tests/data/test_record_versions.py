"""Caches stay valid across edits of the code until a version is raised."""

import json

import pytest

from configs import default
from locost_jax.data import cache as cache_lib
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows
from locost_jax.data import gsg
from locost_jax.data import record_versions
from tests import golden_records
from tests.batches import BYTES
from tests.data import test_gsg

GOLDEN = json.loads(golden_records.FILE.read_text())


@pytest.mark.parametrize('module', golden_records.OUTPUTS)
def test_output_changes_only_with_the_version(module):
  assert golden_records.compute(module) == GOLDEN[module], (
      f'the output of data/{module}.py or its version changed: raise '
      f'VERSIONS[{module!r}] in data/record_versions.py if it was not, then '
      'run `python -m tests.golden_records`'
  )


def test_every_versioned_module_has_golden_records():
  made = golden_records.OUTPUTS
  assert GOLDEN.keys() == record_versions.VERSIONS.keys() == made.keys()


def test_a_changed_output_is_detected(monkeypatch):
  monkeypatch.setitem(
      gsg.gap_sentences.__globals__,
      'select_sentences',
      lambda sentences, *_, **__: [0],
  )
  assert golden_records.compute('gsg') != GOLDEN['gsg']


def place(tmp_path, monkeypatch):
  """The name of the cache of a file with a fixed path and time."""
  path = tmp_path / 'train.jsonl'
  path.write_text('{}\n')
  monkeypatch.setattr(  # path, bytes, modification time
      corpus_rows,
      'stat_files',
      lambda files: [['/data/train.jsonl', 43, 1.7e9]],
  )
  config = default.get_config()
  config.data.train_files = str(path)
  corpus = corpus_lib.corpus(config)
  return cache_lib.locate(config, corpus, BYTES, 'train', 'caches')[0].name


def test_caches_of_earlier_releases_stay_valid(tmp_path, monkeypatch):
  """The name of this cache at commit 46990e7."""
  assert place(tmp_path, monkeypatch) == 'jsonl-train-be8004cc34444bbe'


def test_texts_of_another_script_have_another_cache(tmp_path):
  """Older caches have other sentences, or each document's first ones."""
  keys = []
  for text in 'One. Two. Three.', test_gsg.RUSSIAN, 'एक। दो। तीन।':
    path = tmp_path / 'train.jsonl'
    path.write_text(json.dumps(dict(document=text)) + '\n')
    config = default.get_config()
    config.data.train_files = str(path)
    for strategy in 'independent', 'lead':
      config.gsg = dict(strategy=strategy)
      found = corpus_lib.corpus(config)
      place = cache_lib.locate(config, found, BYTES, 'train', 'caches')
      keys.append(place[1])
  assert ['gsg_words' in key for key in keys] == [0, 0, 1, 0, 1, 0]
  assert ['sentences' in key for key in keys] == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize('module', record_versions.RECORDS)
def test_a_raised_version_makes_another_cache(module, tmp_path, monkeypatch):
  before = place(tmp_path, monkeypatch)
  raised = record_versions.VERSIONS[module] + 1
  monkeypatch.setitem(record_versions.VERSIONS, module, raised)
  assert place(tmp_path, monkeypatch) != before


def test_a_raised_version_makes_another_built_in_corpus(monkeypatch):
  config = default.get_config()
  config.data.task = 'python_docs_summary'
  before = corpus_lib.corpus(config).made_of('train')
  monkeypatch.setitem(record_versions.VERSIONS, 'sources', 2)
  assert corpus_lib.corpus(config).made_of('train') != before
