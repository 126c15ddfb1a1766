"""Vocabularies in the files of Hugging Face's `tokenizers` library.

Two kinds, with the face of data/vocabulary.py:

- byte-level BPE (GPT-2, BART, LED): bytes are written as letters, words (with
  the space before them) are merged pair by pair, the pair learned first first.
  Every text survives encode, then decode, but for lone surrogates and what an
  added token like ' <mask>' takes of the space around it.
- Unigram with a metaspace (T5 without its spiece.model).

They come from tokenizer.json, or from vocab.json and merges.txt (byte-level BPE
only). The names of the marks are read from special_tokens_map.json and
tokenizer_config.json, else their ids from config.json; else they are '<s>',
'<pad>', '</s>' and '<unk>'. What stands at the ends of a text is what
tokenizer.json puts there; without it, BART's '<s>' and '</s>'.

Marks written out in a text ('</s>') are text, so that a document cannot end
itself. Other added tokens ('<mask>', '<extra_id_0>') are found in it.
"""

import hashlib
import json
import os
import re

from locost_jax.errors import InputError

TOKENIZER, VOCAB, MERGES = 'tokenizer.json', 'vocab.json', 'merges.txt'
_NAMES = 'special_tokens_map.json', 'tokenizer_config.json'
_ADDED = 'added_tokens.json'
FILES = (TOKENIZER, VOCAB, MERGES, *_NAMES, _ADDED)
_MARKS = dict(bos='<s>', pad='<pad>', eos='</s>', unk='<unk>')
_IDS = *_MARKS, 'start'
_SENTINEL = re.compile(r'<extra_id_\d+>')


class TokenizerVocabulary:
  """A vocabulary in the files of the `tokenizers` library.

  Attributes:
    files: {name: bytes}, as they were found.
    ids: {'bos', 'pad', 'eos', 'unk', 'start': id}; bos is None where nothing
      stands in front of a text.
    bos_id, pad_id, eos_id, unk_id, start_id: the same.
    extra_ids: how many '<extra_id_N>' it has.
    size: one more than its largest id.
    fingerprint: tells vocabularies apart.
  """

  def __init__(self, files, ids=None, where='tokenizer', config=None):
    """Makes a vocabulary.

    Args:
      files: {name: bytes}, some of FILES.
      ids: as the attribute; None: they are read from the files.
      where: what to call the directory in an error.
      config: config.json of the model that the files belong to, for ids that
        they do not tell.

    Raises:
      InputError: files that are no vocabulary of these two kinds.
    """
    self.files = dict(files)
    source = TOKENIZER if TOKENIZER in files else VOCAB
    path = os.path.join(where, source)
    named = {}
    for name in reversed(_NAMES):
      named.update(_read_object(files, name, where))
    spec = (_read_object(files, TOKENIZER, where) if source == TOKENIZER
            else _from_merges(files, named, where))
    is_bpe = _is_byte_level(spec, path)
    # Documents are neither cut, padded nor read by chance here.
    spec.update(truncation=None, padding=None)
    if is_bpe:
      spec['model']['dropout'] = None
    whole = _load(spec, path)
    self.ids = ids = ids or _find_ids(whole, is_bpe, named, config or {}, path)
    known = whole.get_vocab(True)
    self.size = 1 + max(known.values())
    for key in _IDS:
      i = ids.get(key)
      is_id = type(i) is int and 0 <= i < self.size
      if not is_id and (i is not None or key != 'bos'):
        raise InputError(f'{path}: the id of {key} is {i!r}; expected one of '
                         f'0 to {self.size - 1}')
    self.bos_id, self.pad_id, self.eos_id, self.unk_id, self.start_id = (
        ids.get(key) for key in _IDS)
    _hide_marks(spec, {self.bos_id, self.pad_id, self.eos_id, self.unk_id})
    spec['post_processor'] = None  # It would cut the spaces off the ends.
    self._reader, self._tokenizer = whole, _load(spec, path)
    self._tokenizer.encode_special_tokens = True
    self._known = frozenset(known.values())
    self.extra_ids = sum(map(bool, map(_SENTINEL.fullmatch, known)))
    self.fingerprint = hashlib.sha256(
        json.dumps([spec, ids], sort_keys=True).encode()).hexdigest()

  def __reduce__(self):
    # The library's own pickles forget `encode_special_tokens`.
    return TokenizerVocabulary, (self.files, self.ids)

  def encode(self, text):
    """Returns the ids of a text as a list, without marks at its ends."""
    return self._encode(text).ids

  def encode_with_ends(self, text):
    """Returns the ids of `encode(text)` and where each token ends.

    Returns:
      (ids, ends), lists of one length: token i is part of, or the end of, the
      first ends[i] characters of `text`.
    """
    encoded = self._encode(text)
    ends, last = [], 0
    for _, end in encoded.offsets:
      last = max(last, end)
      ends.append(last)
    return encoded.ids, ends

  def _encode(self, text):
    # As in vocabulary.py, '?' for a lone surrogate.
    text = text.encode('utf-8', errors='replace').decode()
    return self._tokenizer.encode(text, add_special_tokens=False)

  def decode(self, ids):
    """Returns the text of ids (any iterable of ints), up to the first eos.

    Padding and the mark at the front are skipped. Ids that the vocabulary does
    not have count as unknown.
    """
    kept = []
    for i in map(int, ids):
      if i == self.eos_id:
        break
      if i not in (self.pad_id, self.bos_id):
        kept.append(i if i in self._known else self.unk_id)
    return self._reader.decode(kept, skip_special_tokens=False)


def is_in(directory):
  """Whether a directory has the files of a vocabulary of this kind."""
  there = [os.path.exists(os.path.join(directory, name))
           for name in (TOKENIZER, VOCAB, MERGES)]
  return there[0] or all(there[1:])


def load(path, ids=None):
  """Loads a vocabulary.

  Args:
    path: a directory for which `is_in`, or one of its files tokenizer.json,
      vocab.json and merges.txt.
    ids: as of TokenizerVocabulary.

  Returns:
    A TokenizerVocabulary.

  Raises:
    InputError: files that are missing or broken, or of another kind.
  """
  directory, left_out = path, ()
  if not os.path.isdir(path):
    directory, name = os.path.split(path)
    if name in (VOCAB, MERGES):
      left_out = TOKENIZER,
    elif name != TOKENIZER:
      raise InputError(f'{path}: expected a file called {TOKENIZER}, {VOCAB} '
                       f'or {MERGES}')
  files = {}
  for name in (*FILES, 'config.json'):
    try:
      with open(os.path.join(directory, name), 'rb') as f:
        files[name] = f.read()
    except FileNotFoundError:
      continue
    except OSError as e:
      raise InputError(f'{os.path.join(directory, name)}: cannot be read: '
                       f'{e.strerror}') from None
  for name in left_out:
    files.pop(name, None)
  if TOKENIZER not in files:
    for name, other in ((VOCAB, MERGES), (MERGES, VOCAB)):
      if name not in files:
        raise InputError(f'{os.path.join(directory, name)}: no such file, but '
                         f'{other} needs it')
  config = {} if ids else _read_object(files, 'config.json', directory)
  files.pop('config.json', None)
  return TokenizerVocabulary(files, ids, directory, config)


# --- Reading the files -------------------------------------------------------


def _read_object(files, name, where):
  """The JSON object of a file, {} where there is no file."""
  if name not in files:
    return {}
  try:
    found = json.loads(files[name])
    if isinstance(found, dict):
      return found
  except (ValueError, RecursionError):
    pass
  raise InputError(f'{os.path.join(where, name)}: not a JSON object')


def _load(spec, path):
  """The library's tokenizer of a tokenizer.json."""
  import tokenizers
  try:
    found = tokenizers.Tokenizer.from_str(json.dumps(spec))
    known = found.get_vocab(True)
  except (KeyboardInterrupt, SystemExit):
    raise
  except BaseException as e:  # a fault in Rust is no Exception
    reason = str(e).strip().split('\n')[0]
    raise InputError(f'{path}: not a tokenizer: {reason}') from None
  if not known:
    raise InputError(f'{path}: not a tokenizer: it has no tokens')
  for token in spec.get('added_tokens') or ():
    if known.get(token['content']) != token['id']:
      raise InputError(
          f'{path}: the added token {token["content"]!r} has the id '
          f'{token["id"]}; expected {known.get(token["content"])}')
  return found


def _hide_marks(spec, marks):
  """Changes a tokenizer.json so that marks written out in a text are text.

  Args:
    spec: the tokenizer.json, for `encode_special_tokens`: special tokens are
      not looked for, all others are.
    marks: ids; None is passed over.
  """
  added = spec.get('added_tokens') or []
  for token in added:
    token['special'] = token['id'] in marks
  if spec['model']['type'] == 'Unigram':
    # Its pieces have no types: '</s>' would be found in a text like any other.
    # Plain spaces are not, so one hides it.
    vocab = spec['model']['vocab']
    inside = {i for i in marks if i is not None and i < len(vocab)}
    for i in inside:
      vocab[i] = [vocab[i][0] + ' ', vocab[i][1]]
    spec['added_tokens'] = [t for t in added if t['id'] not in inside]


def _is_byte_level(spec, path):
  """Whether a tokenizer.json is byte-level BPE; False: Unigram.

  Raises:
    InputError: it is neither.
  """
  def types(key):
    """The types of a step, or of the steps that it is made of."""
    step = spec.get(key)
    if not isinstance(step, dict):
      return []
    steps = step.get('pretokenizers') or step.get('decoders')
    return [part.get('type') if isinstance(part, dict) else None
            for part in (steps if isinstance(steps, list) else [step])]

  model = spec.get('model')
  kind = model.get('type') if isinstance(model, dict) else None
  if kind == 'BPE' and all(
      'ByteLevel' in types(key) for key in ('pre_tokenizer', 'decoder')):
    return True
  if kind == 'Unigram' and model.get('unk_id') is not None and all(
      'Metaspace' in types(key) for key in ('pre_tokenizer', 'decoder')):
    return False
  steps = '+'.join(map(str, types('pre_tokenizer'))) or 'nothing'
  raise InputError(f'{path}: a {kind} model of words cut by {steps}; expected '
                   'byte-level BPE, or Unigram with a metaspace and an unknown '
                   'token')


def _from_merges(files, named, where):
  """A tokenizer.json of byte-level BPE, from vocab.json and merges.txt.

  Args:
    files: {name: bytes}.
    named: tokenizer_config.json and special_tokens_map.json.
    where: what to call the directory.
  """
  vocab = _read_object(files, VOCAB, where)
  path = os.path.join(where, MERGES)
  try:
    lines = files[MERGES].decode().split('\n')
  except UnicodeDecodeError:
    raise InputError(f'{path}: not UTF-8') from None
  merges = []
  for number, line in enumerate(lines, start=1):
    line = line.rstrip('\r')
    if not line or (number == 1 and line.startswith('#version')):
      continue
    pair = line.split(' ')
    if len(pair) != 2 or not all(pair):
      raise InputError(f'{path}:{number}: expected two tokens and a space '
                       f'between them, got {line[:40]!r}')
    merges.append(pair)

  # content -> id and how it is found, the last word in tokenizer_config.json.
  mask = _content(named.get('mask_token'), '<mask>')
  ids = {mask: vocab[mask]} if mask in vocab else {}
  ids.update(_read_object(files, _ADDED, where))
  added = {content: dict(id=i, content=content, lstrip=content == mask)
           for content, i in ids.items()}
  more = named.get('added_tokens_decoder') or {}
  if isinstance(more, dict):
    for i, token in more.items():
      content = _content(token, None)
      if not i.isdecimal() or content is None:
        raise InputError(f'{os.path.join(where, _NAMES[1])}: '
                         f'added_tokens_decoder: {i!r} is no id of a token')
      flags = {key: token[key] is True for key in (
          'lstrip', 'rstrip', 'single_word', 'normalized') if key in token}
      added[content] = dict(id=int(i), content=content, **flags)
  plain = dict.fromkeys(
      ('single_word', 'lstrip', 'rstrip', 'normalized', 'special'), False)
  byte_level = dict(
      type='ByteLevel', trim_offsets=False, use_regex=True,
      add_prefix_space=named.get('add_prefix_space') is True)
  return dict(
      version='1.0', normalizer=None, pre_tokenizer=byte_level,
      post_processor=None, decoder=byte_level,
      added_tokens=[{**plain, **token} for token in sorted(
          added.values(), key=lambda token: str(token['id']).zfill(20))],
      model=dict(type='BPE', vocab=vocab, merges=merges))


def _content(token, default):
  """The text of a token in one of the JSON files: it, or its `content`."""
  if isinstance(token, dict):
    token = token.get('content')
  return token if isinstance(token, str) else default


def _find_ids(tokenizer, is_bpe, named, config, path):
  """The ids of the marks; see TokenizerVocabulary.

  Raises:
    InputError: one is missing, or other marks stand at the ends of a text.
  """
  ids = {}
  for mark, usual in _MARKS.items():
    name = _content(named.get(f'{mark}_token'), None)
    ids[mark] = tokenizer.token_to_id(usual if name is None else name)
    if name is None and type(config.get(f'{mark}_token_id')) is int:
      ids[mark] = config[f'{mark}_token_id']
    if ids[mark] is None and mark != 'bos':
      raise InputError(f'{path}: no {mark} token: expected {name or usual!r}')
  ends = tokenizer.encode('').ids
  if ends not in ([], [ids['eos']]) and (
      len(ends) != 2 or ends[1] != ids['eos']):
    raise InputError(
        f'{path}: puts the ids {ends} at the ends of a text; expected the end '
        f'mark, {ids["eos"]}, and at most one in front')
  if ends or not is_bpe:
    ids['bos'] = ends[0] if len(ends) == 2 else None
  start = config.get('decoder_start_token_id')
  ids['start'] = start if start is not None else ids[
      'eos' if is_bpe else 'pad']
  return ids
