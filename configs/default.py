"""The default config; other configs change some of its keys.

Start a config with `from configs import default`, then
`config = default.get_config()`. The command line can set every key:
`--config.model.d_model=256`. `--help=config` explains them; they are declared
in locost_jax/config/keys.py.
"""

import functools

from locost_jax.config import schema

# Sizes of BART large, for `config.model.update`; `bart` has those of base.
BART_LARGE = {
    'd_model': 1024,
    'd_ff': 4096,
    'decoder_d_ff': 4096,
    'num_heads': 16,
    'num_layers': 12,
    'num_decoder_layers': 12,
}
# Regex of the parameters that set how fast LOCOST's channels decay and
# oscillate, for `config.optim.groups`.
TIME_SCALES = r'.*/ssm/(log_dt|log_A_real|A_imag)'

# LOCOST in the paper's size, without data.
get_config = schema.make_config
# config.model of each model: LOCOST in the paper's size, the others in base
# size, T5 being v1.1 (v1.0 has feed_forward='relu', d_ff=3072 and
# tie_embeddings=True) and LongT5 having transient-global attention.
locost = functools.partial(schema.make_model, 'locost')
t5 = functools.partial(schema.make_model, 't5')
longt5 = functools.partial(schema.make_model, 'longt5')
bart = functools.partial(schema.make_model, 'bart')
led = functools.partial(schema.make_model, 'led')
pegasus_x = functools.partial(schema.make_model, 'pegasus_x')
bigbird_pegasus = functools.partial(schema.make_model, 'bigbird_pegasus')
pagesum = functools.partial(schema.make_model, 'pagesum')
simcas = functools.partial(schema.make_model, 'simcas')
