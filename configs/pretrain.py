"""A small model pretrained with gap sentences on any text of yours.

  python -m locost_jax.main --config=configs/pretrain.py \
      --config.data.train_files='data/train-*.jsonl.gz'

The model is a LOCOST; configs/pretrain.py:longt5, :t5, :bart and :led are the
others, kept in runs/pretrain-longt5 and so on.

The files hold one JSON object per line with the document in `text`
(--config.data.input_field=NAME for another name). A fifth of the sentences,
those that share most words with the rest, are taken out and become what the
model has to write. 2% of the rows, by hash, are held back for validation;
--config.data.validation_files names others. The vocabulary is trained on the
same text.

Hardware: a laptop; a step took 1.4 seconds on one CPU core.
Expected: on English novels, a validation loss of 5.27 and a ROUGE-1 of 27.1.
Next: configs/finetune.py with --config.train.init_from=runs/pretrain.
"""

from ml_collections import ConfigDict

from configs import default

MODELS = 'locost', 'longt5', 't5', 'bart', 'led', 'pegasus_x', 'bigbird_pegasus'


def get_config(model='locost'):
  """Returns 128 channels, 2 + 2 layers, 4096 tokens of input (BART: 1024).

  Args:
    model: one of MODELS.
  """
  if model not in MODELS:
    raise ValueError(f'{model!r}: expected one of {", ".join(MODELS)}')
  config = default.get_config()
  config.model = small_model(model)

  config.data.input_field = 'text'
  config.data.max_input_length = 4096
  config.data.max_target_length = 256
  if model == 'bart':
    config.data.max_input_length = config.model.max_positions
  config.gsg = ConfigDict(dict(ratio=0.2, strategy='independent', mask=''))

  # Steps relative to the size of each parameter: see configs/quickstart.py.
  config.optim.name = 'adafactor'
  config.optim.learning_rate = 0.05
  if model == 'locost':
    # Such steps are too large for the time scales: docs/training.md.
    config.optim.groups = ((default.TIME_SCALES, 0.02),)
  config.optim.warmup_steps = 0.05  # of all steps
  config.optim.cooldown_steps = 0.375

  config.train.steps = 400
  config.train.batch_size = 4
  config.train.eval_every = 200
  config.train.checkpoint_every = 100

  config.eval.examples = 64
  config.eval.batch_size = 8
  config.decode.max_length = 256
  config.decode.no_repeat_ngram_size = 3
  return config


def small_model(name):
  """Returns config.model of a model for a laptop.

  Args:
    name: of a model.
  """
  model = getattr(default, name)()
  model.update(
      dict(
          d_model=128,
          d_ff=256,
          num_heads=4,
          num_layers=2,
          num_decoder_layers=2,
          dropout_rate=0.0,
      )
  )
  if 'decoder_d_ff' in model:
    # A vocabulary that is trained here pads with 0, BART's own files with 1.
    model.update(dict(decoder_d_ff=256, pad_id=0))
  else:
    model.d_kv = 32
  if name == 'locost':
    model.d_state = 32
  if name == 'led':
    model.update(dict(attention_window=256, max_positions=4096))
  if name == 'pegasus_x':
    model.update(dict(block_size=256, max_positions=4096))
  return model
