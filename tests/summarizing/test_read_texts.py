"""locost_jax.read: the texts of files, from Python."""

import json
import shutil

import pytest

import locost_jax
from locost_jax.errors import InputError
from tests.summarizing.summarize_command import write_documents


def test_a_text_per_document(tmp_path):
  (tmp_path / 'a.html').write_text('<h1>One</h1><p>two</p>')
  write_documents(tmp_path / 'b.jsonl', ['three', 'four'])
  assert locost_jax.read(tmp_path) == ['One\n\ntwo', 'three', 'four']
  assert locost_jax.read(str(tmp_path / 'a.html')) == ['One\n\ntwo']


def test_a_file_that_cannot_be_read(tmp_path):
  with pytest.raises(InputError, match='^.*/a.txt: no such file'):
    locost_jax.read(tmp_path / 'a.txt')
  (tmp_path / 'a.txt').write_text('One.')
  (tmp_path / 'b.txt').write_text('')
  with pytest.raises(InputError, match='^.*/b.txt: an empty document'):
    locost_jax.read(tmp_path)


def test_the_name_of_a_file_is_no_document(run, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  summarizer = locost_jax.load(run)
  assert len(summarizer.summarize('a.txt')) == 1  # a text, as there is no file
  (tmp_path / 'a.txt').write_text('One.')
  with pytest.raises(InputError, match=r"a text, .* locost_jax.read\('a.txt"):
    summarizer.summarize(['One.', 'a.txt'])


def test_an_empty_text_has_no_summary(run, batches):
  """It is refused before anything is computed."""
  summarizer = locost_jax.load(run)
  for texts, name in (
      (['One.', 'Two.', 'Three.', ' \n'], r'texts\[3\]'),
      ([''], r'texts\[0\]'),
      ('', 'the text'),
      ({'document': '', 'query': 'Who?'}, 'the text'),
  ):
    with pytest.raises(InputError, match=f'^{name} is empty: expected some te'):
      summarizer.summarize(texts)
  with pytest.raises(InputError, match=r'^texts\[1\] is empty'):
    locost_jax.pipeline(model=summarizer)(['One.', ''])
  assert summarizer.summarize([]) == [] and not batches


def test_a_row_with_the_field_names_of_the_run(run, tmp_path):
  path = shutil.copytree(run, tmp_path / 'run') / 'config.json'
  config = json.loads(path.read_text())
  config['data'] |= dict(input_field='article', query_field='ask')
  path.write_text(json.dumps(config))
  summarizer = locost_jax.load(path.parent)
  want = summarizer.summarize({'document': 'A text.', 'query': 'Who?'})
  row = {'article': 'A text.', 'ask': 'Who?', 'document': 'Another one.'}
  assert summarizer.summarize([row]) == want
  written = summarizer.generate([summarizer.tokenize(row)], max_length=6)
  assert [summarizer.vocabulary.decode(ids) for ids in written] == want
