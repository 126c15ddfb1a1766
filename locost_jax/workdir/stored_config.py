"""Checks a run's config.json before it is used.

A run wrote it, but it may have been edited, damaged or sent by somebody else.
Keys that the code reads have a kind here; all others are only compared with the
current config. Whether the sizes fit together is checked when the model is
built.
"""

import re

from locost_jax import untrusted
from locost_jax.errors import InputError

_SECTIONS = (
    'model',
    'data',
    'optim',
    'train',
    'eval',
    'decode',
    'mesh',
    'checkpoint',
    'selector',
    'shares',
)
_NEEDED = 'model.name', 'train.steps'
_STEPS = untrusted.integer(0, 10**12)
_LENGTH = untrusted.integer(0, 10**12)
_ID = untrusted.integer(-1, 10**7)
_SHARE_OR_STEPS = untrusted.number(0, 1e12)
_KINDS = {
    **{f'model.{key}': kind for key, kind in untrusted.MODEL_SIZES.items()},
    # 0: the vocabulary's size.
    'model.vocab_size': untrusted.integer(0, 10**7),
    'model.layer_norm_epsilon': untrusted.number(0, 1),
    **{
        f'model.{key}': untrusted.number(0, 1)
        for key in (
            'dropout_rate',
            'attention_dropout_rate',
            'activation_dropout_rate',
            'dt_min',
            'dt_max',
        )
    },
    **{
        f'model.{key}': untrusted.BOOLEAN
        for key in (
            'tie_embeddings',
            'copy',
            'gating',
            'bidirectional',
            'scale_embedding',
        )
    },
    **{
        key: untrusted.TEXT
        for key in (
            'model.name',
            'model.feed_forward',
            'model.variant',
            'model.convolution',
            'model.initialisation',
            'model.attention',
            'model.decoding',
            'model.padding',
            'model.chunk',
            'model.align',
            'model.select',
            'model.selection',
            'data.pages',
            'data.empty_page',
            'data.query_in',
            'data.targets_start',
            'optim.schedule',
            'train.init_from',
            'checkpoint.metric',
            'decode.method',
            'decode.length_penalty_form',
            'decode.start',
        )
    },
    **{
        f'data.{key}': _LENGTH
        for key in (
            'num_pages',
            'page_length',
            'document_length',
            'max_input_length',
            'max_target_length',
        )
    },
    **{
        f'optim.{key}': _SHARE_OR_STEPS
        for key in (
            *('warmup_steps', 'flat_steps', 'cooldown_steps'),
            *('ramp', 'warmup', 'cooldown'),  # of older versions
        )
    },
    'train.steps': _STEPS,
    'train.lora': untrusted.OBJECT,
    'train.lora.alpha': untrusted.number(0, 1e9),
    'train.lora.rank': untrusted.integer(0, 10**6),
    'decode.max_length': untrusted.integer(1, 10**7),
    'decode.min_length': untrusted.integer(0, 10**7),
    'decode.num_beams': untrusted.integer(1, 10**4),
    'decode.no_repeat_ngram_size': untrusted.integer(0, 10**7),
    'decode.encoder_no_repeat_ngram_size': untrusted.integer(0, 10**7),
    'decode.repetition_penalty': untrusted.number(0),
    'decode.length_penalty': untrusted.number(),
    'decode.early_stopping': untrusted.BOOLEAN,
    'decode.temperature': untrusted.number(0),
    'decode.top_k': untrusted.integer(0, 10**7),
    'decode.top_p': untrusted.number(0, 1),
    'decode.forced_first_token': _ID,
    'decode.forced_last_token': _ID,
    'decode.eos_id': _ID,
    'decode.pad_id': _ID,
    'decode.start_id': _ID,
}


def check(path, config):
  """Raises an InputError unless a config.json is a valid run's config.

  Args:
    config: its contents, a dict.
  """
  for name in _SECTIONS:
    if name in config:
      untrusted.check(path, name, config[name], untrusted.OBJECT)
  for key in _NEEDED:
    section, last = key.split('.')
    if last not in config.get(section, {}):
      raise InputError(f'{path}: lacks {key}; expected the config of a run')
  for name in 'gsg', 'span_corruption':
    if config.get(name) is not None:
      untrusted.check(path, name, config[name], untrusted.OBJECT)
  for key, kind in _KINDS.items():
    *sections, last = key.split('.')
    values = config
    for section in sections:
      values = values.get(section, {})
    if last in values:
      untrusted.check(path, key, values[last], kind)
  for key, share in config.get('shares', {}).items():
    untrusted.check(path, f'shares {key}', share, untrusted.number(0, 1))
  _check_phases(path, config.get('phases') or [])


def _check_phases(path, phases):
  """Raises an InputError unless each phase is [name, {key: value}]."""
  untrusted.check(path, 'phases', phases, untrusted.LIST)
  for row in phases:
    is_row = isinstance(row, list) and len(row) == 2
    # The name becomes a directory in WORKDIR and must not lead elsewhere.
    if not (
        is_row
        and isinstance(row[0], str)
        and re.fullmatch(r'\w[\w-]*', row[0])
        and isinstance(row[1], dict)
    ):
      raise InputError(
          f'{path}: phases: {untrusted.show(row)}: expected '
          '["name", {"key": value}], the name being one word'
      )
