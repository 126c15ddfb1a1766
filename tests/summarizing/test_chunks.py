"""A model that reads chunks, from text to summary; refused inputs."""

import jax
import numpy as np
import pytest

from locost_jax.config import decode_settings
from locost_jax.data import pages as pages_lib
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing import page_reading
from tests.batches import BYTES
from tests.data.rows import write_jsonl
from tests.summarizing.summarize_command import changed
from tests.summarizing.summarize_command import random_model
from tests.summarizing.summarize_command import read_and_locate
from tests.summarizing.summarize_command import use

# Without these options random models repeat themselves or end at once.
LONG_TEXTS = dict(max_length=8, min_length=8, no_repeat_ngram_size=1)
TEXT = 'The whale swam north. Nobody saw it go, or so they said. It was cold.'


@pytest.fixture(scope='module')
def summarizer():
  """A small SimCAS with random weights that reads chunks of 16 bytes."""
  pages = documents_lib.Pages('chunks', page_length=16)
  made = random_model('simcas', BYTES, pages, max_positions=24)
  # Small logits, so that the selector keeps about half.
  actor = made.params['selector']['actor']
  actor['output'] = jax.tree.map(lambda x: 0.1 * x, actor['output'])
  made.settings = decode_settings.change(made.settings, LONG_TEXTS)
  return made


@pytest.mark.parametrize('form', pages_lib.CHUNKS)
@pytest.mark.parametrize(
    'document, most',
    (
        *((TEXT, most) for most in (1, 9, 15, 33, 10**4)),
        *((document, 10**6) for document in ('A whale.', ' \n', '')),
    ),
)
def test_max_input_length_counts_tokens_in_chunks(form, document, most):
  """Keeps the first tokens of the document, like the data pipeline."""
  pages = documents_lib.Pages(form, page_length=16)
  text = documents_lib.Text(document)
  read, places = read_and_locate(BYTES, text, pages, most)
  assert read.dropped == 0
  parts = pages_lib.pieces({'document': document}, form, 1)
  assert read.pages == pages_lib.tokenise(parts, '', pages, most, BYTES)
  held = [i for chunk in read.pages for i in chunk if i not in (0, 1)]
  whole = [i for part in parts for i in BYTES.encode(part)]
  assert held == whole[:most]
  left_out = max(len(whole) - most, 0)
  assert read.tokens == sum(map(len, read.pages)) + left_out
  shown = len(held) if document.strip() else 0  # white space has no place
  assert sum((x >= 0).sum() for x in places) == shown


def test_one_chunk_and_forty_are_summarised_together(summarizer):
  """A batch equals single documents; one of them is empty."""
  long = ' '.join(f'{n} whales went by.' for n in range(33))
  documents = [TEXT, long, 'One.', long[::-1], '', ' \n']
  counts = [len(summarizer.tokenize(document)) for document in documents]
  assert min(counts) == 1 and max(counts) >= 40
  # `summarize` refuses the empty ones, `generate` reads their ids.
  together = summarizer.summarize(documents[:4])
  alone = [summarizer.summarize(document)[0] for document in documents[:4]]
  assert together == alone and len(set(together)) > 2
  for document in documents[4:]:
    ids = np.array([summarizer.tokenize(document)])
    (tokens,) = summarizer.generate(ids, **LONG_TEXTS)
    alone.append(BYTES.decode(tokens.tolist()))
  inputs = np.zeros((len(documents), max(counts), 16), np.int32)
  for row, document in zip(inputs, documents):
    for chunk, ids in zip(row, summarizer.tokenize(document)):
      chunk[: len(ids)] = ids
  # Also in one array with empty chunks, instead of groups by shape.
  tokens = summarizer.generate(inputs, **LONG_TEXTS)
  assert [BYTES.decode(row.tolist()) for row in tokens] == alone
  assert len(np.unique(tokens, axis=0)) > 3


def test_a_run_may_have_options_that_chunks_do_not_have(summarizer):
  for key in 'num_pages', 'document_length':
    stored = {'pages': 'chunks', 'page_length': 16, key: 3}
    chosen = page_reading.choose_pages(summarizer.config, stored, {})
    assert chosen.page_length == 16


def test_the_command_cuts_chunks(tmp_path, summarizer, monkeypatch, call_json):
  use(monkeypatch, summarizer)
  rows = [dict(id='a', document=TEXT * 9), dict(id='b', document='')]
  path = write_jsonl(tmp_path / 'rows.jsonl', rows)
  reader = changed(summarizer, pages='sentence_chunks')
  command = f'--checkpoint={tmp_path}', '--pages=sentence_chunks', path
  for most in (60, None):
    flags = [] if most is None else [f'--max_input_length={most}']
    status, found, err = call_json(*command, *flags)
    want = reader.summarize(TEXT * 9, max_input_length=most)
    assert [row['prediction'] for row in found if row['id'] == 'a'] == want
    assert status == 2 and 'rows.jsonl:2: an empty document' in err
