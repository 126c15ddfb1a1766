"""BPE and Unigram: compared with a reference; round trips, bad files."""

import json
import operator
import pickle
import re
import unicodedata

import pytest
import sentencepiece as spm
import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from tokenizers import processors
from tokenizers import trainers

from locost_jax.data import corpus as corpus_lib
from locost_jax.errors import InputError
from locost_jax.vocabularies import byte_vocabulary
from locost_jax.vocabularies import sentencepiece_vocabulary
from locost_jax.vocabularies import tokenizer_vocabulary
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests.bart_files import byte_letters

MARKS = ['<s>', '<pad>', '</s>', '<unk>']
ids_of_marks = operator.attrgetter(
    'bos_id', 'pad_id', 'eos_id', 'unk_id', 'start_id'
)
NASTY = [
    '',
    ' ',
    '  ',
    '\n',
    'a\n',
    ' leading',
    'trailing  ',
    "it's we'll 'S I'd've",
    'tabs\tand\r\nlines\n\n\n  indented\n',
    'a\u00a0b \u00a0 c\u3000d\u2028e',
    'na\u00efve caf\u00e9 e\u0301 \u4e2d\u6587 \u0939\u093f\u0928',
    '\U0001f600\U0001f468\u200d\U0001f469 \U0001f1e9\U0001f1ea!!',
    '\u00bd 3\u00b2 \u0663\u0664 12,345.67',
    '\x00\x01\x1c\x7f\x85 \ufeff\ufffd',
    'x' * 300,
    '-_-__==##@@ $%^&*',
    '</s> is <s>text<pad> here, <unk> too',
    '\u0120 is \u010a written',
]


@pytest.fixture(scope='module')
def texts():
  rows = corpus_lib.built_in_rows('validation', gap_sentences=True)
  return [row['text'] for row in rows]


@pytest.fixture(scope='module')
def trained(texts):
  """A tokenizer like BART's: marks first, the mask last."""
  made = tokenizers.Tokenizer(models.BPE())
  made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  made.decoder = decoders.ByteLevel()
  made.train_from_iterator(
      texts,
      trainers.BpeTrainer(
          vocab_size=1500,
          special_tokens=MARKS,
          show_progress=False,
          initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
      ),
  )
  made.add_special_tokens([tokenizers.AddedToken('<mask>', lstrip=True)])
  made.post_processor = processors.RobertaProcessing(('</s>', 2), ('<s>', 0))
  return json.loads(made.to_str())


def write(directory, **files):
  """Writes files; `__` is the dot of a name, and all but strings are JSON."""
  directory.mkdir(exist_ok=True)
  for name, content in files.items():
    if not isinstance(content, str):
      content = json.dumps(content)
    (directory / name.replace('__', '.')).write_text(content, 'utf-8')
  return str(directory)


def old_files(trained):
  """Returns the files of BART's release: vocab.json and merges.txt."""
  vocab = dict(
      trained['model']['vocab'],
      **{token['content']: token['id'] for token in trained['added_tokens']},
  )
  merges = [' '.join(pair) for pair in trained['model']['merges']]
  return dict(
      vocab__json=vocab, merges__txt='\n'.join(['#version: 0.2', *merges, ''])
  )


@pytest.fixture(scope='module')
def both(trained, tmp_path_factory):
  """The same vocabulary from both kinds of files."""
  home = tmp_path_factory.mktemp('bpe')
  return [
      vocabulary_lib.load_vocabulary(path)
      for path in (
          write(home / 'new', tokenizer__json=trained),
          write(home / 'old', **old_files(trained)),
      )
  ]


# --- A reference implementation of GPT-2's encoder ---------------------------

_SPACES = set('\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000') | {
    chr(c) for c in range(0x2000, 0x200B)
}
_WORD = re.compile('b?L+|b?N+|b?o+|[bs]+(?![^bs])|[bs]+')
_ENDINGS = re.compile("'(?:s|t|re|ve|m|ll|d)")


def words(text):
  """Splits a text as GPT-2's regular expression does, by kinds of letters."""
  kinds = ''.join(
      'b'
      if c == ' '
      else 's'
      if c in _SPACES
      else {'L': 'L', 'N': 'N'}.get(unicodedata.category(c)[0], 'o')
      for c in text
  )
  at = 0
  while at < len(text):
    end = (_ENDINGS.match(text, at) or _WORD.match(kinds, at)).end()
    yield text[at:end]
    at = end


def merge(word, ranks):
  """Merges the pair of lowest rank everywhere, until no pair is left."""
  while True:
    pairs = set(zip(word, word[1:])) & ranks.keys()
    if not pairs:
      return word
    best, merged = min(pairs, key=ranks.get), []
    for part in word:
      if merged and not merged[-1][1] and (merged[-1][0], part) == best:
        merged[-1] = merged[-1][0] + part, True
      else:
        merged.append((part, False))
    word = [part for part, _ in merged]


def reference(trained, text):
  letters, vocab = byte_letters(), trained['model']['vocab']
  ranks = {tuple(pair): i for i, pair in enumerate(trained['model']['merges'])}
  return [
      vocab[part]
      for word in words(text)
      for part in merge(
          [letters[b] for b in word.encode('utf-8', 'replace')], ranks
      )
  ]


def test_same_ids_as_the_reference(texts, trained, both):
  checked = 0
  for text in NASTY + texts[::15] + ['a lone \ud800 surrogate']:
    expected = reference(trained, text)
    for vocabulary in both:
      assert vocabulary.encode(text) == expected
    checked += len(expected)
  assert checked > 10_000
  assert max(expected) > 300  # pairs were merged


def test_round_trip_of_texts(texts, both):
  for vocabulary in both:
    for text in NASTY + texts[::15]:
      ids = vocabulary.encode(text)
      assert vocabulary.decode(ids) == text
      padded = [1, *vocabulary_lib.surround(vocabulary, ids), 5, 6, 1]
      assert vocabulary.decode(padded) == text
      assert not {0, 1, 2, 3} & set(ids)  # marks in a text are plain text
    assert vocabulary.decode(vocabulary.encode('a\ud800b')) == 'a?b'
    assert vocabulary.decode([10**9, -1]) == '<unk><unk>'


def test_ids_of_marks(both):
  for vocabulary in both:
    assert ids_of_marks(vocabulary) == (0, 1, 2, 3, 2)
    assert vocabulary.size == 1501 and vocabulary.extra_ids == 0
    assert vocabulary_lib.surround(vocabulary, [7, 8]) == [0, 7, 8, 2]
    assert vocabulary.encode('a <mask> b') == (
        vocabulary.encode('a') + [1500] + vocabulary.encode(' b')
    )
  byte = byte_vocabulary.ByteVocabulary()
  assert (byte.bos_id, byte.start_id) == (None, 0)
  assert vocabulary_lib.surround(byte, [7, 8]) == [7, 8, 1]


def test_ends_are_characters(texts, both):
  """The text between two ends has the token's bytes."""
  letters = {letter: b for b, letter in byte_letters().items()}
  for vocabulary in both:
    for text in NASTY + texts[:5] + ['x <mask> y \ud800']:
      ids, ends = vocabulary.encode_with_ends(text)
      assert ids == vocabulary.encode(text) and len(ends) == len(ids)
      assert ends == sorted(ends) and ends[-1:] in ([], [len(text)])
      data, done = b'', 0
      for i, end in zip(ids, ends):
        token = vocabulary._tokenizer.id_to_token(i)
        data += b' <mask>' if i == 1500 else bytes(letters[c] for c in token)
        done = len(text[:end].encode('utf-8', 'replace'))
        # The first bytes of a character stand for the whole character.
        assert 0 <= done - len(data) < 4
        assert text.encode('utf-8', 'replace').startswith(data)


def test_options_in_the_files(trained, tmp_path):
  """Other names and ids, a leading space, added tokens."""
  old = old_files(trained)
  vocab = dict(old['vocab__json'])
  vocab = {{'<s>': '[B]', '</s>': '[E]'}.get(t, t): i for t, i in vocab.items()}
  path = write(
      tmp_path / 'named',
      vocab__json=vocab,
      merges__txt=old['merges__txt'],
      special_tokens_map__json=dict(
          bos_token='[B]', eos_token=dict(content='[E]', lstrip=False)
      ),
      tokenizer_config__json=dict(add_prefix_space=True),
      added_tokens__json={'<new>': 1501},
      config__json=dict(decoder_start_token_id=0, pad_token_id=1),
  )
  found = vocabulary_lib.load_vocabulary(path)
  assert (found.bos_id, found.eos_id, found.start_id) == (0, 2, 0)
  assert found.encode('the') == reference(trained, ' the')
  assert found.encode('a<new>')[-1] == 1501 and found.size == 1502
  # Ids come from config.json if no file names a token.
  del vocab['[B]'], vocab['[E]']
  vocab.update({'[B]': 2, '[E]': 0})
  path = write(
      tmp_path / 'numbered',
      vocab__json=vocab,
      merges__txt=old['merges__txt'],
      config__json=dict(bos_token_id=2, eos_token_id=0),
  )
  found = vocabulary_lib.load_vocabulary(path)
  assert (found.bos_id, found.eos_id, found.start_id) == (2, 0, 0)
  # Length limits in tokenizer.json are ignored.
  limited = dict(
      trained,
      truncation=dict(
          direction='Right', max_length=4, strategy='LongestFirst', stride=0
      ),
  )
  path = write(tmp_path / 'limited', tokenizer__json=limited)
  assert len(vocabulary_lib.load_vocabulary(path).encode('a b c d e f g')) == 7


def test_save_load_pickle(both, tmp_path):
  text = 'Some </s> text <mask> more.'
  for i, vocabulary in enumerate(both):
    vocabulary.ids['start'] = 0  # is set only by config.json
    vocabulary = pickle.loads(pickle.dumps(vocabulary))
    assert vocabulary.start_id == 0
    home = tmp_path / str(i)
    vocabulary_lib.save_vocabulary(vocabulary, str(home))
    for name, data in vocabulary.files.items():
      assert (home / name).read_bytes() == data
    loaded = vocabulary_lib.load_vocabulary(home)
    for found in (loaded, pickle.loads(pickle.dumps(loaded))):
      assert found.fingerprint == vocabulary.fingerprint
      assert found.start_id == 0 and found.size == vocabulary.size
      assert found.encode(text) == both[0].encode(text)
    assert loaded.fingerprint != both[i].fingerprint
    both[i].ids['start'] = 2
  path = tmp_path / '0' / 'tokenizer.json'
  assert vocabulary_lib.load_vocabulary(path).encode(text) == (
      both[0].encode(text)
  )


def test_unigram(texts, tmp_path):
  """As in T5: tokenizer.json gives the ids of its SentencePiece model."""
  model = str(tmp_path / 'spiece.model')
  spm.SentencePieceTrainer.train(
      sentence_iterator=iter(t.replace('\n', ' ') for t in texts),
      model_prefix=model[:-6],
      vocab_size=900,
      pad_id=0,
      eos_id=1,
      unk_id=2,
      bos_id=-1,
      minloglevel=2,
      normalization_rule_name='identity',
  )
  theirs = sentencepiece_vocabulary.SentencePieceVocabulary(model, extra_ids=10)
  pieces = spm.SentencePieceProcessor(model_file=model)
  made = tokenizers.Tokenizer(
      models.Unigram(
          [
              (pieces.id_to_piece(i), pieces.get_score(i))
              for i in range(pieces.get_piece_size())
          ],
          unk_id=2,
      )
  )
  made.pre_tokenizer = pre_tokenizers.Sequence(
      [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
  )
  made.decoder = decoders.Metaspace()
  made.add_special_tokens(
      [*MARKS[1:], *(f'<extra_id_{i}>' for i in reversed(range(10)))]
  )
  made.post_processor = processors.TemplateProcessing(
      single='$A </s>', special_tokens=[('</s>', 1)]
  )
  path = write(tmp_path / 't5', tokenizer__json=made.to_str())
  found = vocabulary_lib.load_vocabulary(path)
  assert ids_of_marks(found) == (None, 0, 1, 2, 0)
  assert (found.size, found.extra_ids) == (theirs.size, 10) == (910, 10)
  checked = 0
  # Line by line, because SentencePiece's float32 sums err in longer texts.
  lines = [line for text in texts[:200] for line in text.splitlines()]
  for text in (' '.join(line.split()) for line in lines):
    ids, ends = found.encode_with_ends(text)
    assert ids == found.encode(text) == theirs.encode(text)
    # If the space added before a word is a token, it ends at the first letter.
    lone = pieces.piece_to_id('\u2581')
    assert all(
        ours - end in ((0, 1) if i == lone else (0,))
        for i, ours, end in zip(ids, ends, theirs.encode_with_ends(text)[1])
    )
    if found.unk_id not in ids:
      assert found.decode(ids) == text
    checked += len(ids)
  assert checked > 5000
  assert found.encode('<extra_id_0>') == [909]
  assert sorted(found.sentinel_ids) == list(range(900, 910))
  assert found.decode([909]) == ''
  assert found.decode([909], keep_sentinels=True) == '<extra_id_0>'
  ids = found.encode('a </s> b')
  assert ids == theirs.encode('a </s> b') and 1 not in ids
  assert found.encode('<pad><unk> <') == theirs.encode('<pad><unk> <')
  assert found.decode([*found.encode('a b'), 2, 0, 1, 5]) == 'a b<unk>'


def bad_files(trained):
  """Returns [(expected in the message, files)]."""
  old, of_model = old_files(trained), trained['model']
  vocab = old['vocab__json']
  new = lambda **changes: dict(tokenizer__json=dict(trained, **changes))
  model = lambda **changes: new(model=dict(of_model, **changes))
  unmarked = dict(of_model, vocab={'a': 0, 'b': 1}, merges=[])
  other_ends = dict(trained['post_processor'], sep=['<pad>', 1])
  start, odd = dict(decoder_start_token_id=9999), {'x': 'y'}
  return [
      ('not JSON', dict(tokenizer__json='{"model"')),
      ('not JSON', dict(tokenizer__json='[' * 100_000)),
      ('not a JSON object', dict(tokenizer__json=[])),
      ('a None model', dict(tokenizer__json={})),
      ('a WordPiece model', model(type='WordPiece')),
      ('cut by Whitespace', new(pre_tokenizer=dict(type='Whitespace'))),
      ('out of vocab', model(merges=[['a', 'nothing']])),
      ('not a token', model(vocab={'a': -1}, merges=[])),
      (
          'no pad token',
          new(added_tokens=[], post_processor=None, model=unmarked),
      ),
      (r'adds the ids \[0, 1\]', new(post_processor=other_ends)),
      ("'<end>'", dict(old, special_tokens_map__json=dict(eos_token='<end>'))),
      ('start is 9999', dict(old, config__json=start)),
      ('merges.txt', dict(vocab__json=vocab)),
      ('txt:3: expected', dict(old, merges__txt='#version\na b\nabc\n')),
      ('not a tokenizer', dict(vocab__json={'a': 'b'}, merges__txt='')),
      ('no tokens', dict(vocab__json={}, merges__txt='')),
      ("'<new>' has the id 7", dict(old, added_tokens__json={'<new>': 7})),
      (
          "'x' is no id",
          dict(old, tokenizer_config__json=dict(added_tokens_decoder=odd)),
      ),
  ]


def test_bad_files(trained, tmp_path):
  for number, (expected, files) in enumerate(bad_files(trained)):
    path = write(tmp_path / str(number), **files)
    if expected == 'merges.txt':
      path += '/vocab.json'
    with pytest.raises(InputError, match=expected) as error:
      vocabulary_lib.load_vocabulary(path)
    assert '\n' not in str(error.value), expected
    assert path.split('/vocab')[0] in str(error.value), expected
  (tmp_path / 'words.txt').write_text('a b')
  with pytest.raises(InputError, match='words.txt: expected a file called'):
    vocabulary_lib.load_vocabulary(tmp_path / 'words.txt')
  with pytest.raises(InputError, match='spiece.model, tokenizer.json, vocab'):
    vocabulary_lib.load_vocabulary(tmp_path)
  assert not tokenizer_vocabulary.is_in(tmp_path)
