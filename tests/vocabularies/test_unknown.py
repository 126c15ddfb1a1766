"""Which tokens stand for characters that a vocabulary does not have."""

import os

import pytest
import sentencepiece as spm

import locost_jax
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import sentencepiece_vocabulary
from locost_jax.vocabularies import token_ids
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests import bart_files

BUILTIN = os.path.join(
    os.path.dirname(locost_jax.__file__), 'builtin/documentation/vocabulary'
)
ENGLISH = 'The function returns a list of words.'
JAPANESE = '\u6628\u65e5\u96e8\u304c\u964d\u308a\u307e\u3057\u305f\u3002' * 9


def share(vocabulary, text):
  return token_ids.unknown_share(vocabulary, vocabulary.encode(text))


def test_sentencepiece_has_unk():
  vocabulary = vocabulary_lib.load_vocabulary(BUILTIN)
  assert vocabulary.unknown_ids.tolist() == [vocabulary.unk_id]
  assert share(vocabulary, ENGLISH) == share(vocabulary, '') == 0
  assert share(vocabulary, JAPANESE) > 0.3


@pytest.fixture(scope='module')
def fallback(tmp_path_factory):
  """A SentencePiece model whose unknown characters become bytes."""
  home = tmp_path_factory.mktemp('fallback')
  (home / 'words.txt').write_text('\n'.join([ENGLISH, 'A list. A word.'] * 9))
  spm.SentencePieceTrainer.train(
      input=str(home / 'words.txt'),
      model_prefix=str(home / 'spiece'),
      vocab_size=300,
      hard_vocab_limit=False,
      byte_fallback=True,
      pad_id=0,
      eos_id=1,
      unk_id=2,
      bos_id=-1,
      minloglevel=2,
  )
  return sentencepiece_vocabulary.SentencePieceVocabulary(
      str(home / 'spiece.model')
  )


def test_bytes_that_characters_fall_back_to(fallback):
  assert len(fallback.unknown_ids) == 129  # unk, and bytes beyond ASCII
  assert share(fallback, ENGLISH) == 0 and share(fallback, JAPANESE) > 0.9


def test_single_bytes_of_byte_level_bpe(tmp_path):
  vocabulary = vocabulary_lib.load_vocabulary(bart_files.write(tmp_path / 'v'))
  assert vocabulary.unknown_ids.tolist() == [3, *range(4 + 128, 4 + 256)]
  assert share(vocabulary, ENGLISH) == 0 and share(vocabulary, JAPANESE) == 1


def test_bytes_know_every_script():
  assert share(byte_vocabulary.ByteVocabulary(), JAPANESE) == 0
