"""The table of corpora: sizes, sources and how their rows are read.

To add a corpus, add an entry to TABLE; MIXTURES lists corpora that are trained
on together. data/prepared_corpora.py finds their files.

Sizes are asserted: a corpus whose number of rows differs from the paper's is
refused unless config.data.check_sizes=False.
"""

import functools
from typing import Callable, NamedTuple

SEPARATOR = '|||||'  # between the documents of a row of Multi-News
# Names of a document and its summary in the rows of TFDS, and in the published
# files. A row's first names count: BookSum's rows also have another `summary`.
COLUMNS = (
    ('document', 'summary'),
    ('chapter', 'summary_text'),
    ('article', 'abstract'),
    ('article', 'highlights'),
    ('report', 'summary'),
    ('input', 'output'),
    ('transcript', 'recap'),
    ('document', 'answers', 'question'),  # NarrativeQA on the Hub
    ('document', 'questions'),  # SQuALITY, by `squality`
)


def columns(names):
  """Returns the COLUMNS that are all in names, or else the first ones."""
  return next((found for found in COLUMNS if {*found} <= {*names}), COLUMNS[0])


def named(row):
  """Returns document, summary ('' if hidden) and, if it has one, id of a row."""
  document, summary = columns(row)
  found = dict(document=row[document], summary=row[summary] or '')
  return dict(id=row['id'], **found) if 'id' in row else found


class Entry(NamedTuple):
  """One corpus."""

  splits: dict  # split -> number of rows
  counted_by: str  # the source of `splits`
  raw: str = ''  # the authors' files that papers/prepare.py reads
  tfds: tuple = ()  # 'name/config:version' in TFDS; all are read
  download: str = ''  # size of the download by TFDS
  row: Callable = named  # converts a row of TFDS or of published files
  rows: Callable | None = None  # instead: (row, split) -> several rows
  gsg: bool = False  # whether gap sentences are made of the field `text`


def scientific(row):
  """Converts a row of scientific papers: strips the lines, drops empty ones."""
  # The abstract's lines have stray spaces, and some are empty.
  found = named(row)
  for field in 'document', 'summary':
    lines = [line.strip() for line in found[field].split('\n')]
    found[field] = '\n'.join(filter(None, lines))
  return found


def scrolls_with_query(row):
  """Converts a row of SCROLLS; its input is query, blank line, document."""
  found = named(row)
  query, _, document = found['document'].partition('\n\n')
  return dict(found, document=document, query=query)


def multi_news(row):
  """Converts a row of Multi-News, which joins its documents in one text."""
  documents = split_documents(row['document'])
  return dict(
      document=join_documents(documents),
      documents=documents,
      summary=row['summary'].strip(),
  )


def wcep(row):
  """Converts a row of WCEP on the Hub, with </s> between its documents."""
  return multi_news(
      dict(row, document=row['document'].replace('</s>', SEPARATOR))
  )


def narrative_qa(row, with_plot=False):
  """Converts a row of NarrativeQA on the Hub, or of SCROLLS if not with_plot.

  Args:
    with_plot: whether documents are those of SimCAS's release: question,
      summary of the plot and story, each after a label, and there is no query.
  """
  if 'input' in row and not with_plot:
    return scrolls_with_query(row)
  answers = [answer['text'].strip() for answer in row['answers']]
  made = dict(summary=answers[0], references=answers)
  question, story = row['question']['text'].strip(), row['document']['text']
  if not with_plot:
    return dict(made, document=story, query=question)
  plot = row['document']['summary']['text'].strip()
  text = (
      f'Answer the question: {question}\n\nSummary: {plot}\n\nSource: {story}'
  )
  return dict(made, document=text)


def squality(row, split):
  """Yields a row of each question to a story; in training of each response."""
  for question in row['questions']:
    answers = [one['response_text'].strip() for one in question['responses']]
    made = dict(
        id=f'{row["metadata"]["passage_id"]}/{question["question_number"]}',
        document=row['document'].strip(),
        query=question['question_text'].strip(),
    )
    if split != 'train':
      yield dict(made, summary=answers[0], references=answers)
    else:
      for i, answer in enumerate(answers):
        yield dict(made, id=f'{made["id"]}/{i}', summary=answer)


def split_documents(text):
  """Splits 'a ||||| b' into ['a', 'b'], without empty documents."""
  parts = (part.strip() for part in text.split(SEPARATOR))
  return [part for part in parts if part]


def join_documents(documents):
  """Joins documents into one text with Multi-News's separator."""
  return f'\n\n{SEPARATOR}\n\n'.join(documents)


# For research only. Not read through TFDS, which puts a blank after every
# character of summaries that the scripts have made since July 2021.
_BOOKSUM = Entry(
    splits=dict(train=9_600, validation=1_484, test=1_431),
    counted_by='LOCOST, table 9',
    raw='the booksum repository after its scripts, with '
    'all_chapterized_books next to',
)
_NARRATIVEQA = Entry(
    splits=dict(train=32_747, validation=3_461, test=10_557),
    counted_by='the authors; SimCAS, table 6, in thousands',
    raw='the repository after download_stories.sh: documents.csv, qaps.csv '
    'and tmp/*.content',
    row=narrative_qa,
)

TABLE = {
    'c4_gsg': Entry(
        splits=dict(train=364_868_892, validation=364_608),
        counted_by='the copy of allenai, not asserted',
        tfds=('c4/en:3.1.0',),
        download="7 TB of Common Crawl, for 807 GiB; allenai/c4's en/"
        'c4-*.json.gz, 305 GB, are read as they are from '
        'corpora/c4_gsg',
        row=lambda row: dict(id=row['url'], text=row['text']),
        gsg=True,
    ),
    # Lower-cased and tokenised. TFDS has no sections and another order of rows.
    'arxiv': Entry(
        splits=dict(train=203_037, validation=6_436, test=6_440),
        counted_by='LOCOST, table 9',
        raw='arxiv-dataset/{train,val,test}.txt of the authors',
        tfds=('scientific_papers/arxiv:1.1.1',),
        download='4.2 GiB',
        row=scientific,
    ),
    'pubmed': Entry(
        splits=dict(train=119_924, validation=6_633, test=6_658),
        counted_by='LOCOST, table 9',
        raw='pubmed-dataset/{train,val,test}.txt of the authors',
        tfds=('scientific_papers/pubmed:1.1.1',),
        download='4.2 GiB',
        row=scientific,
    ),
    # TFDS hides the summaries of the test splits of SCROLLS; those of its own
    # gov_report are broken.
    'govreport': Entry(
        splits=dict(train=17_457, validation=972, test=973),
        counted_by='LOCOST, table 9',
        tfds=('scrolls/gov_report:1.0.0',),
        download='302 MiB',
    ),
    'govreport_authors': Entry(
        splits=dict(train=17_519, validation=974, test=973),
        counted_by="the authors' dataset card; PageSum, table 1, in thousands",
        raw='gov-report/{crs,gao}/*.json and gov-report/split_ids',
    ),
    'summscreenfd': Entry(
        splits=dict(train=3_673, validation=338, test=337),
        counted_by='LOCOST, table 9',
        tfds=('scrolls/summ_screen_fd:1.0.0',),
        download='49 MiB',
    ),
    'summscreen': Entry(
        splits=dict(train=22_588, validation=2_133, test=2_130),
        counted_by='the authors; SimCAS, table 6, in thousands',
        raw='SummScreen_raw/{fd,tms} and SummScreen, for the splits',
        tfds=('summscreen/fd:1.0.0', 'summscreen/tms:1.0.0'),
        download='841 MiB',
    ),
    'booksum_chapter': _BOOKSUM,
    'booksum_book': _BOOKSUM._replace(
        splits=dict(train=314, validation=45, test=46)
    ),
    # For non-commercial research and education.
    'multinews': Entry(
        splits=dict(train=44_972, validation=5_622, test=5_622),
        counted_by='the authors; PageSum, table 1, in thousands',
        tfds=('multi_news:2.1.0',),
        download='722 MiB',
        row=multi_news,
    ),
    # SimCAS shuffles the articles of a row anew each time, and draws one of two
    # answers of narrativeqa_plot; here they stay in order.
    'wcep': Entry(
        splits=dict(train=8_158, validation=1_020, test=1_022),
        counted_by='the copy of PRIMERA; SimCAS, table 6, in thousands',
        row=wcep,
    ),
    'narrativeqa': _NARRATIVEQA,
    'narrativeqa_plot': _NARRATIVEQA._replace(
        raw='the repository after download_stories.sh: documents.csv, qaps.csv, '
        'third_party/wikipedia/summaries.csv and tmp/*.content',
        row=functools.partial(narrative_qa, with_plot=True),
    ),
    # Not the lower-cased, tokenised text that the authors score.
    'qmsum': Entry(
        splits=dict(train=1_257, validation=272, test=281),
        counted_by="the authors' files and TFDS's catalogue",
        raw='data/ALL/jsonl/{train,val,test}.jsonl of the authors',
        tfds=('scrolls/qmsum:1.0.0',),
        download='26 MiB',
        row=scrolls_with_query,
    ),
    'squality': Entry(
        splits=dict(train=1_000, validation=125, test=260),
        counted_by='the authors (training: every response by itself)',
        rows=squality,
    ),
    # A row per answer, each scored by itself; an id is that of the question.
    'qasper': Entry(
        splits=dict(train=2_567, validation=1_726, test=1_399),
        counted_by="TFDS's catalogue",
        tfds=('scrolls/qasper:1.0.0',),
        download='19 MiB',
        row=scrolls_with_query,
    ),
    'cnn_dailymail': Entry(
        splits=dict(train=287_113, validation=13_368, test=11_490),
        counted_by="TFDS's catalogue",
        tfds=('cnn_dailymail:3.4.0',),
        download='558 MiB',
    ),
    # TFDS reads only a crawl that you make, which has other rows.
    'xsum': Entry(
        splits=dict(train=204_045, validation=11_332, test=11_334),
        counted_by='the authors',
    ),
}


# Corpora whose rows begin with a query.
WITH_QUERIES = ('narrativeqa', 'qmsum', 'squality', 'qasper')

# Corpora trained on together; config.data.mixture_cap limits their rates.
MIXTURES = {
    name: tuple(members.split())
    for name, members in {
        # The corpora that LOCOST is fine-tuned on (one by one) in its paper.
        # One book of booksum_chapter's training split is in booksum_book's test
        # split, and one of booksum_book's in booksum_chapter's validation split.
        'locost_finetune': (
            'arxiv pubmed govreport summscreenfd booksum_chapter booksum_book'
        ),
        'scrolls_summarization': 'govreport summscreenfd qmsum',
        # Each text once, without the corpora of questions and answers.
        'all_summarization': (
            'arxiv pubmed govreport summscreen booksum_chapter booksum_book '
            'multinews wcep qmsum squality cnn_dailymail xsum'
        ),
    }.items()
}
