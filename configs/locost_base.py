"""LOCOST base, pretrained as configs/pretrain_c4.py: gap sentences from C4.

  python -m locost_jax.main --config=configs/locost_base.py

Sizes: T5 v1.1 base, the size of the paper.

Data: as configs/pretrain_c4.py.

Hardware: a step on one document of 4,096 tokens takes 4.8 GiB, writing
910 tokens 3.0 GiB (computed by --dry_run for a CPU, parameters and
optimiser not split): chips of 16 GiB; the paper took 16 GPUs for
140 hours.

Expected: 234,724,224 parameters with T5's 32,100 tokens. Only the base
size has been trained for a paper.
"""

from configs import pretrain_c4


def get_config():
  """Returns pretrain_c4's config for another size of the model."""
  config = pretrain_c4.get_config()
  config.model.update(
      dict(
          d_model=768,
          d_state=256,
          d_ff=2048,
          d_kv=64,
          num_heads=12,
          num_layers=12,
          num_decoder_layers=12,
      )
  )
  return config
