"""Names of tensors: ours and Hugging Face's, one table per model.

A released state dict has one tensor per layer and (out, in) matrices; here the
layers are stacked and matrices are (in, out). Loading, exporting and comparing
gradients all read the same tables.
"""

from typing import NamedTuple

import numpy as np

from locost_jax.errors import InputError

# Functions from a released tensor to ours, and back.
SAME = (lambda x: x, lambda x: x)
TRANSPOSED = (lambda x: x.T, lambda x: x.T)
ROW = (lambda x: x[0], lambda x: x[None])  # released as a matrix of one row
SHARED = (lambda x: x[None], lambda x: x[0])  # one set for both directions

# Our parameter of a module -> the released one, and its form.
_PARTS = {
    'kernel': ('weight', TRANSPOSED),
    'scale': ('weight', SAME),
    'embedding': ('weight', SAME),
    'bias': ('bias', SAME),
}


class Table(NamedTuple):
  """The names of one model; '{}' in a released name is the layer.

  Attributes:
    modules: {our module: the released one}; a model may lack some.
    single: {our path: (released name, form)}, of all other parameters.
    copies: name -> other names under which files may have the same tensor, in
      addition or instead.
    unread: names that a file may have although no model uses them.
    prefix: the start of all names, which some files lack and others have twice.
    zeros: names that a file may lack: the tensor is then zero.
    writes_copies: whether exports have the copies, too.
  """

  modules: dict
  single: dict
  copies: dict
  unread: tuple = ()
  prefix: str = ''
  zeros: tuple = ()
  writes_copies: bool = False


def _inside(ours, theirs, names):
  """The `modules` inside of one, from {our name: theirs}."""
  return {f'{ours}/{one}': f'{theirs}.{names[one]}' for one in names}


_T5_QKVO = dict(query='q', key='k', value='v', output='o')
_T5_FEED_FORWARD = {'feed_forward_norm': 'layer_norm'} | {
    f'feed_forward/{name}': f'DenseReluDense.{name}'
    for name in ('wi', 'wi_0', 'wi_1', 'wo')
}
_BART_QKVO = dict(
    query='q_proj', key='k_proj', value='v_proj', output='out_proj'
)
_BART_MLP = dict(wi='fc1', wo='fc2')

_ENCODER, _DECODER = 'encoder.block.{}.layer', 'decoder.block.{}.layer'
_READ, _WRITTEN = 'encoder/layers', 'decoder/layers'


def _t5_attention(ours, theirs):
  """The modules of an attention and its norm."""
  return {f'{ours}_norm': 'layer_norm'} | _inside(ours, theirs, _T5_QKVO)


# All modules of a T5-style model except the mixers of its encoder.
_T5_STYLE = {
    'token_embedding': 'shared',
    'logits': 'lm_head',
    'encoder/norm': 'encoder.final_layer_norm',
    'decoder/norm': 'decoder.final_layer_norm',
    'decoder/relative_bias': (
        'decoder.block.0.layer.0.SelfAttention.relative_attention_bias'
    ),
    **_inside(_READ, f'{_ENCODER}.1', _T5_FEED_FORWARD),
    **_inside(
        _WRITTEN,
        f'{_DECODER}.0',
        _t5_attention('self_attention', 'SelfAttention'),
    ),
    **_inside(
        _WRITTEN,
        f'{_DECODER}.1',
        _t5_attention('cross_attention', 'EncDecAttention'),
    ),
    **_inside(_WRITTEN, f'{_DECODER}.2', _T5_FEED_FORWARD),
}
_SSM = f'{_ENCODER}.0.ssm_layer'
_LOCOST_MIXER = {
    f'{_READ}/mixer_norm': f'{_ENCODER}.0.layer_prenorm',
    **_inside(
        f'{_READ}/mixer',
        _SSM,
        dict(key='k_proj', gate='q_proj', output='output_linear'),
    ),
}
_LOCOST_SINGLE = {
    f'{_READ}/mixer/ssm/{ours}': (f'{_SSM}.{theirs}', form)
    for ours, theirs, form in (
        ('log_dt', 'kernel.log_dt', SHARED),
        ('log_A_real', 'kernel.inv_A_real', SHARED),
        ('A_imag', 'kernel.A_imag', SHARED),
        ('B', 'kernel.B', SHARED),
        ('C', 'kernel.C', SAME),
        ('D', 'D', SAME),
    )
}


def _attention_mixer(name):
  """The modules of an encoder with attention; `name` is that of its class."""
  first = f'encoder.block.0.layer.0.{name}'
  names = _t5_attention('mixer', name)
  names['mixer/global_norm'] = f'{name}.global_input_layer_norm'
  return {
      'encoder/relative_bias': f'{first}.relative_attention_bias',
      'encoder/global_relative_bias': f'{first}.global_relative_attention_bias',
      **_inside(_READ, f'{_ENCODER}.0', names),
  }


_MIXERS = {
    'locost': _LOCOST_MIXER,
    't5': _attention_mixer('SelfAttention'),
    'local': _attention_mixer('LocalSelfAttention'),
    'transient-global': _attention_mixer('TransientGlobalSelfAttention'),
}


def _bart_stack(stack, attentions):
  """The modules of BART's encoder or decoder; attentions: {ours: theirs}."""
  ours, theirs = f'{stack}/layers', f'model.{stack}.layers.{{}}'
  found = {
      f'{stack}/position_embedding': f'model.{stack}.embed_positions',
      f'{stack}/embedding_norm': f'model.{stack}.layernorm_embedding',
      f'{stack}/norm': f'model.{stack}.layer_norm',
      f'{ours}/feed_forward_norm': f'{theirs}.final_layer_norm',
      **_inside(f'{ours}/feed_forward', theirs, _BART_MLP),
  }
  for one, other in attentions.items():
    found[f'{ours}/{one}_norm'] = f'{theirs}.{other}_layer_norm'
    found |= _inside(f'{ours}/{one}', f'{theirs}.{other}', _BART_QKVO)
  return found


_BART = {
    'token_embedding': 'model.shared',
    'logits': 'lm_head',
    **_bart_stack('encoder', {'self_attention': 'self_attn'}),
    **_bart_stack(
        'decoder',
        {'self_attention': 'self_attn', 'cross_attention': 'encoder_attn'},
    ),
}
# SimCAS's selector; the release numbers its layers.
_JUDGE = dict(
    token='dense_1', state='dense_2', hidden='dense_3', output='out_proj'
)
_SELF = 'model.encoder.layers.{}.self_attn'


def _long_attention(inner):
  """The modules of an encoder's sparse attention, of another class inside."""
  names = {name: f'{inner}.{name}' for name in ('query', 'key', 'value')}
  names['output'] = 'output'
  return _inside(f'{_READ}/self_attention', _SELF, names)


# Modules that BART does not have, or under another name.
_NOT_IN_BART = {
    'bart': {},
    'led': _long_attention('longformer_self_attn')
    | _inside(
        f'{_READ}/global_attention',
        f'{_SELF}.longformer_self_attn',
        dict(query='query_global', key='key_global', value='value_global'),
    ),
    'pegasus_x': {
        f'{_READ}/global_norm': (
            'model.encoder.layers.{}.global_self_attn_layer_norm'
        ),
    },
    'bigbird_pegasus': {
        'encoder/norm': 'model.encoder.layernorm_embedding',
        'decoder/norm': 'model.decoder.layernorm_embedding',
        **_long_attention('self'),
    },
    'pagesum': {'confidence': 'lin'},
    'simcas': {
        **_inside('selector/actor', 'model.encoder.agent.actor', _JUDGE),
        **_inside('selector/critic', 'model.encoder.agent.critic', _JUDGE),
    },
}


def table(config):
  """Returns the `Table` of a model; an InputError if no release has it."""
  name = config['name']
  prefix = 'led.' if name == 'led' else 'model.' * (name in _NOT_IN_BART)
  copies = [
      f'{prefix}{stack}.embed_tokens.weight' for stack in ('encoder', 'decoder')
  ]
  is_tied = config.get('tie_embeddings', True)
  copies = {f'{prefix}shared.weight': (*copies, *['lm_head.weight'] * is_tied)}
  if prefix:
    return _like_bart(config, prefix, copies)
  key = config['attention'] if name == 'longt5' else name
  if key not in _MIXERS:
    raise InputError(
        f'config.model.name={name!r}: no release has such a model, so its '
        'parameters have no names outside this project'
    )
  modules = _T5_STYLE | _MIXERS[key]
  if config.get('biases_per_layer'):
    # Elsewhere the first layer has the bias of all.
    modules = {
        ours: theirs.replace('.0.', '.{}.', 1)
        if ours.endswith('relative_bias')
        else theirs
        for ours, theirs in modules.items()
    }
  single = _LOCOST_SINGLE if name == 'locost' else {}
  if config.get('variant') == 'paper':  # each direction has its own set
    single = {ours: (theirs, SAME) for ours, (theirs, _) in single.items()}
  # Only T5's first releases have this tensor, and no T5 uses it.
  unread = 'decoder.block.0.layer.1.EncDecAttention.relative_attention_bias'
  return Table(modules, single, copies, (f'{unread}.weight',))


def _like_bart(config, prefix, copies):
  """Returns the `Table` of a model whose stacks have BART's names."""
  modules = {
      ours: theirs.replace('model.', prefix, 1)
      for ours, theirs in (_BART | _NOT_IN_BART[config['name']]).items()
  }
  single = {
      'logits_bias': ('final_logits_bias', ROW),
      'encoder/global_embedding': ('model.encoder.embed_global.weight', SAME),
  }
  # Of fairseq, in old files; and the positions that PEGASUS computes, in some.
  unread = ['version'] + ['embed_positions.weight'] * bool(
      config.get('sinusoidal')
  )
  return Table(
      modules,
      single,
      copies,
      prefix=prefix,
      unread=tuple(
          f'model.{stack}.{name}'
          for name in unread
          for stack in ('encoder', 'decoder')
      ),
      zeros=('final_logits_bias',),
      # transformers 5 ties all or nothing.
      writes_copies=not config.get('tie_embeddings', True),
  )


class Source(NamedTuple):
  """The released tensors that make one of our parameters.

  Attributes:
    names: names of the tensors: one, or one for each layer.
    is_stacked: whether the parameter has a first axis of layers.
  """

  names: tuple
  is_stacked: bool
  form: tuple

  def released_shape(self, shape):
    """Returns the shape of each tensor, given that of the parameter."""
    nothing = np.broadcast_to(np.zeros((), bool), shape[self.is_stacked :])
    return self.form[1](nothing).shape


def sources(names, abstract):
  """Returns {path: `Source`} of a `Table` and of {path: leaf with a shape}."""
  found = {}
  for path, leaf in abstract.items():
    if path in names.single:
      name, form = names.single[path]
    else:
      module, _, part = path.rpartition('/')
      theirs, form = _PARTS[part]
      name = f'{names.modules[module]}.{theirs}'
    is_stacked = '{}' in name
    layers = range(leaf.shape[0] if is_stacked else 1)
    found[path] = Source(
        tuple(name.format(i) for i in layers), is_stacked, form
    )
  return found
