"""Files of a corpus: CSV, TSV, parquet and text give the rows of JSONL."""

import csv
import gzip
import io
import json
import re
import sys

import numpy as np
import pyarrow
from pyarrow import parquet
import pytest

from locost_jax.data import file_formats
from locost_jax.data import prepared_corpora
from locost_jax.data import sources
from locost_jax.data import tasks
from locost_jax.errors import InputError
from tests.data.rows import config_of
from tests.data.rows import locate
from tests.data.rows import read_all
from tests.data.rows import story

ROWS = [
    dict(
        id=f'r{i}',
        document=f'Text {i}, "said" A.\nA second\tline.\u2028\x85',
        summary=f'S, {i}',
        query='Why?' if i % 2 else '',
        references=[f'S, {i}', 'other'] if i % 3 else [],
    )
    for i in range(120)
]


def to_jsonl(rows):
  return ''.join(json.dumps(row) + '\n' for row in rows).encode()


def to_csv(rows, delimiter=','):
  text = io.StringIO()
  names = list(rows[0])
  writer = csv.DictWriter(text, names, delimiter=delimiter)
  writer.writeheader()
  for row in rows:
    writer.writerow(
        {
            key: json.dumps(value) if isinstance(value, list) else value
            for key, value in row.items()
        }
    )
  return text.getvalue().encode()


def to_parquet(rows, row_group_size=50):
  table = pyarrow.Table.from_pylist(rows)
  data = io.BytesIO()
  parquet.write_table(table, data, row_group_size=row_group_size)
  return data.getvalue()


WRITERS = {
    'a.jsonl': to_jsonl,
    'a.csv': to_csv,
    'a.CSV': to_csv,
    'a.csv.gz': lambda rows: gzip.compress(to_csv(rows)),
    'a.tsv': lambda rows: to_csv(rows, '\t'),
    'a.tsv.gz': lambda rows: gzip.compress(to_csv(rows, '\t')),
    'a.parquet': to_parquet,
}


def write(path, data):
  path.write_bytes(data)
  return str(path)


def make_config(train='', gaps=False, **data):
  data |= dict(vocabulary='byte', max_input_length=64, max_target_length=16)
  return config_of(train, gaps=gaps, **data)


def read(path, fields=('document', 'summary'), unit='file'):
  return list(file_formats.read_rows(str(path), fields, unit))


@pytest.fixture(scope='module')
def expected(tmp_path_factory):
  place = tmp_path_factory.mktemp('jsonl')
  file = write(place / 'a.jsonl', to_jsonl(ROWS))
  config = make_config(file, test_files=file)
  return {
      split: read_all(config, split)
      for split in ('train', 'validation', 'test')
  }


@pytest.mark.parametrize('name', WRITERS)
def test_every_format_has_the_rows_of_jsonl(tmp_path, name, expected):
  """Held-out rows are equal too, because the split depends on the content."""
  file = write(tmp_path / name, WRITERS[name](ROWS))
  config = make_config(file, test_files=file)
  tasks.check(config)
  assert {split: read_all(config, split) for split in expected} == expected
  assert 1 <= len(expected['validation']) < 20
  assert expected['test'][1]['inputs'].startswith('Why?\n\nText 1, "said"')


@pytest.mark.parametrize('name', ['a.csv', 'a.tsv', 'a.parquet', 'a.jsonl'])
def test_names_of_fields(tmp_path, name):
  rows = [
      dict(article=f'a {i}', title='t', asked=f'q {i}', other=3)
      for i in range(3)
  ]
  if name in ('a.parquet', 'a.jsonl'):
    rows = [dict(row, id=i) for i, row in enumerate(rows)]  # as in JSON
  file = write(tmp_path / name, WRITERS[name](rows))
  config = make_config(
      file,
      validation_files=file,
      input_field='article',
      target_field='title',
      query_field='asked',
  )
  found = read_all(config, 'train')
  assert [row['inputs'] for row in found] == [
      f'q {i}\n\na {i}' for i in range(3)
  ]
  prefix = '' if 'id' in rows[0] else f'{name}:'
  assert [row['id'] for row in found] == [f'{prefix}{i}' for i in range(3)]
  config.data.query_field = 'who'
  with pytest.raises(InputError, match="no field 'who'"):
    tasks.check(config)


@pytest.mark.parametrize('name', ['a.csv', 'a.parquet'])
def test_sections_and_documents(tmp_path, name):
  row = dict(
      document='On whales.',
      summary='Whales.',
      sections=[dict(heading='H', text='They sing.')],
      documents=['One.', 'Two.'],
  )
  file = write(tmp_path / name, WRITERS[name]([row]))
  config = make_config(file, validation_files=file, pages='discourse')
  (made,) = read_all(config, 'train')
  assert json.loads(made['inputs'])['sections'] == row['sections']
  config.data.pages = 'document'
  (made,) = read_all(config, 'train')
  assert json.loads(made['inputs'])['documents'] == row['documents']


def test_formats_together(tmp_path):
  for i, (name, writer) in enumerate(WRITERS.items()):
    write(tmp_path / f'{i}{name}', writer(ROWS[10 * i : 10 * i + 10]))
  config = make_config(f'{tmp_path}/*')
  tasks.check(config)
  found = read_all(config, 'train') + read_all(config, 'validation')
  assert {row['id'] for row in found} == {f'r{i}' for i in range(70)}
  write(tmp_path / 'notes.txt', b'A note.')
  with pytest.raises(InputError, match="notes.txt: a text has no field 'summ"):
    tasks.check(config)


TEXT = '\ufeffOne.\r\nTwo.\n \n\n\tThree.\rFour.\n\n\u2028\nFive\x0b.\n'


@pytest.mark.parametrize(
    'unit, expected',
    [
        ('file', ['One.\nTwo.\n \n\n\tThree.\nFour.\n\n\u2028\nFive\x0b.']),
        ('paragraph', ['One.\nTwo.', '\tThree.\nFour.', 'Five\x0b.']),
        ('line', ['One.', 'Two.', '\tThree.', 'Four.', 'Five\x0b.']),
    ],
)
def test_units_of_a_text(tmp_path, unit, expected):
  path = write(tmp_path / 'a.txt', TEXT.encode())
  rows = read(path, ('text',), unit)
  assert [row['text'] for row in rows] == expected
  packed = write(tmp_path / 'b.txt.gz', gzip.compress(TEXT.encode()))
  assert read(packed, ('text',), unit) == rows
  blank = write(tmp_path / 'c.txt', b'\xef\xbb\xbf \n\n')
  assert read(blank, ('text',), unit) == []


def test_only_caches_of_texts_depend_on_the_unit(tmp_path):
  text = write(tmp_path / 'a.txt', '\n\n'.join(map(story, range(4))).encode())
  rows = write(tmp_path / 'a.jsonl', to_jsonl([dict(text=story(0))]))

  def place(file, unit):
    return locate(make_config(file, gaps=True, text_unit=unit))[0]

  assert place(rows, 'file') == place(rows, 'line')
  assert len({place(text, unit) for unit in ('file', 'line', 'paragraph')}) == 3


@pytest.mark.parametrize('delimiter', [',', '\t'])
def test_lone_surrogates_in_json_cells(tmp_path, delimiter, capsys):
  path = tmp_path / ('a.csv' if delimiter == ',' else 'a.tsv')
  row = dict(document='A.', summary='B.', references=['B \ud800', '\udc00'])
  path.write_bytes(to_csv([row] * 2, delimiter))
  for read in file_formats.read_rows(str(path), ('document',), 'file'):
    assert read['references'] == ['B \ufffd', '\ufffd']
  said = f'{path}: 4 lone surrogates in JSON, replaced by U+FFFD\n'
  assert capsys.readouterr().err == said


READ = {
    # A byte order mark, ends of lines as of Windows, blank lines, and letters
    # at which str.splitlines splits.
    'a.jsonl': (
        '\ufeff{"document": "a\x85b\u2028c", "summary": "d\\nf"}\r\n  \n'
        '{"document": "g", "summary": "h"}',
        [('a\x85b\u2028c', 'd\nf'), ('g', 'h')],
    ),
    'a.csv': ('\ufeff"document","summary"\r\na,b\r\n\r\n', [('a', 'b')]),
    # Ends of lines as of Macintosh.
    'b.csv': (
        'document,summary\ra,"b\rc"\rd,e\r',
        [('a', 'b\rc'), ('d', 'e')],
    ),
    # Quotes as letters, where they would swallow rows or break cells.
    'a.tsv': (
        'document\tsummary\n"Yes," she said.\tA.\n5" of rain\t"B\nIt fell.\t'
        '"C" it is\n',
        [
            ('"Yes," she said.', 'A.'),
            ('5" of rain', '"B'),
            ('It fell.', '"C" it is'),
        ],
    ),
    # Quotes around cells, with a line and a tab in them.
    'b.tsv': (
        'document\tsummary\n"One ""1""\nand\ttwo"\tA.\n',
        [('One "1"\nand\ttwo', 'A.')],
    ),
}


@pytest.mark.parametrize('name', READ)
def test_lines_and_cells(tmp_path, name):
  text, expected = READ[name]
  found = read(write(tmp_path / name, text.encode()))
  assert [(row['document'], row['summary']) for row in found] == expected
  packed = write(tmp_path / f'{name}.gz', gzip.compress(text.encode()))
  assert read(packed) == found


def test_one_text_is_too_few_rows_for_a_split(tmp_path):
  file = write(tmp_path / 'a.txt', '\n\n'.join(map(story, range(9))).encode())
  with pytest.raises(InputError, match="too few rows.*text_unit='paragraph'"):
    tasks.check(make_config(file, gaps=True))
  config = make_config(file, gaps=True, text_unit='paragraph')
  tasks.check(config)
  assert len(read_all(config, 'train')) == 8


HEAD = b'document,summary\n'
FINE = HEAD + b'a,b\n'
MORE = b'document,summary,%s\na,b,%s\n'
LINES = b'{"document": "a", "summary": "b"}\n'
OTHER = (
    b'{"id": "a", "article": "a b c", "highlights": "a", "query": "abcdefg"}\n'
)
TRY = '; try --config.data.input_field=%s --config.data.target_field=%s'


def parquet_of(**columns):
  """Returns a parquet file of columns, also of unusual types."""
  data = io.BytesIO()
  parquet.write_table(pyarrow.table(columns), data)
  return data.getvalue()


def two(*documents, **columns):
  return parquet_of(
      document=list(documents), summary=['b'] * len(documents), **columns
  )


def bad_utf8():
  texts = pyarrow.array([b'a', b'\xff'], pyarrow.binary())
  return parquet_of(document=texts.view(pyarrow.string()), summary=['a', 'b'])


def damaged():
  data = bytearray(to_parquet([dict(document=story(0), summary='b')] * 400))
  data[40:400] = bytes(360)
  return bytes(data)


BAD = {
    # Column names.
    'a.csv': (b'document,title\na,b\n', ":1: no field 'summary'; the header"),
    'b.csv': (b'document;summary\n', ":1: no field .*expected ',' between"),
    'c.tsv': (b'document,summary\n', r":1: no field .*expected '\\t' between"),
    'd.csv': (b'document,summary,document\n', ":1: two columns are called 'd"),
    'e.csv': (b'x' * 5000 + b'\na\n', ":1: no field 'document'"),
    # Rows.
    'f.csv': (FINE + b'\nonly one\n', ':4: 1 field, expected 2 as in the head'),
    'g.csv': (FINE + b'a,b,c\n', ':3: 3 fields, expected 2 as in the header'),
    'h.csv': (FINE + b'"a"x,b\n', ':3: broken quoting'),
    'i.csv': (FINE + b'a,"b\nc,d\n' * 9, ':3: '),
    'j.csv': (FINE + b'a,"never closed\n', ':3: a quote that is never closed'),
    'k.csv': (FINE + b'\xe9t\xe9,b\n', r':3: not UTF-8 \(byte 0\)'),
    'l.csv': (FINE + b'a\0,b\n', ':3: a NUL byte'),
    'm.csv': (FINE.decode().encode('utf-16'), ':1: a NUL byte.* UTF-16'),
    'n.csv': (
        MORE % (b'references', b'c'),
        'references. must be a list of str',
    ),
    'p.csv': (MORE % (b'sections', b'[' * 100_000), "sections' must be a list"),
    'b.jsonl': (
        lambda: to_jsonl([dict(ROWS[0], sections=[dict(heading='a')])]),
        ": row 1: field 'sections' must be a list of objects with",
    ),
    'c.jsonl': (
        lambda: to_jsonl([dict(ROWS[0], references=[1])]),
        ": row 1: field 'references' must be a list of strings",
    ),
    # Files.
    'q.csv.gz': (FINE, ': cannot be read'),
    'r.csv.gz': (gzip.compress(FINE * 9999)[:99], ': cannot be read'),
    's.csv': (HEAD, ': the train split is empty: no documents'),
    # Parquet.
    'a.parquet': (b'', ': not a parquet file'),
    'b.parquet': (lambda: to_parquet(ROWS)[:-100], ': not a parquet file'),
    'c.parquet.gz': (lambda: to_parquet(ROWS), ': parquet .*not compressed by'),
    'd.parquet': (lambda: to_parquet([dict(document='a')]), ": no field 'summ"),
    'e.parquet': (lambda: two(['a']), 'must hold strings, got list<.*string>'),
    'f.parquet': (lambda: two(b'a'), "'document' must hold strings, got bin"),
    'h.parquet': (lambda: two('a', None), ": row 2: field 'document' must be"),
    'i.parquet': (bad_utf8, ": row 2: field 'document' is not UTF-8"),
    'j.parquet': (damaged, ': cannot be read'),
    'k.parquet': (lambda: to_parquet([]), "'document'; the header has none"),
    'l.parquet': (lambda: two('a', query=[3]), "'query' must be a string, got"),
    # Other names are read as JSONL.
    'a.xlsx': (b'PK\x03\x04\xff', r":1: not UTF-8.*'.xlsx' is read as JSONL"),
    'a.jsonl': (FINE, ':1: not JSON: Expecting value: line 1 column 1 .char 0'),
    'd.jsonl': (
        LINES + b'{"document": 3}\n',
        ":2: field 'document' must be a ",
    ),
    'e.jsonl': (LINES + b'\n{"document": "\xff"}\n', ':3: not UTF-8'),
    'f.jsonl': (LINES + b'[' * 100_000, ':2: not JSON'),
    'a.json': (
        b'[\n{}\n]',
        r":1: not JSON: .*; a JSON list\? .*: jq -c '.\[\]';",
    ),
    'b.json': (
        b'[{}]\n',
        r":1: .*, got list; a JSON list\? .*: jq -c '.\[\]'$",
    ),
    'd.tsv': (b'document\tsummary\n"a" b\tc\nd\n', ':2: broken quoting'),
    'y.jsonl': (
        LINES + b'{"document": "a", "summary": "b", "id": [1]}\n',
        ": row 2: field 'id' must be a string or a number, got list",
    ),
    'z.jsonl': (
        LINES + json.dumps(dict.fromkeys(map(str, range(99)))).encode(),
        ":2: no field 'document'; the row has '0', '1', .*, '11', ...$",
    ),
    # All bad rows are reported, with their numbers.
    'g.jsonl': (
        LINES + b'{\n[]\n{}\n{}\n{\n',
        ':2: not JSON: [^;]*; 4 more bad rows: 3 .expected a JSON object, got '
        "list., 4 .no field 'document'; the row has none., 5 .no .*, ...$",
    ),
    'h.jsonl': (
        LINES + b'{"document": "a", "summary": "b", "references": "c"}\n' * 3,
        ": row 2: field 'references' must .*; 2 more bad rows: row 3, row 4$",
    ),
    'i.jsonl': (
        OTHER * 300,
        f':1: no field .*{TRY % ("article", "highlights")}; at least 99 more bad '
        'rows: 2, 3, 4, ...$',
    ),
    't.csv': (
        FINE + b'a\nb\n"c\n',
        ':3: 1 .*; 2 more bad rows: 4, 5 .a quote ',
    ),
    'u.csv': (b'article,b\n', f":1: no .*'b'{TRY % ('FIELD', 'FIELD')}$"),
    'm.parquet': (
        lambda: two('a', None, 'b', None),
        ": row 2: field 'document' must .*; 1 more bad rows: row 4$",
    ),
    # Texts.
    'a.txt': (b'a\nb\xff\n', r':2: not UTF-8 \(byte 1\)'),
    'b.txt': (b'a\n\nb\0\n', ':3: a NUL byte'),
    'c.txt.gz': (b'a', ': cannot be read'),
    'd.txt': (b' \n', ': the train split is empty: no documents'),
    'e.txt': (b'{"title": "a"}\n', ":1: JSON in a text.* '.jsonl'"),
}


@pytest.mark.parametrize('name', BAD)
def test_errors_are_one_line(tmp_path, name):
  data, message = BAD[name]
  file = write(tmp_path / name, data() if callable(data) else data)
  is_text = file_formats.is_text(file)
  for unit in file_formats.UNITS if is_text else ('file',):
    config = make_config(file, is_text, validation_files=file, text_unit=unit)
    with pytest.raises(InputError, match=message) as error:
      tasks.check(config)
      read_all(config, 'train')
    assert '\n' not in str(error.value) and len(str(error.value)) < 400
    assert re.match(
        rf'({re.escape(str(tmp_path))}/)?{re.escape(name)}:', str(error.value)
    )


def test_kinds_of_columns(tmp_path):
  """Categories of pandas, long strings, and a name with a dot."""
  texts = pyarrow.array(['a', 'b', 'a'])
  columns = {
      'my.text': texts.cast(pyarrow.large_string()),
      'sum': texts.dictionary_encode(),
      'my': pyarrow.array([[1], [2], [3]]),
  }
  file = write(tmp_path / 'a.parquet', parquet_of(**columns))
  assert read(file, ('my.text', 'sum')) == [
      {'my.text': text, 'sum': text} for text in 'aba'
  ]


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
  file = write(tmp_path / 'a.parquet', to_parquet(ROWS))
  monkeypatch.setitem(sys.modules, 'pyarrow', None)
  with pytest.raises(InputError, match='a.parquet: .*needs pyarrow: pip inst'):
    read(file)


@pytest.mark.parametrize('name', ['a.csv', 'a.tsv', 'a.parquet', 'a.jsonl'])
def test_a_field_of_several_megabytes(tmp_path, name):
  book = 'All of a book, "quoted".\n' * 200_000
  file = write(
      tmp_path / name, WRITERS[name]([dict(document=book, summary='b')])
  )
  (row,) = read(file)
  assert row['document'] == book


@pytest.mark.parametrize('name', ['a.csv', 'a.txt'])
def test_a_field_that_never_ends(tmp_path, name, monkeypatch):
  """The size is checked before the field is in memory."""
  monkeypatch.setattr(file_formats.sources, 'LONGEST', 1000)
  for end in b'\n', b'':
    data = b'document\n"' + (b'x' * 99 + end) * 99
    file = write(tmp_path / name, data)
    with pytest.raises(InputError, match=rf'{name}.* more than 1,000'):
      read(file, ('document',))


def test_rows_are_yielded_while_the_file_is_read(tmp_path):
  for name in 'a.csv', 'a.tsv', 'a.jsonl':
    file = write(tmp_path / name, WRITERS[name](ROWS) + b'\xff\n')
    rows = file_formats.read_rows(file, ('document', 'summary'), 'file')
    for row in ROWS:
      assert next(rows)['document'] == row['document']
    with pytest.raises(InputError, match='not UTF-8'):
      next(rows)
  file = write(tmp_path / 'a.txt', b'x\n' * 10 + b'\xff')
  rows = file_formats.read_rows(file, ('text',), 'line')
  assert [next(rows)['text'] for _ in range(9)] == ['x'] * 9  # reads one ahead


def test_parquet_is_read_in_pieces(tmp_path):
  rng = np.random.default_rng(0)
  rows = [
      dict(document=rng.bytes(50_000).hex(), summary='b') for _ in range(200)
  ]
  file = write(tmp_path / 'a.parquet', to_parquet(rows, row_group_size=20))
  before = pyarrow.total_allocated_bytes()
  most, found = 0, 0
  for row in file_formats.read_rows(file, ('document', 'summary'), 'file'):
    assert row['document'] == rows[found]['document']
    found += 1
    most = max(most, pyarrow.total_allocated_bytes() - before)
  assert found == 200
  assert most < 8e6  # of 20 MB in row groups of 2 MB


def test_globs(tmp_path):
  for name in ('b.jsonl', 'a.jsonl', 'c[1].jsonl', 'd.txt'):
    write(tmp_path / name, b'')
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
  with pytest.raises(InputError, match='directory.jsonl: is a directory'):
    sources.expand_globs(f'{tmp_path}/directory.jsonl')
  with pytest.raises(InputError):
    sources.expand_globs(' , ')


def test_lone_surrogates_are_replaced_and_counted(tmp_path, capsys):
  lines = [
      r'{"id": "\ud800", "text": "a \udbff\uD800 \ud83d\ude00", "n": 1.50}',
      r'{"id": "b", "text": "\\ud800", "parts": [{"a": "\udc00"}, 1e400]}',
      r'{"id": "c", "text": "plain"}',
  ]
  path = write(tmp_path / 'a.jsonl', '\n'.join(lines).encode())
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
