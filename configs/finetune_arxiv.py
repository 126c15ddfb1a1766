"""LOCOST fine-tuned on arXiv as in the paper: 4,096 tokens to 512.

  python -m locost_jax.main --config=configs/finetune_arxiv.py \
      --config.train.init_from=runs/pretrain_c4

Data: TFDS scientific_papers/arxiv, prepared beforehand, or what
`python -m papers.prepare --task=arxiv` makes of the authors' files;
nothing is downloaded. The run to start from, made by configs/pretrain_c4.py or
any with the same model, lends its vocabulary; with --config.train.init_from=
the model starts from nothing. The paper's other corpora have configs of their
own, which change what their docstrings say.

Hardware: the paper does not say; pretraining took 16 GPUs. --config.mesh.data
splits each batch of 128 over the devices there are (all, by default).

Expected: the paper's Table 2 has ROUGE-1/2/L of 43.8/17.0/39.7 on the test
split, by the best checkpoint on the first 500 validation documents, greedily.

Optimiser: the fine-tuning column of Table 8. An epoch is a whole number of
steps, as many as all documents need.

The baselines, here and in the configs of the other corpora:

  --config=configs/finetune_arxiv.py:longt5
      from google/long-t5-tglobal-base, Adafactor at a constant 0.001 (Guo et
      al. 2022, section 4.1); the same lengths, batches and epochs. Table 2 has
      45.2/18.4/41.0 on arXiv.
  --config=configs/finetune_arxiv.py:t5
      from google/t5-v1_1-base, likewise: full attention, so that long inputs
      take much memory; --config.data.max_input_length=512 is what it was
      pretrained with.
  --config=configs/finetune_arxiv.py:t5_large
      from google-t5/t5-large (v1.0), the 737M parameters of table 7.
  --config=configs/finetune_arxiv.py:bart
      from facebook/bart-large, which reads 1,024 tokens; AdamW at 3e-5 after
      500 steps (a tenth, where there are few), falling to zero, label
      smoothing 0.1 (what BART's authors published for CNN/DailyMail).
  --config=configs/finetune_arxiv.py:bart_base
      from facebook/bart-base, likewise.
  --config=configs/finetune_arxiv.py:led
      from allenai/led-base-16384, which reads 16,384 tokens, likewise.

--config.train.init_from takes these names where there is a network, else a
directory that holds their files.
"""

from configs import default

# T5 v1.0; configs/default.py has v1.1.
T5_LARGE = dict(
    d_model=1024,
    d_ff=4096,
    num_heads=16,
    num_layers=24,
    num_decoder_layers=24,
    feed_forward='relu',
    tie_embeddings=True,
)
# Word -> (keys of config.model, what it starts from); the word begins with the
# model's name.
BASELINES = {
    'longt5': ({}, 'hf://google/long-t5-tglobal-base'),
    't5': ({}, 'hf://google/t5-v1_1-base'),
    't5_large': (T5_LARGE, 'hf://google-t5/t5-large'),
    'bart': (default.BART_LARGE, 'hf://facebook/bart-large'),
    'bart_base': ({}, 'hf://facebook/bart-base'),
    'led': ({}, 'hf://allenai/led-base-16384'),
}


def get_config(model='locost'):
  """Returns the fine-tuning column of the paper's Table 8, or a baseline.

  Args:
    model: 'locost' or one of BASELINES.
  """
  if model != 'locost' and model not in BASELINES:
    raise ValueError(
        f'{model!r}: expected one of locost, {", ".join(BASELINES)}'
    )
  config = make_locost()
  if model != 'locost':
    set_baseline(config, model)
  return set_corpus(config, 'arxiv', 4096, 512, documents=203_037, epochs=60)


def set_baseline(config, word):
  """Sets the model of a word of BASELINES, its start and its optimiser."""
  name = word.partition('_')[0]
  sizes, start = BASELINES[word]
  config.model = getattr(default, name)()
  config.model.update(sizes)
  config.train.init_from = start
  if name in ('bart', 'led'):
    config.optim.learning_rate = 3e-5
    config.optim.label_smoothing = 0.1
    config.optim.weight_decay = 0.01
    return
  config.model.dropout_rate = 0.1
  config.optim.name = 'adafactor'
  config.optim.learning_rate = 1e-3


def make_locost():
  """Returns the fine-tuning column of the paper's Table 8."""
  config = default.get_config()
  config.model.dropout_rate = 0.1

  config.optim.name = 'adamw'
  config.optim.schedule = 'constant'
  config.optim.learning_rate = 5e-4
  config.optim.b1 = 0.9
  config.optim.b2 = 0.999
  config.optim.weight_decay = 0.0
  config.optim.clip = 1.0

  config.train.init_from = 'runs/pretrain_c4'
  config.train.batch_size = 128
  config.train.dtype = 'bfloat16'
  config.train.remat = 'full'
  config.train.log_every = 50
  config.eval.examples = 500
  config.eval.batch_size = 64
  config.checkpoint.metric = 'rouge_mean'
  return config


def set_corpus(
    config, task, max_input_length, max_target_length, documents, epochs
):
  """Sets what differs from corpus to corpus.

  Args:
    config: of `get_config`.
    task: name of the corpus.
    max_input_length: tokens kept of an input.
    max_target_length: tokens kept of a target, and written.
    documents: those of the training split.
    epochs: passes over them.

  Returns:
    The config.
  """
  config.data.task = task
  config.data.max_input_length = max_input_length
  config.data.max_target_length = max_target_length
  config.decode.max_length = max_target_length
  steps = -(-documents // config.train.batch_size)  # of an epoch
  config.train.steps = epochs * steps
  if config.model.name in ('bart', 'led'):
    most = config.model.max_positions
    config.data.max_input_length = min(max_input_length, most)
    most = config.model.get('max_target_positions', most)
    config.data.max_target_length = min(max_target_length, most)
    config.decode.max_length = min(max_target_length, most)
    # 500 steps of warm-up, then a linear fall to the end, as shares.
    warmup = min(500, config.train.steps // 10) / config.train.steps
    config.optim.warmup_steps = warmup
    config.optim.cooldown_steps = 1 - warmup
  config.train.eval_every = max(steps, 25)
  config.train.checkpoint_every = max(steps, 25)
  return config
