"""data/sources.py: files, and corpora that TFDS prepared."""

import pytest

from locost_jax.data import prepared_corpora
from locost_jax.data import sources
from locost_jax.errors import InputError


def _write(path, data):
  path.write_bytes(data)
  return str(path)


def test_globs(tmp_path):
  for name in ('b.jsonl', 'a.jsonl', 'c[1].jsonl', 'd.txt'):
    _write(tmp_path / name, b'')
  (tmp_path / 'directory.jsonl').mkdir()
  found = sources.expand_globs(
      f'{tmp_path}/*.jsonl, {tmp_path}/d.txt,{tmp_path}/c[1].jsonl'
  )
  names = 'a.jsonl', 'b.jsonl', 'c[1].jsonl', 'd.txt'
  assert found == [f'{tmp_path}/{name}' for name in names]
  with pytest.raises(InputError, match='x.jsonl: no such file'):
    sources.expand_globs(f'{tmp_path}/a.jsonl,{tmp_path}/x.jsonl')
  with pytest.raises(InputError, match=r'x\*: no file matches'):
    sources.expand_globs(f'{tmp_path}/x*')
  with pytest.raises(InputError):
    sources.expand_globs(' , ')


def test_lone_surrogates_are_replaced_and_counted(tmp_path, capsys):
  lines = [
      r'{"id": "\ud800", "text": "a \udbff\uD800 \ud83d\ude00", "n": 1.50}',
      r'{"id": "b", "text": "\\ud800", "parts": [{"a": "\udc00"}, 1e400]}',
      r'{"id": "c", "text": "plain"}',
  ]
  path = _write(tmp_path / 'a.jsonl', '\n'.join(lines).encode())
  expected = [
      dict(id='\ufffd', text='a \ufffd\ufffd \U0001f600', n=1.5),
      dict(id='b', text=r'\ud800', parts=[dict(a='\ufffd'), float('inf')]),
      dict(id='c', text='plain'),
  ]
  for _ in range(2):
    assert list(sources.read_jsonl(path, ('text',))) == expected
  said = f'{path}: 4 lone surrogates in JSON, replaced by U+FFFD\n'
  assert capsys.readouterr().err == said


def test_find_tfds(tmp_path, monkeypatch):
  root = tmp_path / 'c4' / 'en'
  for version in '3.0.1', '3.1.0':
    (root / version).mkdir(parents=True)
  (root / '3.1.0' / 'dataset_info.json').write_text('{}')
  found = prepared_corpora.find_tfds('c4/en:3.1.0', str(tmp_path))
  assert found == root / '3.1.0'
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))
  assert prepared_corpora.find_tfds('c4/en:3.1.0') == found
  # 3.0.1 was interrupted: it has no dataset_info.json.
  for name in ('c4/en:3.0.1', 'c4/en:3.0.0', 'c4/de:3.1.0'):
    with pytest.raises(InputError, match=f'{name}.*config.data.tfds_dir'):
      prepared_corpora.find_tfds(name)
