"""papers/corpora/, prepare.py: tiny files in the authors' layouts."""

import gzip
import json
import re

import pytest

from configs import default
from locost_jax.data import corpora
from locost_jax.data import corpus as corpus_lib
from papers import prepare
from papers.corpora import author_files
from papers.corpora import readers


def lines(*rows):
  return ''.join(json.dumps(row) + '\n' for row in rows)


def put(root, files):
  for name, content in files.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
      path.write_bytes(content)
    else:
      path.write_text(content, encoding='utf-8')


def in_splits(pattern, names, content):
  """Returns the same content for each split, under the authors' names."""
  return {pattern.format(name): content for name in names.split()}


THREE, VAL, DEV = 'train validation test', 'train val test', 'train dev test'
GOV_REPORT = 'gov-report/split_ids/{}.ids'


def make_row(id_, document, summary, **more):
  return dict(id=id_, document=document, summary=summary, **more)


def same(*rows):
  """Returns the same rows for each split."""
  return dict.fromkeys(THREE.split(), list(rows))


def scientific(name, *headings):
  paper = dict(
      article_id='1',
      article_text=['first .', ' second . '],
      labels=None,
      abstract_text=['<S> we show it . </S>', '<S> so it is . </S>'],
      section_names=headings,
      sections=[['first .'], ['second .']],
  )
  return in_splits(f'{name}-dataset/{{}}.txt', VAL, lines(paper))


def section(title, *paragraphs, below=()):
  return dict(
      section_title=title, paragraphs=list(paragraphs), subsections=list(below)
  )


GAO = dict(
    report=[
        section('Letter', 'Dear Sir.', below=[section('Why', 'So.')]),
        section('End', 'Over.'),
    ],
    highlight=[
        section('What GAO Found', 'It found.'),
        section('What GAO Recommends', 'It recommends.'),
    ],
)
CRS = dict(
    summary=['One.', 'Two.'],
    reports=section(
        '', below=[section('Letter', 'Kept.'), section('B', 'b1', 'b2')]
    ),
)

SCRIPT = (
    '<html><head><meta charset=iso-8859-1></head><body><pre>INT. '
    'CAF\u00c9 \u2019NUFF</pre></body></html>'
)
BOOK = (
    'Title\n*** START OF THIS PROJECT GUTENBERG EBOOK X ***\n'
    'It was a dark night. Caf\u00e9.\nThe end.\n'
    '*** END OF THIS PROJECT GUTENBERG EBOOK X ***\nLicence text.'
)


def paper_row(*headings):
  texts = 'first .', 'second .'
  return make_row(
      '1',
      '\n'.join(texts),
      'we show it .\nso it is .',
      sections=[dict(heading=h, text=t) for h, t in zip(headings, texts)],
  )


QUESTIONS = {
    'documents.csv': (
        'document_id,set,kind\nb1,train,gutenberg\nm1,valid,movie\n'
        'x1,test,movie\n'
    ),
    'qaps.csv': (
        'document_id,set,question,answer1,answer2,question_tokenized,'
        'answer1_tokenized,answer2_tokenized\n'
        'b1,train,"When, then?",Night,A night,,,\n'
        'm1,valid,Where?,A room,Inside,,,\nx1,test,What?,A,B,,,\n'
    ),
    'tmp/b1.content': BOOK.encode('latin-1'),
    'tmp/m1.content': SCRIPT.encode('cp1252'),
}
MEETING = dict(
    meeting_transcripts=[
        dict(speaker='PM', content='Hi {vocalsound} all .'),
        dict(speaker='UI', content='{disfmarker}'),
        dict(speaker='UI', content='Yes .'),
    ],
    general_query_list=[dict(query='Summarize.', answer='Hi.')],
    specific_query_list=[
        dict(query='Who?', answer='PM.', relevant_text_span=[['0', '1']])
    ],
)
MET = 'PM: Hi all .\nUI: Yes .'
NIGHT = 'It was a dark night. Caf\u00e9.\nThe end.'
NIGHTS = dict(summary='Night', references=['Night', 'A night'])
CHAPTER = dict(bid='7', source='sparknotes')
CHAPTER['chapter_path'] = 'all_chapterized_books/7/1.txt'
CHAPTERS = lines(
    *(dict(CHAPTER, summary_path=f's/{x}.txt') for x in ('new', 'old', 'gone'))
)
ALIGNED = 'chapter-level-summary-alignments/chapter_summary_aligned'
# task -> (files, {split: rows}); a row is None if its text is missing.
CASES = {
    'arxiv': (
        scientific('arxiv', 'intro', 'end'),
        same(paper_row('intro', 'end')),
    ),
    # A section without a heading is not lost.
    'pubmed': (scientific('pubmed', 'intro'), same(paper_row('intro', ''))),
    'govreport_authors': (
        {
            'gov-report/crs/R1.json': json.dumps(CRS),
            'gov-report/gao/G1.json': json.dumps(GAO),
            **in_splits(GOV_REPORT, 'crs_train', 'R1\n'),
            **in_splits(GOV_REPORT, 'gao_train', 'G1\nG2\n'),
            **in_splits(
                GOV_REPORT, 'crs_valid crs_test gao_valid gao_test', ''
            ),
        },
        dict(
            train=[
                make_row(
                    'CRS_R1',
                    'Letter\nKept.\nB\nb1\nb2',
                    'One.\nTwo.',
                    sections=[
                        dict(heading='Letter', text='Kept.'),
                        dict(heading='B', text='b1\nb2'),
                    ],
                ),
                make_row(
                    'GAO_G1',
                    'Why\nSo.\nEnd\nOver.',
                    'It found.',
                    sections=[
                        dict(heading='Why', text='So.'),
                        dict(heading='End', text='Over.'),
                    ],
                ),
                None,
            ]
        ),
    ),
    'summscreen': (
        {
            **in_splits(
                'SummScreen/ForeverDreaming/fd_{}.json',
                DEV,
                lines(dict(filename='x.json')),
            ),
            **in_splits(
                'SummScreen/TVMegaSite/tms_{}.json',
                DEV,
                lines(dict(filename='y.json')),
            ),
            'SummScreen_raw/fd/x.json': json.dumps(
                dict(Transcript=['A: Hi.', 'B: Ho.'], Recap=['They meet.'])
            ),
            'SummScreen_raw/fd/left_out.json': '{}',
            'SummScreen_raw/tms/y.json': json.dumps(
                dict(Transcript=['C: So.'], Recap='A string.')
            ),
        },
        same(
            make_row('fd/x.json', 'A: Hi.\nB: Ho.', 'They meet.'),
            make_row('tms/y.json', 'C: So.', 'A string.'),
        ),
    ),
    'booksum_chapter': (
        {
            **in_splits(
                f'booksum/alignments/{ALIGNED}_{{}}_split.jsonl',
                VAL,
                CHAPTERS,
            ),
            'all_chapterized_books/7/1.txt': 'The chapter.\n',
            'booksum/scripts/s/new.txt': '{"summary": "A summary. "}',
            'booksum/scripts/s/old.txt': '{"summary": ["A", "list."]}',
        },
        same(
            make_row('sparknotes/7/1', 'The chapter.', 'A summary.'),
            make_row('sparknotes/7/2', 'The chapter.', 'A\nlist.'),
            None,
        ),
    ),
    'booksum_book': (
        {
            **in_splits(
                'alignments/book-level-summary-alignments/'
                'book_summaries_aligned_{}.jsonl',
                VAL,
                lines(
                    dict(
                        bid='7',
                        source='shmoop',
                        title='T',
                        summary_path='s.json',
                        book_path='b/x.txt',
                    )
                ),
            ),
            'b/x.txt': 'The book.',
            'scripts/s.json': '{"summary": "All of it."}',
        },
        same(make_row('shmoop/7/1', 'The book.', 'All of it.')),
    ),
    'narrativeqa': (
        QUESTIONS,
        dict(
            train=[
                dict(NIGHTS, id='b1/0', document=NIGHT, query='When, then?')
            ],
            validation=[
                make_row(
                    'm1/1',
                    'INT. CAF\u00c9 \u2019NUFF',
                    'A room',
                    query='Where?',
                    references=['A room', 'Inside'],
                )
            ],
            test=[None],
        ),
    ),
    'narrativeqa_plot': (
        QUESTIONS
        | {
            'third_party/wikipedia/summaries.csv': (
                'document_id,set,summary,summary_tokenized\n'
                'b1,train," It was dark, and it ends. ",it\n'
                'x1,test,Gone.,gone\n'
            )
        },
        dict(
            train=[
                dict(
                    NIGHTS,
                    id='b1/0',
                    document='Answer the question: When, then?\n\n'
                    f'Summary: It was dark, and it ends.\n\nSource: {NIGHT}',
                )
            ],
            validation=[None],  # no plot summary
            test=[None],  # no story
        ),
    ),
    'qmsum': (
        in_splits('data/ALL/jsonl/{}.jsonl', VAL, lines(MEETING)),
        {
            split: [
                dict(query, id=f'{split}/1/{i}', document=MET)
                for i, query in enumerate(
                    [
                        dict(query='Summarize.', summary='Hi.'),
                        dict(query='Who?', summary='PM.'),
                    ]
                )
            ]
            for split in THREE.split()
        },
    ),
}


def test_every_reader_has_a_case():
  assert set(CASES) == set(readers.READERS)
  raw = {task for task, entry in corpora.TABLE.items() if entry.raw}
  assert raw == set(CASES)


def flags_of(task, folder):
  raw, output = folder / 'raw', folder / 'corpora'
  return f'--task={task}', f'--raw={raw}', f'--output={output}'


@pytest.mark.parametrize('task', CASES)
def test_prepared_corpus_is_found_by_its_name(tmp_path, task, succeed):
  """Runs the command, then reads the corpus like a run."""
  files, expected = CASES[task]
  put(tmp_path / 'raw', files)
  out, _ = succeed(prepare, *flags_of(task, tmp_path))
  config = default.get_config()
  config.data.task, config.data.corpora_dir = task, str(tmp_path / 'corpora')
  found = corpus_lib.corpus(config)
  assert found.splits.keys() == expected.keys()
  for split, rows in expected.items():
    (line,) = re.findall(f'^{split}: .*', out, re.M)
    there = [row for row in rows if row]
    missing = len(rows) - len(there)
    assert f': {len(there)} rows' in line
    assert (f'{missing} missing' in line) == bool(missing)
    assert f'expected {corpora.TABLE[task].splits[split]:,}' in line
    (shard,) = found.splits[split]
    with gzip.open(shard, 'rt') as f:
      assert list(map(json.loads, f)) == there
    for row, want in zip(found.read(split, shard), there, strict=True):
      assert (row['id'], row['targets']) == (want['id'], want['summary'])
      assert row['inputs'] == '\n\n'.join(
          filter(None, (want.get('query'), want['document']))
      )


@pytest.mark.parametrize(
    'page,expected',
    [
        ('<meta charset=utf-8>caf\u00e9'.encode('latin-1'), 'caf\u00e9'),
        (b'<meta charset=iso-8859-1>a\x9db', 'a\x9db'),
        (b'<p>a\0b', 'ab'),
    ],
)
def test_pages_that_declare_the_wrong_encoding(page, expected):
  assert author_files.page_text(page, 'name') == expected


def test_errors_leave_no_files(tmp_path, run_command):
  files, _ = CASES['qmsum']
  put(tmp_path / 'raw', files)
  arguments = flags_of('qmsum', tmp_path)
  file = tmp_path / 'raw' / 'data' / 'ALL' / 'jsonl' / 'test.jsonl'
  for content, message in (
      ('{"metadata": {}}\n', 'not the published files of qmsum'),
      ('{"metadata": ', 'test.jsonl:1: not JSON'),
      (None, 'expected data/ALL/jsonl'),
  ):
    file.unlink()
    if content:
      file.write_text(content)
    status, out, err = run_command(prepare, *arguments)
    assert status == 2 and message in err and err.count('\n') == 1 and not out
    assert not list((tmp_path / 'corpora').iterdir())
    file.write_text('')


def test_a_new_corpus_replaces_the_old_one(tmp_path):
  files, _ = CASES['qmsum']
  put(tmp_path / 'raw', files)
  place = tmp_path / 'corpora' / 'qmsum'
  put(place, {'train-of-old.jsonl': 'x'})
  counts = prepare.prepare(
      'qmsum', str(tmp_path / 'raw'), str(tmp_path / 'corpora')
  )
  names = {path.name for path in place.iterdir()}
  assert names == {f'{split}.jsonl.gz' for split in THREE.split()}
  assert counts['train']['rows'] == counts['test']['query'] == 2


@pytest.mark.parametrize(
    'words, message',
    [
        ('--task=qmsm --raw=.', 'did you mean qmsum?'),
        ('--task=cnn_dailymail --raw=.', 'is read through TFDS'),
        ('--task=qmsum', '--raw=DIR is missing: expected data/ALL/jsonl'),
        ('--task=qmsum --raw=nowhere', '--raw=nowhere: no such directory'),
        ('--task=qmsum --raw=. more', "'more': expected flags only"),
    ],
)
def test_wrong_flags(run_command, words, message):
  status, out, err = run_command(prepare, *words.split())
  assert status == 2 and message in err and err.count('\n') == 1 and not out


def test_without_flags_it_lists_the_corpora(succeed):
  out, _ = succeed(prepare)
  for task, entry in corpora.TABLE.items():
    assert f'\n{task}: ' in f'\n{out}' and entry.raw in out
