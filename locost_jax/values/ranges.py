"""The table of all config keys and flags and their allowed values.

`command_line.commands` checks a command's flags and config against the table
before the command does anything; `runs.checks` checks the config of each phase.
The table describes single values only. The modules that read the values check
their combinations with others, the data, a vocabulary or the devices, and the
choices of a text.
"""

from locost_jax.errors import InputError
from locost_jax.values import kinds
from locost_jax.values.kinds import Boolean
from locost_jax.values.kinds import Integer
from locost_jax.values.kinds import Lengths
from locost_jax.values.kinds import Number
from locost_jax.values.kinds import Path
from locost_jax.values.kinds import Pattern
from locost_jax.values.kinds import Patterns
from locost_jax.values.kinds import Steps
from locost_jax.values.kinds import Text
from locost_jax.values.kinds import Texts

# Upper bounds far above any machine's memory; all but SEED fit an int32.
TOKENS = 10**8  # of a document
BATCH_TOKENS = 10**9
DOCUMENTS = 10**6  # of a batch
COUNT = 2**31 - 1  # steps, examples, seconds
IDS = 10**7  # of a vocabulary
WIDTH = 10**6  # of a layer
LAYERS = 10**4
SEED = 2**32 - 1

_POSITIVE = Number(0, above=True)
_NOT_NEGATIVE = Number(0)
_SHARE = Number(0, 1)
_RATE = Number(0, 1, below=True)  # dropout or decay
_COUNT = Integer(0, COUNT)
_POSITIVE_COUNT = Integer(1, COUNT)
_WIDTH = Integer(1, WIDTH)
_SEED = Integer(0, SEED)
# hf://org/name is a model on the Hugging Face Hub.
_MODEL = Path(('hf',))

KEYS = {
    'data.task': Text(),
    'data.train_files': Path(),
    'data.validation_files': Path(),
    'data.test_files': Path(),
    'data.text_unit': Text(),
    'data.input_field': Text(),
    'data.target_field': Text(),
    'data.query_field': Text(),
    'data.references_field': Text(),
    'data.targets_start': Text(),
    'data.vocabulary': Path(),
    # At least 100 sentinels, padding, end, unknown and the newline.
    'data.vocabulary_size': Integer(104, 10**6),
    'data.max_input_length': Integer(2, TOKENS),
    'data.max_target_length': Integer(2, TOKENS),
    'data.input_buckets': Lengths(TOKENS),
    'data.target_buckets': Lengths(TOKENS),
    'data.cache_dir': Path(),
    'data.window_shards': Integer(1, 10**6),
    'data.corpora_dir': Path(),
    'data.tfds_dir': Path(None),  # TFDS can read object stores
    'data.check_sizes': Boolean(),
    'data.mixture_cap': _POSITIVE_COUNT,
    'data.train_examples': _COUNT,
    'data.pages': Text(),
    'data.num_pages': Integer(1, 10**6),
    'data.page_length': Integer(3, TOKENS),
    'data.empty_page': Text(),
    'data.query_in': Text(),
    'data.document_length': Integer(0, TOKENS),
    'data.seed': _SEED,
    'gsg.ratio': _SHARE,
    'gsg.strategy': Text(),
    'gsg.mask': Text(),
    'gsg.seed': _SEED,
    'span_corruption.share': _SHARE,
    'span_corruption.density': _SHARE,
    'span_corruption.mean_length': Number(1, TOKENS),
    'span_corruption.seed': _SEED,
    'optim.name': Text(),
    'optim.schedule': Text(),
    'optim.learning_rate': _NOT_NEGATIVE,
    'optim.warmup_steps': Steps(COUNT),
    'optim.flat_steps': Steps(COUNT),
    'optim.cooldown_steps': Steps(COUNT),
    'optim.b1': _RATE,
    'optim.b2': _RATE,
    'optim.eps': _NOT_NEGATIVE,
    'optim.scale_by_parameter': Boolean(),
    'optim.weight_decay': _NOT_NEGATIVE,
    'optim.clip': _NOT_NEGATIVE,
    'optim.label_smoothing': _RATE,
    'optim.z_loss': _NOT_NEGATIVE,
    'optim.groups': Patterns('factor', _NOT_NEGATIVE),
    'train.objective': Text(),
    'train.steps': _POSITIVE_COUNT,
    'train.batch_size': Integer(1, DOCUMENTS),
    'train.batch_tokens': Integer(0, BATCH_TOKENS),
    'train.accumulate': Integer(1, DOCUMENTS),
    'train.eval_every': _COUNT,
    'train.checkpoint_every': _COUNT,
    'train.patience': _COUNT,
    'train.log_every': _POSITIVE_COUNT,
    'train.remat': Text(),
    'train.dtype': Text(),
    'train.seed': _SEED,
    'train.init_from': _MODEL,
    'train.init_map': Patterns("path in the source or ''", Text()),
    'train.max_nonfinite_steps': _COUNT,
    'train.timeout': _COUNT,
    'train.lora.rank': Integer(0, WIDTH),
    'train.lora.alpha': _POSITIVE,
    'train.lora.paths': Pattern(),
    'selector.every': _POSITIVE_COUNT,
    'selector.epochs': Integer(1, 10**4),
    'selector.minibatch': Integer(1, TOKENS),
    'selector.learning_rate': _NOT_NEGATIVE,
    'selector.gamma': _SHARE,
    'selector.clip': _NOT_NEGATIVE,
    'selector.entropy': _NOT_NEGATIVE,
    'selector.kl': _NOT_NEGATIVE,
    'selector.limit': Integer(0, TOKENS),
    'selector.reward_scale': _NOT_NEGATIVE,
    'selector.skip': Text(),
    'selector.trace': Text(),
    'selector.baseline': Text(),
    'selector.lambda': _SHARE,
    'eval.examples': _COUNT,
    'eval.batch_size': Integer(1, DOCUMENTS),
    'eval.metrics': Texts(),
    'eval.protocol': Text(),
    'eval.baselines': Boolean(),
    'decode.method': Text(),
    'decode.max_length': Integer(1, TOKENS),
    'decode.min_length': Integer(0, TOKENS),
    'decode.no_repeat_ngram_size': Integer(0, TOKENS),
    'decode.encoder_no_repeat_ngram_size': Integer(0, TOKENS),
    'decode.repetition_penalty': _POSITIVE,
    'decode.num_beams': Integer(1, 10**4),
    'decode.length_penalty': Number(),
    'decode.length_penalty_form': Text(),
    'decode.early_stopping': Boolean(),
    'decode.temperature': _POSITIVE,
    'decode.top_k': Integer(0, IDS),
    'decode.top_p': Number(0, 1, above=True),
    'decode.start': Text(),
    'decode.forced_first_token': Integer(-1, IDS),
    'decode.forced_last_token': Integer(-1, IDS),
    'decode.seed': _SEED,
    'mesh.data': Integer(-1, 10**6),
    'mesh.fsdp': Integer(1, 10**6),
    'mesh.tensor': Integer(1, 10**6),
    'mesh.sequence': Integer(1, 10**6),
    'checkpoint.keep_latest': Integer(1, 10**6),
    'checkpoint.keep_best': Integer(0, 10**6),
    'checkpoint.metric': Text(),
}

# Sections that every config has.
SECTIONS = tuple(sorted({key.partition('.')[0] for key in KEYS} | {'model'}))

# Keys of all models; `models.make_config` knows which of them a model has.
MODEL_KEYS = {
    'model.name': Text(),
    'model.vocab_size': Integer(0, IDS),
    'model.d_model': _WIDTH,
    'model.d_ff': _WIDTH,
    'model.decoder_d_ff': _WIDTH,
    'model.d_kv': _WIDTH,
    'model.d_state': _WIDTH,
    'model.num_heads': _WIDTH,
    'model.num_decoder_heads': Integer(0, WIDTH),
    'model.num_layers': Integer(1, LAYERS),
    'model.num_decoder_layers': Integer(1, LAYERS),
    'model.feed_forward': Text(),
    'model.dropout_rate': _RATE,
    'model.attention_dropout_rate': _RATE,
    'model.activation_dropout_rate': _RATE,
    'model.tie_embeddings': Boolean(),
    'model.copy': Boolean(),
    'model.copy_dim': _WIDTH,
    'model.copy_ngram': Integer(0, 16),
    'model.relative_attention_num_buckets': _WIDTH,
    'model.relative_attention_max_distance': Integer(1, TOKENS),
    'model.layer_norm_epsilon': _NOT_NEGATIVE,
    'model.gating': Boolean(),
    'model.bidirectional': Boolean(),
    'model.variant': Text(),
    'model.convolution': Text(),
    'model.initialisation': Text(),
    'model.dt_min': Number(0, 1, above=True),
    'model.dt_max': Number(0, 1, above=True),
    'model.attention': Text(),
    'model.local_radius': Integer(1, TOKENS),
    'model.global_block_size': Integer(1, TOKENS),
    'model.max_positions': Integer(1, TOKENS),
    'model.scale_embedding': Boolean(),
    'model.pad_id': Integer(0, IDS),
    'model.decoding': Text(),
    'model.padding': Text(),
    'model.chunk': Text(),
    'model.align': Text(),
    'model.select': Text(),
    'model.selection': Text(),
    'model.limit': Integer(1, TOKENS),
    'model.chunk_length': Integer(1, TOKENS),
}

_ALL_KEYS = KEYS | MODEL_KEYS

# Flags of all commands, except choices, which absl checks. COMMAND.FLAG is a
# command's own flag with the name of another one.
FLAGS = {
    'against': Texts(),
    'baseline': Path(),
    'batch_size': Integer(1, DOCUMENTS),
    'channel': Integer(0, WIDTH),
    'checkpoint': _MODEL,
    'compare': Path(),
    'coordinator': Text(),
    'document_length': KEYS['data.document_length'],
    'documents': _COUNT,
    'score.documents': Path(),
    'empty_page': Text(),
    'host': Integer(0, 10**6),
    'hosts': Integer(1, 10**6),
    'input_field': Text(),
    'keys': Texts(),
    'length': Integer(2, TOKENS),
    'layer': Integer(1, LAYERS),
    'lengths': Texts(),
    'max_document_bytes': Integer(1, 2**60),
    'max_input_length': Integer(2, TOKENS),
    'max_shard_size': Text(),
    'memory_limit': _POSITIVE,
    'num_pages': KEYS['data.num_pages'],
    'metrics': Text(),
    'model': Text(),
    'output': Path(),
    'beam.output': Path(None),  # Beam can write to object stores
    'page_length': KEYS['data.page_length'],
    'part_length': Integer(8, TOKENS),
    'peak_tflops': _POSITIVE,
    'predictions': Path(),
    'preflight': Integer(0, COUNT),
    'expect_hosts': Integer(1, COUNT),
    'expect_devices': Integer(1, COUNT),
    'processes': Integer(1, 10**4),
    'profile': Integer(0, COUNT),
    'program_cache': Path(),
    'protocol': Text(),
    'query': Texts(),
    'query_field': Text(),
    'raw': Path(),
    'reference_field': Text(),
    'repeats': Integer(1, COUNT),
    'report': Path(),
    'seconds': _NOT_NEGATIVE,
    'seed': _SEED,
    'source': _MODEL,
    'split': Text(),
    'cache.split': Texts(),
    'summary_length': Integer(0, TOKENS),
    'target': Path(),
    'task': Text(),
    'tokens': Integer(1, TOKENS),
    'topology': Text(),
    'wandb': Text(),
    'workdir': Path(),
    **{
        name: KEYS[f'decode.{name}']
        for name in (
            'early_stopping',
            'encoder_no_repeat_ngram_size',
            'length_penalty',
            'max_length',
            'min_length',
            'no_repeat_ngram_size',
            'num_beams',
            'repetition_penalty',
            'temperature',
            'top_k',
            'top_p',
        )
    },
}


def kind_of(key):
  """Returns the kind of a config key such as 'optim.b1', or None."""
  return _ALL_KEYS.get(key)


def check_config(config):
  """Raises an InputError for a key with a value that is not allowed.

  Args:
    config: a whole config; keys that are not in the table are ignored.
  """
  for name in SECTIONS:
    check_section(name, config.get(name))


def check_section(name, section):
  """Raises an InputError for a key of a section with a value not allowed.

  Args:
    name: such as 'optim' or 'train.lora'.
    section: mapping of keys to values; None: missing.
  """
  for key, value in (section or {}).items():
    where = f'{name}.{key}'
    if where in _ALL_KEYS:
      _check(where, key, _ALL_KEYS[where], value)
    elif hasattr(value, 'items'):
      check_section(where, value)


def check_flags(flags, command):
  """Raises an InputError for a flag with a value that is not allowed.

  Args:
    flags: mapping of names to values; None: not given.
    command: the last part of the command's module, such as 'score'.
  """
  for name, value in flags.items():
    kind = FLAGS.get(f'{command}.{name}', FLAGS.get(name))
    if kind is not None and value is not None:
      _check(f'--{name}', name, kind, value)


def check_path(name, path, kind=kinds.Path()):
  """Raises an InputError for a path that is not local.

  Args:
    name: name of the path, for the error message.
    kind: kinds.Path with the URL schemes that are allowed too.
  """
  _check(name, name, kind, path)


def _check(where, name, kind, value):
  problem = kind.problem(name, value)
  if problem:
    shown = value
    if not isinstance(value, str):
      shown = f'{value:g}' if isinstance(value, float) else repr(value)
    raise InputError(f'{where}={shown}: {problem}')
