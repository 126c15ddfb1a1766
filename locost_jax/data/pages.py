"""PURE: cuts a document into pages (PageSum) or chunks (SimCAS) of tokens.

PageSum's localities (section 3 of its paper) always give P pages:

- spatial: S sentences, q = floor(S / P); sentence i goes to page floor(i / q)
  for i < q P, the others to the last page; with S < P all go to the last one.
- discourse: each section (heading and text) is a page; a document without
  sections is cut as in 'spatial'.
- document: each of several documents is a page.

At most P sections or documents are kept; empty pages fill up to P. Every page
is tokenised separately and cut at `page_length` tokens, end mark included. With
'spatial', a document may first be cut to its first `document_length` tokens
(section 5.5).

SimCAS's chunks have `page_length` tokens, marks included; their number is not
limited:

- chunks: the tokens are cut wherever a chunk is full (SimCAS's release).
- sentence_chunks: a chunk has as many whole sentences as fit (SimCAS's paper);
  a sentence longer than a chunk is cut.

A single chunk is not padded. If there are several, the last one is padded
before its end mark, so that the mark has the same position in all.

A query and a blank line precede every page or chunk, or with query_in='first'
only the first one that has tokens.
"""

from locost_jax.data import text as text_lib
from locost_jax.errors import InputError

LOCALITIES = ('spatial', 'discourse', 'document')
CHUNKS = ('chunks', 'sentence_chunks')
FORMS = LOCALITIES + CHUNKS
# The field of a row that a form reads instead of `document`.
FIELDS = {'discourse': 'sections', 'document': 'documents'}
# A row without text, as JSON.
NOTHING = '{"query": "", "document": "", "sections": [], "documents": []}'


def query_in(data):
  """Returns which pages begin with the query: 'every' or 'first'."""
  return data.query_in or ('every' if data.pages else 'first')


def spatial(text, num_pages):
  """Distributes the sentences of a text over P pages, joined by spaces."""
  sentences = text_lib.split_sentences(text, lower_case=False)
  each = len(sentences) // num_pages
  pages = [[] for _ in range(num_pages)]
  for i, sentence in enumerate(sentences):
    page = min(i // each, num_pages - 1) if each else num_pages - 1
    pages[page].append(sentence)
  return [' '.join(page) for page in pages]


def discourse(sections, num_pages):
  """Makes a page of each {heading, text}; '' after the last, P in all."""
  parts = (f'{part["heading"]}\n{part["text"]}'.strip() for part in sections)
  return document(parts, num_pages)


def document(documents, num_pages):
  """Returns the first P of several texts, filled up with '' to P."""
  pages = list(documents)[:num_pages]
  return pages + [''] * (num_pages - len(pages))


def pieces(row, form, num_pages):
  """Returns the texts of a row that are tokenised one by one.

  They are its pages, for 'sentence_chunks' its sentences, for 'chunks' only the
  document. The row has the field of FIELDS; without sections, the document is
  cut as 'spatial'.
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
    return text_lib.split_sentences(row['document'], lower_case=False)
  return [row['document']]


def count_dropped(row, form, num_pages):
  """Returns how many sections or documents of a row have no page."""
  return max(len(row.get(FIELDS.get(form), ())) - num_pages, 0)


def first_tokens(text, length, vocabulary):
  """Cuts a text after `length` tokens; 0: keeps all."""
  if not length:
    return text
  ids, ends = vocabulary.encode_with_ends(text)
  return text if len(ids) <= length else text[: ends[length - 1]]


def has_text(value):
  """Whether a document, or a list of documents or sections, has any text."""
  if isinstance(value, str):
    return bool(value.strip())
  parts = value.values() if isinstance(value, dict) else value or ()
  return any(map(has_text, parts))


def texts(row):
  """Returns all strings of a row with document, sections or documents."""
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
  """Returns `pieces` of a row, after the cut to config.data.document_length."""
  if data.document_length:
    text = first_tokens(row['document'], data.document_length, vocabulary)
    row = {**row, 'document': text}
  return pieces(row, data.pages, data.num_pages)


def of_row(row, data, vocabulary):
  """Cuts a row into pages or chunks of token ids; see `tokenise`."""
  parts = parts_of(row, data, vocabulary)
  return tokenise(parts, row['query'], data, data.max_input_length, vocabulary)


def tokenise(parts, query, data, max_length, vocabulary):
  """Tokenises texts into pages or chunks of token ids.

  Args:
    parts: list of texts; see `pieces`.
    data: config.data, or an object with its pages, page_length, query_in and
      empty_page (the text of an empty page; '': the page gets no tokens, so
      that a model masks it).
    max_length: the first tokens of a document that are kept, marks and queries
      not counted. For chunks only; pages are cut one by one.

  Raises:
    InputError: the query leaves no room in a page.
  """
  front, later = two_fronts(query, data, vocabulary)
  length, last = data.page_length, [vocabulary.eos_id]
  first, room = (length - len(marks) - 1 for marks in (front, later))
  if first < 1:
    raise InputError(
        f'a query of {len(front)} tokens leaves no room in a page of {length}'
    )
  if data.pages in LOCALITIES:
    ids = [vocabulary.encode(part or data.empty_page) for part in parts]
    return [
        marks + page[: length - len(marks) - 1] + last if page else []
        for marks, page in zip(_fronts(ids, front, later), ids)
    ]
  if data.pages == 'chunks':
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


def _fronts(pages, front, later):
  """Returns `front` for the first page with tokens, `later` for the others."""
  first = next((i for i, page in enumerate(pages) if page), None)
  return [front if i == first else later for i in range(len(pages))]


def two_fronts(query, data, vocabulary):
  """Returns the ids in front of the first page and of later ones.

  They are the bos, if any, and the query.
  """
  bos = [] if vocabulary.bos_id is None else [vocabulary.bos_id]
  front = bos + (vocabulary.encode(f'{query}\n\n') if query else [])
  return front, front if query_in(data) == 'every' else bos


def cut(ids, size, first):
  """Cuts a list into one of `first` and others of `size` ids."""
  starts = [0, *range(first, len(ids), size)] if ids else []
  return [ids[i:j] for i, j in zip(starts, starts[1:] + [len(ids)])]


def pack(sentences, size, max_length, first):
  """Packs as many whole sentences into each chunk as fit.

  Args:
    size: maximum ids of a chunk; a longer sentence is cut.
    max_length: maximum ids in all chunks; further ids are dropped.
    first: maximum ids of the first chunk.
  """
  chunks, left = [], max_length
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


def count_cut(lengths, made, query, data, max_length, vocabulary):
  """Counts the tokens of a document that are cut off.

  Args:
    lengths: tokens of each text of `pieces`, followed by those of texts without
      a page.
    made, query, data, max_length: what `tokenise` returned, and its arguments.
  """
  if data.pages in CHUNKS:
    return max(sum(lengths) - max_length, 0)
  fronts = _fronts(made, *two_fronts(query, data, vocabulary))
  rooms = [data.page_length - len(front) - 1 for front in fronts]
  return sum(lengths) - sum(map(min, lengths, rooms))


def max_chunks(data):
  """Returns the most chunks of a document without a query.

  Two neighbouring chunks of whole sentences together exceed the size of one, so
  there are fewer than twice as many of them.
  """
  count = -(-data.max_input_length // (data.page_length - 2))
  return count if data.pages == 'chunks' else max(1, 2 * count - 1)
