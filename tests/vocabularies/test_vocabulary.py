"""Vocabularies: T5's ids, round trips, determinism, clear errors."""

import os
import pickle
import shutil

import numpy as np
import pytest
import tokenizers

from locost_jax.data import corpus as corpus_lib
from locost_jax.errors import InputError
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import sentencepiece_training
from locost_jax.vocabularies import vocabulary as vocabulary_lib


@pytest.fixture(scope='module')
def texts():
  rows = corpus_lib.built_in_rows('train', gap_sentences=True)
  return [*(row['text'] for row in rows[:400]), '2⁻¹⁰ ⁶⁹ ² ¼ ½ …']


@pytest.fixture(scope='module')
def trained(texts, tmp_path_factory):
  path = str(tmp_path_factory.mktemp('vocabulary') / 'spiece.model')
  return sentencepiece_training.train(texts, path, 1000), path


def test_ids_are_t5s(trained):
  vocabulary, _ = trained
  assert (vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (0, 1, 2)
  assert vocabulary.size == 1000
  assert vocabulary.encode('<extra_id_0> <extra_id_1>') == [999, 998]
  assert vocabulary.encode('<extra_id_99>') == [900]
  assert vocabulary.decode([999, 1, 998], keep_sentinels=True) == '<extra_id_0>'
  assert sorted(vocabulary.sentinel_ids) == list(range(900, 1000))
  ids = vocabulary.encode('some text <extra_id_58> more')
  assert '<extra_id' not in vocabulary.decode([*ids, *range(900, 1000)])


@pytest.mark.parametrize(
    'text',
    [
        'One line.',
        'One line.\nAnother line.\n\nA paragraph.',
        '',
        '\n',
        'a\n',
        '\n\na',
        'before <extra_id_3> after\n<extra_id_4>',
        'Q7 ~ {}|\\^ Z',
        'There are 10⁶ cells in 3 m² and ½ of them grow.',
        'The difference of 2⁻¹⁰ and 1¼…',
    ],
)
def test_round_trip(trained, text):
  vocabulary, _ = trained
  ids = vocabulary.encode(text)
  assert all(type(i) is int for i in ids)
  assert vocabulary.decode(ids, keep_sentinels=True) == text
  assert vocabulary.unk_id not in ids
  padded = np.array([0] + ids + [1, 5, 6, 0, 0], np.int32)
  assert vocabulary.decode(padded, keep_sentinels=True) == text


def test_what_a_round_trip_loses(trained):
  vocabulary, _ = trained
  ids = vocabulary.encode('a  b\t c \n    indented ')
  assert vocabulary.decode(ids) == 'a b c\nindented'
  ids = vocabulary.encode('\ufeffdif\xadfer a\u0300\xa0\ufb01le\u3000\u200bon')
  assert ids == vocabulary.encode('differ \xe0 file on')
  assert vocabulary.unk_id in vocabulary.encode('\u4e2d')
  assert vocabulary.decode([10**6]) == vocabulary.decode([2])
  vocabulary.encode('a lone surrogate \ud800')


def test_line_starts_use_the_pieces_of_words(trained):
  vocabulary, _ = trained
  newline = vocabulary.encode('\n')
  assert vocabulary.encode('the file\nthe file') == (
      vocabulary.encode('the file') + newline + vocabulary.encode('the file')
  )
  assert vocabulary.encode('the file the file') == (
      2 * vocabulary.encode('the file')
  )


def test_same_ids_as_seqio(trained):
  seqio = pytest.importorskip('seqio')
  vocabulary, path = trained
  other = seqio.SentencePieceVocabulary(path, extra_ids=100)
  assert other.vocab_size == vocabulary.size
  for text in [
      'A plain line, (really) plain.',
      'x <extra_id_0> y <extra_id_99> <extra_id_5>.',
      '  two  spaces',
  ]:
    assert list(other.encode(text)) == vocabulary.encode(text)
  other = seqio.ByteVocabulary(extra_ids=100)
  byte = byte_vocabulary.ByteVocabulary()
  assert other.vocab_size == byte.size == 359
  for text in ['plain\n  text', 'na\u00efve \u4e2d\U0001f600', '']:
    assert list(other.encode(text)) == byte.encode(text)
    assert byte.decode(byte.encode(text)) == text
  ids = [0, 100, 260, 2, 101, 198, 1, 102]
  assert byte.decode(ids) == other.decode(ids) == 'ab'


@pytest.mark.runs
def test_training_depends_on_the_set_of_lines_only(texts, tmp_path):
  def train(name, texts, seed=0):
    path = tmp_path / name
    made = sentencepiece_training.train(texts, str(path), 500, seed=seed)
    return made.fingerprint, path.read_bytes()

  first = train('first.model', texts)
  assert first == train('again.model', texts[::-1] + texts[:100])
  # Only a part of the corpus is used, so another seed uses another part.
  assert sum(map(len, texts)) > 500 * sentencepiece_training._BYTES_PER_ID
  assert first[0] != train('other.model', texts, seed=1)[0]


def test_training_lines_fit_and_are_all_used():
  lines = [f'line {j} ' + 'word ' * (j % 7) for j in range(3000)]
  everything = sentencepiece_training._training_lines(lines, 0, 10**9)
  assert sorted(everything) == sorted(' '.join(x.split()) for x in lines)
  some = sentencepiece_training._training_lines(lines, 0, 5000)
  assert 4000 < sum(map(len, some)) <= 5000
  assert some == everything[: len(some)]
  long = ' '.join(f'word{j}' for j in range(500)) + ' ' + 'x' * 1500
  parts = sentencepiece_training._training_lines([long], 0, 10**9)
  assert max(map(len, parts)) <= 1000
  words = {word for part in parts for word in part.split()}
  assert words == {f'word{j}' for j in range(500)} | {'x' * 1000, 'x' * 500}


def test_small_corpus_gives_a_smaller_vocabulary(tmp_path):
  path = str(tmp_path / 'small.model')
  vocabulary = sentencepiece_training.train(
      ['a few words\nof text', 'and a few more words'], path, 8000
  )
  assert 190 < vocabulary.size < 300
  text = 'few words\nmore text'
  assert vocabulary.decode(vocabulary.encode(text)) == text


def test_untrainable(tmp_path):
  path = str(tmp_path / 'x.model')
  with pytest.raises(InputError, match='no text'):
    sentencepiece_training.train(['', ' \n '], path, 1000)
  with pytest.raises(InputError, match='cannot train a vocabulary of 110 ids'):
    sentencepiece_training.train(['some text'], path, 110)
  assert os.listdir(tmp_path) == []


def test_save_and_load(trained, tmp_path):
  vocabulary, path = trained
  byte = byte_vocabulary.ByteVocabulary(extra_ids=7)
  vocabulary_lib.save_vocabulary(vocabulary, str(tmp_path / 'a'))
  vocabulary_lib.save_vocabulary(byte, str(tmp_path / 'b'))
  for loaded in (
      vocabulary_lib.load_vocabulary(str(tmp_path / 'a')),
      vocabulary_lib.load_vocabulary(os.path.dirname(path)),
      vocabulary_lib.load_vocabulary(path),
  ):
    assert loaded.fingerprint == vocabulary.fingerprint
    assert loaded.encode('a text') == vocabulary.encode('a text')
  loaded = vocabulary_lib.load_vocabulary(str(tmp_path / 'b'))
  assert (loaded.size, loaded.fingerprint) == (266, byte.fingerprint)
  default = vocabulary_lib.load_vocabulary('byte')
  assert default.size == 359
  assert (
      len({vocabulary.fingerprint, byte.fingerprint, default.fingerprint}) == 3
  )


def test_pieces_of_mt5_and_pegasus(trained, tmp_path):
  """mT5's include the sentinels; PEGASUS's ids are not those of the pieces."""
  vocabulary, path = trained
  shutil.copy(path, tmp_path)
  (tmp_path / 'tokenizer_config.json').write_text('{"extra_ids": 0}')
  loaded = vocabulary_lib.load_vocabulary(tmp_path)
  assert loaded.size == vocabulary.size - vocabulary.extra_ids
  (tmp_path / 'config.json').write_text('{"model_type": "pegasus"}')
  found = vocabulary_lib.load_vocabulary(tmp_path)
  vocabulary_lib.save_vocabulary(found, tmp_path / 'saved')
  text = 'Whales sing.\nThe sea listens 中.'
  for one in (
      found,
      pickle.loads(pickle.dumps(found)),
      vocabulary_lib.load_vocabulary(tmp_path / 'saved'),
  ):
    assert (one.size, one.unk_id) == (loaded.size + 103, 105)
    assert one.encode(text) == [i + 103 for i in loaded.encode(text)]
    assert one.encode_with_ends(text)[1] == loaded.encode_with_ends(text)[1]
    assert one.decode([*one.encode(text), 1, 0]) == loaded.decode(
        loaded.encode(text)
    )
    assert one.unknown_ids.tolist() == [105]
    assert one.fingerprint == found.fingerprint != loaded.fingerprint
    assert one.encode('sea <mask_1>')[-1] == 2
    assert one.decode([0, 3, 104]) == ''
  tokenizer = tokenizers.Tokenizer(
      tokenizers.models.Unigram(
          [('<pad>', 0.0), ('</s>', 0.0), ('<unk>', 0.0), ('\u2581a', -1.0)], 2
      )
  )
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
  tokenizer.decoder = tokenizers.decoders.Metaspace()
  tokenizer.save(str(tmp_path / 'tokenizer.json'))
  assert vocabulary_lib.load_vocabulary(tmp_path).encode('a a') == [3, 3]


def test_bad_vocabularies(tmp_path):
  import sentencepiece as spm

  with pytest.raises(InputError, match='nowhere'):
    vocabulary_lib.load_vocabulary(str(tmp_path / 'nowhere'))
  (tmp_path / 'junk.model').write_bytes(b'junk')
  with pytest.raises(InputError, match='junk.model: not a SentencePiece'):
    vocabulary_lib.load_vocabulary(str(tmp_path / 'junk.model'))
  # SentencePiece's default ids.
  spm.SentencePieceTrainer.train(
      sentence_iterator=iter(['abc def', 'ghi']),
      vocab_size=20,
      model_prefix=str(tmp_path / 'other'),
      hard_vocab_limit=False,
      minloglevel=2,
  )
  with pytest.raises(InputError, match='expected the ids pad 0, eos 1, unk 2'):
    vocabulary_lib.load_vocabulary(str(tmp_path / 'other.model'))


@pytest.mark.parametrize('has_newline', [True, False])
def test_token_ends(trained, monkeypatch, has_newline):
  """The text between two ends is the token's; ids do not change."""
  vocabulary, _ = trained
  if not has_newline:  # as in T5's model
    monkeypatch.setattr(vocabulary, '_newline_id', None)
  text = '\n  The file,  and\tthe\n\nother file. ' * 3
  for noise in ('', 'h\u00e9 \u4e2d\u6587 \u00bd\n\U0001f600 e\u0301 \ud800 '):
    ids, ends = vocabulary.encode_with_ends(noise + text)
    assert ids == vocabulary.encode(noise + text)
    assert len(ids) == len(ends) and ends == sorted(ends)
    starts = [0] + ends[:-1]
    checked = 0
    for i, start, end in zip(ids, starts, ends):
      if start >= len(noise):
        assert vocabulary.decode([i]).split() == (
            (noise + text)[start:end].split()
        )
        checked += 1
    assert checked > 20
  assert vocabulary.encode_with_ends('') == ([], [])


def test_byte_ends():
  vocabulary = byte_vocabulary.ByteVocabulary()
  text = 'a\u00e9\u4e2d\n\U0001f600 \ud800'
  ids, ends = vocabulary.encode_with_ends(text)
  assert ids == vocabulary.encode(text)
  sizes = [len(c.encode('utf-8', 'replace')) for c in text]
  assert ends == np.repeat(np.arange(1, len(text) + 1), sizes).tolist()
