"""data/builtin_corpus.py and documentation.py on this machine."""

import re
import sys

import pytest

from locost_jax.data import builtin_corpus
from locost_jax.data import documentation


def test_clean():
  text = """Compute :func:`~pkg.mean` of ``x`` along *axis* [1]_.

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
"""
  assert documentation.clean(text) == """Compute pkg.mean of x along axis.

Parameters
x : array
    See the guide or here, always.
*args, **kwargs
    Passed on.

    A note stays.

Code follows:

The end."""


@pytest.fixture(scope='module')
def corpus():
  return builtin_corpus.make_corpus(packages=())


def _words(text):
  return ' ' + ' '.join(re.findall('[a-z0-9]+', text.lower())) + ' '


def test_corpus_is_not_small(corpus):
  # Plain Python 3.11 gives 300 documents; 997 of its 1,700 pairs have a target
  # of six words or more that the input supports.
  assert corpus.statistics['train_documents'] > 200
  assert corpus.statistics['train_pairs'] > 900
  assert corpus.statistics['validation_pairs'] > 20
  assert corpus.statistics['validation_documents'] > 3
  for kind, rows in (('documents', corpus.documents), ('pairs', corpus.pairs)):
    for split in ('train', 'validation'):
      assert corpus.statistics[f'{split}_{kind}'] == len(rows[split])
      assert corpus.statistics[f'words_in_{split}_{kind}'] == sum(
          len(text.split()) for row in rows[split] for text in row[1:]
      )


def test_rows_are_distinct(corpus):
  for rows in (corpus.documents, corpus.pairs):
    rows = rows['train'] + rows['validation']
    assert len({row.id for row in rows}) == len(rows)
  pairs = corpus.pairs['train'] + corpus.pairs['validation']
  assert len({_words(p.summary) for p in pairs}) == len(pairs)
  assert len({_words(p.document) for p in pairs}) == len(pairs)


def test_pairs_are_valid(corpus):
  for pair in corpus.pairs['train'] + corpus.pairs['validation']:
    assert 4 <= len(_words(pair.summary).split()) <= 40
    assert len(_words(pair.document).split()) >= 12
    assert _words(pair.summary) not in _words(pair.document)
    assert not re.search(r'>>>|```|^[-=]{4,}$', pair.document, re.M)


def test_validation_targets_are_not_in_training(corpus):
  trained = ''.join(
      [_words(d.text) for d in corpus.documents['train']]
      + [_words(p.document) + _words(p.summary) for p in corpus.pairs['train']]
  )
  for pair in corpus.pairs['validation']:
    assert _words(pair.summary) not in trained
  # Negative control: the unfiltered corpus contains them.
  everything = ''.join(
      _words(d.text) for d in documentation.read_docstrings(packages=())
  )
  assert all(
      _words(p.summary) in everything for p in corpus.pairs['validation']
  )


def test_reading_again_gives_the_same_corpus(corpus):
  again = builtin_corpus.make_corpus.__wrapped__(packages=())
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
  body = (
      'The input must be sorted before, number {j} of the many sentences '
      'about the {j} values in the array of the user.'
  )
  firsts = [f'Sort the {j} values of an array.' for j in range(200)]
  functions = '\n'.join(
      FUNCTION.format(name=f'f{j}', first=first, body=body.format(j=j))
      for j, first in enumerate(firsts)
  )
  copies = functions.replace('the many', 'very many')
  _package(
      tmp_path,
      'fakeone',
      {
          '__init__.py': '"""A package that must not run."""\nraise SystemExit(3)',
          'core.py': functions,
          'broken.py': '"""Not Python 3."""\nprint "hello"\n',
          'code.py': '"""Seldom documented."""\n' + 'x = 1\n' * 500,
          'tests/core.py': functions.replace('values', 'tests'),
          'test_x.py': functions.replace('values', 'others'),
      },
  )
  _package(tmp_path, 'faketwo', {'__init__.py': '', 'api.py': copies})
  monkeypatch.syspath_prepend(str(tmp_path))
  packages = ('fakeone', 'faketwo', 'fakethree')
  monkeypatch.setattr(documentation, '_topics', lambda: iter(()))
  monkeypatch.setattr(
      documentation.sysconfig,
      'get_paths',
      lambda: {'stdlib': str(tmp_path / 'nothing')},
  )

  docstrings = documentation.read_docstrings(packages)
  assert 'fakeone' not in sys.modules
  assert [d.module for d in docstrings] == (
      ['fakeone'] + 200 * ['fakeone.core'] + 200 * ['faketwo.api']
  )
  assert docstrings[1].name == 'f0'
  assert docstrings[1].text == f'{firsts[0]}\n\n{body.format(j=0)}'

  corpus = builtin_corpus.make_corpus.__wrapped__(packages)
  train, validation = corpus.pairs['train'], corpus.pairs['validation']
  # One of two copies that differ only in a number.
  assert sorted(p.summary for p in train + validation) == sorted(firsts)
  assert {p.id.split(':')[0] for p in train + validation} == {'fakeone.core'}
  held_out = {p.summary for p in validation}
  assert 0 < len(held_out) < 40
  assert train[0].document.startswith('The input must be sorted before')
  # Both copies of a held-out sentence are missing from the documents.
  text = ''.join(d.text for d in corpus.documents['train'])
  counts = {first: text.count(first) for first in firsts}
  assert all(
      counts[first] == (0 if first in held_out else 2) for first in firsts
  )
