"""config.json and generation_config.json: Hugging Face's keys and ours."""

import os

from locost_jax import untrusted
from locost_jax.config import decode_settings
from locost_jax.config import kinds
from locost_jax.errors import InputError
from locost_jax.hugging_face import bart_configs
from locost_jax.hugging_face import tensors
from locost_jax.hugging_face.keys import take

# Our key, their key, default (None: required).
_SHELL_KEYS = (
    ('vocab_size', 'vocab_size', None),
    ('d_model', 'd_model', None),
    ('d_ff', 'd_ff', None),
    ('d_kv', 'd_kv', None),
    ('num_heads', 'num_heads', None),
    ('num_layers', 'num_layers', None),
    ('dropout_rate', 'dropout_rate', 0.1),
    ('tie_embeddings', 'tie_word_embeddings', True),
    ('relative_attention_num_buckets', 'relative_attention_num_buckets', 32),
    ('relative_attention_max_distance', 'relative_attention_max_distance', 128),
    ('layer_norm_epsilon', 'layer_norm_epsilon', 1e-6),
)
KEYS = {
    'locost': _SHELL_KEYS
    + (
        ('feed_forward', 'feed_forward_proj', 'gated-gelu'),
        ('gating', 'gating', True),
        ('bidirectional', 'bidirectional', True),
    ),
    't5': _SHELL_KEYS + (('feed_forward', 'feed_forward_proj', 'relu'),),
    'longt5': _SHELL_KEYS
    + (
        ('feed_forward', 'feed_forward_proj', 'relu'),
        ('attention', 'encoder_attention_type', 'local'),
        ('local_radius', 'local_radius', 127),
        ('global_block_size', 'global_block_size', 16),
    ),
}
_CLASSES = {
    't5': 'T5ForConditionalGeneration',
    'longt5': 'LongT5ForConditionalGeneration',
}
# A release's d_state counts real and imaginary parts.
_BOTH_PARTS = kinds.Kind(
    'an even integer from 2 to 2,000,000',
    lambda value: type(value) is int
    and 2 <= value <= 2_000_000
    and value % 2 == 0,
)
_SAME_SETTINGS = (
    'min_length',
    'num_beams',
    'no_repeat_ngram_size',
    'encoder_no_repeat_ngram_size',
    'repetition_penalty',
    'length_penalty',
    'early_stopping',
)
_FORCED = (
    ('forced_first_token', 'forced_bos_token_id'),
    ('forced_last_token', 'forced_eos_token_id'),
)
_IDS = (
    ('eos_id', 'eos_token_id'),
    ('pad_id', 'pad_token_id'),
    ('start_id', 'decoder_start_token_id'),
)
_LENGTH, _ID = kinds.integer(0, 10**7), kinds.integer(0, 10**7)
_GENERATION_KINDS = {
    'min_length': _LENGTH,
    'max_length': kinds.integer(1, 10**7),
    'max_new_tokens': kinds.integer(1, 10**7),
    'num_beams': kinds.integer(1, 10**4),
    'no_repeat_ngram_size': _LENGTH,
    'encoder_no_repeat_ngram_size': _LENGTH,
    'repetition_penalty': kinds.number(0),
    'length_penalty': kinds.number(),
    'early_stopping': kinds.BOOLEAN,
    'do_sample': kinds.BOOLEAN,
    'temperature': kinds.number(0),
    'top_k': _LENGTH,
    'top_p': kinds.number(0, 1),
    'forced_bos_token_id': _ID,
    'forced_eos_token_id': _ID,
    'bos_token_id': _ID,
    **{theirs: _ID for _, theirs in _IDS},
}


def model_config(directory):
  """Returns the `config.model` of a Hugging Face directory, as a dict.

  Raises:
    InputError: config.json is missing or broken, or its model is not supported.
  """
  path = os.path.join(directory, 'config.json')
  try:
    theirs = untrusted.read_object(path)
  except FileNotFoundError:
    raise InputError(
        f'{directory}: holds no model (no config.json): expected the directory '
        'of a run or of a Hugging Face model; next to the weights of a '
        "published PageSum, put facebook/bart-large-cnn's config.json"
    ) from None
  # A LOCOST release also has LongT5's keys: d_state and gating decide.
  name = theirs.get('model_type')
  if name is not None:
    untrusted.check(path, 'model_type', name, kinds.TEXT)
  if {'d_state', 'gating'} <= set(theirs):
    name = 'locost'
  if name == 'bart':
    return bart_configs.model_config(
        theirs, tensors.find_names(directory), path
    )
  if name not in KEYS:
    raise InputError(
        f'{path} describes model_type={name!r}: expected a LOCOST config (with '
        'd_state and gating) or one of '
        f'{", ".join(map(repr, [*KEYS, "bart"]))}'
    )
  ours = {
      key: take(path, theirs, key, key_, default)
      for key, key_, default in KEYS[name]
  }
  if name == 'locost':
    d_state = theirs['d_state']
    untrusted.check(path, 'd_state', d_state, _BOTH_PARTS)
    ours.update(
        d_state=d_state // 2,
        variant='release',
        convolution='exact',
    )
  # transformers 5 calls every T5 tied; one whose output layer is its own has
  # unscaled outputs.
  ours['tie_embeddings'] &= take(
      path, theirs, '', 'scale_decoder_outputs', True
  )
  ours['num_decoder_layers'] = take(
      path,
      theirs,
      'num_decoder_layers',
      'num_decoder_layers',
      ours['num_layers'],
  )
  return dict(name=name, **ours)


def has_tied_head(directory):
  """Returns whether a config.json ties the output layer to the embedding.

  transformers 5 writes so for a T5 with unscaled outputs, too.
  """
  return _read(directory, 'config.json').get('tie_word_embeddings') is True


def generation_settings(directory):
  """Returns the generation settings of a Hugging Face directory.

  They come from generation_config.json, else config.json. Their max_length
  counts the start token too; 20, the default of transformers, counts as not
  set. The prefix and numbers of task_specific_params are ignored.

  Returns:
    A `decode_settings.Settings`, not yet checked.
  """

  config = _read(directory, 'config.json')
  keys = [key for _, key in _IDS] + ['bos_token_id']
  given = _read(directory, 'generation_config.json')
  if given:
    _check_generation(directory, 'generation_config.json', given)
    config = {
        key: config[key] for key in (*keys, 'model_type') if key in config
    }
  _check_generation(directory, 'config.json', config)
  theirs = given or config
  theirs = {**{key: config[key] for key in keys if key in config}, **theirs}
  values = {
      ours: theirs[name]
      for ours, name in (
          *((key, key) for key in _SAME_SETTINGS),
          *_FORCED,
          *_IDS,
          ('max_length', 'max_new_tokens'),
      )
      if name in theirs
  }
  if 'max_length' not in values and theirs.get('max_length', 20) != 20:
    values['max_length'] = theirs['max_length'] - 1
  start = theirs.get('decoder_start_token_id')
  is_bart = config.get('model_type') == 'bart'
  if is_bart and start is not None and start == theirs.get('bos_token_id'):
    # An export of a run whose decoder reads <s> first.
    values['start'] = 'bos'
  if theirs.get('do_sample'):
    values.update(method='sample', top_k=theirs.get('top_k', 50))
    values.update(
        {key: theirs[key] for key in ('temperature', 'top_p') if key in theirs}
    )
  return decode_settings.Settings(**values)


def _read(directory, name):
  """Returns the values of a file that are not null; {} without the file."""
  try:
    values = untrusted.read_object(os.path.join(directory, name))
  except FileNotFoundError:
    return {}
  return {key: x for key, x in values.items() if x is not None}


def _check_generation(directory, name, values):
  """Raises an InputError for generation settings out of their range."""
  for key, kind in _GENERATION_KINDS.items():
    if key in values:
      untrusted.check(os.path.join(directory, name), key, values[key], kind)


def release(config, settings, dtype):
  """Returns the config.json of a model: undoes `model_config`.

  Args:
    settings: a `decode_settings.Settings`, for the ids of special tokens.
    dtype: type of the tensors, 'float32' or 'bfloat16'.
  """
  name = config['name']
  if name == 'bart' or name in bart_configs.OWN_KEYS:
    return dict(
        bart_configs.released_config(config),
        torch_dtype=dtype,
        **_ids(settings),
    )
  theirs = {key: config[ours] for ours, key, _ in KEYS[name]}
  theirs['num_decoder_layers'] = config['num_decoder_layers']
  if name == 'locost':
    theirs.update(d_state=2 * config['d_state'])
  else:
    theirs.update(architectures=[_CLASSES[name]])
  return dict(
      theirs,
      model_type=name,
      is_encoder_decoder=True,
      torch_dtype=dtype,
      **_ids(settings),
  )


def release_generation(settings):
  """Returns the generation_config.json of settings.

  It undoes `generation_settings`.

  Args:
    settings: a `decode_settings.Settings`; length_penalty_form is left out,
      because transformers has only one form.
  """
  s = settings
  theirs = dict(
      {key: getattr(s, key) for key in _SAME_SETTINGS},
      max_new_tokens=s.max_length,
      **_ids(s),
  )
  for ours, name in _FORCED:
    if getattr(s, ours) >= 0:
      theirs[name] = getattr(s, ours)
  if decode_settings.method_of(s) != 'beam':
    theirs['num_beams'] = 1
  if decode_settings.method_of(s) == 'sample':
    theirs.update(
        do_sample=True, temperature=s.temperature, top_k=s.top_k, top_p=s.top_p
    )
  return theirs


def _ids(settings):
  ids = {theirs: getattr(settings, ours) for ours, theirs in _IDS}
  if settings.start == 'bos':
    ids['bos_token_id'] = settings.start_id
  return ids
