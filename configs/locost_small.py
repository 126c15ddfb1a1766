"""LOCOST small, pretrained as configs/pretrain_c4.py: gap sentences from C4.

  python -m locost_jax.main --config=configs/locost_small.py

Sizes: T5 v1.1 small.

Data: as configs/pretrain_c4.py.

Hardware: a step on one document of 4,096 tokens takes 1.9 GiB, writing
910 tokens 1.0 GiB (computed by --dry_run for a CPU, parameters and
optimiser not split): any laptop or accelerator.

Expected: 68,906,176 parameters with T5's 32,100 tokens. Only the base
size has been trained for a paper.
"""

from configs import pretrain_c4


def get_config():
  """Returns pretrain_c4's config for another size of the model."""
  config = pretrain_c4.get_config()
  config.model.update(
      dict(
          d_model=512,
          d_state=256,
          d_ff=1024,
          d_kv=64,
          num_heads=6,
          num_layers=8,
          num_decoder_layers=8,
      )
  )
  return config
