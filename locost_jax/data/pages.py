"""PURE: a document as pages (PageSum) or chunks (SimCAS), and their tokens.

PageSum's localities (section 3 of its paper), always P pages:

- spatial: S sentences, q = floor(S / P); sentence i goes to page floor(i / q)
  for i < q P, the others to the last page; with S < P all go to the last one.
- discourse: a section, heading and text, is a page; a document without sections
  is cut as in 'spatial'.
- document: one of several documents is a page.

At most P sections or documents are kept, and empty pages fill up to P. Every
page is tokenised alone and cut at `page_length`, end mark included. For 'spatial'
a document may be cut to its first `document_length` tokens before (section 5.5).

SimCAS's chunks, as many as it takes, of `page_length` tokens each with the
marks at their ends:

- chunks: the tokens cut wherever a chunk is full (its release).
- sentence_chunks: whole sentences as long as they fit (its paper); one that is
  longer than a chunk is cut.

A document of one chunk is left at its length; of several, the last is padded
before its end mark, so that the mark is at the same place in all.

A query and a blank line stand in front of every page and every chunk, or with
query_in='first' of the first one that has tokens.
"""

import itertools

from locost_jax.data import text as text_lib
from locost_jax.errors import InputError

LOCALITIES = ('spatial', 'discourse', 'document')
CHUNKS = ('chunks', 'sentence_chunks')
FORMS = LOCALITIES + CHUNKS
QUERY_IN = ('every', 'first')
# The field of a row that a form reads instead of `document`.
FIELDS = {'discourse': 'sections', 'document': 'documents'}
# A row without text, as JSON.
NOTHING = '{"query": "", "document": "", "sections": [], "documents": []}'


def query_in(data):
  """Which pages begin with the query: one of QUERY_IN.

  Args:
    data: config.data; its query_in '' stands for every page, and where a
      document is one sequence for the first, which is all there is.
  """
  return data.query_in or ('every' if data.pages else 'first')


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
    row: dict with document, and sections or documents where the form asks. In
      place of sections that are missing or [] the document is cut as 'spatial'.
    form: one of FORMS.
    num_pages: P of the localities.

  Returns:
    List of str: pages; or sentences for 'sentence_chunks', and the whole
    document for 'chunks'.
  """
  if form == 'spatial':
    return spatial(row['document'], num_pages)
  if form == 'discourse' and not row.get('sections'):
    return spatial(row.get('document', ''), num_pages)
  if form == 'discourse':
    return discourse(row['sections'], num_pages)
  if form == 'document':
    return document(row['documents'], num_pages)
  if form == 'sentence_chunks':
    return text_lib.split_sentences(row['document'])
  return [row['document']]


def count_dropped(row, form, num_pages):
  """Returns how many sections or documents of a row have no page."""
  return max(len(row.get(FIELDS.get(form), ())) - num_pages, 0)


def first_tokens(text, length, vocabulary):
  """Returns the part of a text that its first tokens cover.

  Args:
    text: the document.
    length: tokens; 0: all of them.
    vocabulary: encode_with_ends(text) -> (ids, ends).
  """
  if not length:
    return text
  ids, ends = vocabulary.encode_with_ends(text)
  return text if len(ids) <= length else text[: ends[length - 1]]


def has_text(value):
  """Whether a document, a list of them or of sections has more than blanks."""
  if isinstance(value, str):
    return bool(value.strip())
  parts = value.values() if isinstance(value, dict) else value or ()
  return any(map(has_text, parts))


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


def parts_of(row, data, vocabulary):
  """`pieces` of a row under config.data, with its document_length.

  Args:
    row: see `pieces`.
    data: config.data.
    vocabulary: see `first_tokens`.
  """
  if data.document_length:
    text = first_tokens(row['document'], data.document_length, vocabulary)
    row = {**row, 'document': text}
  return pieces(row, data.pages, data.num_pages)


def of_row(row, data, vocabulary):
  """Pages or chunks of token ids of a row, under config.data.

  Args:
    row: see `pieces`, with its query ('': none).
    data: config.data.
    vocabulary: see `tokenise` and `first_tokens`.

  Returns:
    List of lists of ids.

  Raises:
    InputError: the query leaves no room in a page.
  """
  return tokenise(
      parts_of(row, data, vocabulary),
      row['query'],
      data.pages,
      data.page_length,
      data.max_input_length,
      vocabulary,
      data.empty_page,
      query_in(data),
  )


def tokenise(
    parts,
    query,
    form,
    page_length,
    max_length,
    vocabulary,
    empty_page='.',
    query_in='every',
):
  """Pages or chunks of token ids.

  Args:
    parts: texts, of `pieces`.
    query: '' or what stands in front of pages.
    form: one of FORMS.
    page_length: most tokens of a page, marks included.
    max_length: most tokens of a document, marks and queries not counted, kept
      from its front; chunks only, as pages are cut one by one.
    vocabulary: encode(text) -> ids, pad_id, eos_id, and bos_id or None.
    empty_page: text of a page without any; '': no token at all, so that a
      model's mask shows that nothing is there.
    query_in: one of QUERY_IN: in front of which pages the query stands.

  Returns:
    List of lists of ids.

  Raises:
    InputError: the query leaves no room in a page.
  """
  front = front_of(query, vocabulary)
  later = front if query_in == 'every' else front_of('', vocabulary)
  first, room = (page_length - len(marks) - 1 for marks in (front, later))
  if first < 1:
    raise InputError(
        f'a query of {len(front)} tokens leaves no room in a page '
        f'of {page_length}'
    )
  last = [vocabulary.eos_id]
  if form in LOCALITIES:
    ids = [vocabulary.encode(part or empty_page) for part in parts]
    return [
        marks + page[: page_length - len(marks) - 1] + last if page else []
        for marks, page in zip(fronts(ids, front, later), ids)
    ]
  if form == 'chunks':
    ids = [i for part in parts for i in vocabulary.encode(part)][:max_length]
    chunks = cut(ids, room, first)
  else:
    chunks = pack(map(vocabulary.encode, parts), room, max_length, first)
  if len(chunks) < 2:
    return [front + chunk + last for chunk in chunks or [[]]]
  pad = lambda chunk, size: chunk + [vocabulary.pad_id] * (size - len(chunk))
  return [front + pad(chunks[0], first) + last] + [
      later + pad(chunk, room) + last for chunk in chunks[1:]
  ]


def fronts(pages, front, later):
  """Returns the text in front of each page.

  Args:
    pages: lists of ids, [] of a page without tokens.
    front: of the first page that has tokens.
    later: of the others.
  """
  first = next((i for i, page in enumerate(pages) if page), None)
  return [front if i == first else later for i in range(len(pages))]


def front_of(query, vocabulary):
  """The ids at the front of every page: a mark and the query, if there are."""
  bos = vocabulary.bos_id
  return ([] if bos is None else [bos]) + (
      vocabulary.encode(f'{query}\n\n') if query else []
  )


def cut(ids, size, first=None):
  """Cuts a list into lists of `size`, the last one shorter.

  Args:
    ids: the list.
    size: of a list.
    first: of the first list; None: size.
  """
  first = size if first is None else first
  starts = [0, *range(first, len(ids), size)] if ids else []
  return [ids[i:j] for i, j in zip(starts, starts[1:] + [len(ids)])]


def pack(sentences, size, most, first=None):
  """Sentences -> chunks of whole sentences, each as full as it gets.

  Args:
    sentences: iterable of lists of ids.
    size: most ids of a chunk; a longer sentence is cut.
    most: ids in all; what follows is left out.
    first: most ids of the first chunk; None: size.

  Returns:
    List of lists of ids, none longer than `size`, none empty.
  """
  first = size if first is None else first
  chunks, left = [], most
  for sentence in sentences:
    sentence = sentence[:left]
    left -= len(sentence)
    room = first if len(chunks) < 2 else size
    if chunks and len(chunks[-1]) + len(sentence) <= room:
      chunks[-1] = chunks[-1] + sentence
    else:
      chunks += cut(sentence, size, size if chunks else first)
    if not left:
      break
  return chunks


def count_cut(lengths, fronts, form, page_length, max_length):
  """Tokens of a document that are cut off.

  Args:
    lengths: tokens of each of `pieces`, and behind them of what has no page.
    fronts: of each page, tokens in front of it, a mark included.
    form, page_length, max_length: see `tokenise`.
  """
  if form in LOCALITIES:
    rooms = [page_length - front - 1 for front in fronts]
    kept = sum(min(length, room) for length, room in zip(lengths, rooms))
    return sum(lengths) - kept
  return max(sum(lengths) - max_length, 0)


def max_chunks(data):
  """The number of chunks of the longest document that is not cut.

  Without a query, which takes room. Of whole sentences two neighbouring chunks
  hold more than one of them could, so there are at most twice as many.

  Args:
    data: config.data; `pages` is one of CHUNKS.
  """
  count = -(-data.max_input_length // (data.page_length - 2))
  return count if data.pages == 'chunks' else max(1, 2 * count - 1)


def flatten(pages):
  """Lists of ids -> (all ids in one list, the length of each page)."""
  return list(itertools.chain.from_iterable(pages)), list(map(len, pages))
