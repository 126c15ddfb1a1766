"""configs/pretrain_c4.py with the optimiser of T5 and LongT5: Adafactor.

  python -m locost_jax.main --config=configs/pretrain_c4_adafactor.py

Data, hardware and expected result as there. The rate is T5's 1 / sqrt(max(step,
10^4)): 0.01 for 10,000 steps, then falling (Raffel et al. 2020, section 3.1.2;
what LOCOST's text calls "identical to T5"). Adafactor multiplies each update by
the size of its parameter and keeps no momentum, so its state is a third of
AdamW's.
"""

from configs import pretrain_c4


def get_config():
  """Returns the paper's pretraining with Adafactor."""
  config = pretrain_c4.get_config()
  config.optim.name = 'adafactor'
  config.optim.learning_rate = 0.01
  return config
