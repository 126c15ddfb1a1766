"""config.json and generation_config.json: Hugging Face's keys and ours.

A family of models is one entry of `KEYS`. The config.json of a PageSum or a
SimCAS says that it is a BART: they are recognised by a tensor that BART lacks,
or by keys that only their exports have.
"""

import os
from pathlib import Path
from typing import NamedTuple

from locost_jax import files
from locost_jax.config import decode_settings
from locost_jax.config import kinds
from locost_jax.config import model_keys
from locost_jax.errors import InputError
from locost_jax.hugging_face import tensors as tensors_lib


def _same(names):
  """Keys of `KEYS` that have the same name in both."""
  return {name: name for name in names.split()}


_T5_STYLE = _same(
    'vocab_size d_model d_ff d_kv num_heads num_layers dropout_rate '
    'relative_attention_num_buckets relative_attention_max_distance '
    'layer_norm_epsilon'
) | {
    'tie_embeddings': 'tie_word_embeddings',
    'feed_forward': 'feed_forward_proj',
}
_BART = {
    **_same('vocab_size d_model'),
    'd_ff': 'encoder_ffn_dim',
    'decoder_d_ff': 'decoder_ffn_dim',
    'num_heads': 'encoder_attention_heads',
    'num_layers': 'encoder_layers',
    'num_decoder_layers': 'decoder_layers',
    'feed_forward': 'activation_function',
    'dropout_rate': 'dropout',
    'attention_dropout_rate': 'attention_dropout',
    'activation_dropout_rate': 'activation_dropout',
    'max_positions': 'max_position_embeddings',
    'scale_embedding': 'scale_embedding',
    'pad_id': 'pad_token_id',
    'tie_embeddings': 'tie_word_embeddings',
}
# Model -> {our key: their key}. Keys that only exports of ours have begin with
# the model's name; defaults are not written.
KEYS = {
    'locost': _T5_STYLE
    | _same('gating bidirectional')
    | {'variant': 'locost_variant'},
    't5': _T5_STYLE,
    'longt5': _T5_STYLE
    | {'attention': 'encoder_attention_type'}
    | _same('local_radius global_block_size'),
    'bart': _BART,
    'led': _BART
    | {
        'max_positions': 'max_encoder_position_embeddings',
        'max_target_positions': 'max_decoder_position_embeddings',
        'attention_window': 'attention_window',
        'global_tokens': 'led_global_tokens',
        'separator_id': 'led_separator_id',
        'max_separators': 'led_max_separators',
        # LED never scales, whatever scale_embedding says in a config.json.
        'scale_embedding': 'led_scale_embedding',
    },
    'pegasus_x': _BART
    | {'block_size': 'block_size', 'global_tokens': 'num_global_tokens'},
    'bigbird_pegasus': _BART
    | _same('block_size num_random_blocks use_bias')
    | {'attention': 'attention_type'},
    'pagesum': _BART
    | {'decoding': 'pagesum_decoding', 'padding': 'pagesum_padding'},
    'simcas': _BART
    | {
        key: f'simcas_{key}'
        for key in 'chunk align select selection limit padding'.split()
    },
}
# Our keys that every config.json has; others have a default, that of
# `config.model_keys` unless a family has its own.
_REQUIRED = (
    'vocab_size d_model d_ff decoder_d_ff d_kv num_heads num_layers '
    'num_decoder_layers'
).split()
# Endings of names of tensors that BART lacks.
_OWN_TENSORS = {
    'pagesum': 'lin.weight',
    'simcas': 'encoder.agent.actor.dense_1.weight',
}


class _Family(NamedTuple):
  """The models of one model_type.

  Attributes:
    name: ours.
    kind: the start of the class's name in transformers.
    defaults: of their keys, where they are not those of `config.model_keys`.
    ours: keys of ours that the family stands for.
    old: keys that old configs have for that: other values mean another model.
  """

  name: str
  kind: str
  defaults: dict = {}
  ours: dict = {}
  old: dict = {}


_OF_BART = {
    'normalize_before': False,
    'normalize_embedding': True,
    'add_final_layer_norm': False,
    'static_position_embeddings': False,
}
_OF_MBART = _OF_BART | {'normalize_before': True, 'add_final_layer_norm': True}
_OF_PEGASUS = _OF_MBART | {
    'normalize_embedding': False,
    'static_position_embeddings': True,
}
_OF_T5 = {'dropout_rate': 0.1, 'tie_word_embeddings': True}
_OF_V1_0 = _OF_T5 | {'feed_forward_proj': 'relu'}
# By model_type. mT5 is T5 v1.1: exports say so.
_FAMILIES = {
    't5': _Family('t5', 'T5', _OF_V1_0),
    'mt5': _Family('t5', 'MT5', _OF_T5 | {'scale_decoder_outputs': False}),
    'umt5': _Family('t5', 'UMT5', _OF_T5, {'biases_per_layer': True}),
    'longt5': _Family(
        'longt5', 'LongT5', _OF_V1_0 | {'encoder_attention_type': 'local'}
    ),
    'bart': _Family('bart', 'Bart', old=_OF_BART),
    'led': _Family('led', 'LED', {'attention_window': 512}),
    'mbart': _Family(
        'bart', 'MBart', ours={'norms_first': True}, old=_OF_MBART
    ),
    'pegasus': _Family(
        'bart',
        'Pegasus',
        {'pad_token_id': 0},
        {'norms_first': True, 'sinusoidal': True},
        _OF_PEGASUS,
    ),
    'pegasus_x': _Family(
        'pegasus_x',
        'PegasusX',
        ours={'norms_first': True, 'sinusoidal': True},
        old={'stagger_local_blocks': True},
    ),
    'bigbird_pegasus': _Family(
        'bigbird_pegasus', 'BigBirdPegasus', ours={'norms_first': True}
    ),
}
# Our keys that weights need; others, such as dropout, are a run's own.
_OF_WEIGHTS = {
    ours
    for keys in KEYS.values()
    for ours, theirs in keys.items()
    if 'dropout' not in ours and not theirs.startswith(('pagesum_', 'simcas_'))
} | set(
    'num_decoder_layers num_decoder_heads d_state variant norms_first '
    'sinusoidal biases_per_layer'.split()
)
# Models whose stacks have BART's keys.
_LIKE_BART = 'bart', 'led', 'pegasus_x', 'bigbird_pegasus'
# The module next to an exported LOCOST that transformers runs on request, and
# what AutoConfig and AutoModelForSeq2SeqLM take from it.
CODE = 'modeling_locost'
_CLASSES = {
    'AutoConfig': 'LocostConfig',
    'AutoModelForSeq2SeqLM': 'LocostForConditionalGeneration',
}
# A release's d_state counts real and imaginary parts.
_BOTH_PARTS = kinds.Kind(
    'an even integer from 2 to 2,000,000',
    lambda value: type(value) is int
    and 2 <= value <= 2_000_000
    and value % 2 == 0,
)


def model_config(directory):
  """Returns the `config.model` of a Hugging Face directory, as a dict.

  Raises:
    InputError: config.json is missing or broken, or its model is not supported.
  """
  path = os.path.join(directory, 'config.json')
  try:
    theirs = files.read_object(path)
  except FileNotFoundError:
    raise InputError(
        f'{directory}: holds no model (no config.json): {_expected(directory)}'
    ) from None
  names = tensors_lib.find_names(directory) if _is_bart(theirs) else ()
  return from_released(theirs, names, path)


def _expected(directory):
  """Returns what to name instead of a directory without config.json."""
  if os.path.exists(os.path.join(directory, 'adapter_config.json')):
    return "expected PEFT's model, saved after merge_and_unload(), no adapter"
  found = Path(directory).glob('*/config.json')  # a Trainer's checkpoint-500
  if newest := max(found, key=lambda path: path.stat().st_mtime, default=None):
    return f'did you mean {newest.parent}?'
  return (
      'expected the directory of a run or of a Hugging Face model; next to the '
      "weights of a published PageSum, put facebook/bart-large-cnn's config.json"
  )


def from_released(theirs, tensors=(), path='config.json'):
  """Returns the `config.model` of the contents of a config.json, as a dict.

  Args:
    tensors: names of the tensors in the same directory, if it is a BART's.
  """
  name = _find_name(theirs, tensors, path)
  family = _FAMILIES.get(theirs.get('model_type'))
  if family is None or family.name != _base(name):
    # A LOCOST's release says that it is a LongT5.
    family = _Family(name, '', _OF_T5 if name == 'locost' else {})

  def take(ours, key, default=None):
    """The checked value of a key, or the default."""
    own = model_keys.MODELS[name].get(ours)
    if default is None and ours not in _REQUIRED:
      default = own.default
    value = theirs.get(key)
    value = family.defaults.get(key, default) if value is None else value
    if value is None:
      raise InputError(f'{path} lacks the key {key!r}')
    files.check_value(path, key, value, own.kind if own else kinds.BOOLEAN)
    return float(value) if isinstance(default, float) else value

  config = {'name': name} | {
      ours: take(ours, key) for ours, key in KEYS[name].items()
  }
  config |= family.ours
  if 'd_kv' in config:  # of the T5 family
    # transformers 5 calls every T5 tied; one whose output layer is its own has
    # unscaled outputs.
    config['tie_embeddings'] &= take('', 'scale_decoder_outputs', True)
    layers = 'num_decoder_layers'
    config[layers] = take(layers, layers, config['num_layers'])
    gate, _, function = config['feed_forward'].rpartition('-')
    if gate and function == 'gelu':
      function = 'gelu_new'
    written = {'dense_act_fn': function, 'is_gated_act': bool(gate)}
    form = f'feed_forward_proj={config["feed_forward"]!r}'
    _check_equal(theirs, written, path, form)
  else:
    key = 'decoder_attention_heads'
    heads = take('num_heads', key, config['num_heads'])
    if heads != config['num_heads']:
      config['num_decoder_heads'] = heads
  if name == 'locost':
    files.check_value(path, 'd_state', theirs['d_state'], _BOTH_PARTS)
    config['convolution'] = 'exact'
    config['d_state'] = theirs['d_state'] // 2
  return config


def architecture(config):
  """Returns the keys of a `config.model` that its weights need, as a dict."""
  own = model_keys.MODELS[config['name']]
  keys = [key for key in own if key in _OF_WEIGHTS]
  return {key: config.get(key, own[key].default) for key in keys}


def _check_equal(theirs, expected, path, what):
  """Raises an InputError for a key, if it is there, with another value."""
  for key, value in expected.items():
    if theirs.get(key, value) != value:
      raise InputError(
          f'{path}: {key}={theirs[key]!r}: expected {value!r} for {what}'
      )


def _find_name(theirs, tensors, path):
  """Returns the name of a config.json's model, one of `KEYS`."""
  name = theirs.get('model_type')
  if name is not None:
    files.check_value(path, 'model_type', name, kinds.TEXT)
  # A LOCOST release also has LongT5's keys: d_state and gating decide.
  if {'d_state', 'gating'} <= set(theirs):
    return 'locost'
  if name not in _FAMILIES:
    raise InputError(
        f'{path} describes model_type={name!r}: expected a LOCOST config (with '
        f'd_state and gating) or one of {", ".join(map(repr, _FAMILIES))}'
    )
  family = _FAMILIES[name]
  _check_equal(theirs, family.old, path, f'model_type={name!r}')
  if family.name != 'bart':
    return family.name
  systems = [
      system
      for system, end in _OWN_TENSORS.items()
      if any(tensor.endswith(end) for tensor in tensors)
      or any(key.startswith(f'{system}_') for key in theirs)
  ]
  if len(systems) > 1:
    raise InputError(
        f'config.json and the tensors next to it are of {" and of ".join(systems)}'
        ': expected those of one system'
    )
  return systems[0] if systems else 'bart'


def _is_bart(theirs):
  """Whether a config.json is of a model with BART's keys."""
  families = [key for key, row in _FAMILIES.items() if row.name in _LIKE_BART]
  return theirs.get('model_type') in families


def _base(name):
  """The name of the model whose config.json a model has."""
  return 'bart' if name in _OWN_TENSORS else name


def to_released(config):
  """Returns the config.json of a `config.model`: undoes `from_released`."""
  name = config['name']
  defaults = {key: row.default for key, row in model_keys.MODELS[name].items()}
  theirs = {
      key: (defaults | config)[ours]
      for ours, key in KEYS[name].items()
      if not key.startswith(f'{name}_')
      or config.get(ours, defaults[ours]) != defaults[ours]
  }
  if name == 'locost':
    theirs.update(d_state=2 * config['d_state'])
  model_type, base = name, _base(name)
  ours = {key: True for row in _FAMILIES.values() for key in row.ours}
  ours = {key: True for key in ours if config.get(key)}
  for found, family in _FAMILIES.items():
    if (family.name, family.ours) == (base, ours):
      theirs.update(architectures=[f'{family.kind}ForConditionalGeneration'])
      model_type = found
      break
  if base in _LIKE_BART:
    theirs.update(
        decoder_attention_heads=config.get('num_decoder_heads')
        or config['num_heads'],
        num_hidden_layers=config['num_layers'],
    )
  else:
    theirs.update(num_decoder_layers=config['num_decoder_layers'])
  return dict(theirs, model_type=model_type, is_encoder_decoder=True)


# --- How a summary is written -------------------------------------------------

_SAME_SETTINGS = (
    'min_length',
    'num_beams',
    'no_repeat_ngram_size',
    'encoder_no_repeat_ngram_size',
    'repetition_penalty',
    'length_penalty',
    'early_stopping',
)
_SAMPLING = 'temperature', 'top_k', 'top_p'
_FORCED = (
    ('forced_first_token', 'forced_bos_token_id'),
    ('forced_last_token', 'forced_eos_token_id'),
)
_IDS = (
    ('eos_id', 'eos_token_id'),
    ('pad_id', 'pad_token_id'),
    ('start_id', 'decoder_start_token_id'),
)
# Ids that may be several; the Trainer of transformers 5 makes lists.
_ENDS = 'eos_token_id', 'forced_eos_token_id'
# What else changes a text in transformers -> the value that changes nothing.
_NOT_FOLLOWED = dict.fromkeys(
    'bad_words_ids begin_suppress_tokens constraints diversity_penalty '
    'dola_layers epsilon_cutoff eta_cutoff exponential_decay_length_penalty '
    'force_words_ids forced_decoder_ids max_time min_new_tokens min_p '
    'penalty_alpha sequence_bias stop_strings suppress_tokens top_h'.split()
    + [f'further {key}' for key in _ENDS],
    0,
) | dict.fromkeys(
    'encoder_repetition_penalty guidance_scale num_beam_groups '
    'typical_p'.split(),
    1,
)
_LENGTH, _ID = kinds.integer(1, 10**7), kinds.integer(0, 10**7)
_KINDS = {
    **{
        key: decode_settings.OPTIONS[key].metadata['kind']
        for key in (*_SAME_SETTINGS, 'top_k')
    },
    # Unused without do_sample: then also values that sampling cannot have.
    'temperature': kinds.number(0),
    'top_p': kinds.number(0, 1),
    'do_sample': kinds.BOOLEAN,
    'max_length': _LENGTH,
    'max_new_tokens': _LENGTH,
    'bos_token_id': _ID,
    **{theirs: _ID for _, theirs in (*_FORCED, *_IDS)},
}


def has_tied_head(directory):
  """Returns whether a config.json ties the output layer to the embedding.

  transformers 5 writes so for a T5 with unscaled outputs, too.
  """
  return _read(directory, 'config.json').get('tie_word_embeddings') is True


def task_settings(directory):
  """Returns task_specific_params.summarization of a config.json.

  transformers 4 put it in force in pipeline('summarization').

  Returns:
    (prefix of the texts, dict of settings that are not its general ones).
  """
  tasks = _read(directory, 'config.json').get('task_specific_params')
  own = tasks.get('summarization') if isinstance(tasks, dict) else None
  own = dict(own) if isinstance(own, dict) else {}
  prefix = own.pop('prefix', '')
  where = os.path.join(directory, 'config.json')
  files.check_value(where, 'prefix', prefix, kinds.TEXT)
  _check_generation(directory, 'config.json', own)
  general = _read(directory, 'generation_config.json')
  return prefix, {k: v for k, v in own.items() if general.get(k) != v}


def describe_task_settings(directory, given=()):
  """Returns a line about `task_settings` that are not followed, or ''.

  given: names of the settings that the user chose.
  """
  prefix, own = task_settings(directory)
  own |= {'prefix': prefix} if prefix else {}
  own = {key: x for key, x in own.items() if key not in given}
  shown = ', '.join(f'{key}={x!r}' for key, x in own.items())
  return shown and (
      f'{directory}/config.json: task_specific_params.summarization is not '
      f'followed: {shown}; give them as flags'
  )


def generation_settings(directory, report=lambda line: None, has_start=False):
  """Returns the generation settings of a Hugging Face directory.

  They come from generation_config.json, else config.json. Their max_length
  counts the start token too; 20, the default of transformers, counts as not
  set.

  Args:
    report: function of a line about settings that are not followed.
    has_start: whether an mBART's language is given elsewhere.

  Returns:
    A `decode_settings.Settings`, not yet checked.
  """
  config = _read(directory, 'config.json')
  given = _read(directory, 'generation_config.json')
  if given:
    _check_generation(directory, 'generation_config.json', given)
    kept = 'bos_token_id', 'model_type', *(key for _, key in _IDS)
    config = {key: config[key] for key in kept if key in config}
  _check_generation(directory, 'config.json', config)
  theirs = config | given
  lacking = [
      key
      for key, neutral in _NOT_FOLLOWED.items()
      if theirs.get(key, neutral) not in (neutral, [], {})
  ]
  if lacking:
    report(f'{directory}: {", ".join(lacking)}: not followed in generating')
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
  is_mbart = config.get('model_type') == 'mbart'
  if is_mbart and start is None and not has_start:
    raise InputError(
        f'{directory}: no decoder_start_token_id: the decoder of an mBART '
        "begins with its language's id; put it in generation_config.json, or "
        'give a language'
    )
  is_first = start is not None and start == theirs.get('bos_token_id')
  if is_first and _is_bart(config):
    # An export of a run whose decoder reads <s> first.
    values['start'] = 'bos'
  if theirs.get('do_sample'):
    values.update(method='sample', top_k=50)
    values |= {key: theirs[key] for key in _SAMPLING if key in theirs}
  return decode_settings.Settings(**values)


def _read(directory, name):
  """Returns the values of a file that are not null; {} without the file.

  Of several end tokens the first is the id, the others are `_NOT_FOLLOWED`.
  """
  try:
    values = files.read_object(os.path.join(directory, name))
  except FileNotFoundError:
    return {}
  for key in _ENDS:
    if isinstance(values.get(key), list) and values[key]:
      values[key], *others = values[key]
      values[f'further {key}'] = [x for x in others if x != values[key]]
  return {key: x for key, x in values.items() if x is not None}


def _check_generation(directory, name, values):
  """Raises an InputError for generation settings out of their range."""
  for key, kind in _KINDS.items():
    if key in values:
      files.check_value(os.path.join(directory, name), key, values[key], kind)


def release(config, settings, dtype):
  """Returns the config.json of a model; settings have the special ids."""
  theirs = dict(to_released(config), torch_dtype=dtype, **_ids(settings))
  if config['name'] == 'locost':
    theirs.update(auto_map={key: f'{CODE}.{x}' for key, x in _CLASSES.items()})
  return theirs


def release_generation(settings):
  """Returns the generation_config.json of `decode_settings.Settings`.

  It undoes `generation_settings`. length_penalty_form is left out, because
  transformers has only one form.
  """
  s, method = settings, decode_settings.method_of(settings)
  theirs = {key: getattr(s, key) for key in _SAME_SETTINGS}
  theirs |= {'max_new_tokens': s.max_length, **_ids(s)}
  for ours, name in _FORCED:
    if getattr(s, ours) >= 0:
      theirs[name] = getattr(s, ours)
  if method != 'beam':
    theirs['num_beams'] = 1
  if method == 'sample':
    theirs |= {'do_sample': True} | {key: getattr(s, key) for key in _SAMPLING}
  return theirs


def _ids(settings):
  ids = {theirs: getattr(settings, ours) for ours, theirs in _IDS}
  if settings.start == 'bos':
    ids['bos_token_id'] = settings.start_id
  return ids
