"""The config of run.tar.xz, a run of commit 46990e7.

The archive has the run's folder: train.jsonl, and WORKDIR with a trained
vocabulary, token caches and the checkpoints of a LOCOST with a copy head,
stopped by a signal after step 6 of 8 of its second phase. expected.json is what
that commit wrote when an unbroken run trained, evaluated and summarised.
"""

from configs import default
from tests.old_runs.d54c30f import config as older


def get_config():
  """Returns the older config with a copy head and other data."""
  config = older.get_config()
  config.model.update(copy=True, copy_dim=8, copy_ngram=2)
  config.data.train_files = config.data.validation_files = 'train.jsonl'
  config.data.update(vocabulary='train', vocabulary_size=280)
  config.optim.groups = ((default.TIME_SCALES, 0.02),)
  config.checkpoint.keep_latest = 1
  (name, changes), second = config.phases
  config.phases = (name, {**changes, 'data.task': 'c4_gsg'}), second
  return config
