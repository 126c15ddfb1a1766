"""The table of all config keys and flags; add a key here and where it is used.

An entry describes a single value. The modules that read the values check their
combinations with others, the data, a vocabulary or the devices, and choices that
the entry leaves open. `config.schema` makes from the table the default config,
--help=config and the checks of configs, of flags and of stored configs.
"""

from locost_jax.config import decode_settings
from locost_jax.config import kinds
from locost_jax.config import object_store
from locost_jax.config.kinds import COUNT
from locost_jax.config.kinds import IDS
from locost_jax.config.kinds import integer
from locost_jax.config.kinds import Key
from locost_jax.config.kinds import LAYERS
from locost_jax.config.kinds import MILLION
from locost_jax.config.kinds import number
from locost_jax.config.kinds import SEED
from locost_jax.config.kinds import STEPS
from locost_jax.config.kinds import TOKENS
from locost_jax.config.model_keys import MODELS

_POSITIVE = number(0, above=True)
_SHARE = number(0, 1)
_RATE = number(0, 1, below=True)  # dropout or decay
_COUNT = integer(0, COUNT)
_POSITIVE_COUNT = integer(1, COUNT)
_MILLION = integer(1, MILLION)
_SEED = integer(0, SEED)
_LENGTH = integer(2, TOKENS)
_LENGTHS = kinds.lengths(TOKENS)
_PATH = kinds.path()
_DATA = kinds.path('gs')  # a copy of what is in a bucket
# hf://org/name is a model on the Hugging Face Hub.
_MODEL = kinds.path('hf', 'gs')


DATA = {
    'task': Key('', "corpus or mixture of data/corpora.py; '': files"),
    'train_files': Key(
        '',
        'instead of a task: JSONL, CSV, TSV, parquet or text files; names '
        'and glob patterns, separated by commas; or a Function of rows',
        _DATA,
    ),
    'validation_files': Key('', "'': 2% of the training rows, by hash", _DATA),
    'test_files': Key('', "files; '': no test split", _DATA),
    'input_field': Key('document', 'the field with the input'),
    'target_field': Key('summary', 'the field with the target'),
    'query_field': Key('', "the field with a query; '': `query`, if present"),
    'references_field': Key('', "the field with references; '': `references`"),
    'text_unit': Key(
        'file',
        ".txt: a row is a 'file', 'paragraph' or 'line'",
        kinds.choice('file', 'paragraph', 'line'),
    ),
    'targets_start': Key(
        'start_id',
        "the first token that the decoder reads: the vocabulary's "
        "'start_id', or 'bos' (<s>)",
        kinds.choice('start_id', 'bos'),
    ),
    'vocabulary': Key(
        'train',
        "A directory or file of T5's or BART's vocabulary, 'byte', or "
        "'train' to train one on the data",
        _DATA,
    ),
    'language': Key(
        '',
        "name of mBART's token of the language of documents and summaries, "
        "such as 'ro_RO'; '': the tokenizer's",
    ),
    'vocabulary_size': Key(
        8000, 'tokens of a trained one, with extra ids', integer(104, MILLION)
    ),
    'max_input_length': Key(4096, 'most tokens of an input, with eos', _LENGTH),
    'max_target_length': Key(512, 'most tokens of a target, with eos', _LENGTH),
    'input_buckets': Key((), 'padded lengths; (): 2^k, 1.5 * 2^k', _LENGTHS),
    'target_buckets': Key((), 'padded lengths; (): 2^k, 1.5 * 2^k', _LENGTHS),
    'cache_dir': Key('', "directory of token caches; '': WORKDIR/cache", _DATA),
    'bucket_disk': Key(
        object_store.DISK,
        'most GiB that a host copies of each gs:// path to its own disk',
    ),
    'window_shards': Key(8, 'large corpora: shards shuffled at once', _MILLION),
    'corpora_dir': Key('corpora', 'directory of papers/prepare.py', _PATH),
    'tfds_dir': Key('', "TFDS's directory; '': its default", kinds.path('*')),
    'check_sizes': Key(True, "refuse corpora whose size is not their paper's"),
    'mixture_cap': Key(
        100000,
        'mixtures: records of a task that count, at most',
        _POSITIVE_COUNT,
    ),
    'train_examples': Key(0, 'examples per task, by data.seed; 0: all', _COUNT),
    'pages': Key(
        '',
        "how to split documents. PageSum: 'spatial', 'discourse' or "
        "'document' pages; SimCAS: 'chunks' or 'sentence_chunks'; '': not",
        kinds.choice(
            '', 'spatial', 'discourse', 'document', 'chunks', 'sentence_chunks'
        ),
    ),
    'num_pages': Key(7, 'maximum number of pages of a document', _MILLION),
    'page_length': Key(
        1024, 'maximum tokens of a page or chunk with marks', integer(3, TOKENS)
    ),
    'empty_page': Key('.', "text of a page that has none; '': mask the page"),
    'query_in': Key(
        '',
        "the query begins 'every' page (''), or the 'first'",
        kinds.choice('', 'every', 'first'),
    ),
    'document_length': Key(
        0,
        'spatial pages: split only these first tokens; 0: all',
        integer(0, TOKENS),
    ),
    'seed': Key(0, 'random seed of the order of examples', _SEED),
}

OPTIM = {
    'name': Key('adamw', "'adamw' or 'adafactor'"),
    'schedule': Key('constant', "'constant', 'inverse_sqrt' or a Function"),
    'learning_rate': Key(0.0005, 'peak learning rate'),
    'warmup_steps': Key(0.0, 'steps of linear warmup', STEPS, old='ramp'),
    'flat_steps': Key(0.0, 'inverse_sqrt: steps at peak', STEPS, old='warmup'),
    'cooldown_steps': Key(0.0, 'last steps, down to 0', STEPS, old='cooldown'),
    'b1': Key(0.9, 'AdamW: decay of the mean gradient', _RATE),
    'b2': Key(0.999, 'AdamW: decay of the mean squared gradient', _RATE),
    'eps': Key(1e-08, 'AdamW: added to the root of the squared gradient'),
    'scale_by_parameter': Key(True, 'Adafactor: updates relative to weights'),
    'weight_decay': Key(0.0, 'decoupled, on matrices only'),
    'clip': Key(1.0, 'maximum global gradient norm; 0: no clipping'),
    'label_smoothing': Key(0.0, 'probability spread over all tokens', _RATE),
    'z_loss': Key(0.0, 'weight of log(Z)^2 in the loss'),
    'groups': Key(
        (),
        'factors on the learning rate, ((regex of parameter paths, factor), '
        '...); 0 freezes parameters',
        kinds.patterns('factor', number(0)),
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
    'accumulate': Key(1, 'parts of a batch per update', _MILLION),
    'eval_every': Key(1000, 'steps between evaluations; 0: only the last'),
    'checkpoint_every': Key(1000, 'steps between checkpoints; 0: only last'),
    'patience': Key(
        0,
        'stop the run or phase after this many evaluations in a row that do '
        'not improve checkpoint.metric; 0: never',
    ),
    'log_every': Key(10, 'steps per line of metrics.jsonl', _POSITIVE_COUNT),
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
        'model is possible: parameters that fit are copied. On the command '
        "line, Hugging Face's give config.model its sizes. '': new parameters",
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
        0, 'skip up to N steps whose loss is not finite'
    ),
    'timeout': Key(
        1800,
        'stop a run that waits for longer than this many seconds; 0: never',
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
    'every': Key(50, 'other updates per training of it', _POSITIVE_COUNT),
    'epochs': Key(2, 'passes over the chunks each time', integer(1, 10**4)),
    'minibatch': Key(512, 'tokens of a chunk per update', integer(1, TOKENS)),
    'learning_rate': Key(0.0001, 'constant learning rate of Adam'),
    'gamma': Key(0.998, 'discount per chunk', _SHARE),
    'clip': Key(0.2, 'clipping of probability ratios and of values'),
    'entropy': Key(0.1, 'weight of the entropy bonus'),
    'kl': Key(0.1, 'stop after an epoch whose KL divergence is above this'),
    'limit': Key(
        2048,
        'reward skipping more if more tokens are selected',
        integer(0, TOKENS),
    ),
    'reward_scale': Key(10000.0, 'reward of a summary of probability 1'),
    'skip': Key('release', "reward of skipped tokens, of 'release' or 'paper'"),
    'lambda': Key(0.95, 'lambda of generalised advantage estimation', _SHARE),
}

EVAL = {
    'examples': Key(500, 'in training, use only these first examples; 0: all'),
    'batch_size': Key(32, 'documents per batch, over all devices', _MILLION),
    'metrics': Key(
        ('loss', 'rouge', 'recall'),
        'names of docs/training.md, or Metrics of your own',
    ),
    'protocol': Key(
        'auto',
        'how ROUGE is computed, and the words of the other metrics: a '
        "protocol of docs/evaluation.md. 'auto': 'unicode' if a-z and 0-9 "
        "cover less than half of the references' letters, else 'locost'",
    ),
    'baselines': Key(False, 'also score baselines and the untrained model'),
}

MESH = {
    'data': Key(
        -1, 'devices that split the batch; -1: the rest', integer(-1, MILLION)
    ),
    'fsdp': Key(1, 'devices that split batch and parameters', _MILLION),
    'tensor': Key(1, 'devices that split each layer', _MILLION),
    'sequence': Key(1, 'devices that split each document', _MILLION),
}

CHECKPOINT = {
    'keep_latest': Key(2, 'number of latest checkpoints to keep', _MILLION),
    'keep_best': Key(1, 'best checkpoints to keep', integer(0, MILLION)),
    'metric': Key(
        'auto',
        "the metric of the best checkpoint; 'auto': the loss if an "
        'evaluation has fewer than 500 documents, else rouge_mean',
    ),
}

GSG = {
    'ratio': Key(0.2, 'share of the sentences that become the target', _SHARE),
    'strategy': Key('independent', 'choice of gap sentences, see data/gsg.py'),
    'mask': Key('', "the text that replaces a gap sentence; '': nothing"),
    'seed': Key(0, 'random seed of the choice', _SEED),
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
OPTIONAL = ('gsg',)
# What --help=config says of a section, and of a key in none.
ABOUT = {
    'gsg': (
        'Pretraining on gap sentences of input_field (locost_jax/data/gsg.py): '
        "ConfigDict(dict(ratio=0.2, strategy='independent', mask='', "
        'seed=0)); None: train on input_field -> target_field'
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
# Dotted name -> Key, of every model. Its name is checked by `models`.
SHARED = {
    f'{section}.{name}': key
    for section, keys in SECTIONS.items()
    for name, key in keys.items()
} | {'model.name': Key('locost', 'a model of locost_jax/models/__init__.py')}
# The same with the keys of all models.
KEYS = SHARED | {
    f'model.{name}': key
    for keys in MODELS.values()
    for name, key in keys.items()
}
# Removed key -> the values without effect. A stored config with another value
# keeps the key, so that the error message names it.
REMOVED = {
    'data.packing': (False, None),  # several short documents in a row
    'span_corruption': (None,),  # T5's objective in a share of the documents
    'train.batch_tokens': (0, None),  # tokens in a step, not documents
    'selector.trace': ('position',),  # advantages of the next chunk
    'selector.baseline': ('critic',),  # of the rewards
}

# Flags of all commands, except choices, which absl checks. COMMAND.FLAG is a
# command's own flag with the name of another one.
_FLAGS = {
    kinds.TEXT: (
        'coordinator empty_page input_field language metrics model prefix '
        'protocol query query_field reference_field split task topology'
    ),
    kinds.TEXTS: 'against keys lengths cache.split',
    _PATH: (
        'compare documents output predictions program_cache raw report target'
    ),
    kinds.path('gs'): 'workdir',
    _MODEL: 'checkpoint source',
    # Beam can write to object stores.
    kinds.path('*'): 'summarize_beam.output',
    _COUNT: (
        'preflight profile plot.row inspect.documents interdependent.documents'
    ),
    _POSITIVE_COUNT: (
        'expect_devices expect_files expect_hosts expect_vocabulary repeats'
    ),
    _MILLION: 'batch_size hosts',
    _POSITIVE: 'memory_limit peak_tflops',
    number(0): 'seconds',
    integer(0, MILLION): 'channel host',
    integer(1, LAYERS): 'layer',
    integer(1, 10**4): 'processes',
    integer(1, 10**9): 'sample',
    integer(0, TOKENS): 'summary_length',
    integer(1, TOKENS): 'tokens',
    _LENGTH: 'length max_input_length',
    integer(8, TOKENS): 'part_length',
    integer(1, 2**60): 'max_document_bytes',
}
_OF_DATA = 'document_length', 'num_pages', 'page_length'
FLAGS = (
    {name: key.kind for name, key in DECODE.items()}
    | {name: DATA[name].kind for name in _OF_DATA}
    | {name: kind for kind, names in _FLAGS.items() for name in names.split()}
)
