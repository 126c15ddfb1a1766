"""data/sources.py: files, and corpora that TFDS prepared."""

import gzip
import json
import re

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


def test_rows_are_split_at_newlines_only(tmp_path):
  # Characters at which str.splitlines splits, and a line of only spaces.
  rows = [{'text': 'a\u0085b\u2028c\x0b\x1cd\r'}, {'text': 'e\nf', 'n': 1}]
  lines = [json.dumps(row, ensure_ascii=False) for row in rows]
  data = ('\n'.join([lines[0], '  ', lines[1]])).encode()
  plain = _write(tmp_path / 'a.jsonl', data)
  packed = _write(tmp_path / 'b.jsonl.gz', gzip.compress(data + b'\n'))
  assert '\u2028' in data.decode()
  for path in plain, packed:
    assert list(sources.read_jsonl(path, ('text',))) == rows


def test_byte_order_mark_and_carriage_returns(tmp_path):
  path = _write(
      tmp_path / 'a.jsonl', b'\xef\xbb\xbf{"text": "a"}\r\n{"text": "b"}\r\n'
  )
  assert [r['text'] for r in sources.read_jsonl(path)] == ['a', 'b']


@pytest.mark.parametrize(
    'line, message',
    [
        (b'{"text": "a"', 'not JSON'),
        (b'["text"]', 'expected a JSON object, got list'),
        (b'{"txt": "a"}', "no field 'text'; the row has 'txt'"),
        (b'{"text": 3}', "field 'text' must be a string, got int"),
        (b'{"text": "\xff"}', 'not UTF-8'),
        (b'[' * 100000, 'not JSON'),
    ],
)
def test_bad_lines_are_named(tmp_path, line, message):
  path = _write(tmp_path / 'a.jsonl', b'{"text": "fine"}\n\n' + line + b'\n')
  rows = sources.read_jsonl(path, ('text',))
  assert next(rows) == {'text': 'fine'}
  with pytest.raises(InputError, match=f'a.jsonl:3: {re.escape(message)}') as e:
    next(rows)
  assert '\n' not in str(e.value)


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


def test_unreadable_files(tmp_path):
  whole = gzip.compress(b'{"text": "a"}\n' * 10000)
  cut = _write(tmp_path / 'cut.jsonl.gz', whole[: len(whole) // 2])
  fake = _write(tmp_path / 'fake.jsonl.gz', b'{"text": "a"}\n')
  for path in (cut, fake, str(tmp_path / 'none.jsonl'), str(tmp_path)):
    with pytest.raises(InputError, match=re.escape(path)):
      list(sources.read_jsonl(path))


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


def test_held_out_share():
  keys = [f'row {j}' for j in range(20000)]
  for fraction in (0.02, 0.3):
    share = sum(sources.is_held_out(k, fraction) for k in keys) / len(keys)
    assert share == pytest.approx(fraction, rel=0.15)
  assert not any(sources.is_held_out(k, 0) for k in keys)
  assert all(sources.is_held_out(k, 1) for k in keys)
  small = {k for k in keys if sources.is_held_out(k, 0.02)}
  assert small < {k for k in keys if sources.is_held_out(k, 0.3)}
