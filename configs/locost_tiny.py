"""LOCOST tiny, pretrained as configs/pretrain_c4.py: gap sentences from C4.

  python -m locost_jax.main --config=configs/locost_tiny.py

Sizes: no T5 is so small: for trials and tests of a setup.

Data: as configs/pretrain_c4.py.

Hardware: a step on one document of 4,096 tokens takes 0.8 GiB, writing
910 tokens 0.3 GiB (computed by --dry_run for a CPU, parameters and
optimiser not split): any laptop or accelerator.

Expected: 14,782,080 parameters with T5's 32,100 tokens. Only the base
size has been trained for a paper.
"""

from configs import pretrain_c4


def get_config():
  """Returns pretrain_c4's config for another size of the model."""
  config = pretrain_c4.get_config()
  config.model.update(
      dict(
          d_model=256,
          d_state=64,
          d_ff=512,
          d_kv=64,
          num_heads=4,
          num_layers=4,
          num_decoder_layers=4,
      )
  )
  return config
