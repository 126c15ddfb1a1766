"""Makes byte-level BPE of vocab.json and merges.txt (GPT-2, BART)."""

import os

from locost_jax.errors import InputError
from locost_jax.vocabularies import tokenizer_json

# Default options of added tokens.
_PLAIN = dict.fromkeys(
    ('single_word', 'lstrip', 'rstrip', 'normalized', 'special'), False
)


def make_spec(files, named, where):
  """Makes a tokenizer.json of byte-level BPE from vocab.json and merges.txt.

  Args:
    named: tokenizer_config.json and special_tokens_map.json, merged.
  """
  vocab = tokenizer_json.read_object(files, tokenizer_json.VOCAB, where)
  path = os.path.join(where, tokenizer_json.MERGES)
  merges = _read_merges(files[tokenizer_json.MERGES], path)
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
  mask = tokenizer_json.token_text(named.get('mask_token'), '<mask>')
  ids = {mask: vocab[mask]} if mask in vocab else {}
  ids.update(tokenizer_json.read_object(files, tokenizer_json.ADDED, where))
  added = {
      content: dict(id=i, content=content, lstrip=content == mask)
      for content, i in ids.items()
  }
  more = named.get('added_tokens_decoder') or {}
  for i, token in more.items() if isinstance(more, dict) else ():
    content = tokenizer_json.token_text(token, None)
    if not i.isdecimal() or content is None:
      raise InputError(
          f'{os.path.join(where, tokenizer_json.NAMES[1])}: '
          f'added_tokens_decoder: {i!r} is no id of a token'
      )
    flags = {
        key: token[key] is True
        for key in ('lstrip', 'rstrip', 'single_word', 'normalized')
        if key in token
    }
    added[content] = dict(id=int(i), content=content, **flags)
  return [{**_PLAIN, **token} for token in added.values()]
