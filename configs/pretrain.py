"""A small LOCOST pretrained with gap sentences on any text of yours.

  python -m locost_jax.main --config=configs/pretrain.py \
      --config.data.train_files='data/train-*.jsonl.gz'

The files hold one JSON object per line with the document in `text`
(--config.data.input_field=NAME for another name). A fifth of the sentences,
those that share most words with the rest, are taken out and become what the
model has to write. 2% of the rows, by hash, are held back for validation;
--config.data.validation_files names others. The vocabulary is trained on the
same text.

Hardware: a laptop; on 2 CPU cores a step takes a few seconds.
Expected: the validation loss falls below that of a unigram model within the
first hundred steps. What comes next: configs/finetune.py with
--config.train.init_from=runs/pretrain.
"""

from configs import default
from ml_collections import ConfigDict


def get_config():
  """Returns a model of 256 channels, 4 + 4 layers, 4096 tokens of input."""
  config = default.get_config()
  config.model.update(dict(
      d_model=256, d_state=64, d_ff=512, d_kv=32, num_heads=8, num_layers=4,
      num_decoder_layers=4))

  config.data.input_field = 'text'
  config.data.max_input_length = 4096
  config.data.max_target_length = 512
  config.gsg = ConfigDict(dict(ratio=0.2, strategy='independent', mask=''))

  config.optim.schedule = 'inverse_sqrt'
  config.optim.learning_rate = 2e-3
  config.optim.warmup = 200
  config.optim.ramp = 50

  config.train.steps = 400
  config.train.batch_size = 8
  config.train.eval_every = 200
  config.train.checkpoint_every = 100

  config.eval.examples = 64
  config.eval.batch_size = 8
  config.decode.max_length = 128
  return config
