"""From nothing to a working summariser in six minutes, on real text.

  python -m locost_jax.main --config=configs/quickstart.py

The text comes with the package: documentation of Python and of packages such
as numpy (locost_jax/data/python_docs.md). A vocabulary is trained on it; a
small LOCOST is pretrained with gap sentences, then fine-tuned to write the
first sentence of an object's documentation from the rest of it.

Hardware: 2 CPU cores, 5 to 9 minutes; 1.8M parameters.
Expected: a validation loss of 3.1, and of 5.2 with another document's input; a
ROUGE-1 of 33, against 17.8 of the best constant output and 17.5 of the lead. Of
the reference's uncommon words that stand in the document it writes 49%.
docs/results.md has three seeds.

Three settings decide it. With its copy head the model uses what it reads. The
encoder's time scales learn slowly, or else they wander off. Adafactor's steps
are relative to the size of each parameter: after 600 steps of AdamW at 0.005 a
model without the head wrote two different sentences for 443 inputs.
"""

from configs import default


def get_config():
  """Returns a model of 2 + 2 layers and its two phases."""
  config = default.get_config()
  config.model.update(
      dict(
          d_model=128,
          d_state=16,
          d_ff=256,
          d_kv=32,
          num_heads=4,
          num_layers=2,
          num_decoder_layers=2,
          copy=True,  # without it, it hardly uses what it reads
          copy_ngram=3,  # and breaks words apart without this
          dt_min=0.02,  # for few states: docs/training.md
          dt_max=1.0,
      )
  )

  config.data.vocabulary_size = 8000

  config.optim.name = 'adafactor'
  config.optim.learning_rate = 0.05
  # Steps relative to their size are too large for logarithms: the time steps
  # wandered off (docs/training.md).
  config.optim.groups = ((default.TIME_SCALES, 0.02),)
  config.train.batch_size = 16
  config.train.eval_every = 0
  config.train.checkpoint_every = 200

  config.eval.examples = 0
  config.eval.batch_size = 50
  config.eval.baselines = True
  config.decode.max_length = 32
  config.decode.min_length = 14  # at least five words
  config.decode.no_repeat_ngram_size = 3
  config.decode.num_beams = 4

  # Few shapes of batches: each costs seconds to compile.
  config.phases = (
      (
          'pretrain',
          {
              'data.task': 'python_docs_gsg',
              'data.max_input_length': 512,
              'data.input_buckets': (512,),
              'data.max_target_length': 64,
              'data.target_buckets': (64,),
              'optim.warmup_steps': 0.1333,  # 20 steps
              'train.steps': 150,
              'train.batch_size': 8,
              'eval.metrics': ('loss',),
          },
      ),
      (
          'finetune',
          {
              'data.task': 'python_docs_summary',
              'data.max_input_length': 256,
              'data.input_buckets': (128, 256),
              'data.max_target_length': 32,
              'data.target_buckets': (32,),
              'optim.warmup_steps': 0.015,  # 20 steps
              'optim.cooldown_steps': 0.6,  # 800 steps
              'train.steps': 1330,
          },
      ),
  )
  return config
