"""PURE: a document as pages (PageSum) or chunks (SimCAS), and their tokens.

PageSum's localities (section 3 of its paper), always P pages:

- spatial: S sentences, q = floor(S / P); sentence i goes to page floor(i / q)
  for i < q P, the others to the last page; with S < P all go to the last one.
- discourse: a section, heading and text, is a page.
- document: one of several documents is a page.

At most P sections or documents are kept, and empty pages fill up to P. Every
page is tokenised alone and cut at `page_length`, end mark included.

SimCAS's chunks, as many as it takes, of `page_length` tokens each with the
marks at their ends:

- chunks: the tokens cut wherever a chunk is full (its release).
- sentence_chunks: whole sentences as long as they fit (its paper); one that is
  longer than a chunk is cut.

A document of one chunk is left at its length; of several, the last is padded
before its end mark, so that the mark is at the same place in all.

A query and a blank line stand in front of every page and every chunk.
"""

import itertools

from locost_jax.data import text as text_lib
from locost_jax.errors import InputError

LOCALITIES = ('spatial', 'discourse', 'document')
CHUNKS = ('chunks', 'sentence_chunks')
FORMS = LOCALITIES + CHUNKS
# The field of a row that a form reads instead of `document`.
FIELDS = {'discourse': 'sections', 'document': 'documents'}
# A row without text, as JSON.
NOTHING = '{"query": "", "document": "", "sections": [], "documents": []}'


def spatial(text, num_pages):
  """The sentences of a text, distributed by their number.

  Args:
    text: the document.
    num_pages: P.

  Returns:
    P texts, sentences joined by spaces; some are '' when S < P.
  """
  sentences = text_lib.split_sentences(text)
  each = len(sentences) // num_pages
  pages = [[] for _ in range(num_pages)]
  for i, sentence in enumerate(sentences):
    page = min(i // each, num_pages - 1) if each else num_pages - 1
    pages[page].append(sentence)
  return [' '.join(page) for page in pages]


def discourse(sections, num_pages):
  """The first sections, heading and text together.

  Args:
    sections: list of dicts with heading and text.
    num_pages: P.

  Returns:
    P texts, '' behind the last section.
  """
  return document(
      [
          f'{section["heading"]}\n{section["text"]}'.strip()
          for section in sections
      ],
      num_pages,
  )


def document(documents, num_pages):
  """The first P of several texts, '' behind the last one."""
  pages = list(documents)[:num_pages]
  return pages + [''] * (num_pages - len(pages))


def pieces(row, form, num_pages):
  """The texts of a row that are tokenised one by one.

  Args:
    row: dict with document, and sections or documents where the form asks.
    form: one of FORMS.
    num_pages: P of the localities.

  Returns:
    List of str: pages; or sentences for 'sentence_chunks', and the whole
    document for 'chunks'.
  """
  if form == 'spatial':
    return spatial(row['document'], num_pages)
  if form == 'discourse':
    return discourse(row['sections'], num_pages)
  if form == 'document':
    return document(row['documents'], num_pages)
  if form == 'sentence_chunks':
    return text_lib.split_sentences(row['document'])
  return [row['document']]


def texts(row):
  """All strings of a row with document, sections or documents."""
  return [
      row.get('query', ''),
      row.get('document', ''),
      *row.get('documents', ()),
      *(
          section[part]
          for section in row.get('sections', ())
          for part in ('heading', 'text')
      ),
  ]


def tokenise(
    parts, query, form, page_length, max_length, vocabulary, empty_page='.'
):
  """Pages or chunks of token ids.

  Args:
    parts: texts, of `pieces`.
    query: '' or what stands in front of each page.
    form: one of FORMS.
    page_length: most tokens of a page, marks included.
    max_length: most tokens of a document, marks and queries not counted, kept
      from its front; chunks only, as pages are cut one by one.
    vocabulary: encode(text) -> ids, pad_id, eos_id, and bos_id or None.
    empty_page: text of a page without any; '': no token at all, so that a
      model's mask shows that nothing is there.

  Returns:
    List of lists of ids.

  Raises:
    InputError: the query leaves no room in a page.
  """
  front = front_of(query, vocabulary)
  room = page_length - len(front) - 1
  if room < 1:
    raise InputError(
        f'a query of {len(front)} tokens leaves no room in a page '
        f'of {page_length}'
    )
  last = [vocabulary.eos_id]
  if form in LOCALITIES:
    ids = [vocabulary.encode(part or empty_page)[:room] for part in parts]
    return [front + page + last if page else [] for page in ids]
  if form == 'chunks':
    chunks = cut(
        [i for part in parts for i in vocabulary.encode(part)][:max_length],
        room,
    )
  else:
    chunks = pack(map(vocabulary.encode, parts), room, max_length)
  if len(chunks) < 2:
    return [front + chunk + last for chunk in chunks or [[]]]
  return [
      front + chunk + [vocabulary.pad_id] * (room - len(chunk)) + last
      for chunk in chunks
  ]


def front_of(query, vocabulary):
  """The ids at the front of every page: a mark and the query, if there are."""
  bos = vocabulary.bos_id
  return ([] if bos is None else [bos]) + (
      vocabulary.encode(f'{query}\n\n') if query else []
  )


def cut(ids, size):
  """Cuts a list into lists of `size`, the last one shorter."""
  return [ids[start : start + size] for start in range(0, len(ids), size)]


def pack(sentences, size, most):
  """Sentences -> chunks of whole sentences, each as full as it gets.

  Args:
    sentences: iterable of lists of ids.
    size: most ids of a chunk; a longer sentence is cut.
    most: ids in all; what follows is left out.

  Returns:
    List of lists of ids, none longer than `size`, none empty.
  """
  chunks, left = [], most
  for sentence in sentences:
    sentence = sentence[:left]
    left -= len(sentence)
    if chunks and len(chunks[-1]) + len(sentence) <= size:
      chunks[-1] = chunks[-1] + sentence
    else:
      chunks += cut(sentence, size)
    if not left:
      break
  return chunks


def count_cut(lengths, query_length, form, page_length, max_length):
  """Tokens of a document that are cut off.

  Args:
    lengths: tokens of each of `pieces`.
    query_length: of what stands in front of a page, a mark included.
    form, page_length, max_length: as of `tokenise`.
  """
  if form in LOCALITIES:
    room = page_length - query_length - 1
    return sum(max(length - room, 0) for length in lengths)
  return max(sum(lengths) - max_length, 0)


def flatten(pages):
  """Lists of ids -> (all ids in one list, the length of each page)."""
  return list(itertools.chain.from_iterable(pages)), list(map(len, pages))
