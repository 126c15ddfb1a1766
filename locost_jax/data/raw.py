"""What the authors of the corpora published, read as rows.

READERS has a function for each task: directory -> iterator of (split, row), row
a dict of id, document and summary, with query, sections, documents, references
where the corpus has them. data/prepare.py writes them as JSON Lines; the facts
about the corpora are in data/corpora.py.

A text that is not there is no error: the row is None, and whoever writes counts
it. A file or folder that the whole corpus needs is an InputError.
"""

import csv
import functools
import itertools
import json
import os
import re

from locost_jax import markup
from locost_jax.data import corpora
from locost_jax.data import sources
from locost_jax.errors import InputError

# Our names of the splits -> what the authors call them.
_VAL = dict(train='train', validation='val', test='test')
_DEV = dict(train='train', validation='dev', test='test')
_VALID = dict(train='train', validation='valid', test='test')
_VALIDATION = dict(train='train', validation='validation', test='test')


def _find(directory, *names):
  """The first of some paths below a directory that exists.

  Raises:
    InputError: none does.
  """
  for name in names:
    path = os.path.join(directory, name)
    if os.path.exists(path):
      return path
  raise InputError(f'{directory}: expected {" or ".join(names)} in it')


def _lines(directory, *names):
  """Yields (line number, row) of a JSONL file whose name may vary."""
  path = _find(directory, *names)
  for number, line in sources.read_lines(path):
    yield number, sources.parse_row(path, number, line, ())


def _bytes(path):
  """The bytes of a file, or None."""
  try:
    with open(path, 'rb') as f:
      return f.read()
  except FileNotFoundError:
    return None


def _text(path):
  """The text of a UTF-8 file, or None.

  Raises:
    InputError: it is not UTF-8.
  """
  data = _bytes(path)
  try:
    return None if data is None else data.decode('utf-8-sig')
  except UnicodeDecodeError as error:
    raise InputError(f'{path}: not UTF-8 (byte {error.start})') from None


def _utf8_or_latin1(data):
  """The text of bytes from the web: UTF-8, or else Latin-1."""
  try:
    return data.decode('utf-8-sig')
  except UnicodeDecodeError:
    return data.decode('latin-1')


def _page_text(data, name):
  """The text of a web page, whatever it says of its encoding."""
  data = data.replace(b'\0', b'')
  try:
    return markup.html_text(data, name)
  except InputError:  # a byte order mark goes before what the page says
    text = data.decode('latin-1')
    return markup.html_text(text.encode('utf-8-sig'), name)


def _joined(value, separator='\n'):
  """A string, or a list of strings joined: the authors' files have both."""
  if isinstance(value, str):
    return value.strip()
  if not isinstance(value, (list, type(None))):
    raise TypeError(f'expected a string or a list of strings, got {value!r}')
  return separator.join(part.strip() for part in value or () if part.strip())


# --- Papers ------------------------------------------------------------------


def _scientific(directory, name):
  for split, theirs in _VAL.items():
    for _, row in _lines(directory, f'{name}-dataset/{theirs}.txt',
                         f'{theirs}.txt'):
      sections = [
          dict(heading=heading.strip(), text=_joined(text))
          for heading, text in itertools.zip_longest(
              row['section_names'], row['sections'], fillvalue='')]
      sentences = (sentence.replace('<S>', '').replace('</S>', '')
                   for sentence in row['abstract_text'])
      yield split, dict(
          id=row['article_id'], document=_joined(row['article_text']),
          summary=_joined(list(sentences)), sections=sections)


# --- SCROLLS -----------------------------------------------------------------


def _scrolls(directory, name, convert=corpora.scrolls):
  for split, theirs in _VALIDATION.items():
    for _, row in _lines(directory, f'{name}/{theirs}.jsonl',
                         f'{theirs}.jsonl'):
      yield split, convert(row)


# --- Reports -----------------------------------------------------------------


def _sections(section, skip_letter):
  """Yields {heading, text} of a section and those below it, in order."""
  heading = section['section_title'].strip()
  text = _joined(section['paragraphs'])
  if (heading or text) and not (skip_letter and heading == 'Letter'):
    yield dict(heading=heading, text=text)
  for part in section['subsections']:
    yield from _sections(part, skip_letter)


def _gov_report(directory):
  root = os.path.dirname(
      _find(directory, 'split_ids', 'gov-report/split_ids'))
  for split, theirs in _VALID.items():
    for source in 'crs', 'gao':
      ids = _text(_find(root, f'split_ids/{source}_{theirs}.ids')).split()
      for name in ids:
        text = _text(os.path.join(root, source, f'{name}.json'))
        if text is None:
          yield split, None
          continue
        report = json.loads(text)
        if source == 'crs':
          # The authors' README says `report`; their files have `reports`.
          parts = [report.get('reports') or report['report']]
          summary = _joined(report['summary'])
        else:
          parts = report['report']
          summary = _joined([
              paragraph for part in report['highlight']
              if part['section_title'] != 'What GAO Recommends'
              for paragraph in part['paragraphs']])
        sections = [section for part in parts
                    for section in _sections(part, source == 'gao')]
        document = '\n'.join(
            f'{section["heading"]}\n{section["text"]}'.strip()
            for section in sections)
        yield split, dict(
            id=f'{source.upper()}_{name}', document=document, summary=summary,
            sections=sections)


# --- Television --------------------------------------------------------------


def _summscreen(directory):
  folders = dict(fd='ForeverDreaming', tms='TVMegaSite')
  for split, theirs in _DEV.items():
    for short, folder in folders.items():
      # The raw texts have more episodes than were kept; the tokenised ones
      # tell which.
      names = [row['filename'] for _, row in _lines(
          directory, f'SummScreen/{folder}/{short}_{theirs}.json')]
      raw = _find(directory, f'SummScreen_raw/{short}')
      for name in names:
        text = _text(os.path.join(raw, name))
        row = text and json.loads(text)
        yield split, row and dict(
            id=f'{short}/{name}', document=_joined(row['Transcript']),
            summary=_joined(row['Recap']))


# --- Books -------------------------------------------------------------------


def _booksum(directory, level):
  pattern = dict(book='book_summaries_aligned_{}.jsonl',
                 chapter='chapter_summary_aligned_{}_split.jsonl')[level]
  root = os.path.dirname(_find(directory, 'alignments', 'booksum/alignments'))
  for split, theirs in _VAL.items():
    for number, row in _lines(
        root, f'alignments/{level}-level-summary-alignments/'
        f'{pattern.format(theirs)}'):
      name = row[f'{level}_path']
      texts = [_text(os.path.join(home, name))
               for home in (directory, root)]
      document = next(filter(None, texts), None)
      found = _text(os.path.join(root, 'scripts', row['summary_path']))
      # A list of paragraphs until July 2021, a string since.
      summary = found and _joined(json.loads(found)['summary'])
      yield split, document and summary and dict(
          id=f'{row["source"]}/{row["bid"]}/{number}',
          document=document.strip(), summary=summary) or None


_GUTENBERG_BEGINS = re.compile(
    r'^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG.*$|^\*END\*? ?THE SMALL '
    r'PRINT.*$', re.MULTILINE)
_GUTENBERG_ENDS = re.compile(
    r'^(?:\*\*\* ?)?END OF (?:THE |THIS )?PROJECT GUTENBERG.*$',
    re.MULTILINE | re.IGNORECASE)


def _without_licence(text):
  """A book of Project Gutenberg without what stands before and after it."""
  begin = _GUTENBERG_BEGINS.search(text, 0, max(len(text) // 4, 20_000))
  text = text[begin.end():] if begin else text
  # The licence behind it has some 20,000 characters.
  end = _GUTENBERG_ENDS.search(
      text, max(min(len(text) // 2, len(text) - 60_000), 0))
  return (text[:end.start()] if end else text).strip()


def _narrative_qa(directory):
  csv.field_size_limit(1 << 30)
  def rows(name):
    path = _find(directory, name)
    with open(path, encoding='utf-8', newline='') as f:
      yield from csv.DictReader(f)

  kinds = {row['document_id']: row['kind'] for row in rows('documents.csv')}

  @functools.lru_cache(maxsize=2)  # questions of a story stand together
  def story(name):
    data = _bytes(os.path.join(directory, 'tmp', f'{name}.content'))
    if data is None:
      return None
    if kinds.get(name) == 'gutenberg':
      return _without_licence(_utf8_or_latin1(data))
    if b'<' not in data[:2000]:
      return _utf8_or_latin1(data).strip()
    return _page_text(data, name)  # a film script's web page

  ours = {theirs: split for split, theirs in _VALID.items()}
  for number, row in enumerate(rows('qaps.csv')):
    document = story(row['document_id'])
    yield ours[row['set']], document and dict(
        id=f'{row["document_id"]}/{number}', document=document,
        query=row['question'].strip(), summary=row['answer1'].strip(),
        references=[row['answer1'].strip(), row['answer2'].strip()])


def _squality(directory):
  for split, theirs in _DEV.items():
    for _, row in _lines(directory, f'data/v1-3/txt/{theirs}.jsonl',
                         f'{theirs}.jsonl'):
      for question in row['questions']:
        answers = [response['response_text'].strip()
                   for response in question['responses']]
        made = dict(
            id=f'{row["metadata"]["passage_id"]}/{question["question_number"]}',
            document=row['document'].strip(),
            query=question['question_text'].strip())
        if split == 'train':  # every response is an example
          for i, answer in enumerate(answers):
            yield split, dict(made, id=f'{made["id"]}/{i}', summary=answer)
        else:
          yield split, dict(made, summary=answers[0], references=answers)


# --- Meetings ----------------------------------------------------------------

# '{vocalsound}', '{disfmarker}': what the transcribers noted.
_NOTE = re.compile(r'\{ ?\w+ ?\}')


def _qmsum(directory):
  for split, theirs in _VAL.items():
    for number, row in _lines(directory, f'data/ALL/jsonl/{theirs}.jsonl',
                              f'ALL/jsonl/{theirs}.jsonl', f'{theirs}.jsonl'):
      turns = ((turn['speaker'], ' '.join(
          _NOTE.sub(' ', turn['content']).split()))
               for turn in row['meeting_transcripts'])
      document = '\n'.join(f'{who}: {said}' for who, said in turns if said)
      queries = row['general_query_list'] + row['specific_query_list']
      for i, query in enumerate(queries):
        yield split, dict(
            id=f'{split}/{number}/{i}', document=document,
            query=query['query'].strip(), summary=query['answer'].strip())


# --- News --------------------------------------------------------------------


def _multi_news(directory):
  for split, theirs in _VAL.items():
    paths = [_find(directory, f'{theirs}.{kind}')
             for kind in ('src.cleaned', 'tgt')]
    # Not str.splitlines: the articles have other signs that break lines.
    files = [_text(path).rstrip('\n').split('\n') for path in paths]
    if len(files[0]) != len(files[1]):
      raise InputError(f'{paths[0]} has {len(files[0])} lines, {paths[1]} '
                       f'{len(files[1])}: expected as many')
    for number, (source, summary) in enumerate(zip(*files)):
      row = dict(document=source.replace('NEWLINE_CHAR', '\n'),
                 summary=summary)
      yield split, dict(corpora.multi_news(row), id=f'{split}/{number}')


def _wcep(directory):
  for split, theirs in _VAL.items():
    names = [f'{name}.{kind}' for kind in ('jsonl', 'txt', 'json', 'pt')
             for name in (theirs, split)]
    path = _find(directory, *names)
    if path.endswith('.pt'):
      import torch
      rows = torch.load(path, weights_only=True)
    else:
      rows = (row for _, row in _lines(directory, *names))
    for number, row in enumerate(rows):
      documents = row.get('documents') or row['document']
      if isinstance(documents, str):
        documents = corpora.split_documents(
            documents.replace('</s>', corpora.SEPARATOR))
      yield split, dict(
          id=str(row.get('id', f'{split}/{number}')), documents=documents,
          document=corpora.join_documents(documents),
          summary=row['summary'].strip())


# Lines of the BBC's pages that belong to no article.
_BBC = frozenset((
    'Share this with', 'Email', 'Facebook', 'Messenger', 'Twitter', 'Pinterest',
    'WhatsApp', 'Linkedin', 'LinkedIn', 'Copy this link',
    'These are external links and will open in a new window'))


def _xsum(directory):
  path = _find(directory, 'XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json')
  folder = _find(directory, 'bbc-summary-data')
  ids = json.loads(_text(path))
  for split in _VALIDATION:
    for name in ids[split]:
      text = _text(os.path.join(folder, f'{name}.summary'))
      # [SN]URL[SN] .. [SN]TITLE[SN] .. [SN]FIRST-SENTENCE[SN] ..
      # [SN]RESTBODY[SN] ..
      parts = text.split('[SN]') if text else []
      yield split, dict(
          id=name, summary=parts[6].strip(), document='\n'.join(
              line.strip() for line in parts[8].split('\n')
              if line.strip() and line.strip() not in _BBC),
      ) if len(parts) > 8 else None


READERS = {
    'arxiv': functools.partial(_scientific, name='arxiv'),
    'pubmed': functools.partial(_scientific, name='pubmed'),
    'govreport': functools.partial(_scrolls, name='gov_report'),
    'govreport_authors': _gov_report,
    'summscreenfd': functools.partial(_scrolls, name='summ_screen_fd'),
    'summscreen': _summscreen,
    'booksum_chapter': functools.partial(_booksum, level='chapter'),
    'booksum_book': functools.partial(_booksum, level='book'),
    'multinews': _multi_news,
    'wcep': _wcep,
    'narrativeqa': _narrative_qa,
    'qmsum': _qmsum,
    'squality': _squality,
    'qasper': functools.partial(
        _scrolls, name='qasper', convert=corpora.scrolls_with_query),
    'xsum': _xsum,
}
