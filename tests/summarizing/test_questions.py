"""Questions about documents: inputs as in training, the command, errors."""

import html
import json

import numpy as np
import pytest

from configs import default
import locost_jax
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import corpus_rows
from locost_jax.data import pages as pages_lib
from locost_jax.errors import InputError
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing.documents import Document
from locost_jax.workdir import phases as phases_lib
from tests.batches import BYTES
from tests.data.rows import read_jsonl
from tests.data.rows import write_jsonl
from tests.summarizing.summarize_command import read_and_locate

TEXT = 'Whales sing. The sea listens! Ships pass by; nobody hears. The end.'
QUERY = 'Who sings?'
FORMS = [('', '')] + [
    (form, query_in)
    for form in ('spatial', 'chunks', 'sentence_chunks')
    for query_in in ('', 'first')
]


def trained_on(form, query_in):
  """Returns the ids that a training run would read, as lists."""
  config = default.get_config()
  config.data.update(pages=form, query_in=query_in, empty_page='')
  config.data.update(num_pages=2, page_length=30, max_input_length=1000)
  row = {'id': 'a', 'document': TEXT, 'summary': 'x', 'query': QUERY}
  inputs = corpus_rows.make_row(config, None, 'here', row)['inputs']
  if not form:
    return [BYTES.encode(inputs) + [BYTES.eos_id]]
  return pages_lib.of_row(json.loads(inputs), config.data, BYTES)


@pytest.mark.parametrize('form, query_in', FORMS)
def test_a_question_is_read_as_in_training(form, query_in):
  pages = None
  if form:
    pages = documents_lib.Pages(form, 2, 30, '', 0, query_in)
  text = documents_lib.text_of(
      {'document': TEXT, 'query': f' {QUERY}\n'}, pages
  )
  assert text.text == TEXT
  read, places = read_and_locate(BYTES, text, pages)
  assert [list(page) for page in read.pages] == trained_on(form, query_in)
  # Tokens of the document have places, those of the question do not.
  marked = sum((np.asarray(ends) > 0).sum() for ends in places)
  # Pages are cut; sentence chunks omit the spaces between sentences.
  assert marked == len(TEXT) if form in ('', 'chunks') else marked > 30


def test_a_row_has_one_question():
  row = documents_lib.question_of
  assert row('x', {'query': ' a? '}, 'query') == 'a?'
  assert row('x', {'q': 'a?', 'query': 'b?'}, 'q') == 'a?'
  assert row('x', {}, 'query') == row('x', {'query': ''}, 'query') == ''
  for wrong in ({'query': 3}, {'query': ['a?']}, {'queries': ['a?']}):
    with pytest.raises(InputError, match="x: expected a text in 'query'"):
      row('x', wrong, 'query')


def ask(documents, query=None, trained=None, anyway=False):
  lines = []
  asked = documents_lib.ask(documents, query, trained, anyway, lines.append)
  return [document.query for document in asked], lines


A, B = Document('a', 'A.', 'a.txt'), Document('b', 'B.', 'b.txt')
OWN = B._replace(query='x?')


def test_which_questions_are_asked():
  assert ask([A, B]) == (['', ''], [])
  assert ask([A, B], ' y? ') == (['y?', 'y?'], [])
  asked, lines = ask([A, OWN], trained=True)
  assert asked == ['', 'x?']
  assert lines[0].startswith('a: no question, but this model was trained')
  asked, lines = ask([A, OWN], trained=False)
  assert asked == ['', '']
  assert lines[0].startswith('the queries of 1 rows are not read')
  assert ask([OWN], trained=False, anyway=True)[0] == ['x?']
  with pytest.raises(InputError, match='query_field=FIELD, or --ask_anyway'):
    ask([A], 'x?', trained=False)
  with pytest.raises(InputError, match='1 of the rows have a query of their'):
    ask([A, OWN], 'x?')


def test_a_run_records_whether_it_had_queries(tmp_path):
  assert phases_lib.load_queries(tmp_path) is None
  for value in (True, False):
    phases_lib.save_queries(tmp_path, value)
    assert phases_lib.load_queries(tmp_path) is value
  config = default.get_config()
  data = config.data
  rows = [{'document': 'a', 'summary': 'b'}] * 3
  for queries, field, expected in (
      ([], '', False),
      ([{'document': 'a', 'summary': 'b', 'query': 'c'}], '', True),
      ([{'document': 'a', 'summary': 'b', 'query': 'c'}], 'other', False),
      ([{'document': 'a', 'summary': 'b', 'other': 'c'}], 'other', True),
  ):
    path = write_jsonl(tmp_path / 'rows.jsonl', rows + queries)
    data.train_files, data.query_field = str(path), field
    assert corpus_lib.has_queries(config) is expected


def test_the_command_asks(run, call, tmp_path):
  (tmp_path / 'a.txt').write_text(TEXT)
  output, page = tmp_path / 'out.jsonl', tmp_path / 'page.html'
  options = dict(max_length=8, batch_size=1)
  arguments = ['--checkpoint', run, tmp_path / 'a.txt']
  arguments += [f'--{key}={value}' for key, value in options.items()]
  queries = 'Who <sings>?', 'Who listens?'
  files = f'--output={output}', f'--report={page}', '--overwrite'
  for query in queries:
    status, _, err = call(*arguments, f'--query={query}', *files)
    assert status == 0, err
    (row,) = read_jsonl(output)
    text = {'document': TEXT, 'query': query}
    (want,) = locost_jax.load(str(run)).summarize([text], **options)
    assert (row['query'], row['prediction']) == (query, want)
    assert f'Question: {html.escape(query)}<' in page.read_text()
  _, out, _ = call(*arguments, f'--query={query}')
  assert out.startswith('Who listens?: ')
  status, _, err = call(*arguments, *(f'--query={x}' for x in queries))
  assert status == 2 and 'query' in err and err.count('\n') == 1
  call(*arguments, *files)
  assert 'Question: ' not in page.read_text()
  phases_lib.save_queries(run, False)
  status, _, err = call(*arguments, f'--query={query}')
  assert status == 2 and '--ask_anyway' in err
  status, _, _ = call(*arguments, f'--query={query}', '--ask_anyway')
  assert status == 0
  status, _, err = call(*arguments, '--query= ')
  assert status == 2 and '--query is empty' in err
