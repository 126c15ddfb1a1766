"""The table of all config keys and flags; add a key here and where it is used.

An entry describes a single value. The modules that read the values check their
combinations with others, the data, a vocabulary or the devices, and the choices
of a text. `config.schema` makes from the table the default config, --help=config
and the checks of configs, of flags and of stored configs.
"""

from locost_jax.config import decode_settings
from locost_jax.config import kinds
from locost_jax.config.kinds import COUNT
from locost_jax.config.kinds import IDS
from locost_jax.config.kinds import integer
from locost_jax.config.kinds import Key
from locost_jax.config.kinds import LAYERS
from locost_jax.config.kinds import MILLION
from locost_jax.config.kinds import number
from locost_jax.config.kinds import SEED
from locost_jax.config.kinds import TOKENS
from locost_jax.config.model_keys import MODELS

_POSITIVE = number(0, above=True)
_NOT_NEGATIVE = number(0)
_SHARE = number(0, 1)
_ABOVE_0 = number(0, 1, above=True)
_RATE = number(0, 1, below=True)  # dropout or decay
_COUNT = integer(0, COUNT)
_POSITIVE_COUNT = integer(1, COUNT)
_MILLION = integer(1, MILLION)
_SEED = integer(0, SEED)
_LENGTHS = kinds.lengths(TOKENS)
_PATH = kinds.path()
# hf://org/name is a model on the Hugging Face Hub.
_MODEL = kinds.path('hf')


DATA = {
    'task': Key(
        '', "A corpus or mixture of locost_jax/data/corpora.py, or '' for files"
    ),
    'train_files': Key(
        '',
        'instead of a task: JSONL, CSV, TSV, parquet or text files; names '
        'and glob patterns, separated by commas',
        _PATH,
    ),
    'validation_files': Key(
        '', "files; '': 2% of the training rows, by hash", _PATH
    ),
    'test_files': Key('', "files; '': no test split", _PATH),
    'input_field': Key('document', 'the field with the input'),
    'target_field': Key('summary', 'the field with the target'),
    'query_field': Key(
        '',
        "the field with a query, which is put in front of the input; '': "
        '`query`, if a row has it',
    ),
    'references_field': Key(
        '', "the field with a list of references; '': `references`"
    ),
    'text_unit': Key('file', ".txt: a row is a 'file', 'paragraph' or 'line'"),
    'targets_start': Key(
        'start_id',
        "the first token that the decoder reads: the vocabulary's "
        "'start_id', or 'bos' (<s>)",
    ),
    'vocabulary': Key(
        'train',
        "A directory or file of T5's or BART's vocabulary, 'byte', or "
        "'train' to train one on the data",
        _PATH,
    ),
    'vocabulary_size': Key(
        8000,
        'tokens of a trained vocabulary, with extra ids',
        integer(104, MILLION),
    ),
    'max_input_length': Key(
        4096, 'maximum tokens of an input, with eos', integer(2, TOKENS)
    ),
    'max_target_length': Key(
        512, 'maximum tokens of a target, with eos', integer(2, TOKENS)
    ),
    'input_buckets': Key(
        (), 'padded input lengths; (): 2^k and 1.5 * 2^k', _LENGTHS
    ),
    'target_buckets': Key(
        (), 'padded target lengths; (): 2^k and 1.5 * 2^k', _LENGTHS
    ),
    'cache_dir': Key('', "directory of token caches; '': WORKDIR/cache", _PATH),
    'window_shards': Key(
        8, 'large corpora: number of shards shuffled together', _MILLION
    ),
    'corpora_dir': Key(
        'corpora', 'directory that papers/prepare.py writes to', _PATH
    ),
    'tfds_dir': Key(
        '', "directory of TFDS's data; '': its default", kinds.path('*')
    ),
    'check_sizes': Key(
        True, "refuse a corpus whose size differs from its paper's"
    ),
    'mixture_cap': Key(
        100000,
        "mixtures: a task's weight is its number of records, but at most "
        'this',
        _POSITIVE_COUNT,
    ),
    'train_examples': Key(
        0,
        'number of training examples per task, chosen by data.seed; 0: all',
        _COUNT,
    ),
    'pages': Key(
        '',
        "how to split documents. PageSum: 'spatial', 'discourse' or "
        "'document' pages; SimCAS: 'chunks' or 'sentence_chunks'; '': not",
    ),
    'num_pages': Key(7, 'maximum number of pages of a document', _MILLION),
    'page_length': Key(
        1024,
        'maximum tokens of a page or chunk, with marks',
        integer(3, TOKENS),
    ),
    'empty_page': Key('.', "text of a page that has none; '': mask the page"),
    'query_in': Key(
        '', "the query begins 'every' page ('') or only the 'first'"
    ),
    'document_length': Key(
        0,
        'spatial pages: split only this many first tokens; 0: all',
        integer(0, TOKENS),
    ),
    'seed': Key(0, 'random seed of the order of examples', _SEED),
}

OPTIM = {
    'name': Key('adamw', "'adamw' or 'adafactor'"),
    'schedule': Key('constant', "'constant' or 'inverse_sqrt' (T5's)"),
    'learning_rate': Key(0.0005, 'peak learning rate', _NOT_NEGATIVE),
    'warmup_steps': Key(
        0.0, 'steps of linear warmup from zero', kinds.STEPS, old='ramp'
    ),
    'flat_steps': Key(
        0.0,
        "inverse_sqrt: first steps at learning_rate (T5's)",
        kinds.STEPS,
        old='warmup',
    ),
    'cooldown_steps': Key(
        0.0, 'last steps, of linear decay to zero', kinds.STEPS, old='cooldown'
    ),
    'b1': Key(0.9, 'AdamW: decay of the mean gradient', _RATE),
    'b2': Key(0.999, 'AdamW: decay of the mean squared gradient', _RATE),
    'eps': Key(
        1e-08, 'AdamW: added to the root of the squared gradient', _NOT_NEGATIVE
    ),
    'scale_by_parameter': Key(
        True, 'Adafactor: updates relative to parameters'
    ),
    'weight_decay': Key(0.0, 'decoupled, on matrices only', _NOT_NEGATIVE),
    'clip': Key(
        1.0, 'maximum global gradient norm; 0: no clipping', _NOT_NEGATIVE
    ),
    'label_smoothing': Key(
        0.0, 'probability spread over the vocabulary', _RATE
    ),
    'z_loss': Key(0.0, 'weight of log(Z)^2 in the loss', _NOT_NEGATIVE),
    'groups': Key(
        (),
        'factors on the learning rate, ((regex of parameter paths, factor), '
        '...); 0 freezes parameters',
        kinds.patterns('factor', _NOT_NEGATIVE),
    ),
}

TRAIN = {
    'objective': Key(
        'likelihood',
        "'likelihood' of the targets, or 'simcas', which also trains the "
        'selector (locost_jax/training/objectives.py)',
    ),
    'steps': Key(1000, 'number of optimiser updates', _POSITIVE_COUNT),
    'batch_size': Key(128, 'documents per step, over all devices', _MILLION),
    'batch_tokens': Key(
        0,
        'input tokens per step with padding, instead of batch_size; '
        'documents are then sorted by length in groups of batch_size. 0: '
        'not used',
        integer(0, 10**9),
    ),
    'accumulate': Key(
        1, 'gradient accumulation: parts of a batch per update', _MILLION
    ),
    'eval_every': Key(
        1000, 'steps between evaluations; 0: only after the last', _COUNT
    ),
    'checkpoint_every': Key(
        1000, 'steps between checkpoints; 0: only the last', _COUNT
    ),
    'patience': Key(
        0,
        'stop the run or phase after this many evaluations in a row that do '
        'not improve checkpoint.metric; 0: never',
        _COUNT,
    ),
    'log_every': Key(
        10, 'steps between lines of metrics.jsonl', _POSITIVE_COUNT
    ),
    'remat': Key(
        'auto',
        "activations that a layer keeps for the backward pass. 'none': all; "
        "'pieces': 3 arrays of the input's size (LOCOST: and its kernels, "
        "up to 128 MiB), the rest is recomputed piece by piece; 'full': 1 "
        "array, everything is recomputed; 'auto': 'none' for short inputs, "
        "else 'pieces' (not if mesh.tensor splits the layers)",
    ),
    'dtype': Key(
        'float32',
        "type of matrix products and activations: 'float32' or 'bfloat16'",
    ),
    'seed': Key(0, 'random seed of the parameters and of dropout', _SEED),
    'init_from': Key(
        '',
        'start from the parameters of a WORKDIR, a checkpoint, a Hugging '
        'Face directory or hf://org/name[@revision] on its Hub. Another '
        "model is possible: parameters that fit are copied. '': new "
        'parameters',
        _MODEL,
    ),
    'init_map': Key(
        (),
        'with init_from: ((regex of parameter paths, path in the source), '
        "...); the path '' keeps new parameters. (): equal paths with the "
        'same meaning (locost_jax/training/warm_start.py)',
        kinds.patterns("path in the source or ''", kinds.TEXT),
    ),
    'max_nonfinite_steps': Key(
        0, 'skip up to this many steps whose loss is not finite', _COUNT
    ),
    'timeout': Key(
        1800,
        'stop a run that waits for longer than this many seconds; 0: never',
        _COUNT,
    ),
}

TRAIN_LORA = {
    'rank': Key(
        0,
        'r of the adapters A [in, r] and B [r, out]; 0: no adapters',
        integer(0, MILLION),
    ),
    'alpha': Key(16.0, 'a kernel W becomes W + alpha / r A B', _POSITIVE),
    'paths': Key(
        '.*(attention|mixer)/(query|value)/kernel',
        'regex of the kernels that get adapters',
        kinds.REGEX,
    ),
}

SELECTOR = {
    'every': Key(
        50,
        'the selector is trained once per this many updates of the others',
        _POSITIVE_COUNT,
    ),
    'epochs': Key(2, 'passes over the chunks each time', integer(1, 10**4)),
    'minibatch': Key(512, 'tokens of a chunk per update', integer(1, TOKENS)),
    'learning_rate': Key(
        0.0001, 'constant learning rate of Adam', _NOT_NEGATIVE
    ),
    'gamma': Key(0.998, 'discount per chunk', _SHARE),
    'clip': Key(
        0.2, 'clipping of probability ratios and of values', _NOT_NEGATIVE
    ),
    'entropy': Key(0.1, 'weight of the entropy bonus', _NOT_NEGATIVE),
    'kl': Key(
        0.1,
        'stop after an epoch whose KL divergence is above this',
        _NOT_NEGATIVE,
    ),
    'limit': Key(
        2048,
        'reward skipping more if more tokens are selected',
        integer(0, TOKENS),
    ),
    'reward_scale': Key(
        10000.0, 'reward of a summary of probability 1', _NOT_NEGATIVE
    ),
    'skip': Key('release', "reward of skipped tokens, of 'release' or 'paper'"),
    'trace': Key(
        'position',
        'advantages of the next chunk to propagate: the one at the same '
        "'position', their 'mean', or 'none'",
    ),
    'baseline': Key(
        'critic',
        "baseline of the rewards: a 'critic', or the 'mean' of the chunk",
    ),
    'lambda': Key(0.95, 'lambda of generalised advantage estimation', _SHARE),
}

EVAL = {
    'examples': Key(
        500,
        'during training, use only this many first examples; 0: all',
        _COUNT,
    ),
    'batch_size': Key(32, 'documents per batch, over all devices', _MILLION),
    'metrics': Key(('loss', 'rouge', 'recall'), 'any of these three'),
    'protocol': Key(
        'auto',
        'how ROUGE is computed, and the words of the other metrics: a '
        "protocol of docs/evaluation.md. 'auto': 'unicode' if a-z and 0-9 "
        "cover less than half of the references' letters, else 'locost'",
    ),
    'baselines': Key(
        False, 'also score baselines and the model before training'
    ),
}

MESH = {
    'data': Key(
        -1,
        'number of devices that split the batch; -1: the rest',
        integer(-1, MILLION),
    ),
    'fsdp': Key(
        1, 'number of devices that split batch and parameters', _MILLION
    ),
    'tensor': Key(1, 'number of devices that split each layer', _MILLION),
    'sequence': Key(1, 'number of devices that split each document', _MILLION),
}

CHECKPOINT = {
    'keep_latest': Key(2, 'number of latest checkpoints to keep', _MILLION),
    'keep_best': Key(
        1, 'number of best checkpoints to keep', integer(0, MILLION)
    ),
    'metric': Key(
        'auto',
        "the metric of the best checkpoint; 'auto': the loss if an "
        'evaluation has fewer than 500 documents, else rouge_mean',
    ),
}

GSG = {
    'ratio': Key(0.2, 'share of the sentences that become the target', _SHARE),
    'strategy': Key(
        'independent',
        'how gap sentences are chosen, a strategy of locost_jax/data/gsg.py',
    ),
    'mask': Key('', "the text that replaces a gap sentence; '': nothing"),
    'seed': Key(0, 'random seed of the choice', _SEED),
}

SPAN_CORRUPTION = {
    'share': Key(0.5, 'share of the documents', _SHARE),
    'density': Key(0.15, 'share of the tokens that are cut out', _SHARE),
    'mean_length': Key(
        3.0, 'mean length of a span in tokens', number(1, TOKENS)
    ),
    'seed': Key(0, 'random seed of the spans', _SEED),
}

DECODE = {
    name: Key(field.default, field.metadata['text'], field.metadata['kind'])
    for name, field in decode_settings.OPTIONS.items()
} | {
    'seed': Key(0, 'random seed of sampling, combined with the document', _SEED)
}
# Dotted key -> the Kind of its value in a stored config, where it differs. An
# imported model has no steps. Runs store the vocabulary's ids with `decode`.
STORED = {
    'train.steps': _COUNT,
    'decode.eos_id': integer(-1, IDS),
    'decode.pad_id': integer(-1, IDS),
    'decode.start_id': integer(-1, IDS),
}

# Section -> its keys.
SECTIONS = {
    'data': DATA,
    'gsg': GSG,
    'span_corruption': SPAN_CORRUPTION,
    'optim': OPTIM,
    'train': TRAIN,
    'train.lora': TRAIN_LORA,
    'selector': SELECTOR,
    'eval': EVAL,
    'decode': DECODE,
    'mesh': MESH,
    'checkpoint': CHECKPOINT,
}
# Sections that are None unless a config has them.
OPTIONAL = 'gsg', 'span_corruption'
# What --help=config says of a section, and of a key in none.
ABOUT = {
    'gsg': (
        'Pretraining on gap sentences of input_field (locost_jax/data/gsg.py): '
        "ConfigDict(dict(ratio=0.2, strategy='independent', mask='', "
        'seed=0)); None: train on input_field -> target_field'
    ),
    'span_corruption': (
        "with gsg: train on T5's span corruption in a share of the documents "
        '(locost_jax/data/span_corruption.py): ConfigDict(dict(share=0.5, '
        'density=0.15, mean_length=3.0, seed=0)); None: in no document'
    ),
    'optim': (
        'A number of steps strictly between 0 and 1 is a share of train.steps.'
    ),
    'train.lora': (
        'Low-rank adapters (locost_jax/models/lora.py). Other parameters are '
        'frozen, unless a row of optim.groups gives them a factor above 0.'
    ),
    'selector': (
        "train.objective='simcas': PPO for SimCAS's selector (equations: "
        'locost_jax/training/ppo.py).'
    ),
    'phases': (
        "((name, {'train.steps': 100, ...}), ...): phases with changed keys; "
        'they run in order in WORKDIR/name, each from the best checkpoint of '
        'the previous one'
    ),
}
# Dotted name -> Key. Names of models are checked by `models`.
KEYS = {
    f'{section}.{name}': key
    for section, keys in SECTIONS.items()
    for name, key in keys.items()
} | {'model.name': Key('locost', 'a model of locost_jax/models/__init__.py')}
KEYS |= {
    f'model.{name}': key
    for keys in MODELS.values()
    for name, key in keys.items()
}
# Removed key -> the values without effect. A stored config with another value
# keeps the key, so that the error message names it.
REMOVED = {'data.packing': (False, None)}  # several short documents in a row

# Flags of all commands, except choices, which absl checks. COMMAND.FLAG is a
# command's own flag with the name of another one.
FLAGS = {name: key.kind for name, key in DECODE.items()} | {
    'against': kinds.TEXTS,
    'batch_size': _MILLION,
    'channel': integer(0, MILLION),
    'checkpoint': _MODEL,
    'compare': _PATH,
    'coordinator': kinds.TEXT,
    'document_length': DATA['document_length'].kind,
    'documents': _COUNT,
    'score.documents': _PATH,
    'empty_page': kinds.TEXT,
    'host': integer(0, MILLION),
    'hosts': integer(1, MILLION),
    'input_field': kinds.TEXT,
    'keys': kinds.TEXTS,
    'length': integer(2, TOKENS),
    'layer': integer(1, LAYERS),
    'lengths': kinds.TEXTS,
    'max_document_bytes': integer(1, 2**60),
    'max_input_length': integer(2, TOKENS),
    'max_shard_size': kinds.TEXT,
    'memory_limit': _POSITIVE,
    'num_pages': DATA['num_pages'].kind,
    'metrics': kinds.TEXT,
    'model': kinds.TEXT,
    'output': _PATH,
    'beam.output': kinds.path('*'),  # Beam can write to object stores
    'page_length': DATA['page_length'].kind,
    'part_length': integer(8, TOKENS),
    'peak_tflops': _POSITIVE,
    'predictions': _PATH,
    'preflight': integer(0, COUNT),
    'expect_hosts': integer(1, COUNT),
    'expect_devices': integer(1, COUNT),
    'processes': integer(1, 10**4),
    'profile': integer(0, COUNT),
    'program_cache': _PATH,
    'protocol': kinds.TEXT,
    'query': kinds.TEXTS,
    'query_field': kinds.TEXT,
    'raw': _PATH,
    'reference_field': kinds.TEXT,
    'repeats': integer(1, COUNT),
    'report': _PATH,
    'seconds': _NOT_NEGATIVE,
    'seed': _SEED,
    'source': _MODEL,
    'split': kinds.TEXT,
    'cache.split': kinds.TEXTS,
    'summary_length': integer(0, TOKENS),
    'target': _PATH,
    'task': kinds.TEXT,
    'tokens': integer(1, TOKENS),
    'topology': kinds.TEXT,
    'wandb': kinds.TEXT,
    'workdir': _PATH,
}
