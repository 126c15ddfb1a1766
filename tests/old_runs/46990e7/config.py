"""The config of run.tar.gz, a run of commit 46990e7.

The archive has the run's folder: train.jsonl, and WORKDIR with a trained
vocabulary, token caches and the checkpoints of a LOCOST with a copy head,
stopped by a signal after step 6 of 8 of its second phase. expected.json is what
that commit wrote when an unbroken run trained, evaluated and summarised.
"""

from configs import default


def get_config():
  """Returns a tiny LOCOST with a copy head and its two phases."""
  config = default.get_config()
  config.model.update(
      dict(
          d_model=16,
          d_state=4,
          d_ff=16,
          d_kv=8,
          num_heads=2,
          num_layers=1,
          num_decoder_layers=1,
          dropout_rate=0.1,
          copy=True,
          copy_dim=8,
          copy_ngram=2,
      )
  )
  config.data.train_files = 'train.jsonl'
  config.data.validation_files = 'train.jsonl'
  config.data.vocabulary_size = 280
  config.data.max_input_length = 128
  config.data.max_target_length = 48
  config.optim.name = 'adafactor'
  config.optim.learning_rate = 0.05
  config.optim.groups = ((default.TIME_SCALES, 0.02),)
  config.train.batch_size = 4
  config.train.log_every = 1
  config.eval.examples = 6
  config.eval.batch_size = 6
  config.decode.max_length = 16
  config.checkpoint.keep_latest = 1
  config.phases = (
      (
          'pretrain',
          {
              'data.task': 'c4_gsg',
              'optim.schedule': 'inverse_sqrt',
              'optim.flat_steps': 2,
              'train.steps': 4,
              'eval.metrics': ('loss',),
              'checkpoint.metric': 'loss',
          },
      ),
      (
          'finetune',
          {
              'optim.warmup_steps': 2,
              'optim.cooldown_steps': 3,
              'train.steps': 8,
              'train.checkpoint_every': 4,
              'train.eval_every': 4,
          },
      ),
  )
  return config
