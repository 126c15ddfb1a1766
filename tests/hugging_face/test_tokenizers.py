"""Texts become the ids of transformers' tokenizers."""

import pytest
import sentencepiece

from locost_jax.summarizing import documents
from locost_jax.summarizing import reading
from locost_jax.vocabularies import vocabulary as vocabulary_lib

transformers = pytest.importorskip(
    'transformers', reason='needs the extra `peers`'
)

TEXTS = 'the cat sat.', ' a cat,  the sat\nthe cat', ''
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
  for text in TEXTS:
    assert read(ours, text) == theirs(text).input_ids
  assert ours.languages.keys() >= {'ar_AR', 'ro_RO', 'vi_VN'}


def train(directory, **more):
  """Trains a spiece.model with T5's ids on a few sentences."""
  directory.mkdir(parents=True, exist_ok=True)
  rows = ['the cat sat on the mat.', 'a dog, and a cat', 'dogs sit on mats'] * 9
  marks = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
  sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(rows),
      model_prefix=str(directory / 'spiece'),
      vocab_size=200,
      hard_vocab_limit=False,
      minloglevel=2,
      **marks,
      **more,
  )
  return directory


def test_a_pegasus_of_its_sentencepiece_model(tmp_path):
  """Without tokenizer.json; masks, unknown characters, and what is skipped."""
  train(tmp_path)
  (tmp_path / 'config.json').write_text('{"model_type": "pegasus"}')
  theirs = transformers.PegasusTokenizer.from_pretrained(tmp_path)
  ours = vocabulary_lib.load_vocabulary(tmp_path)
  assert len(theirs) == ours.size
  for text in (
      *TEXTS,
      'dogs<mask_1> sit.<mask_2> cats<mask_1>',
      '\u4e2d the \u0416 cat',
  ):
    ids = theirs(text).input_ids
    assert read(ours, text) == ids, text
    assert ours.encode_with_ends(text)[0] == ids[:-1]
    want = theirs.decode(ids, skip_special_tokens=True)
    if ours.unk_id not in ids:  # where they write nothing, we show it
      assert ours.decode(ids) == want.strip()
  assert ours.decode([*range(2, 105), 1]) == ''
  # As in the release; transformers 5 has a piece for the space.
  assert ours.encode('dogs <mask_1> sit') == ours.encode('dogs<mask_1> sit')
  found = theirs.mask_token_id, theirs.convert_tokens_to_ids('<mask_1>')
  assert found == (3, 2)
  marks = theirs.pad_token_id, theirs.eos_token_id, theirs.unk_token_id
  assert marks == (ours.pad_id, ours.eos_id, ours.unk_id) == (0, 1, 105)


def test_an_mt5_of_its_sentencepiece_model(tmp_path):
  """It has the sentinels already."""
  names = [f'\u2581<extra_id_{i}>' for i in reversed(range(100))]
  train(tmp_path, user_defined_symbols=names)
  ours = vocabulary_lib.load_vocabulary(tmp_path)
  theirs = sentencepiece.SentencePieceProcessor(str(tmp_path / 'spiece.model'))
  text = 'the <extra_id_0> sat'
  assert ours.encode(text) == theirs.encode(text)
  assert (ours.extra_ids, ours.size) == (0, theirs.get_piece_size())
  assert len(ours.sentinel_ids) == 100
