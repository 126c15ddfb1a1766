"""Documents with parts: odd ones are read, wrong ones refused."""

import types

import pytest

from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.errors import InputError
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing import page_reading
from locost_jax.summarizing import token_places
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests import bart_files
from tests.batches import BYTES
from tests.models.test_bart import SMALL
from tests.summarizing.summarize_command import read_and_locate


@pytest.mark.parametrize('form', ('discourse', 'document'))
@pytest.mark.parametrize('blank', ('', ' \n'))
def test_without_texts_in_parts_the_document_is_read(form, blank):
  row = {
      'document': 'A whale. A ship.',
      'sections': [{'heading': '', 'text': blank}],
      'documents': [blank, blank],
  }
  text = documents_lib.text_of(row, documents_lib.Pages(form, 2))
  assert text == documents_lib.Text('A whale. A ship.')


@pytest.mark.parametrize('documents', (['One.', ' '], [' ', 'B c.'], [' ']))
@pytest.mark.parametrize('empty_page', ('', '.'))
def test_a_blank_page_has_tokens_and_no_place(documents, empty_page, tmp_path):
  """A byte-level BPE has tokens for white space."""
  vocabulary = vocabulary_lib.load_vocabulary(bart_files.write(tmp_path / 'v'))
  text = documents_lib.Text('\n\n'.join(documents), tuple(documents))
  pages = documents_lib.Pages('document', 2, 9, empty_page)
  _, places = read_and_locate(vocabulary, text, pages)
  ends = (end for own in places for end in own if end >= 0)
  assert all(text.text[end - 1].strip() for end in ends)


class NoTilde:
  """Bytes, except that '~' has no token."""

  bos_id, pad_id, eos_id = None, BYTES.pad_id, BYTES.eos_id
  decode = BYTES.decode

  def encode(self, text):
    return self.encode_with_ends(text)[0]

  def encode_with_ends(self, text):
    kept = [i for i, letter in enumerate(text) if letter != '~']
    return BYTES.encode(text.replace('~', '')), [i + 1 for i in kept]


def test_letters_without_a_token():
  text = documents_lib.Text('a\n\n~~\n\nb~c', ('a', '~~', 'b~c'))
  pages = documents_lib.Pages('document', 3, 9, '')
  _, places = read_and_locate(NoTilde(), text, pages)
  assert list(map(len, places)) == [2, 3]
  assert [text.text[end - 1] for end in places[1][:-1]] == ['b', 'c']


def test_tokens_of_a_summary_are_the_generated_ones(tmp_path):
  """The token that the decoder reads first is not among them."""
  vocabulary = vocabulary_lib.load_vocabulary(bart_files.write(tmp_path / 'v'))
  whole = vocabulary_lib.surround(vocabulary, vocabulary.encode('Whales.'))
  for start, want in (('', whole), ('bos', whole[1:])):
    settings = decode_settings.Settings(start=start)
    summarizer = types.SimpleNamespace(vocabulary=vocabulary, settings=settings)
    assert token_places.summary_tokens(summarizer, 'Whales.') == want


@pytest.mark.parametrize(
    'document, message',
    (
        (3, 'of the type int: expected a string or a dict'),
        ({'document': 3}, "field 'document' must be a string, got int"),
        ({'sections': [{'text': 'b'}]}, "field 'sections' must be a list of"),
        ({'document': 'a', 'documents': [1]}, "field 'documents' must be a"),
        ({'document': None}, "expected 'document', 'sections' or 'documents'"),
        ({'title': 'x'}, "fields 'title': expected 'document'"),
    ),
)
def test_documents_of_another_form_are_refused(document, message):
  for pages in (None, documents_lib.Pages('discourse')):
    with pytest.raises(InputError, match=message):
      documents_lib.text_of(document, pages)


@pytest.mark.parametrize(
    'given, message',
    (
        ({'query_in': 'first'}, "query_in='first' is no option of pages: exp"),
        ({'pages': 'chunks'}, "pages='chunks' must be one of 'spatial'"),
        ({'page_length': 41}, 'page_length: 41 tokens, but'),
        ({'num_pages': 2.5}, 'num_pages=2.5: expected an integer, 1 <= num_'),
        ({'empty_page': 3}, 'empty_page=3: expected a string'),
        ({'page_length': 2}, 'page_length=2: expected an integer, 3 <= page_'),
        ({'document_length': -1}, 'document_length=-1: expected an integer, 0'),
        *(
            ({key: 3}, f'{key}=3: this model reads chunks.* max_input_length')
            for key in ('num_pages', 'document_length')
        ),
    ),
)
def test_options_of_pages_are_checked(given, message):
  name = 'simcas' if 'reads chunks' in message else 'pagesum'
  config = models.make_config(dict(SMALL, name=name))
  with pytest.raises(InputError, match=message):
    page_reading.choose_pages(config, None, given)
