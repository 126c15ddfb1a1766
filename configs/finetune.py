"""A small model fine-tuned to summarise documents of yours.

  python -m locost_jax.main --config=configs/finetune.py \
      --config.data.train_files='data/train-*.jsonl' \
      --config.train.init_from=runs/pretrain

The model is a LOCOST; configs/finetune.py:longt5, :t5, :bart, :led, :pegasus_x,
:bigbird_pegasus, :pagesum and :simcas are the others, kept in
runs/finetune-longt5 and so on. A PageSum reads 4 pages of 1,024 tokens, a
SimCAS chunks of 512; both can start from a run of configs/pretrain.py:bart. A
SimCAS has two phases: first the decoder learns to read all tokens, then the
selector learns which of them it needs. What is rewarded is how likely the
summary becomes, so a selector that learns first learns nothing.

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
Expected: on the test split of QMSum (whole meetings, general summaries), after
configs/pretrain.py on novels, a loss of 3.98 and a ROUGE-1 of 33.1; the best
constant output has 33.8. The paper fine-tunes with AdamW at a constant 5e-4,
models that are much larger; dropout 0.1 is its own.
"""

from configs import pretrain

MODELS = pretrain.MODELS + ('pagesum', 'simcas')


def get_config(model='locost'):
  """Returns the model of configs/pretrain.py fine-tuned.

  Args:
    model: one of MODELS.
  """
  if model not in MODELS:
    raise ValueError(f'{model!r}: expected one of {", ".join(MODELS)}')
  if model == 'pagesum':
    config = pretrain.get_config('bart')
    config.model = pretrain.small_model('pagesum')
    config.data.pages = 'spatial'
    config.data.num_pages = 4
    config.data.page_length = config.model.max_positions
    config.data.empty_page = ''  # model.padding='tokens': it weighs nothing
  elif model == 'simcas':
    config = pretrain.get_config('bart')
    config.model = pretrain.small_model('simcas')
    config.data.pages = 'chunks'
    config.data.page_length = 512
    # An eighth of the input, as the paper's 2,048 of 16,384 tokens.
    config.selector.limit = config.data.max_input_length // 8
    # The paper's 50 are for runs of many thousand steps.
    config.selector.every = 2
    config.phases = (
        ('read', {'model.select': 'none'}),
        (
            'select',
            {
                'model.select': 'ppo',
                'train.objective': 'simcas',
                'optim.learning_rate': 0.005,
            },
        ),
    )
  else:
    config = pretrain.get_config(model)
  config.gsg = None
  config.model.dropout_rate = 0.1

  config.data.input_field = 'document'

  config.optim.learning_rate = 0.02
  config.eval.baselines = True
  return config
