"""Books and film scripts: BookSum, NarrativeQA."""

import csv
import functools
import os
import re

from locost_jax.data import corpora
from papers.corpora import author_files


def read_booksum(directory, level):
  """Reads BookSum; its authors' scripts must have collected the texts.

  Yields (split, row); the row is None if its document or summary is missing.

  Args:
    directory: the authors' repository or its parent folder.
    level: 'book' or 'chapter'.
  """
  pattern = dict(
      book='book_summaries_aligned_{}.jsonl',
      chapter='chapter_summary_aligned_{}_split.jsonl',
  )[level]
  root = os.path.dirname(
      author_files.find(directory, 'alignments', 'booksum/alignments')
  )
  for split, theirs in author_files.VAL.items():
    for number, row in author_files.read_rows(
        root,
        f'alignments/{level}-level-summary-alignments/'
        f'{pattern.format(theirs)}',
    ):
      name = row[f'{level}_path']
      texts = [
          author_files.read_text(os.path.join(home, name))
          for home in (directory, root)
      ]
      document = next(filter(None, texts), None)
      found = author_files.read_json(
          os.path.join(root, 'scripts', row['summary_path'])
      )
      # A list of paragraphs until July 2021, a string since.
      summary = found and author_files.join(found['summary'])
      yield split, document and summary and dict(
          id=f'{row["source"]}/{row["bid"]}/{number}',
          document=document.strip(),
          summary=summary,
      ) or None


_GUTENBERG_BEGINS = re.compile(
    r'(?m)^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG.*$'
    r'|^\*END\*? ?THE SMALL PRINT.*$'
)
_GUTENBERG_ENDS = re.compile(
    r'(?mi)^(?:\*\*\* ?)?END OF (?:THE |THIS )?PROJECT GUTENBERG.*$'
)


def _without_licence(text):
  """Removes the licence before and after a book of Project Gutenberg."""
  begin = _GUTENBERG_BEGINS.search(text, 0, max(len(text) // 4, 20_000))
  text = text[begin.end() :] if begin else text
  # The licence after the text has about 20,000 characters.
  end = _GUTENBERG_ENDS.search(
      text, max(min(len(text) // 2, len(text) - 60_000), 0)
  )
  return (text[: end.start()] if end else text).strip()


def read_narrative_qa(directory, with_plot=False):
  """Reads the questions of NarrativeQA.

  Yields (split, row); the row is None if the story or, with_plot, the plot
  summary is missing.

  Args:
    directory: the authors' repository after download_stories.sh.
    with_plot: see `corpora.narrative_qa`; the plot is Wikipedia's.
  """
  csv.field_size_limit(1 << 30)

  def rows(name):
    path = author_files.find(directory, name)
    with open(path, encoding='utf-8', newline='') as f:
      yield from csv.DictReader(f)

  kinds = {row['document_id']: row['kind'] for row in rows('documents.csv')}

  @functools.lru_cache(maxsize=2)  # questions of a story are adjacent
  def story(name):
    data = author_files.read_bytes(
        os.path.join(directory, 'tmp', f'{name}.content')
    )
    if data is None:
      return None
    if kinds.get(name) == 'gutenberg':
      return _without_licence(author_files.decode(data))
    if b'<' not in data[:2000]:
      return author_files.decode(data).strip()
    return author_files.page_text(data, name)  # a film script's web page

  plots = {}
  if with_plot:
    plots = {
        row['document_id']: row['summary'].strip()
        for row in rows('third_party/wikipedia/summaries.csv')
    }
  splits = {theirs: split for split, theirs in author_files.VALID.items()}
  for number, row in enumerate(rows('qaps.csv')):
    name = row['document_id']
    text, plot = story(name), plots.get(name, '')
    made = dict(
        document=dict(text=text, summary=dict(text=plot)),
        question=dict(text=row['question']),
        answers=[dict(text=row['answer1']), dict(text=row['answer2'])],
    )
    yield splits[row['set']], bool(text and (plot or not with_plot)) and dict(
        corpora.narrative_qa(made, with_plot), id=f'{name}/{number}'
    )
