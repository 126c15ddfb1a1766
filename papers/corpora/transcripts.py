"""Transcripts: TV episodes of SummScreen, meetings of QMSum."""

import os
import re

from papers.corpora import author_files


def read_summscreen(directory):
  """Yields (split, row) of the episodes; row is None if its file is missing."""
  folders = dict(fd='ForeverDreaming', tms='TVMegaSite')
  for split, theirs in author_files.DEV.items():
    for short, folder in folders.items():
      # Only the tokenised files list the episodes of the corpus; there are more
      # raw texts.
      names = [
          row['filename']
          for _, row in author_files.read_rows(
              directory, f'SummScreen/{folder}/{short}_{theirs}.json'
          )
      ]
      raw = author_files.find(directory, f'SummScreen_raw/{short}')
      for name in names:
        row = author_files.read_json(os.path.join(raw, name))
        yield split, row and dict(
            id=f'{short}/{name}',
            document=author_files.join(row['Transcript']),
            summary=author_files.join(row['Recap']),
        )


# Notes of the transcribers: '{vocalsound}', '{disfmarker}'.
_NOTE = re.compile(r'\{ ?\w+ ?\}')


def read_qmsum(directory):
  """Yields (split, row) of the queries, each with its whole meeting."""
  for split, theirs in author_files.VAL.items():
    for number, row in author_files.read_rows(
        directory,
        f'data/ALL/jsonl/{theirs}.jsonl',
        f'ALL/jsonl/{theirs}.jsonl',
        f'{theirs}.jsonl',
    ):
      turns = (
          (turn['speaker'], ' '.join(_NOTE.sub(' ', turn['content']).split()))
          for turn in row['meeting_transcripts']
      )
      document = '\n'.join(
          f'{speaker}: {turn}' for speaker, turn in turns if turn
      )
      queries = row['general_query_list'] + row['specific_query_list']
      for i, query in enumerate(queries):
        yield split, dict(
            id=f'{split}/{number}/{i}',
            document=document,
            query=query['query'].strip(),
            summary=query['answer'].strip(),
        )
