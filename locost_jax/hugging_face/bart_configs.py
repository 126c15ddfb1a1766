"""The config.json of BART, PageSum and SimCAS: Hugging Face's keys and ours.

The config.json of a PageSum or a SimCAS says that it is a BART. They are
recognised by a tensor that BART lacks, or by keys that only their exports have.
"""

from locost_jax.errors import InputError
from locost_jax.hugging_face.keys import take

# Our key, their key, default (None: required).
KEYS = (
    ('vocab_size', 'vocab_size', None),
    ('d_model', 'd_model', None),
    ('d_ff', 'encoder_ffn_dim', None),
    ('decoder_d_ff', 'decoder_ffn_dim', None),
    ('num_heads', 'encoder_attention_heads', None),
    ('num_layers', 'encoder_layers', None),
    ('num_decoder_layers', 'decoder_layers', None),
    ('feed_forward', 'activation_function', 'gelu'),
    ('dropout_rate', 'dropout', 0.1),
    ('attention_dropout_rate', 'attention_dropout', 0.0),
    ('activation_dropout_rate', 'activation_dropout', 0.0),
    ('max_positions', 'max_position_embeddings', 1024),
    ('scale_embedding', 'scale_embedding', False),
    ('pad_id', 'pad_token_id', 1),
)

# Keys, also of old configs, that must have this value: another value means
# another model.
FIXED = {
    'activation_function': 'gelu',
    'tie_word_embeddings': True,
    'normalize_before': False,
    'normalize_embedding': True,
    'add_final_layer_norm': False,
    'static_position_embeddings': False,
}

# Endings of names of tensors that BART lacks.
TENSORS = {
    'pagesum': 'lin.weight',
    'simcas': 'encoder.agent.actor.dense_1.weight',
}
# Like `KEYS`; written only if the value differs from the default.
OWN_KEYS = {
    'pagesum': (
        ('decoding', 'pagesum_decoding', 'pages'),
        ('padding', 'pagesum_padding', 'tokens'),
    ),
    'simcas': (
        ('chunk', 'simcas_chunk', 'many'),
        ('align', 'simcas_align', 'shift'),
        ('select', 'simcas_select', 'ppo'),
        ('selection', 'simcas_selection', 'sample'),
        ('limit', 'simcas_limit', 2048),
        ('padding', 'simcas_padding', 'release'),
    ),
}


def model_config(theirs, tensors=(), path='config.json'):
  """Returns the `config.model` of a config.json, as a dict.

  Args:
    theirs: the contents of config.json, a dict.
    tensors: names of the tensors in the same directory.
    path: the config.json, for messages.

  Raises:
    InputError: a missing key, a kind of BART that is not supported, or keys
      and tensors of two systems.
  """
  for key, value in FIXED.items():
    if theirs.get(key, value) != value:
      raise InputError(
          f'{path}: {key}={theirs[key]!r}: expected {value!r} for a BART'
      )
  config = {'name': 'bart'}
  for ours, key, default in KEYS:
    config[ours] = take(path, theirs, ours, key, default)
  heads = take(
      path,
      theirs,
      'num_heads',
      'decoder_attention_heads',
      config['num_heads'],
  )
  if heads != config['num_heads']:
    config['num_decoder_heads'] = heads
  systems = [
      name
      for name, end in TENSORS.items()
      if any(tensor.endswith(end) for tensor in tensors)
      or any(key in theirs for _, key, _ in OWN_KEYS[name])
  ]
  if len(systems) > 1:
    raise InputError(
        f'config.json and the tensors next to it are of {" and of ".join(systems)}'
        ': expected those of one system'
    )
  for name in systems:
    config['name'] = name
    for ours, key, default in OWN_KEYS[name]:
      config[ours] = take(path, theirs, ours, key, default)
  return config


def released_config(config):
  """Returns the config.json of a `config.model`: undoes `model_config`."""
  theirs = {key: config[ours] for ours, key, _ in KEYS}
  for ours, key, default in OWN_KEYS.get(config['name'], ()):
    if config.get(ours, default) != default:
      theirs[key] = config[ours]
  return dict(
      theirs,
      model_type='bart',
      architectures=['BartForConditionalGeneration'],
      decoder_attention_heads=config.get('num_decoder_heads')
      or config['num_heads'],
      is_encoder_decoder=True,
      num_hidden_layers=config['num_layers'],
      tie_word_embeddings=True,
  )
