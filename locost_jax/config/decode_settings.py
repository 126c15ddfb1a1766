"""How a summary is written: every option of decoding, declared once.

`Settings` is the declaration. config.decode, the flags of `summarize` and the
keywords of `Summarizer.generate` and `summarize` are made from it.
"""

import dataclasses

from locost_jax.config import kinds
from locost_jax.config.kinds import integer
from locost_jax.config.kinds import number
from locost_jax.errors import InputError
from locost_jax.errors import suggest

# The neutral values of sampling.
SAMPLING = {'temperature': 1.0, 'top_k': 0, 'top_p': 1.0}
_TOKENS = integer(0, 10**8)
_POSITIVE = number(0, above=True)
_ID = integer(-1, 10**7)


def _option(default, text, kind=None, choices=(), is_flag=True):
  """A field that users set.

  Args:
    text: what it is, for --help.
    kind: its `kinds.Kind`; None: one of the choices, or the default.
    is_flag: whether `summarize` has a flag for it.
  """
  kind = kind or kinds.choice(*dict.fromkeys((default, *choices)))
  metadata = dict(text=text, kind=kind, choices=choices, is_flag=is_flag)
  return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Settings:
  """How to write; hashable, static under jit.

  Lengths count written tokens, eos included and the start token not.
  """

  method: str = _option(
      '',
      'decoding method; if not given: beam with num_beams above 1, sample with '
      'temperature, top_k or top_p, else greedy',
      choices=('greedy', 'beam', 'sample'),
  )
  max_length: int = _option(
      512, 'maximum length of a summary in tokens', integer(1, 10**7)
  )
  min_length: int = _option(0, 'minimum length of a summary in tokens', _TOKENS)
  no_repeat_ngram_size: int = _option(
      0, 'never write an n-gram of this size twice; 0: no limit', _TOKENS
  )
  encoder_no_repeat_ngram_size: int = _option(
      0, 'never write an n-gram of the document of this size; 0: off', _TOKENS
  )
  repetition_penalty: float = _option(
      1.0,
      'values above 1 make tokens that are already written less probable: '
      'positive logits are divided by this, negative ones multiplied; 1: off',
      _POSITIVE,
  )
  num_beams: int = _option(
      1, 'number of beams in beam search; 1: no beam search', integer(1, 10**4)
  )
  length_penalty: float = _option(
      1.0,
      'beam search: scores are divided by length^length_penalty; a value above '
      '0 favours longer summaries',
      number(),
  )
  length_penalty_form: str = _option(
      'hugging_face',
      'the length in length_penalty: the number of tokens (hugging_face), or '
      '(5 + tokens) / 6 (gnmt)',
      choices=('hugging_face', 'gnmt'),
  )
  early_stopping: bool = _option(
      False,
      'beam search: stop at num_beams finished summaries, even if an '
      'unfinished one might still score higher',
      kinds.BOOLEAN,
  )
  temperature: float = _option(
      1.0, 'sampling: divide the logits by this', _POSITIVE
  )
  top_k: int = _option(
      0, 'sampling: only the k most probable tokens; 0: all', integer(0, 10**7)
  )
  top_p: float = _option(
      1.0,
      'sampling: choose among the most probable tokens that together have at '
      'least this probability',
      number(0, 1, above=True),
  )
  start: str = _option(
      '',
      "the first token that the decoder reads: the vocabulary's start_id or "
      "bos; '': as in training (data.targets_start)",
      choices=('start_id', 'bos'),
      is_flag=False,
  )
  forced_first_token: int = _option(
      -1, 'id of the first token of every text; -1: free', _ID, is_flag=False
  )
  forced_last_token: int = _option(
      -1, 'id of the token at max_length; -1: free', _ID, is_flag=False
  )
  eos_id: int = 1  # the token that ends a text
  pad_id: int = 0  # the token after it
  start_id: int = 0  # what the first step reads
  banned_ids: tuple = ()  # never written, unless forced: the sentinels


# Name -> dataclasses.Field of what users set.
OPTIONS = {
    field.name: field
    for field in dataclasses.fields(Settings)
    if field.metadata
}


def method_of(settings):
  """'greedy', 'beam' or 'sample'."""
  if settings.method:
    return settings.method
  if settings.num_beams > 1:
    return 'beam'
  own = any(getattr(settings, key) != SAMPLING[key] for key in SAMPLING)
  return 'sample' if own else 'greedy'


def change(settings, changes):
  """Returns settings with some options replaced; the method follows from them.

  num_beams selects beam search (1: deselects it), temperature, top_k or top_p
  select sampling, unless `method` is among the changes. If the method changes,
  the options of the former one are reset.

  Args:
    changes: {option: value}; the value None changes nothing.
  """
  for key in changes:
    if key not in OPTIONS:
      raise InputError(
          f'{key}: no option of decoding{suggest(key, list(OPTIONS))}'
      )
  changes = {key: x for key, x in changes.items() if x is not None}
  before = method_of(settings)
  if 'method' in changes:
    method = changes['method']
  elif SAMPLING.keys() & changes.keys():
    method = 'sample'
  elif changes.get('num_beams', 1) != 1:
    method = 'beam'
  elif 'num_beams' in changes and before == 'beam':
    method = 'greedy'
  else:
    method = before
  if method != before:
    changes = {'num_beams': 1, **SAMPLING, **changes}
  return dataclasses.replace(settings, **{**changes, 'method': method})


def as_dict(settings):
  """Returns the fields that are stored with a run or a summary."""
  fields = dataclasses.asdict(settings)
  del fields['banned_ids']  # the vocabulary has them
  return fields


def with_ids(settings, vocabulary):
  """Returns settings with the ids of a vocabulary.

  Sentinels (<extra_id_0> and so on) stand for spans that were cut out of a
  text. No summary has them, so they are banned.
  """
  start_id = vocabulary.start_id
  if settings.start == 'bos':
    start_id = vocabulary.bos_id
  if start_id is None:
    raise InputError(
        "decode.start='bos': the vocabulary has no mark at the beginning of a "
        "text; expected 'start_id'"
    )
  return dataclasses.replace(
      settings,
      eos_id=vocabulary.eos_id,
      pad_id=vocabulary.pad_id,
      start_id=start_id,
      banned_ids=tuple(sorted(vocabulary.sentinel_ids)),
  )


def of_run(config):
  """Returns the checked Settings of a run's config, or of its config.json.

  Unless config.decode.start is set, texts start like the targets in training:
  config.data.targets_start. That of an imported model has no `data`.
  """
  settings = from_config(config['decode'])
  data = config.get('data') or {}
  if not settings.start and data.get('targets_start') == 'bos':
    settings = dataclasses.replace(settings, start='bos')
  return settings


def from_config(values):
  """Returns the checked Settings of config.decode, or of a stored one.

  A missing option has its default; `seed` is not a setting and is ignored.
  """
  values = {key: x for key, x in dict(values).items() if key != 'seed'}
  names = list(as_dict(Settings()))
  for key in values:
    if key not in names:
      raise InputError(
          f'decode.{key}: unknown option of decoding{suggest(key, names)}'
      )
  settings = Settings(**values)
  check(settings)
  return settings


def check(settings, vocab_size=None):
  """Raises an InputError for invalid settings; vocab_size None: not known."""
  s = settings

  known = {key: field.metadata['kind'] for key, field in OPTIONS.items()}
  ids = dict.fromkeys(('eos_id', 'pad_id', 'start_id'), integer(0, 10**7))
  for key, kind in (known | ids).items():
    if problem := kind.problem(key, getattr(s, key)):
      raise InputError(f'{key}={getattr(s, key)!r}: {problem}')
  wrong = {}  # option -> what its value must
  for key in ('forced_first_token', 'forced_last_token', *ids):
    if vocab_size is not None and getattr(s, key) >= vocab_size:
      wrong[key] = f"be below the vocabulary's size, {vocab_size}"
  method = method_of(s)
  for key, neutral in SAMPLING.items():
    if method != 'sample' and getattr(s, key) != neutral:
      wrong[key] = f'be {neutral} with method={method!r}: only sampling has it'
  if method == 'beam' and s.num_beams == 1:
    wrong['num_beams'] = "be at least 2 with method='beam'"
  if method != 'beam' and s.num_beams > 1:
    wrong['num_beams'] = f'be 1 with method={method!r}'
  if s.min_length > s.max_length:
    wrong['min_length'] = f'lie between 0 and max_length={s.max_length}'
  for key, expected in reversed(wrong.items()):
    raise InputError(f'{key}={getattr(s, key)!r} must {expected}')
