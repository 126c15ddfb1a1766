"""Names of tensors: ours and Hugging Face's, one table per model.

A released state dict has one tensor per layer and (out, in) matrices; here the
layers are stacked and matrices are (in, out). Loading, exporting and comparing
gradients all read the same rows.
"""

from typing import NamedTuple

import numpy as np

from locost_jax.errors import InputError

# Functions from a released tensor to ours, and back.
SAME = (lambda x: x, lambda x: x)
TRANSPOSED = (lambda x: x.T, lambda x: x.T)
ROW = (lambda x: x[0], lambda x: x[None])  # released as a matrix of one row
SHARED = (lambda x: x[None], lambda x: x[0])  # one set for both directions


class Table(NamedTuple):
  """The names of one model.

  Attributes:
    rows: (path in our parameters, name in a released state dict, form); '{}'
      in a name is the layer. Rows whose path a model lacks do not apply.
    copies: name -> other names under which files may have the same tensor, in
      addition or instead.
    unread: names that a file may have although no model uses them.
    prefix: the start of all names, which some files lack and others have twice.
    zeros: names that a file may lack: the tensor is then zero.
  """

  rows: tuple
  copies: dict
  unread: tuple = ()
  prefix: str = ''
  zeros: tuple = ()


_T5_PROJECTIONS = {'query': 'q', 'key': 'k', 'value': 'v', 'output': 'o'}
_BART_PROJECTIONS = {
    'query': 'q_proj',
    'key': 'k_proj',
    'value': 'v_proj',
    'output': 'out_proj',
}


def _dense(ours, theirs, bias=False):
  """Returns the rows of a projection."""
  kernel = f'{ours}/kernel', f'{theirs}.weight', TRANSPOSED
  return (kernel, *[(f'{ours}/bias', f'{theirs}.bias', SAME)] * bias)


def _norm(ours, theirs, bias=False):
  """Returns the rows of a norm."""
  scale = f'{ours}/scale', f'{theirs}.weight', SAME
  return (scale, *[(f'{ours}/bias', f'{theirs}.bias', SAME)] * bias)


def _embedding(ours, theirs):
  """Returns the row of an embedding."""
  return ((f'{ours}/embedding', f'{theirs}.weight', SAME),)


def _denses(ours, theirs, names, bias=False):
  """Returns the rows of projections, {our name: theirs}, in one module."""
  return _rows(
      _dense(f'{ours}/{one}', f'{theirs}.{other}', bias)
      for one, other in names.items()
  )


def _rows(groups):
  return tuple(row for group in groups for row in group)


def _t5_feed_forward(ours, theirs):
  names = 'wi', 'wi_0', 'wi_1', 'wo'
  return _denses(ours, f'{theirs}.DenseReluDense', dict(zip(names, names)))


_ENCODER, _DECODER = 'encoder.block.{}.layer', 'decoder.block.{}.layer'
# All tensors of a T5-style model except the mixers of its encoder.
_T5_STYLE = _rows(
    (
        _embedding('token_embedding', 'shared'),
        _dense('logits', 'lm_head'),
        _norm('encoder/norm', 'encoder.final_layer_norm'),
        _norm('encoder/layers/feed_forward_norm', f'{_ENCODER}.1.layer_norm'),
        _t5_feed_forward('encoder/layers/feed_forward', f'{_ENCODER}.1'),
        _norm('decoder/norm', 'decoder.final_layer_norm'),
        _embedding(
            'decoder/relative_bias',
            'decoder.block.0.layer.0.SelfAttention.relative_attention_bias',
        ),
        _norm('decoder/layers/self_attention_norm', f'{_DECODER}.0.layer_norm'),
        _denses(
            'decoder/layers/self_attention',
            f'{_DECODER}.0.SelfAttention',
            _T5_PROJECTIONS,
        ),
        _norm(
            'decoder/layers/cross_attention_norm', f'{_DECODER}.1.layer_norm'
        ),
        _denses(
            'decoder/layers/cross_attention',
            f'{_DECODER}.1.EncDecAttention',
            _T5_PROJECTIONS,
        ),
        _norm('decoder/layers/feed_forward_norm', f'{_DECODER}.2.layer_norm'),
        _t5_feed_forward('decoder/layers/feed_forward', f'{_DECODER}.2'),
    )
)


def _locost_mixer():
  """Returns the rows of LOCOST's mixer."""
  ours, theirs = 'encoder/layers/mixer', f'{_ENCODER}.0.ssm_layer'
  names = {'key': 'k_proj', 'gate': 'q_proj', 'output': 'output_linear'}
  shared = 'log_dt', 'inv_A_real', 'A_imag', 'B'
  return (
      *_norm('encoder/layers/mixer_norm', f'{_ENCODER}.0.layer_prenorm'),
      *_denses(ours, theirs, names, bias=True),
      *(
          (
              f'{ours}/ssm/{name.replace("inv_A", "log_A")}',
              f'{theirs}.kernel.{name}',
              SHARED,
          )
          for name in shared
      ),
      (f'{ours}/ssm/C', f'{theirs}.kernel.C', SAME),
      (f'{ours}/ssm/D', f'{theirs}.D', SAME),
  )


def _attention_mixer(name):
  """Returns the rows of an encoder with attention; `name` is its module."""
  first = f'encoder.block.0.layer.0.{name}'
  own = f'{_ENCODER}.0.{name}'
  mixer = 'encoder/layers/mixer'
  return _rows(
      (
          _norm('encoder/layers/mixer_norm', f'{_ENCODER}.0.layer_norm'),
          _denses(mixer, own, _T5_PROJECTIONS),
          _embedding(
              'encoder/relative_bias', f'{first}.relative_attention_bias'
          ),
          _embedding(
              'encoder/global_relative_bias',
              f'{first}.global_relative_attention_bias',
          ),
          _norm(f'{mixer}/global_norm', f'{own}.global_input_layer_norm'),
      )
  )


_MIXERS = {
    'locost': _locost_mixer(),
    't5': _attention_mixer('SelfAttention'),
    'local': _attention_mixer('LocalSelfAttention'),
    'transient-global': _attention_mixer('TransientGlobalSelfAttention'),
}


def _bart_stack(stack, attentions):
  """Returns the rows of BART's encoder or decoder.

  Args:
    attentions: {our name: theirs} of the attentions of a layer.
  """
  top, theirs = f'model.{stack}', f'model.{stack}.layers.{{}}'
  feed_forward = {'wi': 'fc1', 'wo': 'fc2'}
  norms = {f'{one}_attention': x for one, x in attentions.items()}
  norms['feed_forward'] = 'final'
  return _rows(
      (
          _embedding(f'{stack}/position_embedding', f'{top}.embed_positions'),
          _norm(f'{stack}/embedding_norm', f'{top}.layernorm_embedding', True),
          _denses(f'{stack}/layers/feed_forward', theirs, feed_forward, True),
          *(
              _denses(
                  f'{stack}/layers/{one}_attention',
                  f'{theirs}.{other}',
                  _BART_PROJECTIONS,
                  bias=True,
              )
              for one, other in attentions.items()
          ),
          *(
              _norm(
                  f'{stack}/layers/{one}_norm',
                  f'{theirs}.{other}_layer_norm',
                  True,
              )
              for one, other in norms.items()
          ),
      )
  )


_BART = (
    *_embedding('token_embedding', 'model.shared'),
    ('logits_bias', 'final_logits_bias', ROW),
    *_bart_stack('encoder', {'self': 'self_attn'}),
    *_bart_stack('decoder', {'self': 'self_attn', 'cross': 'encoder_attn'}),
)
# SimCAS's selector; the release numbers its layers.
_JUDGE = {
    'token': 'dense_1',
    'state': 'dense_2',
    'hidden': 'dense_3',
    'output': 'out_proj',
}
# Parameters that BART does not have.
_NOT_IN_BART = {
    'bart': (),
    'pagesum': _dense('confidence', 'lin', bias=True),
    'simcas': _rows(
        _denses(
            f'selector/{judge}',
            f'model.encoder.agent.{judge}',
            _JUDGE,
            bias=True,
        )
        for judge in ('actor', 'critic')
    ),
}

# Only T5's first releases have this tensor, and no T5 uses it.
_UNREAD = (
    'decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight',
)


def table(config):
  """Returns the `Table` of a model; an InputError if no release has it."""
  name = config['name']
  if name in _NOT_IN_BART:
    copies = (
        'model.encoder.embed_tokens.weight',
        'model.decoder.embed_tokens.weight',
        'lm_head.weight',
    )
    return Table(
        _BART + _NOT_IN_BART[name],
        {'model.shared.weight': copies},
        prefix='model.',
        zeros=('final_logits_bias',),
    )
  key = config['attention'] if name == 'longt5' else name
  if key not in _MIXERS:
    raise InputError(
        f'config.model.name={name!r}: no release has such a model, so its '
        'parameters have no names outside this project'
    )
  tied = ('lm_head.weight',) if config['tie_embeddings'] else ()
  copies = ('encoder.embed_tokens.weight', 'decoder.embed_tokens.weight')
  return Table(
      _T5_STYLE + _MIXERS[key], {'shared.weight': copies + tied}, _UNREAD
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
  rows = {path: (name, form) for path, name, form in names.rows}
  found = {}
  for path, leaf in abstract.items():
    name, form = rows[path]
    is_stacked = '{}' in name
    layers = range(leaf.shape[0] if is_stacked else 1)
    found[path] = Source(
        tuple(name.format(i) for i in layers), is_stacked, form
    )
  return found
