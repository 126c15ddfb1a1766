"""Papers (arXiv, PubMed) and reports (GovReport)."""

import itertools
import os
import re

from papers.corpora import author_files


def read_papers(directory, name):
  """Reads the papers of Cohan et al. (2018), with their sections.

  Yields (split, row). `name` is 'arxiv' or 'pubmed'.
  """
  for split, theirs in author_files.VAL.items():
    for _, row in author_files.read_rows(
        directory, f'{name}-dataset/{theirs}.txt', f'{theirs}.txt'
    ):
      sections = [
          dict(heading=heading.strip(), text=author_files.join(text))
          for heading, text in itertools.zip_longest(
              row['section_names'], row['sections'], fillvalue=''
          )
      ]
      sentences = [re.sub('</?S>', '', text) for text in row['abstract_text']]
      yield split, dict(
          id=row['article_id'],
          document=author_files.join(row['article_text']),
          summary=author_files.join(sentences),
          sections=sections,
      )


def _sections(section, skip_letter):
  """Yields {heading, text} of a section and its subsections, in order."""
  heading = section['section_title'].strip()
  text = author_files.join(section['paragraphs'])
  if (heading or text) and not (skip_letter and heading == 'Letter'):
    yield dict(heading=heading, text=text)
  for part in section['subsections']:
    yield from _sections(part, skip_letter)


def _parts_and_summary(source, report):
  """Returns (list of the parts of a report, its summary)."""
  if source == 'crs':
    # The authors' README says `report`; their files have `reports`.
    parts = [report.get('reports') or report['report']]
    return parts, author_files.join(report['summary'])
  paragraphs = [
      paragraph
      for part in report['highlight']
      if part['section_title'] != 'What GAO Recommends'
      for paragraph in part['paragraphs']
  ]
  return report['report'], author_files.join(paragraphs)


def read_gov_report(directory):
  """Yields (split, row) of Huang et al. (2021); None if a file is missing."""
  root = os.path.dirname(
      author_files.find(directory, 'split_ids', 'gov-report/split_ids')
  )
  for split, theirs in author_files.VALID.items():
    for source in 'crs', 'gao':
      ids = author_files.read_text(
          author_files.find(root, f'split_ids/{source}_{theirs}.ids')
      ).split()
      for name in ids:
        found = author_files.read_json(
            os.path.join(root, source, f'{name}.json')
        )
        if found is None:
          yield split, None
          continue
        parts, summary = _parts_and_summary(source, found)
        sections = [
            section
            for part in parts
            for section in _sections(part, source == 'gao')
        ]
        document = '\n'.join(
            f'{section["heading"]}\n{section["text"]}'.strip()
            for section in sections
        )
        yield split, dict(
            id=f'{source.upper()}_{name}',
            document=document,
            summary=summary,
            sections=sections,
        )
