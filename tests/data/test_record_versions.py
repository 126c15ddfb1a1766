"""Caches stay valid across edits of the code until a version is raised."""

import json
import shutil

import pytest

from locost_jax.data import cache as cache_lib
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows
from locost_jax.data import gsg
from locost_jax.data import record_versions
from locost_jax.data import streamed as streamed_lib
from tests import golden_records
from tests.batches import BYTES
from tests.data import test_gsg
from tests.data.rows import config_of
from tests.data.rows import locate

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
  """The path and the key of the cache of a file with a fixed path and time."""
  path = tmp_path / 'train.jsonl'
  path.write_text('{}\n')
  monkeypatch.setattr(  # path, bytes, modification time
      corpus_rows,
      'stat_files',
      lambda files: [['/data/train.jsonl', 43, 1.7e9]],
  )
  return locate(config_of(str(path)), tmp_path / 'caches')


def test_caches_of_earlier_releases_stay_valid(tmp_path, monkeypatch):
  """With the names of this cache at 46990e7 and 586a424, whole or begun."""
  path, key = place(tmp_path, monkeypatch)
  assert cache_lib._find_earlier(path, key) == (path, key)
  versions = {'be8004cc34444bbe': 0, '778dc7ba83098458': 1}
  for name, version in versions.items():
    earlier = path.with_name(f'jsonl-train-{name}')
    for begun in path.with_name(f'{earlier.name}.parts'), earlier:
      begun.mkdir(parents=True)
      found, made_by = cache_lib._find_earlier(path, key)
      assert found == earlier and made_by.pop('plain_text', 0) == version
      assert made_by == {x: key[x] for x in key if x != 'plain_text'}
      begun.rmdir()


BROKEN = '海は広く' * 4 + '\n'
RAW = f'\ufeffhy\xadphens, zero\u200bwidth. e\u0301\u2076. {BROKEN}青い。'
PLAIN = f'hyphens, zerowidth. é\u2076. {BROKEN.strip()}青い。'


@pytest.mark.parametrize('form', ['', 'document', 'gsg'])
@pytest.mark.parametrize('streamed', [False, True])
def test_new_records_have_plain_text_and_begun_ones_their_own(
    tmp_path, form, streamed, monkeypatch
):
  row = dict(id='a\xad', document=RAW, summary=RAW, documents=[RAW, RAW])
  row |= dict(
      references=[RAW, 'x'],
      query='q\xad',
      text=f'One. Two. Three. Four. {RAW}雪。',
  )
  for i in range(2):
    (tmp_path / f'{i}.jsonl').write_text(json.dumps(row) + '\n')
  files = [f'{tmp_path}/*.jsonl'] * 2
  config = config_of(*files, max_input_length=999, max_target_length=999)
  if form == 'gsg':
    config.gsg = dict(strategy='lead', ratio=0.3)
    config.data.input_field = 'text'
  if form == 'document':
    config.data.update(pages=form, num_pages=2, page_length=400)
  if streamed:
    monkeypatch.setattr(cache_lib, 'STREAM_BYTES', 0)
    config.data.window_shards = 1
  read = lambda: read_first(config, tmp_path)
  path, key = locate(config, tmp_path)
  made = read()
  assert path.exists() and made['id'] == 'a\xad'
  if form != 'gsg':
    assert made['reference'] == PLAIN and made['references'] == [PLAIN, 'x']
  text = BYTES.decode(made['inputs'])
  assert 'hyphens, zerowidth. é' in text and '\xad' not in text
  assert '広く青い' in text and (form == 'gsg' or text.startswith('q\n\n'))
  assert form != 'gsg' or '青い。雪。' in text
  shutil.rmtree(path)
  older = {name: key[name] for name in key if name != 'plain_text'}
  earlier = path.with_name(cache_lib._name(older))
  (earlier if streamed else path.with_name(f'{earlier.name}.parts')).mkdir()
  made = read()
  assert earlier.exists() and not path.exists()
  text = BYTES.decode(made['inputs'])
  assert 'hy\xadphens, zero\u200bwidth. e\u0301' in text
  assert '青い。 雪。' in text if form == 'gsg' else made['reference'] == RAW


def read_first(config, directory):
  """The first record of the training split."""
  cache = cache_lib.open_cache(config, BYTES, 'train', directory, 1)
  records = cache.window(0, 0)[0][0]
  if isinstance(cache, streamed_lib.StreamedCache):
    cache.wait()
    cache.close()
  return records


def test_texts_of_another_script_have_another_cache(tmp_path):
  """Older caches have other sentences, or each document's first ones."""
  keys = []
  for text in 'One. Two. Three.', test_gsg.RUSSIAN, 'एक। दो। तीन।':
    path = tmp_path / 'train.jsonl'
    path.write_text(json.dumps(dict(document=text)) + '\n')
    config = config_of(str(path))
    for strategy in 'independent', 'lead':
      config.gsg = dict(strategy=strategy)
      keys.append(locate(config)[1])
  assert ['gsg_words' in key for key in keys] == [0, 0, 1, 0, 1, 0]
  assert ['sentences' in key for key in keys] == [0, 0, 0, 0, 1, 1]


@pytest.mark.parametrize('module', [*record_versions.RECORDS, 'plain_text'])
def test_a_raised_version_makes_another_cache(module, tmp_path, monkeypatch):
  before = place(tmp_path, monkeypatch)[0].name
  raised = record_versions.VERSIONS[module] + 1
  monkeypatch.setitem(record_versions.VERSIONS, module, raised)
  assert place(tmp_path, monkeypatch)[0].name != before


def test_a_raised_version_makes_another_built_in_corpus(monkeypatch):
  config = config_of(task='python_docs_summary')
  before = corpus_lib.corpus(config).made_of('train')
  monkeypatch.setitem(record_versions.VERSIONS, 'sources', 2)
  assert corpus_lib.corpus(config).made_of('train') != before
