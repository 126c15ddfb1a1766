"""Converts rows of TFDS's corpora to rows of ours: document, summary, ...

A function for each format; the column `row` of the table in data/corpora.py
says which corpus has which. The authors' own files of SCROLLS and Multi-News
have the same rows (data/published_formats.py).
"""

SEPARATOR = '|||||'  # between the documents of a row of Multi-News


def scientific(row):
  """Converts a row of scientific_papers: strips sentences, one per line."""
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
  """Converts a row of SCROLLS; hidden outputs are '' or None there."""
  return dict(id=row['id'], document=row['input'], summary=row['output'] or '')


def scrolls_with_query(row):
  """Converts a row of SCROLLS whose input is a query, a blank line, a text."""
  query, _, document = row['input'].partition('\n\n')
  return dict(scrolls(row), query=query, document=document)


def summscreen(row):
  """Converts a row of SummScreen."""
  return dict(document=row['transcript'], summary=row['recap'])


def multi_news(row):
  """Converts a row of Multi-News, whose documents are one text."""
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
  """Splits 'a ||||| b' into ['a', 'b']; empty ones are left out."""
  parts = (part.strip() for part in text.split(SEPARATOR))
  return [part for part in parts if part]


def join_documents(documents):
  """Joins several documents into one text, in Multi-News's way."""
  return f'\n\n{SEPARATOR}\n\n'.join(documents)
