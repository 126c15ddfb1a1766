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

Hardware: a laptop, as configs/pretrain.py.
Expected: not measured yet on a public corpus; the table at the end has the
baselines beside it. Dropout 0.1 is the paper's; so is AdamW at a constant 5e-4,
for models that are much larger.
"""

from configs import pretrain


def get_config():
  """Returns the model of configs/pretrain.py fine-tuned."""
  config = pretrain.get_config()
  config.gsg = None
  config.model.dropout_rate = 0.1

  config.data.input_field = 'document'

  config.optim.learning_rate = 0.02
  config.eval.baselines = True
  return config
