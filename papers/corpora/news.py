"""News: WCEP, XSum."""

import os

from locost_jax.data import corpora
from papers.corpora import author_files


def read_wcep(directory):
  """Yields (split, row) of PRIMERA's copy, in any of its file formats."""
  for split, theirs in author_files.VAL.items():
    names = [
        f'{name}.{kind}'
        for kind in ('jsonl', 'txt', 'json', 'pt')
        for name in (theirs, split)
    ]
    path = author_files.find(directory, *names)
    if path.endswith('.pt'):
      import torch

      rows = torch.load(path, weights_only=True)
    else:
      rows = (row for _, row in author_files.read_rows(directory, *names))
    for number, row in enumerate(rows):
      documents = row.get('documents') or row['document']
      if isinstance(documents, str):
        documents = corpora.split_documents(
            documents.replace('</s>', corpora.SEPARATOR)
        )
      yield split, dict(
          id=str(row.get('id', f'{split}/{number}')),
          documents=documents,
          document=corpora.join_documents(documents),
          summary=row['summary'].strip(),
      )


# Lines of BBC pages that are not part of the article.
_BBC = (
    'Share this with|Email|Facebook|Messenger|Twitter|Pinterest|WhatsApp|'
    'Linkedin|LinkedIn|Copy this link|These are external links and will open '
    'in a new window'
).split('|')


def read_xsum(directory):
  """Yields (split, row) of the articles; row is None if its file is missing."""
  path = author_files.find(
      directory, 'XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json'
  )
  folder = author_files.find(directory, 'bbc-summary-data')
  ids = author_files.read_json(path)
  for split in author_files.VAL:
    for name in ids[split]:
      text = author_files.read_text(os.path.join(folder, f'{name}.summary'))
      # [SN]URL[SN] .. [SN]TITLE[SN] .. [SN]FIRST-SENTENCE[SN] ..
      # [SN]RESTBODY[SN] ..
      parts = text.split('[SN]') if text else []
      yield split, dict(
          id=name,
          summary=parts[6].strip(),
          document='\n'.join(
              line.strip()
              for line in parts[8].split('\n')
              if line.strip() and line.strip() not in _BBC
          ),
      ) if len(parts) > 8 else None
