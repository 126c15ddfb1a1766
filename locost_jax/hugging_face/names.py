"""Names of tensors: ours and Hugging Face's, one table per model.

A released state dict has one tensor per layer and (out, in) matrices; here the
layers are stacked and matrices are (in, out). Loading, exporting and comparing
gradients all read the same rows.
"""

from typing import NamedTuple

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


_FF = 'DenseReluDense.'
_WEIGHTS = ('wi', 'wi_0', 'wi_1', 'wo')
_PROJECTIONS = (('query', 'q'), ('key', 'k'), ('value', 'v'), ('output', 'o'))
_DECODER = 'decoder.block.{}.layer.'

# All tensors of a T5-style model except the mixers of its encoder.
_SHELL = (
    ('token_embedding/embedding', 'shared.weight', SAME),
    ('logits/kernel', 'lm_head.weight', TRANSPOSED),
    ('encoder/norm/scale', 'encoder.final_layer_norm.weight', SAME),
    (
        'encoder/layers/feed_forward_norm/scale',
        'encoder.block.{}.layer.1.layer_norm.weight',
        SAME,
    ),
    *(
        (
            f'encoder/layers/feed_forward/{w}/kernel',
            'encoder.block.{}.layer.1.' + _FF + f'{w}.weight',
            TRANSPOSED,
        )
        for w in _WEIGHTS
    ),
    ('decoder/norm/scale', 'decoder.final_layer_norm.weight', SAME),
    (
        'decoder/relative_bias/embedding',
        'decoder.block.0.layer.0.SelfAttention.'
        'relative_attention_bias.weight',
        SAME,
    ),
    *(
        (
            f'decoder/layers/{ours}/{long}/kernel',
            _DECODER + f'{layer}.{theirs}.{short}.weight',
            TRANSPOSED,
        )
        for layer, ours, theirs in (
            (0, 'self_attention', 'SelfAttention'),
            (1, 'cross_attention', 'EncDecAttention'),
        )
        for long, short in _PROJECTIONS
    ),
    *(
        (
            f'decoder/layers/{ours}_norm/scale',
            _DECODER + f'{layer}.layer_norm.weight',
            SAME,
        )
        for layer, ours in enumerate(
            ('self_attention', 'cross_attention', 'feed_forward')
        )
    ),
    *(
        (
            f'decoder/layers/feed_forward/{w}/kernel',
            _DECODER + '2.' + _FF + f'{w}.weight',
            TRANSPOSED,
        )
        for w in _WEIGHTS
    ),
)

_SSM = 'encoder.block.{}.layer.0.ssm_layer.'
_LOCOST_MIXER = (
    (
        'encoder/layers/mixer_norm/scale',
        'encoder.block.{}.layer.0.layer_prenorm.weight',
        SAME,
    ),
    *(
        (f'encoder/layers/mixer/{ours}/{part}', _SSM + f'{theirs}.{name}', form)
        for ours, theirs in (
            ('key', 'k_proj'),
            ('gate', 'q_proj'),
            ('output', 'output_linear'),
        )
        for part, name, form in (
            ('kernel', 'weight', TRANSPOSED),
            ('bias', 'bias', SAME),
        )
    ),
    ('encoder/layers/mixer/ssm/log_dt', _SSM + 'kernel.log_dt', SHARED),
    ('encoder/layers/mixer/ssm/log_A_real', _SSM + 'kernel.inv_A_real', SHARED),
    ('encoder/layers/mixer/ssm/A_imag', _SSM + 'kernel.A_imag', SHARED),
    ('encoder/layers/mixer/ssm/B', _SSM + 'kernel.B', SHARED),
    ('encoder/layers/mixer/ssm/C', _SSM + 'kernel.C', SAME),
    ('encoder/layers/mixer/ssm/D', _SSM + 'D', SAME),
)


def _attention_mixer(name):
  """Returns the rows of an encoder with attention; `name` is its module."""
  layer = 'encoder.block.{}.layer.0.'
  first = f'encoder.block.0.layer.0.{name}.'
  return (
      ('encoder/layers/mixer_norm/scale', layer + 'layer_norm.weight', SAME),
      (
          'encoder/relative_bias/embedding',
          first + 'relative_attention_bias.weight',
          SAME,
      ),
      *(
          (
              f'encoder/layers/mixer/{long}/kernel',
              layer + f'{name}.{short}.weight',
              TRANSPOSED,
          )
          for long, short in _PROJECTIONS
      ),
      (
          'encoder/global_relative_bias/embedding',
          first + 'global_relative_attention_bias.weight',
          SAME,
      ),
      (
          'encoder/layers/mixer/global_norm/scale',
          layer + f'{name}.global_input_layer_norm.weight',
          SAME,
      ),
  )


_MIXERS = {
    'locost': _LOCOST_MIXER,
    't5': _attention_mixer('SelfAttention'),
    'local': _attention_mixer('LocalSelfAttention'),
    'transient-global': _attention_mixer('TransientGlobalSelfAttention'),
}
_BART = (
    ('token_embedding/embedding', 'model.shared.weight', SAME),
    ('logits_bias', 'final_logits_bias', ROW),
    *(
        (
            f'{stack}/position_embedding/embedding',
            f'model.{stack}.embed_positions.weight',
            SAME,
        )
        for stack in ('encoder', 'decoder')
    ),
    *(
        (
            f'{stack}/embedding_norm/{ours}',
            f'model.{stack}.layernorm_embedding.{theirs}',
            SAME,
        )
        for stack in ('encoder', 'decoder')
        for ours, theirs in (('scale', 'weight'), ('bias', 'bias'))
    ),
    *(
        (
            f'{stack}/layers/{ours}_attention/{long}/{part}',
            f'model.{stack}.layers.{{}}.{theirs}_attn.{short}_proj.{name}',
            form,
        )
        for stack, ours, theirs in (
            ('encoder', 'self', 'self'),
            ('decoder', 'self', 'self'),
            ('decoder', 'cross', 'encoder'),
        )
        for long, short in (
            ('query', 'q'),
            ('key', 'k'),
            ('value', 'v'),
            ('output', 'out'),
        )
        for part, name, form in (
            ('kernel', 'weight', TRANSPOSED),
            ('bias', 'bias', SAME),
        )
    ),
    *(
        (
            f'{stack}/layers/feed_forward/{ours}/{part}',
            f'model.{stack}.layers.{{}}.{theirs}.{name}',
            form,
        )
        for stack in ('encoder', 'decoder')
        for ours, theirs in (('wi', 'fc1'), ('wo', 'fc2'))
        for part, name, form in (
            ('kernel', 'weight', TRANSPOSED),
            ('bias', 'bias', SAME),
        )
    ),
    *(
        (
            f'{stack}/layers/{ours}_norm/{part}',
            f'model.{stack}.layers.{{}}.{theirs}_layer_norm.{name}',
            SAME,
        )
        for stack, ours, theirs in (
            ('encoder', 'self_attention', 'self_attn'),
            ('encoder', 'feed_forward', 'final'),
            ('decoder', 'self_attention', 'self_attn'),
            ('decoder', 'cross_attention', 'encoder_attn'),
            ('decoder', 'feed_forward', 'final'),
        )
        for part, name in (('scale', 'weight'), ('bias', 'bias'))
    ),
)

_CONFIDENCE = (
    ('confidence/kernel', 'lin.weight', TRANSPOSED),
    ('confidence/bias', 'lin.bias', SAME),
)

# SimCAS's selector; the release numbers its layers.
_SELECTOR = tuple(
    (
        f'selector/{judge}/{ours}/{part}',
        f'model.encoder.agent.{judge}.{theirs}.{name}',
        form,
    )
    for judge in ('actor', 'critic')
    for ours, theirs in (
        ('token', 'dense_1'),
        ('state', 'dense_2'),
        ('hidden', 'dense_3'),
        ('output', 'out_proj'),
    )
    for part, name, form in (
        ('kernel', 'weight', TRANSPOSED),
        ('bias', 'bias', SAME),
    )
)
# Parameters that BART does not have.
_NOT_IN_BART = {'bart': (), 'pagesum': _CONFIDENCE, 'simcas': _SELECTOR}

# Only T5's first releases have this tensor, and no T5 uses it.
_UNREAD = (
    'decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight',
)


def table(config):
  """Returns the table of names of a model.

  Returns:
    A Table.

  Raises:
    InputError: no release has such a model.
  """
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
  return Table(_SHELL + _MIXERS[key], {'shared.weight': copies + tied}, _UNREAD)


class Source(NamedTuple):
  """The released tensors that make one of our parameters.

  Attributes:
    names: names of the tensors: one, or one for each layer.
    is_stacked: whether the parameter has a first axis of layers.
  """

  names: tuple
  is_stacked: bool
  form: tuple


def sources(names, abstract):
  """Returns the `Source` of each parameter of a model.

  Args:
    names: a Table.
    abstract: {path: leaf with a shape}.

  Returns:
    {path: Source}.
  """
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
