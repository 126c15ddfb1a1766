"""Papers of arXiv and PubMed (Cohan et al. 2018)."""

import itertools

from locost_jax.data.published import author_files


def read_papers(directory, name):
  """Reads arXiv's or PubMed's papers, with their sections.

  Args:
    directory: the authors' files.
    name: 'arxiv' or 'pubmed'.

  Yields:
    (split, row).
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
      sentences = (
          sentence.replace('<S>', '').replace('</S>', '')
          for sentence in row['abstract_text']
      )
      yield split, dict(
          id=row['article_id'],
          document=author_files.join(row['article_text']),
          summary=author_files.join(list(sentences)),
          sections=sections,
      )
