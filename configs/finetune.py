"""A small LOCOST fine-tuned to summarise documents of yours.

  python -m locost_jax.main --config=configs/finetune.py \
      --config.data.train_files='data/train-*.jsonl' \
      --config.train.init_from=runs/pretrain

The files hold one JSON object per line with `document` and `summary`
(--config.data.input_field=NAME, --config.data.target_field=NAME for other
names). 2% of the rows, by hash, are held back for validation;
--config.data.validation_files names others. --config.train.init_from names the
run to start from (configs/pretrain.py has the same model), whose vocabulary is
used; without it the model starts from nothing and the vocabulary is trained on
these files. Afterwards:

  python -m locost_jax.main --config=configs/finetune.py --evaluate \
      --config.data.train_files='data/train-*.jsonl' \
      --config.data.test_files='data/test.jsonl'
  python -m locost_jax.summarize --checkpoint=runs/finetune FILE

Hardware: a laptop; on 2 CPU cores a step takes a few seconds.
Expected: the validation loss falls from the first evaluation on. Dropout 0.1
and the constant rate of 5e-4 are the paper's.
"""

from configs import pretrain


def get_config():
  """Returns the model of configs/pretrain.py with the paper's fine-tuning."""
  config = pretrain.get_config()
  config.gsg = None
  config.model.dropout_rate = 0.1

  config.data.input_field = 'document'
  config.data.max_target_length = 256

  config.optim.schedule = 'constant'
  config.optim.learning_rate = 5e-4
  config.optim.warmup = 0
  return config
