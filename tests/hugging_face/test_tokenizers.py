"""Texts become the ids of transformers' tokenizers."""

import pytest

from locost_jax.summarizing import documents
from locost_jax.summarizing import reading
from locost_jax.vocabularies import vocabulary as vocabulary_lib

transformers = pytest.importorskip(
    'transformers', reason='needs the extra `peers`'
)

TEXTS = 'the cat sat.', ' a cat,  the sat\nthe cat', 'ro_RO the </s> cat', ''
PIECES = [('\u2581' + word, -1.0 - i) for i, word in enumerate(['the', 'cat'])]
PIECES += [(c, -5.0 - i) for i, c in enumerate('\u2581abcdefghijklmnopqrst.,')]
MARKS = [(mark, 0.0) for mark in ('<s>', '<pad>', '</s>', '<unk>')]


def read(vocabulary, text):
  return reading.read(vocabulary, documents.Text(text)).pages[0]


@pytest.mark.parametrize('language', ('en_XX', 'ro_RO'))
@pytest.mark.parametrize('kind', ('MBart', 'MBart50'))
def test_languages(kind, language, tmp_path):
  Theirs = getattr(transformers, f'{kind}Tokenizer')
  if kind == 'MBart50':  # it puts <unk> behind the pieces it is given
    vocab = [*MARKS[:3], ('<unk>', 0.0), *PIECES]
  else:
    vocab = [*MARKS, *PIECES]
  theirs = Theirs(vocab=vocab, src_lang='en_XX', tgt_lang='ro_RO')
  theirs.save_pretrained(tmp_path)
  theirs = Theirs.from_pretrained(tmp_path, src_lang=language)
  ours = vocabulary_lib.load_vocabulary(tmp_path)
  ours = vocabulary_lib.with_language(ours, language)
  for text in (TEXTS[0], TEXTS[1], TEXTS[3]):
    assert read(ours, text) == theirs(text).input_ids
  assert ours.languages.keys() >= {'ar_AR', 'ro_RO', 'vi_VN'}
