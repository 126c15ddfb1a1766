"""Texts become the ids of transformers' tokenizers."""

import pytest
import sentencepiece
import tokenizers

from locost_jax.errors import InputError
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


def train(directory, name='spiece', **more):
  """Trains a model with T5's ids, unless others are given."""
  directory.mkdir(parents=True, exist_ok=True)
  rows = ['the cat sat on the mat.', 'a dog, and a cat', 'dogs sit on mats'] * 9
  keys = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1, vocab_size=200)
  sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(rows),
      model_prefix=str(directory / name),
      hard_vocab_limit=False,
      minloglevel=2,
      **keys | more,
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


PIECES_OF_MBART = dict(unk_id=0, bos_id=1, eos_id=2, pad_id=-1)


@pytest.mark.parametrize('kind, count', [('MBart', 25), ('MBart50', 52)])
def test_an_mbart_of_its_sentencepiece_model(kind, count, tmp_path):
  """Without tokenizer.json; ids are the model's plus 1, its <unk> is 3."""
  train(tmp_path, 'sentencepiece.bpe', **PIECES_OF_MBART)
  file = tmp_path / 'sentencepiece.bpe.model'
  pieces = sentencepiece.SentencePieceProcessor(str(file))
  size = pieces.get_piece_size() + 1 + count + 1
  config = tmp_path / 'config.json'
  config.write_text(f'{{"model_type": "mbart", "vocab_size": {size}}}')
  ours = vocabulary_lib.load_vocabulary(tmp_path)
  assert ours.size == size and len(ours.languages) == count
  assert (ours.pad_id, ours.eos_id, ours.unk_id) == (1, 2, 3)
  Theirs = getattr(transformers, f'{kind}Tokenizer')
  own = ours
  for language in ('en_XX', 'ro_RO'):
    theirs = Theirs.from_pretrained(tmp_path, src_lang=language)
    assert len(theirs) == size and theirs.mask_token_id == size - 1
    assert all(
        theirs.convert_tokens_to_ids(name) == i
        for name, i in ours.languages.items()
    )
    for text in (*TEXTS, 'dogs sit on<mask> mats', 'the \u4e2d cat'):
      ids = theirs(text).input_ids
      # Version 5 leaves a space at the end, and the model's normalizer out.
      assert read(own, text) == ids, text
    own = vocabulary_lib.with_language(ours, 'ro_RO')
  for text in (*TEXTS, ' the  \uff43\uff41\uff54\tsat \u4e2d ', 'mats '):
    want = [i + 1 if i else 3 for i in pieces.encode(text)]
    assert ours.encode(text) == ours.encode_with_ends(text)[0] == want
    if ours.unk_id not in want:
      assert ours.decode(want) == pieces.decode(pieces.encode(text))
  vocabulary_lib.save_vocabulary(own, tmp_path / 'run')
  again = vocabulary_lib.load_vocabulary(tmp_path / 'run')
  assert again.fingerprint == own.fingerprint != ours.fingerprint
  alone = vocabulary_lib.load_vocabulary(file)
  assert alone.encode('the cat') == ours.encode('the cat')


@pytest.mark.parametrize(
    'given, message',
    [
        (b'no model', 'not a SentencePiece model'),
        ({}, "an mBART's: a Unigram model .* got <pad>, </s>, <unk>"),
        (PIECES_OF_MBART | dict(model_type='bpe'), 'of a BPE model'),
        ('xx_XX', "src_lang='xx_XX': is none of the 25 languages"),
    ],
)
def test_bad_pieces_of_an_mbart(given, message, tmp_path):
  keys = given if isinstance(given, dict) else PIECES_OF_MBART
  train(tmp_path, 'sentencepiece.bpe', **keys | dict(vocab_size=60))
  if isinstance(given, bytes):
    (tmp_path / 'sentencepiece.bpe.model').write_bytes(given)
  if isinstance(given, str):
    path = tmp_path / 'tokenizer_config.json'
    path.write_text(f'{{"src_lang": "{given}"}}')
  with pytest.raises(InputError, match=message):
    vocabulary_lib.load_vocabulary(tmp_path)


@pytest.mark.parametrize('offset', (103, 0))
@pytest.mark.parametrize('kind', ('pegasus_x', 'bigbird_pegasus'))
def test_models_with_the_tokenizer_of_pegasus(kind, offset, tmp_path):
  """With an offset of 0 the model has the masks; ids are its own."""
  names = ['<mask_1>', '<mask_2>', '<unk_2>'] if offset == 0 else []
  train(tmp_path, unk_id=2 + len(names), user_defined_symbols=names)
  (tmp_path / 'config.json').write_text(f'{{"model_type": "{kind}"}}')
  if offset == 0:
    (tmp_path / 'tokenizer_config.json').write_text('{"offset": 0}')
  pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / 'spiece.model'))
  ours = vocabulary_lib.load_vocabulary(tmp_path)
  vocabulary_lib.save_vocabulary(ours, tmp_path / 'run')
  for own in ours, vocabulary_lib.load_vocabulary(tmp_path / 'run'):
    assert own.size == pieces.get_piece_size() + offset
    assert own.unk_id == pieces.unk_id() + offset
    assert own.fingerprint == ours.fingerprint
    for text in (*TEXTS, 'the \u4e2d cat'):
      want = [i + offset for i in pieces.encode(text)]
      assert own.encode(text) == want
      if own.unk_id not in want:
        assert own.decode([2, *want, 3, 1]) == pieces.decode(
            pieces.encode(text)
        )


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


def test_a_bart_with_the_tokenizer_of_bert(tmp_path):
  texts = (*TEXTS, 'The Dogs sat, unseen [SEP] \u72d7\u5750\u5728.')
  made = tokenizers.BertWordPieceTokenizer()
  made.train_from_iterator(texts, vocab_size=90, min_frequency=1)
  made.save_model(str(tmp_path))
  theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
  theirs.save_pretrained(tmp_path)
  # Chinese BARTs say so; BERT's tokenizer has no token of that name.
  (tmp_path / 'config.json').write_text('{"eos_token_id": 3}')
  ours = vocabulary_lib.load_vocabulary(tmp_path)
  marks = theirs.cls_token_id, theirs.pad_token_id, theirs.sep_token_id
  assert marks == (ours.bos_id, ours.pad_id, ours.eos_id)
  for text in (*texts[:-1], texts[-1].replace('[SEP]', '')):
    ids = theirs(text).input_ids
    assert read(ours, text) == ids
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)
  assert ours.eos_id not in ours.encode(texts[-1])
