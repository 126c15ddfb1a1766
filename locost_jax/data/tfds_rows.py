"""Converts rows of TFDS to rows with document, summary, ...

There is one function for each format; the column `row` of the table in
data/corpora.py selects it. The authors' files of SCROLLS and Multi-News have
the same rows (papers/corpora/).
"""

SEPARATOR = '|||||'  # between the documents of a row of Multi-News


def scientific(row):
  """Converts a row of scientific_papers: strips the lines, drops empty ones."""
  # The abstract's lines have stray spaces, and some are empty.
  lines = {
      field: [line.strip() for line in row[field].split('\n')]
      for field in ('article', 'abstract')
  }
  return dict(
      document='\n'.join(filter(None, lines['article'])),
      summary='\n'.join(filter(None, lines['abstract'])),
  )


def scrolls(row):
  """Converts a row of SCROLLS, whose hidden outputs are '' or None."""
  return dict(id=row['id'], document=row['input'], summary=row['output'] or '')


def scrolls_with_query(row):
  """Converts a row of SCROLLS; its input is query, blank line, document."""
  query, _, document = row['input'].partition('\n\n')
  return dict(scrolls(row), query=query, document=document)


def summscreen(row):
  """Converts a row of SummScreen."""
  return dict(document=row['transcript'], summary=row['recap'])


def multi_news(row):
  """Converts a row of Multi-News, which joins its documents in one text."""
  documents = split_documents(row['document'])
  return dict(
      document=join_documents(documents),
      documents=documents,
      summary=row['summary'].strip(),
  )


def cnn_dailymail(row):
  """Converts a row of CNN/DailyMail."""
  return dict(id=row['id'], document=row['article'], summary=row['highlights'])


def split_documents(text):
  """Splits 'a ||||| b' into ['a', 'b'], without empty documents."""
  parts = (part.strip() for part in text.split(SEPARATOR))
  return [part for part in parts if part]


def join_documents(documents):
  """Joins documents into one text with Multi-News's separator."""
  return f'\n\n{SEPARATOR}\n\n'.join(documents)
