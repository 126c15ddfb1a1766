"""The config of run.tar.gz, in today's keys.

Commit d54c30f called flat_steps `warmup`, warmup_steps `ramp`, and
cooldown_steps `cooldown`. The run stopped after step 4 of its second phase;
expected.json is what that commit wrote when it continued, evaluated and
summarised.
"""

from configs import default


def get_config():
  """Returns a tiny LOCOST and its two phases."""
  config = default.get_config()
  config.model.update(d_model=16, d_state=4, d_ff=16, d_kv=8, num_heads=2)
  config.model.update(num_layers=1, num_decoder_layers=1, dropout_rate=0.1)
  file = 'tests/old_runs/d54c30f/train.jsonl'
  config.data.update(train_files=file, validation_files=file, vocabulary='byte')
  config.data.update(max_input_length=128, max_target_length=48)
  config.optim.update(name='adafactor', learning_rate=0.05)
  config.train.update(batch_size=4, log_every=1)
  config.eval.update(examples=6, batch_size=6)
  config.decode.max_length = 16
  config.checkpoint.keep_latest = 9
  config.phases = (
      (
          'pretrain',
          {
              'data.task': 'python_docs_gsg',
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
