"""How a model reads a document: its tokens, and the shape they are padded to.

Most models read a document as one sequence. For a model that reads pages
(`page_forms`), `data.pages` cuts the document as in training; pages without
tokens and without weight are left out. A model that reads chunks gets as many
as the document fills; max_input_length counts tokens without their bos and eos.

The padded shape of a document is (L,), or (P, L) if the model reads pages: P
pages, each padded to L tokens. Documents of one shape share a batch.
"""

import dataclasses
import sys
from typing import NamedTuple

import numpy as np

from locost_jax import models
from locost_jax.data import buckets
from locost_jax.data import pages as pages_lib
from locost_jax.errors import InputError
from locost_jax.summarizing import documents
from locost_jax.vocabularies import vocabulary as vocabulary_lib

# Minimum of each field of `documents.Pages`; a page has bos, eos and one token.
_LEAST = {'num_pages': 1, 'page_length': 3, 'document_length': 0}
# Fields that limit the text of a document with P pages, not of chunks.
_NOT_OF_CHUNKS = 'num_pages', 'document_length'
# Above this number of tokens, `bucket_length` takes smaller steps.
LONG = 1 << 17


class Read(NamedTuple):
  """The tokens of a document."""

  pages: list  # of lists of ids, with bos and eos; one if there are no pages
  tokens: int  # of the whole document, with bos and eos of the read part
  dropped: int = 0  # parts beyond the maximum, which are not read


def choose_pages(config, stored, given):
  """Chooses the `documents.Pages` of a model; None if it reads no pages.

  Args:
    stored: `config.data` of the run that trained it, or None.
    given: {field of Pages: value}, replacing the run's; None: not given.

  Raises:
    InputError: an unknown field, an invalid value, or a model that reads no
      pages.
  """
  given = {key: value for key, value in given.items() if value is not None}
  fields = {
      f.name: type(f.default) for f in dataclasses.fields(documents.Pages)
  }
  for key, value in given.items():
    if key not in fields or key == 'query_in':  # as trained
      raise InputError(
          f'{key}={value!r} is no option of pages: expected one of '
          f'{", ".join(name for name in fields if name != "query_in")}'
      )
    if not isinstance(value, fields[key]):
      raise InputError(
          f'{key}={value!r} must be of the type {fields[key].__name__}'
      )
  forms = config.page_forms
  if not forms:
    for key, value in given.items():
      raise InputError(f'{key}={value!r}: this model reads no pages')
    return None
  most = config.max_positions or documents.LONGEST_PAGE
  # padding='release': an empty page holds a full stop, as in PageSum's release.
  empty_page = '.' if config.padding == 'release' else ''
  chosen = documents.Pages(
      pages=documents.Pages.pages
      if documents.Pages.pages in forms
      else forms[0],
      page_length=min(documents.LONGEST_PAGE, most),
      empty_page=empty_page,
  )
  if stored and stored.get('pages'):
    chosen = documents.Pages(
        **{name: stored[name] for name in fields if name in stored}
    )
  chosen = dataclasses.replace(chosen, **given)
  if chosen.pages not in forms:
    raise InputError(
        f'pages={chosen.pages!r} must be one of {", ".join(map(repr, forms))}'
    )
  for key in _NOT_OF_CHUNKS:
    if reads_chunks(chosen) and key in given:
      raise InputError(
          f'{key}={given[key]!r}: this model reads chunks, as many as a '
          'document takes; expected max_input_length, which limits its tokens'
      )
  for key, least in _LEAST.items():
    if getattr(chosen, key) < least:
      raise InputError(f'{key}={getattr(chosen, key)} must be at least {least}')
  models.check_length(config, chosen.page_length, 'page_length')
  return chosen


def reads_chunks(pages):
  """Whether `pages` (`documents.Pages` or None) are chunks, of any number."""
  return pages is not None and pages.pages in pages_lib.CHUNKS


def read(vocabulary, text, pages=None, max_input_length=None):
  """Returns the tokens of a document as a Read.

  Args:
    pages: None: one sequence.
    max_input_length: maximum tokens of one sequence, or of all chunks; None: no
      limit. Always None with P pages.
  """
  if pages is None:
    ids = vocabulary.encode(front_of(text) + text.text)
    ids = vocabulary_lib.surround(vocabulary, ids, True)
    most = max_input_length or len(ids)
    last = 1 + len(vocabulary_lib.after_input(vocabulary))
    kept = ids if len(ids) <= most else ids[: most - last] + ids[-last:]
    return Read([kept], len(ids))
  is_chunks, most, unread = reads_chunks(pages), 0, ()
  if is_chunks:
    parts, most = chunk_texts(text, pages), max_input_length or sys.maxsize
  else:
    parts, unread = page_texts(vocabulary, text, pages)
  made = pages_lib.tokenise(parts, text.query, pages, most, vocabulary)
  if is_chunks and max_input_length is None:  # nothing was cut
    return Read(made, sum(map(len, made)))
  lengths = [len(vocabulary.encode(part)) for part in (*parts, *unread)]
  if is_chunks:
    cut = pages_lib.count_cut(lengths, (), pages.pages, 0, most)
    return Read(made, sum(map(len, made)) + cut)
  fronts = pages_lib.fronts(made, *two_fronts(vocabulary, text, pages))
  fronts = [len(ids) for ids in fronts]
  cut = pages_lib.count_cut(lengths, fronts, pages.pages, pages.page_length, 0)
  made = [page for page in made if page]
  made = made or [vocabulary_lib.surround(vocabulary, [])]
  dropped = len(unread) if text.parts else 0
  return Read(made, sum(map(len, made)) + cut, dropped)


def front_of(text):
  """The characters in front of a document of one sequence, as in training."""
  return text.prefix + (f'{text.query}\n\n' if text.query else '')


def two_fronts(vocabulary, text, pages):
  """The tokens in front of the first page and of later ones, bos included."""
  later = text.query if pages_lib.query_in(pages) == 'every' else ''
  return [pages_lib.front_of(x, vocabulary) for x in (text.query, later)]


def chunk_texts(text, pages):
  """Returns the texts that become chunks."""
  row = {'document': text.text}
  return pages_lib.pieces(row, pages.pages, pages.num_pages)


def page_texts(vocabulary, text, pages):
  """Returns the texts of the pages, and the texts that are not read."""
  P = pages.num_pages
  if text.parts is not None:
    return pages_lib.document(text.parts, P), text.parts[P:]
  first = pages_lib.first_tokens(text.text, pages.document_length, vocabulary)
  rest = text.text[len(first) :]
  return pages_lib.spatial(first, P), (rest,) if rest else ()


def bucket_length(length):
  """Returns the padded length of inputs of this length: 2^k or 1.5 * 2^k.

  Above LONG, a multiple of 2^k / 8: there, reading takes far longer than
  compiling.
  """
  if length > LONG:
    eighth = 1 << ((length - 1).bit_length() - 4)
    return -(-length // eighth) * eighth
  lengths = buckets.bucket_lengths(max(2 * length, buckets.SMALLEST))
  return int(lengths[np.searchsorted(lengths, length)])


def padded_length(config, length, least=1):
  """Returns the padded length of inputs, which are padded to `least` or more.

  With the release's convolution, whose results depend on the length, inputs are
  not padded.
  """
  if config.convolution != 'exact':
    return length
  most = config.max_positions
  padded = bucket_length(max(length, least))
  return padded if most is None else min(padded, most)


def padded_shape(config, pages, paged, least=1):
  """Returns the shape that `Read.pages` are padded to."""
  length = padded_length(config, max(map(len, pages)), least)
  return (len(pages), length) if paged else (length,)


def pad(read, shape, pad_id):
  """Pads `Read.pages` of B documents: (int32 [B, L] or [B, P, L], mask)."""
  inputs = np.full((len(read), *shape), pad_id, np.int32)
  mask = np.zeros(inputs.shape, bool)
  for row, keep, pages in zip(inputs, mask, read):
    for p, ids in enumerate(pages):
      row.reshape(-1, shape[-1])[p, : len(ids)] = ids
      keep.reshape(-1, shape[-1])[p, : len(ids)] = True
  return inputs, mask


def power_of_two_in(number):
  """Returns the largest power of two up to `number`."""
  return 2 ** (int(number).bit_length() - 1)


def make_batches(items, shape_of, rows):
  """Groups documents of one shape; the first documents are read first.

  Args:
    items: documents of any type, in the desired order of the summaries.
    shape_of: document -> the shape it is padded to.
    rows: shape -> maximum documents in a batch; 0 counts as 1.

  Returns:
    List of (shape, list of documents).
  """
  groups, batches = {}, []
  for item in items:
    shape = shape_of(item)
    if shape not in groups or len(groups[shape]) == max(rows(shape), 1):
      groups[shape] = []
      batches.append((shape, groups[shape]))
    groups[shape].append(item)
  return batches
