"""From nothing to a working summariser in six minutes, on real text.

  python -m locost_jax.main --config=configs/quickstart.py

The text is the documentation on this machine: Python's own and that of the
packages installed beside this one. A vocabulary is trained on it; a small
LOCOST is pretrained with gap sentences, then fine-tuned to write the first
sentence of an object's documentation from the rest of it.

Hardware: 2 CPU cores, about 6 minutes, of which most is training.
Expected: a validation loss below that of a unigram model, and clearly below
the model's own loss when the inputs are exchanged between documents;
configs/quickstart_long.py goes on to a better ROUGE-1 than the best constant
output.
"""

from configs import default


def get_config():
  """Returns a model of 2 + 2 layers and its two phases."""
  config = default.get_config()
  config.model.update(dict(
      d_model=192, d_state=32, d_ff=512, d_kv=32, num_heads=6, num_layers=2,
      num_decoder_layers=2))

  config.data.vocabulary_size = 4000
  config.data.max_input_length = 512
  # Few shapes: each costs some seconds of compilation.
  config.data.input_buckets = (128, 256)

  config.optim.learning_rate = 2e-3
  config.optim.ramp = 50
  config.optim.cooldown = 100
  config.train.batch_size = 16
  config.train.eval_every = 0
  config.train.checkpoint_every = 100

  config.eval.examples = 200
  config.eval.batch_size = 50
  config.eval.baselines = True
  config.decode.max_length = 48
  # Five words or more: a short target can be one the model hides behind.
  config.decode.min_length = 8
  config.decode.no_repeat_ngram_size = 2

  config.phases = (
      ('pretrain', {
          'data.task': 'python_docs_gsg',
          'data.max_target_length': 128,
          'data.target_buckets': (128,),
          'train.steps': 250,
          'eval.metrics': ('loss',),
          'checkpoint.metric': 'loss',
      }),
      ('finetune', {
          'data.task': 'python_docs_summary',
          'data.max_target_length': 48,
          'data.target_buckets': (24,),
          'train.steps': 500,
          'train.batch_size': 32,
      }),
  )
  return config
