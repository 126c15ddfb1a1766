"""Files, prepared corpora and the built-in corpus."""

import gzip
import json
import re
import sys

import pytest

from locost_jax.data import documentation
from locost_jax.data import sources
from locost_jax.errors import InputError


def _write(path, data):
  path.write_bytes(data)
  return str(path)


# --- Files -------------------------------------------------------------------


def test_globs(tmp_path):
  for name in ('b.jsonl', 'a.jsonl', 'c[1].jsonl', 'd.txt'):
    _write(tmp_path / name, b'')
  (tmp_path / 'directory.jsonl').mkdir()
  found = sources.expand_globs(
      f'{tmp_path}/*.jsonl, {tmp_path}/d.txt,{tmp_path}/c[1].jsonl')
  assert [f[len(str(tmp_path)) + 1:] for f in found] == [
      'a.jsonl', 'b.jsonl', 'c[1].jsonl', 'd.txt'
  ]
  with pytest.raises(InputError, match='x.jsonl: no such file'):
    sources.expand_globs(f'{tmp_path}/a.jsonl,{tmp_path}/x.jsonl')
  with pytest.raises(InputError, match=r'x\*: no file matches'):
    sources.expand_globs(f'{tmp_path}/x*')
  with pytest.raises(InputError):
    sources.expand_globs(' , ')


def test_rows_are_split_at_newlines_only(tmp_path):
  # Characters str.splitlines would split at, and a line that is only spaces.
  rows = [{'text': 'a\u0085b\u2028c\x0b\x1cd\r'}, {'text': 'e\nf', 'n': 1}]
  lines = [json.dumps(row, ensure_ascii=False) for row in rows]
  data = ('\n'.join([lines[0], '  ', lines[1]])).encode()
  plain = _write(tmp_path / 'a.jsonl', data)
  packed = _write(tmp_path / 'b.jsonl.gz', gzip.compress(data + b'\n'))
  assert '\u2028' in data.decode()
  assert list(sources.read_jsonl([plain, packed], ('text',))) == 2 * rows


def test_byte_order_mark_and_carriage_returns(tmp_path):
  path = _write(tmp_path / 'a.jsonl',
                b'\xef\xbb\xbf{"text": "a"}\r\n{"text": "b"}\r\n')
  assert [r['text'] for r in sources.read_jsonl([path])] == ['a', 'b']


@pytest.mark.parametrize('line, message', [
    (b'{"text": "a"', 'not JSON'),
    (b'["text"]', 'expected a JSON object, got list'),
    (b'{"txt": "a"}', "no field 'text'; the row has 'txt'"),
    (b'{"text": 3}', "field 'text' must be a string, got int"),
    (b'{"text": "\xff"}', 'not UTF-8'),
    (b'[' * 100000, 'not JSON'),
])
def test_bad_lines_are_named(tmp_path, line, message):
  path = _write(tmp_path / 'a.jsonl', b'{"text": "fine"}\n\n' + line + b'\n')
  rows = sources.read_jsonl([path], ('text',))
  assert next(rows) == {'text': 'fine'}
  with pytest.raises(InputError, match=f'a.jsonl:3: {re.escape(message)}') as e:
    next(rows)
  assert '\n' not in str(e.value)


def test_unreadable_files(tmp_path):
  whole = gzip.compress(b'{"text": "a"}\n' * 10000)
  cut = _write(tmp_path / 'cut.jsonl.gz', whole[:len(whole) // 2])
  fake = _write(tmp_path / 'fake.jsonl.gz', b'{"text": "a"}\n')
  for path in (cut, fake, str(tmp_path / 'none.jsonl'), str(tmp_path)):
    with pytest.raises(InputError, match=re.escape(path)):
      list(sources.read_jsonl([path]))
    with pytest.raises(InputError, match=re.escape(path)):
      list(sources.read_texts([path]))


def test_text_files(tmp_path):
  plain = _write(tmp_path / 'a.txt', '\ufeffna\u00efve\r\nx\ry\n'.encode())
  packed = _write(tmp_path / 'b.txt.gz', gzip.compress(b'z'))
  assert list(sources.read_texts([plain, packed])) == [
      {'id': plain, 'text': 'na\u00efve\nx\ny\n'}, {'id': packed, 'text': 'z'}
  ]
  bad = _write(tmp_path / 'c.txt', b'ab\xff')
  with pytest.raises(InputError, match=r'c.txt: not UTF-8 \(byte 2\)'):
    list(sources.read_texts([bad]))


def test_find_tfds(tmp_path, monkeypatch):
  for version in ('2.9.0', '3.1.0', '3.10.0', '3.2.0.incomplete9'):
    directory = tmp_path / 'c4' / 'en' / version
    directory.mkdir(parents=True)
    (directory / 'dataset_info.json').write_text('{}')
  (tmp_path / 'c4' / 'en' / '4.0.0').mkdir()  # interrupted: no info
  root = str(tmp_path / 'c4' / 'en')
  assert sources.find_tfds('c4/en', str(tmp_path)) == f'{root}/3.10.0'
  assert sources.find_tfds('c4/en:3.1.0', str(tmp_path)) == f'{root}/3.1.0'
  monkeypatch.setenv('TFDS_DATA_DIR', str(tmp_path))
  assert sources.find_tfds('c4/en') == f'{root}/3.10.0'
  for name in ('c4/en:3.0.0', 'c4/de', 'c4'):
    with pytest.raises(InputError, match=f'{name}.*config.data.tfds_dir'):
      sources.find_tfds(name)


def test_held_out_share():
  keys = [f'row {j}' for j in range(20000)]
  for fraction in (0.02, 0.3):
    share = sum(sources.is_held_out(k, fraction) for k in keys) / len(keys)
    assert share == pytest.approx(fraction, rel=0.15)
  assert not any(sources.is_held_out(k, 0) for k in keys)
  assert all(sources.is_held_out(k, 1) for k in keys)
  small = {k for k in keys if sources.is_held_out(k, 0.02)}
  assert small < {k for k in keys if sources.is_held_out(k, 0.3)}


# --- The built-in corpus -----------------------------------------------------


def test_clean():
  text = '''Compute :func:`~pkg.mean` of ``x`` along *axis* [1]_.

Parameters
----------
x : `array`
    See `the guide <https://a.b/c>`_ or [here](https://d.e), **always**.
*args, **kwargs
    Passed on.

>>> mean([1])
1.0

.. math::

    x = y

.. note::
    A note stays.

=====  ====
Code follows::

    drop(this)

```python
drop(this too)
```
The end.

.. [1] A reference
   of two lines.
'''
  assert documentation.clean(text) == '''Compute pkg.mean of x along axis.

Parameters
x : array
    See the guide or here, always.
*args, **kwargs
    Passed on.

    A note stays.

Code follows:

The end.'''


@pytest.fixture(scope='module')
def corpus():
  return sources.builtin_corpus(packages=())


def _words(text):
  return ' ' + ' '.join(re.findall('[a-z0-9]+', text.lower())) + ' '


def test_corpus_is_not_small(corpus):
  # A bare Python 3.11 has 300 documents; of its 1,700 pairs, 997 have a target
  # of six words or more that their input supports.
  assert corpus.statistics['train_documents'] > 200
  assert corpus.statistics['train_pairs'] > 900
  assert corpus.statistics['validation_pairs'] > 20
  assert corpus.statistics['validation_documents'] > 3
  for kind, rows in (('documents', corpus.documents), ('pairs', corpus.pairs)):
    for split in ('train', 'validation'):
      assert corpus.statistics[f'{split}_{kind}'] == len(rows[split])
      assert corpus.statistics[f'words_in_{split}_{kind}'] == sum(
          len(text.split()) for row in rows[split] for text in row[1:])


def test_rows_are_distinct(corpus):
  for rows in (corpus.documents, corpus.pairs):
    rows = rows['train'] + rows['validation']
    assert len({row.id for row in rows}) == len(rows)
  pairs = corpus.pairs['train'] + corpus.pairs['validation']
  assert len({_words(p.summary) for p in pairs}) == len(pairs)
  assert len({_words(p.document) for p in pairs}) == len(pairs)


def test_pairs_are_sound(corpus):
  for pair in corpus.pairs['train'] + corpus.pairs['validation']:
    assert 4 <= len(_words(pair.summary).split()) <= 40
    assert len(_words(pair.document).split()) >= 12
    assert _words(pair.summary) not in _words(pair.document)
    assert not re.search(r'>>>|```|^[-=]{4,}$', pair.document, re.M)


def test_validation_targets_are_nowhere_in_training(corpus):
  trained = ''.join(
      [_words(d.text) for d in corpus.documents['train']] +
      [_words(p.document) + _words(p.summary) for p in corpus.pairs['train']])
  for pair in corpus.pairs['validation']:
    assert _words(pair.summary) not in trained
  # They are in the whole: the check above can fail.
  everything = ''.join(
      _words(d.text) for d in documentation.read_docstrings(packages=()))
  assert all(_words(p.summary) in everything
             for p in corpus.pairs['validation'])


def test_reading_again_gives_the_same_corpus(corpus):
  again = sources.builtin_corpus.__wrapped__(packages=())
  assert again == corpus
  assert again.checksum == corpus.checksum


def _package(root, name, files):
  for file, source in files.items():
    path = root / name / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)


FUNCTION = '''
def {name}(x):
  """{first}

  {body}
  """
  def inner():
    """Never read, because it lies inside of a function that is read."""
'''


def test_packages_are_read_but_not_imported(tmp_path, monkeypatch):
  body = ('The input must be sorted before, number {j} of the many sentences '
          'about the {j} values in the array of the user.')
  firsts = [f'Sort the {j} values of an array.' for j in range(200)]
  functions = '\n'.join(
      FUNCTION.format(name=f'f{j}', first=first, body=body.format(j=j))
      for j, first in enumerate(firsts))
  copies = functions.replace('the many', 'very many')
  _package(tmp_path, 'fakeone', {
      '__init__.py': '"""A package that must not run."""\nraise SystemExit(3)',
      'core.py': functions,
      'broken.py': '"""Not Python 3."""\nprint "hello"\n',
      'code.py': '"""Seldom documented."""\n' + 'x = 1\n' * 500,
      'tests/core.py': functions.replace('values', 'tests'),
      'test_x.py': functions.replace('values', 'others'),
  })
  _package(tmp_path, 'faketwo', {'__init__.py': '', 'api.py': copies})
  monkeypatch.syspath_prepend(str(tmp_path))
  packages = ('fakeone', 'faketwo', 'fakethree')
  monkeypatch.setattr(documentation, '_topics', lambda: iter(()))
  monkeypatch.setattr(documentation.sysconfig, 'get_paths',
                      lambda: {'stdlib': str(tmp_path / 'nothing')})

  docstrings = documentation.read_docstrings(packages)
  assert 'fakeone' not in sys.modules
  assert [d.module for d in docstrings] == (
      ['fakeone'] + 200 * ['fakeone.core'] + 200 * ['faketwo.api'])
  assert docstrings[1].name == 'f0'
  assert docstrings[1].text == f'{firsts[0]}\n\n{body.format(j=0)}'

  corpus = sources.builtin_corpus.__wrapped__(packages)
  train, validation = corpus.pairs['train'], corpus.pairs['validation']
  # One of each two copies; all of them are told apart by a number only.
  assert sorted(p.summary for p in train + validation) == sorted(firsts)
  assert {p.id.split(':')[0] for p in train + validation} == {'fakeone.core'}
  held_out = {p.summary for p in validation}
  assert 0 < len(held_out) < 40
  assert train[0].document.startswith('The input must be sorted before')
  # Both copies of a held-out sentence are missing from the documents.
  text = ''.join(d.text for d in corpus.documents['train'])
  counts = {first: text.count(first) for first in firsts}
  assert all(counts[first] == (0 if first in held_out else 2)
             for first in firsts)
