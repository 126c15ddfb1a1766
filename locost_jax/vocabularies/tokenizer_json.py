"""Reads and checks the JSON files of Hugging Face's `tokenizers` library.

A vocabulary is in tokenizer.json, or in vocab.json and merges.txt (byte-level
BPE only; `make_spec` makes a tokenizer.json of them), or in mBART's
sentencepiece.bpe.model (`make_mbart_spec`). The names of the marks come
from special_tokens_map.json and tokenizer_config.json, else their ids come from
config.json, else they are '<s>', '<pad>', '</s>' and '<unk>'. tokenizer.json
determines the marks at the ends of a text; without it they are BART's '<s>' and
'</s>'.
"""

import base64
import json
import os
import re

from locost_jax import files
from locost_jax.errors import InputError
from locost_jax.vocabularies import sentencepiece_vocabulary

TOKENIZER, VOCAB, MERGES = 'tokenizer.json', 'vocab.json', 'merges.txt'
NAMES = 'special_tokens_map.json', 'tokenizer_config.json'
ADDED = 'added_tokens.json'
PIECES = 'sentencepiece.bpe.model'
FILES = (TOKENIZER, VOCAB, MERGES, PIECES, *NAMES, ADDED)
_MARKS = dict(bos='<s>', pad='<pad>', eos='</s>', unk='<unk>')
IDS = *_MARKS, 'start'
_LANGUAGE = re.compile('[a-z]{2,3}_[A-Z]{2}')  # mBART's, such as 'ro_RO'
# In the order of their ids: mBART's (Liu et al. 2020), and those that mBART-50
# has in addition (Tang et al. 2020).
_OF_MBART = (
    'ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX '
    'kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN '
    'zh_CN'
).split()
_OF_MBART_50 = (
    'af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN '
    'mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK '
    'xh_ZA gl_ES sl_SI'
).split()
# Default options of added tokens.
_PLAIN = dict.fromkeys(
    ('single_word', 'lstrip', 'rstrip', 'normalized', 'special'), False
)


def read_object(contents, name, where):
  """Returns the JSON object of a file; {} if there is no such file."""
  if name not in contents:
    return {}
  return files.parse_object(contents[name], os.path.join(where, name), None)


def read_names(contents, where):
  """Returns tokenizer_config.json and special_tokens_map.json, merged."""
  return read_object(contents, NAMES[1], where) | read_object(
      contents, NAMES[0], where
  )


def token_text(token, default):
  """Returns the text of a token in a JSON file: itself, or its `content`."""
  if isinstance(token, dict):
    token = token.get('content')
  return token if isinstance(token, str) else default


def make_tokenizer(spec, path):
  """Makes the library's tokenizer from a tokenizer.json."""
  import tokenizers

  try:
    found = tokenizers.Tokenizer.from_str(json.dumps(spec))
    known = found.get_vocab(True)
  except (KeyboardInterrupt, SystemExit):
    raise
  except BaseException as e:  # a panic in Rust is not an Exception
    reason = str(e).strip().split('\n')[0]
    raise InputError(f'{path}: not a tokenizer: {reason}') from None
  if not known:
    raise InputError(f'{path}: not a tokenizer: it has no tokens')
  for token in spec.get('added_tokens') or ():
    if known.get(token['content']) != token['id']:
      raise InputError(
          f'{path}: the added token {token["content"]!r} has the id '
          f'{token["id"]}; expected {known.get(token["content"])}'
      )
  return found


def hide_marks(spec, marks):
  """Changes a tokenizer.json so that marks in a text are encoded as text.

  Args:
    spec: the tokenizer.json, for use with `encode_special_tokens`.
    marks: ids of the marks; None is ignored.
  """
  added = spec.get('added_tokens') or []
  for token in added:
    token['special'] = token['id'] in marks
  if spec['model']['type'] == 'Unigram':
    # Its pieces have no types, so '</s>' in a text would become its id. Pieces
    # with a plain space never match, so a space is appended.
    vocab = spec['model']['vocab']
    inside = {i for i in marks if i is not None and i < len(vocab)}
    for i in inside:
      vocab[i] = [vocab[i][0] + ' ', vocab[i][1]]
    spec['added_tokens'] = [t for t in added if t['id'] not in inside]


def is_byte_level(spec, path):
  """Whether a tokenizer.json is byte-level BPE; InputError: of no known kind."""

  def types(key):
    """Returns the types of a step, or of its substeps."""
    step = spec.get(key)
    if not isinstance(step, dict):
      return []
    steps = step.get('pretokenizers') or step.get('decoders')
    return [
        part.get('type') if isinstance(part, dict) else None
        for part in (steps if isinstance(steps, list) else [step])
    ]

  model = spec.get('model')
  kind = model.get('type') if isinstance(model, dict) else None
  if kind == 'BPE' and all(
      'ByteLevel' in types(key) for key in ('pre_tokenizer', 'decoder')
  ):
    return True
  if (
      kind == 'Unigram'
      and model.get('unk_id') is not None
      and all('Metaspace' in types(key) for key in ('pre_tokenizer', 'decoder'))
  ):
    return False
  if kind == 'WordPiece' and types('decoder') == ['WordPiece']:
    return False
  steps = '+'.join(map(str, types('pre_tokenizer'))) or 'nothing'
  raise InputError(
      f'{path}: a {kind} model of words cut by {steps}; expected '
      'byte-level BPE, WordPiece, or Unigram with a metaspace and an unknown '
      'token'
  )


def find_ids(tokenizer, is_bpe, named, config, path):
  """Finds the ids of the marks; see TokenizerVocabulary.

  Args:
    named: tokenizer_config.json and special_tokens_map.json, merged.
    config: config.json of the model, for ids that `named` does not give.

  Returns:
    {'bos', 'pad', 'eos', 'unk', 'start': id}; bos may be None; and 'after', an
    id behind the eos of an input (mBART's language), if there is one.
  """
  ids = {}
  for mark, usual in _MARKS.items():
    name = token_text(named.get(f'{mark}_token'), None)
    ids[mark] = tokenizer.token_to_id(usual if name is None else name)
    if name is None and type(config.get(f'{mark}_token_id')) is int:
      ids[mark] = config[f'{mark}_token_id']
    if ids[mark] is None and mark != 'bos':
      raise InputError(f'{path}: no {mark} token: expected {name or usual!r}')
  ends = tokenizer.encode('').ids
  if len(ends) == 2 and ends[0] == ids['eos'] != ends[1]:
    ids['after'] = ends.pop()
  if ends not in ([], [ids['eos']]) and (
      len(ends) != 2 or ends[1] != ids['eos']
  ):
    raise InputError(
        f'{path}: adds the ids {ends} to a text; expected eos, {ids["eos"]}, '
        'at the end and at most one id in front'
    )
  if ends or not is_bpe:
    ids['bos'] = ends[0] if len(ends) == 2 else None
  start = config.get('decoder_start_token_id')
  if start is None:  # mBART's decoder begins with the language
    start = ids.get('after', ids['eos' if is_bpe else 'pad'])
  ids['start'] = start
  return ids


def languages(spec):
  """Returns {name: id} of the tokens of languages in a tokenizer.json."""
  return {
      token['content']: token['id']
      for token in spec.get('added_tokens') or ()
      if _LANGUAGE.fullmatch(token['content'])
  }


def make_spec(files, named, where):
  """Makes a tokenizer.json of byte-level BPE from vocab.json and merges.txt.

  Args:
    named: tokenizer_config.json and special_tokens_map.json, merged.
  """
  vocab = read_object(files, VOCAB, where)
  path = os.path.join(where, MERGES)
  merges = _read_merges(files[MERGES], path)
  added = _added_tokens(files, named, vocab, where)
  byte_level = dict(
      type='ByteLevel',
      trim_offsets=False,
      use_regex=True,
      add_prefix_space=named.get('add_prefix_space') is True,
  )
  return dict(
      version='1.0',
      normalizer=None,
      pre_tokenizer=byte_level,
      post_processor=None,
      decoder=byte_level,
      added_tokens=sorted(added, key=lambda token: str(token['id']).zfill(20)),
      model=dict(type='BPE', vocab=vocab, merges=merges),
  )


def make_mbart_spec(files, named, config, where):
  """Makes a tokenizer.json of mBART's sentencepiece.bpe.model alone.

  Ids are fairseq's: <s>, <pad>, </s>, <unk>, the pieces after the model's own
  three marks, the languages, <mask>. Without a `src_lang` texts are English.

  Args:
    named: tokenizer_config.json and special_tokens_map.json, merged.
    config: config.json of the model; see `_is_mbart_50`.
  """
  pieces, charsmap = _read_pieces(files[PIECES], os.path.join(where, PIECES))
  is_50 = _is_mbart_50(named, config, len(pieces))
  codes = [*_OF_MBART, *(_OF_MBART_50 if is_50 else ())]
  language = named.get('src_lang') or 'en_XX'
  if language not in codes:
    raise InputError(
        f'{os.path.join(where, NAMES[1])}: src_lang={language!r}: is none of '
        f'the {len(codes)} languages of an mBART{"-50" if is_50 else ""}'
    )
  vocab = [[mark, 0.0] for mark in _MARKS.values()] + pieces[3:]
  first = len(vocab)
  vocab += [[name, 0.0] for name in (*codes, '<mask>')]
  added = [
      {**_PLAIN, 'id': i, 'content': vocab[i][0]}
      for i in (*range(len(_MARKS)), *range(first, len(vocab)))
  ]
  added[-1]['lstrip'] = True
  ids = {'</s>': 2, language: first + codes.index(language)}
  single = [{'SpecialToken': {'id': name, 'type_id': 0}} for name in ids]
  text = {'Sequence': {'id': 'A', 'type_id': 0}}
  single = [single[1], text, single[0]] if is_50 else [text, *single]
  metaspace = dict(
      type='Metaspace',
      replacement='\u2581',
      prepend_scheme='always',
      split=True,
  )
  return dict(
      version='1.0',
      normalizer=charsmap
      and dict(type='Precompiled', precompiled_charsmap=charsmap),
      pre_tokenizer=dict(
          type='Sequence',
          pretokenizers=[dict(type='WhitespaceSplit'), metaspace],
      ),
      post_processor=dict(
          type='TemplateProcessing',
          single=single,
          pair=single,
          special_tokens={
              name: dict(id=name, ids=[i], tokens=[name])
              for name, i in ids.items()
          },
      ),
      decoder=metaspace,
      added_tokens=added,
      model=dict(type='Unigram', unk_id=3, vocab=vocab),
  )


def _is_mbart_50(named, config, count):
  """Whether a sentencepiece.bpe.model of `count` pieces is an mBART-50's.

  The tokenizer_class says so, else the rows of the model's embedding.
  """
  own = named.get('tokenizer_class') or config.get('tokenizer_class')
  if isinstance(own, str):
    return own.startswith('MBart50')
  rows = config.get('vocab_size')
  return isinstance(rows, int) and rows > 1 + count + len(
      _OF_MBART + _OF_MBART_50
  )


def _read_pieces(data, path):
  """Returns a SentencePiece model's [[piece, score]] and its normalizer.

  The normalizer is in base64, as in a tokenizer.json; None without one.
  """
  from sentencepiece import sentencepiece_model_pb2

  sentencepiece_vocabulary.load_processor(data, path)  # raises if it is none
  model = sentencepiece_model_pb2.ModelProto.FromString(data)
  first = [piece.piece for piece in model.pieces[:3]]
  kind = model.trainer_spec.model_type
  if kind != model.trainer_spec.UNIGRAM or first != ['<unk>', '<s>', '</s>']:
    raise InputError(
        f"{path}: expected an mBART's: a Unigram model whose first pieces are "
        f'<unk>, <s>, </s>; got {", ".join(first) or "no pieces"} of a '
        f'{model.trainer_spec.ModelType.Name(kind)} model'
    )
  charsmap = model.normalizer_spec.precompiled_charsmap
  pieces = [[piece.piece, piece.score] for piece in model.pieces]
  return pieces, base64.b64encode(charsmap).decode() or None


def _read_merges(data, path):
  """Returns the pairs of tokens in merges.txt, in order."""
  try:
    lines = data.decode().split('\n')
  except UnicodeDecodeError:
    raise InputError(f'{path}: not UTF-8') from None
  merges = []
  for number, line in enumerate(lines, start=1):
    line = line.rstrip('\r')
    if not line or (number == 1 and line.startswith('#version')):
      continue
    pair = line.split(' ')
    if len(pair) != 2 or not all(pair):
      raise InputError(
          f'{path}:{number}: expected two tokens and a space '
          f'between them, got {line[:40]!r}'
      )
    merges.append(pair)
  return merges


def _added_tokens(files, named, vocab, where):
  """Returns the added tokens as dicts; they are found before words are cut.

  They are the mask and the tokens of added_tokens.json and
  tokenizer_config.json. The options in tokenizer_config.json take precedence.
  """
  mask = token_text(named.get('mask_token'), '<mask>')
  ids = {mask: vocab[mask]} if mask in vocab else {}
  ids.update(read_object(files, ADDED, where))
  added = {
      content: dict(id=i, content=content, lstrip=content == mask)
      for content, i in ids.items()
  }
  more = named.get('added_tokens_decoder') or {}
  for i, token in more.items() if isinstance(more, dict) else ():
    content = token_text(token, None)
    if not i.isdecimal() or content is None:
      raise InputError(
          f'{os.path.join(where, NAMES[1])}: '
          f'added_tokens_decoder: {i!r} is no id of a token'
      )
    flags = {
        key: token[key] is True
        for key in ('lstrip', 'rstrip', 'single_word', 'normalized')
        if key in token
    }
    added[content] = dict(id=int(i), content=content, **flags)
  return [{**_PLAIN, **token} for token in added.values()]
