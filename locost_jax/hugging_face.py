"""Released weights: a Hugging Face directory -> model config and parameters.

One table of names per model. A released state dict has one tensor per layer
and (out, in) matrices; here the layers are stacked and matrices are (in, out).
Every tensor must be used and every parameter found, or the load fails with the
names.
"""

import json
import os

import numpy as np
from safetensors import SafetensorError
from safetensors import safe_open

from locost_jax import decode
from locost_jax.errors import InputError

# How a released tensor becomes ours; each of these is its own inverse or has
# the inverse beside it.
SAME = (lambda x: x, lambda x: x)
TRANSPOSED = (lambda x: x.T, lambda x: x.T)
SHARED = (lambda x: x[None], lambda x: x[0])  # one set for both directions

SSM = 'encoder.block.{}.layer.0.ssm_layer.'
FF = 'DenseReluDense.'
DECODER = 'decoder.block.{}.layer.'

# path in our parameters, name in a released state dict, form
LOCOST_NAMES = (
    ('token_embedding/embedding', 'shared.weight', SAME),
    ('logits/kernel', 'lm_head.weight', TRANSPOSED),
    ('encoder/norm/scale', 'encoder.final_layer_norm.weight', SAME),
    ('encoder/layers/mixer_norm/scale',
     'encoder.block.{}.layer.0.layer_prenorm.weight', SAME),
    *((f'encoder/layers/mixer/{ours}/{part}', SSM + f'{theirs}.{name}', form)
      for ours, theirs in (('key', 'k_proj'), ('gate', 'q_proj'),
                           ('output', 'output_linear'))
      for part, name, form in (('kernel', 'weight', TRANSPOSED),
                               ('bias', 'bias', SAME))),
    ('encoder/layers/mixer/ssm/log_dt', SSM + 'kernel.log_dt', SHARED),
    ('encoder/layers/mixer/ssm/log_A_real', SSM + 'kernel.inv_A_real', SHARED),
    ('encoder/layers/mixer/ssm/A_imag', SSM + 'kernel.A_imag', SHARED),
    ('encoder/layers/mixer/ssm/B', SSM + 'kernel.B', SHARED),
    ('encoder/layers/mixer/ssm/C', SSM + 'kernel.C', SAME),
    ('encoder/layers/mixer/ssm/D', SSM + 'D', SAME),
    ('encoder/layers/feed_forward_norm/scale',
     'encoder.block.{}.layer.1.layer_norm.weight', SAME),
    *((f'encoder/layers/feed_forward/{w}/kernel',
       'encoder.block.{}.layer.1.' + FF + f'{w}.weight', TRANSPOSED)
      for w in ('wi', 'wi_0', 'wi_1', 'wo')),
    ('decoder/norm/scale', 'decoder.final_layer_norm.weight', SAME),
    ('decoder/relative_bias/embedding', 'decoder.block.0.layer.0.SelfAttention.'
     'relative_attention_bias.weight', SAME),
    *((f'decoder/layers/{ours}/{long}/kernel',
       DECODER + f'{layer}.{theirs}.{short}.weight', TRANSPOSED)
      for layer, ours, theirs in ((0, 'self_attention', 'SelfAttention'),
                                  (1, 'cross_attention', 'EncDecAttention'))
      for long, short in (('query', 'q'), ('key', 'k'), ('value', 'v'),
                          ('output', 'o'))),
    *((f'decoder/layers/{ours}_norm/scale',
       DECODER + f'{layer}.layer_norm.weight', SAME)
      for layer, ours in enumerate(
          ('self_attention', 'cross_attention', 'feed_forward'))),
    *((f'decoder/layers/feed_forward/{w}/kernel',
       DECODER + '2.' + FF + f'{w}.weight', TRANSPOSED)
      for w in ('wi', 'wi_0', 'wi_1', 'wo')),
)

# Copies of shared.weight that a tied state dict may hold.
TIED_COPIES = ('encoder.embed_tokens.weight', 'decoder.embed_tokens.weight',
               'lm_head.weight')


def model_config(directory):
  """The `config.model` of a Hugging Face directory, as a dict.

  Raises:
    InputError: no config.json, broken, or of a model that is not here.
  """
  path = os.path.join(directory, 'config.json')
  try:
    with open(path, encoding='utf-8') as f:
      theirs = json.load(f)
  except FileNotFoundError:
    raise InputError(f'{directory} holds no config.json') from None
  except ValueError as e:
    raise InputError(f'{path} is not JSON: {e}') from None
  # A release's config also carries LongT5's keys: d_state and gating decide.
  if not isinstance(theirs, dict) or not {'d_state', 'gating'} <= set(theirs):
    kind = theirs.get('model_type') if isinstance(theirs, dict) else None
    raise InputError(f'{path} describes model_type={kind!r}: expected a LOCOST '
                     'config (with d_state and gating)')
  try:
    return dict(
        name='locost',
        vocab_size=theirs['vocab_size'],
        d_model=theirs['d_model'],
        d_state=theirs['d_state'] // 2,  # the release counts re and im
        d_ff=theirs['d_ff'],
        d_kv=theirs['d_kv'],
        num_heads=theirs['num_heads'],
        num_layers=theirs['num_layers'],
        num_decoder_layers=theirs.get('num_decoder_layers')
        or theirs['num_layers'],
        feed_forward=theirs.get('feed_forward_proj', 'gated-gelu'),
        dropout_rate=float(theirs.get('dropout_rate', 0.1)),
        tie_embeddings=theirs.get('tie_word_embeddings', True),
        relative_attention_num_buckets=theirs.get(
            'relative_attention_num_buckets', 32),
        relative_attention_max_distance=theirs.get(
            'relative_attention_max_distance', 128),
        layer_norm_epsilon=theirs.get('layer_norm_epsilon', 1e-6),
        gating=theirs['gating'],
        bidirectional=theirs.get('bidirectional', True),
        variant='release',
        convolution='exact',
    )
  except KeyError as e:
    raise InputError(f'{path} lacks the key {e}') from None


class Tensors:
  """The tensors of a directory by name, read one at a time."""

  def __init__(self, directory):
    """Finds safetensors files, sharded or not, else pytorch_model.bin."""
    self._read = {}  # name -> function that reads it
    for stem, add in (('model.safetensors', self._add_safetensors),
                      ('state_dict.safetensors', self._add_safetensors),
                      ('pytorch_model.bin', self._add_pickle)):
      files = self._files(directory, stem)
      if files:
        for file in files:
          add(file)
        return
    raise InputError(f'{directory} holds no weights: expected model.safetensors'
                     ', model.safetensors.index.json, state_dict.safetensors or'
                     ' pytorch_model.bin')

  @staticmethod
  def _files(directory, stem):
    """The files of one kind of weights: whole, or listed in an index."""
    path = os.path.join(directory, stem)
    if os.path.exists(path):
      return [path]
    index = path + '.index.json'
    if not os.path.exists(index):
      return []
    try:
      with open(index, encoding='utf-8') as f:
        names = sorted(set(json.load(f)['weight_map'].values()))
    except (ValueError, KeyError, TypeError, AttributeError):
      raise InputError(f'{index} is not an index of shards') from None
    files = [os.path.join(directory, name) for name in names]
    for file in files:
      if not os.path.exists(file):
        raise InputError(f'{index} lists {os.path.basename(file)}, which is '
                         'missing')
    return files

  def _add_safetensors(self, path):
    try:
      file = safe_open(path, framework='numpy')
    except (SafetensorError, OSError) as e:
      raise InputError(f'{path} is not a whole safetensors file: {e}') from None
    for name in file.keys():
      self._read[name] = lambda name=name: file.get_tensor(name)

  def _add_pickle(self, path):
    try:
      import torch  # pylint: disable=g-import-not-at-top
    except ImportError:
      raise InputError(f'{path} needs PyTorch to be read: install torch, or '
                       'provide model.safetensors') from None
    try:  # weights_only: no code of the file is ever run
      tensors = torch.load(path, map_location='cpu', weights_only=True)
      tensors = {k: v.float().numpy() for k, v in tensors.items()}
    except Exception as e:  # pylint: disable=broad-except
      reason = str(e).strip().split('\n')[0]
      raise InputError(f'{path} is not a plain state dict: {reason}') from None
    for name, tensor in tensors.items():
      self._read[name] = lambda tensor=tensor: tensor

  def names(self):
    return set(self._read)

  def __getitem__(self, name):
    return np.asarray(self._read[name]())


def decode_settings(directory):
  """How a Hugging Face directory wants summaries to be written.

  From generation_config.json, else config.json. Their max_length counts the
  start token too; 20, the default of transformers, is taken as not given. The
  prefix and numbers of task_specific_params are passed over.

  Args:
    directory: with a config.json.

  Returns:
    A `decode.Settings`; `decode.check` is left to whoever uses it.
  """
  def read(name):
    path = os.path.join(directory, name)
    if not os.path.exists(path):
      return {}
    try:
      with open(path, encoding='utf-8') as f:
        values = json.load(f)
      return {key: x for key, x in values.items() if x is not None}
    except (ValueError, AttributeError):
      raise InputError(f'{path}: not a JSON object') from None

  config = read('config.json')
  theirs = read('generation_config.json') or config
  ids = ('eos_token_id', 'pad_token_id', 'decoder_start_token_id')
  theirs = {**{key: config[key] for key in ids if key in config}, **theirs}
  values = {ours: theirs[name] for ours, name in (
      *((key, key) for key in (
          'min_length', 'num_beams', 'no_repeat_ngram_size', 'length_penalty',
          'early_stopping')),
      ('max_length', 'max_new_tokens'),
      ('forced_first_token', 'forced_bos_token_id'),
      ('forced_last_token', 'forced_eos_token_id'),
      ('eos_id', 'eos_token_id'), ('pad_id', 'pad_token_id'),
      ('start_id', 'decoder_start_token_id')) if name in theirs}
  if 'max_length' not in values and theirs.get('max_length', 20) != 20:
    values['max_length'] = theirs['max_length'] - 1
  if theirs.get('do_sample'):
    values.update(method='sample', top_k=theirs.get('top_k', 50))
    values.update({key: theirs[key] for key in ('temperature', 'top_p')
                   if key in theirs})
  return decode.Settings(**values)


def load_params(directory, abstract_params, num_layers):
  """Fills the model's parameters from a released state dict.

  Args:
    directory: a Hugging Face directory.
    abstract_params: {path: ShapeDtypeStruct}, paths joined by '/'.
    num_layers: {'encoder': n, 'decoder': n}.

  Returns:
    {path: float32 array}.

  Raises:
    InputError: a tensor that is missing, of another shape or not used.
  """
  tensors = Tensors(directory)
  unused = tensors.names()
  table = {path: (name, form) for path, name, form in LOCOST_NAMES}

  def read(name, shape, form):
    if name not in unused:
      raise InputError(f'{directory} lacks the tensor {name}')
    unused.discard(name)
    tensor = form[0](tensors[name])
    if tensor.shape != shape:
      raise InputError(f'{directory}: {name} has shape '
                       f'{form[1](tensor).shape}, the config says '
                       f'{form[1](np.empty(shape, np.bool_)).shape}')
    return tensor

  params = {}
  for path, leaf in abstract_params.items():
    name, form = table[path]
    if '{}' not in name:
      params[path] = read(name, leaf.shape, form).astype(np.float32)
      continue
    params[path] = np.empty(leaf.shape, np.float32)
    for i in range(num_layers[path.split('/')[0]]):
      params[path][i] = read(name.format(i), leaf.shape[1:], form)

  embedding = params['token_embedding/embedding']
  for name in sorted(unused.intersection(TIED_COPIES)):
    if not np.array_equal(tensors[name].astype(np.float32), embedding):
      raise InputError(f'{directory}: {name} differs from shared.weight, but '
                       'the config ties them')
    unused.discard(name)
  if unused:
    raise InputError(f'{directory} holds tensors that the model does not use: '
                     f'{", ".join(sorted(unused))}')
  return params
