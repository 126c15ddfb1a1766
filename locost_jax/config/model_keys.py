"""The keys of config.model: the table of each model, in base size."""

import functools

from locost_jax.config.kinds import choice
from locost_jax.config.kinds import IDS
from locost_jax.config.kinds import integer
from locost_jax.config.kinds import Key
from locost_jax.config.kinds import Kind
from locost_jax.config.kinds import LAYERS
from locost_jax.config.kinds import MILLION
from locost_jax.config.kinds import number
from locost_jax.config.kinds import TOKENS

_RATE = number(0, 1, below=True)
_ABOVE_0 = number(0, 1, above=True)
_MILLION = integer(1, MILLION)
_LAYERS = integer(1, LAYERS)
_TOKENS = integer(1, TOKENS)
_PADDING = choice('tokens', 'release')
_ACTIVATIONS = 'relu', 'gelu', 'gelu_new', 'silu'
# A key that a model always had; others came later, so old runs lack them.
Need = functools.partial(Key, is_needed=True)

# Keys that all models have.
_EVERY = {
    'vocab_size': Need(
        0, 'rows of the embedding; 0: size of the vocabulary', integer(0, IDS)
    ),
    'd_model': Need(768, 'D, width of the residual stream', _MILLION),
    'd_ff': Need(2048, "F, width of the (encoder's) feed-forward", _MILLION),
    'num_heads': Need(12, 'H, attention heads', _MILLION),
    'num_layers': Need(12, 'encoder layers', _LAYERS),
    'num_decoder_layers': Need(12, 'decoder layers', _LAYERS),
    'dropout_rate': Need(0.0, 'dropout of all branches and embeddings', _RATE),
    'copy': Key(False, 'copy words of the input (models/copy_head.py)'),
    'copy_dim': Key(64, "width of the copy head's queries and keys", _MILLION),
    'copy_ngram': Key(0, 'longest n-gram to continue; 0: off', integer(0, 16)),
}


def _changed(keys, **defaults):
  """Returns keys with other defaults."""
  new = {key: keys[key]._replace(default=x) for key, x in defaults.items()}
  return keys | new


T5_STYLE = _EVERY | {
    'd_kv': Need(64, 'K, width of one attention head', _MILLION),
    'feed_forward': Need(
        'gated-gelu',
        "f, or 'gated-f': 'relu', 'gelu', 'gelu_new', 'silu'",
        choice(*(f'gated-{name}' for name in _ACTIVATIONS), *_ACTIVATIONS),
    ),
    'tie_embeddings': Need(
        True, 'output layer is the embedding, scaled (v1.0)'
    ),
    'relative_attention_num_buckets': Need(
        32, 'of the position bias', _MILLION
    ),
    'relative_attention_max_distance': Need(
        128, 'larger distances share a bucket', _TOKENS
    ),
    'layer_norm_epsilon': Need(1e-06, 'inside the root of the RMS norm'),
}
_LOCOST = T5_STYLE | {
    'd_state': Need(256, 'N, complex state pairs per channel', _MILLION),
    'gating': Need(True, "multiply the mixer's output by a projection"),
    'bidirectional': Need(True, 'use one kernel per direction'),
    'variant': Need(
        'release',
        "follow the 'release' or the 'paper' where the two differ",
        choice('release', 'paper'),
    ),
    'convolution': Need(
        'exact',
        "'exact', or 'release' with its defect for lengths that are not 2^k",
        choice('exact', 'release'),
    ),
    'transform': Key(
        'fft',
        "of the convolution: 'fft', or 'matmul' for TPUs (products of matrices)",
        choice('fft', 'matmul'),
    ),
    'initialisation': Key('s4d-lin', 'initial A, see ops/ssm.py'),
    'dt_min': Key(
        0.001,
        'smallest initial dt, which is log-uniform up to dt_max; a channel '
        'remembers about 2 / dt tokens',
        _ABOVE_0,
    ),
    'dt_max': Key(0.1, 'largest initial dt', _ABOVE_0),
}
_BART = _changed(
    _EVERY, d_ff=3072, num_layers=6, num_decoder_layers=6, dropout_rate=0.1
) | {
    'decoder_d_ff': Need(3072, "width of the decoder's feed-forward", _MILLION),
    'feed_forward': Need(
        'gelu', "'relu', 'gelu', 'gelu_new' or 'silu'", choice(*_ACTIVATIONS)
    ),
    'attention_dropout_rate': Need(0.0, 'dropout of attention weights', _RATE),
    'activation_dropout_rate': Need(0.0, 'dropout in the feed-forward', _RATE),
    'max_positions': Need(1024, 'maximum tokens of input or summary', _TOKENS),
    'scale_embedding': Need(False, 'multiply embeddings by sqrt(D)'),
    'tie_embeddings': Key(True, 'output layer is the embedding'),
    'norms_first': Key(
        False,
        "norms before a layer's branches and after the last layer (mBART)",
    ),
    'sinusoidal': Key(
        False, 'positions by formula, and no norm after them (PEGASUS)'
    ),
    'pad_id': Need(1, 'the id of padding in the vocabulary', integer(0, IDS)),
    'num_decoder_heads': Key(
        0, 'attention heads of the decoder; 0: num_heads', integer(0, MILLION)
    ),
}
_EVEN = Kind(
    'an even number of tokens',
    lambda x: type(x) is int and 2 <= x <= TOKENS and x % 2 == 0,
)
_WINDOW = Kind(
    'an even number of tokens, or a list of one for each encoder layer',
    lambda x: all(map(_EVEN.fits, x if isinstance(x, (list, tuple)) else [x])),
)
_SELECTOR = {
    'select': Key(
        'ppo',
        "the decoder reads what the selector chooses ('ppo'), the first "
        "`limit` tokens ('first_k') or everything ('none')",
        choice('ppo', 'first_k', 'none'),
    ),
    'selection': Key(
        'sample',
        "how the selector chooses; or 'argmax'",
        choice('sample', 'argmax'),
    ),
    'limit': Key(2048, 'first_k: tokens of a document', _TOKENS),
}
# The keys of each model of `models`, in base size.
MODELS = {
    'locost': _LOCOST,
    't5': _changed(T5_STYLE, tie_embeddings=False)
    | {
        'biases_per_layer': Key(
            False, 'a position bias in each layer (UMT5), not one for all'
        )
    },
    'longt5': _changed(T5_STYLE, tie_embeddings=False)
    | {
        'attention': Need(
            'transient-global',
            "'transient-global' or 'local'",
            choice('transient-global', 'local'),
        ),
        'local_radius': Need(127, 'tokens seen on each side', _TOKENS),
        'global_block_size': Need(16, 'tokens per global token', _TOKENS),
    },
    'bart': _BART,
    'led': _changed(_BART, max_positions=16384)
    | {
        'attention_window': Key(
            1024,
            'tokens that a token of the encoder sees, half on each side; or '
            'a list of one for each layer',
            _WINDOW,
        ),
        'max_target_positions': Key(
            1024, 'maximum tokens of a summary', _TOKENS
        ),
        'global_tokens': Key(
            1, 'first tokens that see all and that all see', integer(0, TOKENS)
        ),
        'separator_id': Key(
            -1,
            "tokens of this id do, too (PRIMERA's <doc-sep>); -1: none",
            integer(-1, IDS),
        ),
        'max_separators': Key(
            64, 'most of them in a document; the first count', _TOKENS
        ),
    },
    'pegasus_x': _changed(
        _BART,
        max_positions=16384,
        scale_embedding=True,
        norms_first=True,
        sinusoidal=True,
        pad_id=0,
    )
    | {
        'block_size': Key(512, 'tokens of a block of the encoder; even', _EVEN),
        'global_tokens': Key(
            32, 'learned vectors that see all and that all see', _TOKENS
        ),
    },
    'bigbird_pegasus': _changed(
        _BART,
        max_positions=4096,
        scale_embedding=True,
        norms_first=True,
        feed_forward='gelu_new',
        pad_id=0,
    )
    | {
        'block_size': Key(64, 'tokens of a block of the encoder', _TOKENS),
        'num_random_blocks': Key(
            3, 'how often the keys of block 0 count in addition', integer(0, 64)
        ),
        'use_bias': Key(False, 'biases in attention'),
        'attention': Key(
            'block_sparse',
            "'block_sparse', or 'original_full': every token sees all",
            choice('block_sparse', 'original_full'),
        ),
    },
    'pagesum': _BART
    | {
        'decoding': Key(
            'pages',
            "'pages': decode each page and mix the outputs, or 'global': one "
            'decoder reads all pages',
            choice('pages', 'global'),
        ),
        'padding': Key(
            'tokens',
            "'tokens': ignore empty pages, or 'release': they count",
            _PADDING,
        ),
    },
    'simcas': _BART
    | _SELECTOR
    | {
        'chunk': Key(
            'many',
            "'many' chunks of a document, or 'one': its first max_positions "
            "tokens alone, with data.pages='' (an ablation)",
            choice('many', 'one'),
        ),
        'align': Key(
            'shift',
            "how chunks exchange start and end states between layers: 'shift', "
            "'mean' (the paper) or 'none'",
            choice('shift', 'mean', 'none'),
        ),
        'padding': Key(
            'release',
            "'release': padding before an end mark counts as tokens; 'tokens': "
            'it does not',
            _PADDING,
        ),
    },
}
