"""Own files: several questions in a row, other names for references."""

import json

import pytest

from configs import default
from locost_jax.data import corpus as corpus_lib
from locost_jax.errors import InputError
from tests.data.rows import write_jsonl

ROWS = [
    {
        'id': 'm1',
        'text': 'A long meeting.',
        'questions': [
            {'text': 'Why blue?', 'answer': 'For the sea.', 'n': 3},
            {'text': 'Who decides?', 'answer': 'B.'},
        ],
    },
    {'text': 'Another one.', 'questions': []},
    {'text': 'A third.', 'questions': [{'text': 'When?', 'answer': 'Soon.'}]},
]


def read(tmp_path, rows, **data):
  path = write_jsonl(tmp_path / 'rows.jsonl', rows)
  config = default.get_config()
  config.data.update(dict(test_files=path, **data))
  corpus = corpus_lib.corpus(config)
  return list(corpus.read('test', path)), corpus, path


NESTED = dict(
    input_field='text',
    query_field='questions[].text',
    target_field='questions[].answer',
)


def test_a_row_for_each_question(tmp_path):
  found, _, path = read(tmp_path, ROWS, **NESTED)
  assert [row['id'] for row in found] == ['m1#0', 'm1#1', f'{path}:2#0']
  assert [(row['inputs'], row['targets']) for row in found] == [
      ('Why blue?\n\nA long meeting.', 'For the sea.'),
      ('Who decides?\n\nA long meeting.', 'B.'),
      ('When?\n\nA third.', 'Soon.'),
  ]
  assert corpus_lib.has_queries(read_config(path))


def read_config(path):
  config = default.get_config()
  config.data.update(dict(train_files=str(path), **NESTED))
  return config


@pytest.mark.parametrize(
    'row, data, line',
    [
        ({}, {}, "row 0: field 'questions' must be a list of objects"),
        ({'questions': [{'text': 'b'}]}, {}, r'row 0: questions\[0\] must'),
        ({'questions': ['b']}, {}, r"questions\[0\] must have a text in 'ans"),
        (ROWS[0], dict(query_field='others[].text'), 'fields of one list'),
        (ROWS[0], dict(target_field='questions[].a[].b'), 'fields of one list'),
    ],
)
def test_invalid_lists_are_one_line(tmp_path, row, data, line):
  with pytest.raises(InputError, match=line):
    read(tmp_path, [{'text': 'a', **row}], **{**NESTED, **data})


def test_references_under_another_name(tmp_path):
  row = {'document': 'a', 'summary': 'b', 'answers': ['b', 'c']}
  (found,), corpus, _ = read(tmp_path, [row], references_field='answers')
  assert json.loads(found['references']) == ['b', 'c']
  assert corpus.made_of('test')['references_field'] == 'answers'
  (found,), corpus, _ = read(tmp_path, [row])
  assert found['references'] == ''
  assert 'references_field' not in corpus.made_of('test')
  with pytest.raises(
      InputError, match="'references' must be a list of strings"
  ):
    read(tmp_path, [{**row, 'answers': 'b'}], references_field='answers')
