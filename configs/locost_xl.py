"""LOCOST xl, pretrained as configs/pretrain_c4.py: gap sentences from C4.

  python -m locost_jax.main --config=configs/locost_xl.py

Sizes: T5 v1.1 xl.

Data: as configs/pretrain_c4.py.

Hardware: a step on one document of 4,096 tokens takes 55.4 GiB, writing
910 tokens 32.4 GiB (computed by --dry_run for a CPU, parameters and
optimiser not split): GPUs of 80 GiB, or --config.mesh.fsdp over
smaller chips.

Expected: 2,784,146,432 parameters with T5's 32,100 tokens. Only the base
size has been trained for a paper.
"""

from configs import pretrain_c4


def get_config():
  """Returns pretrain_c4's config for another size of the model."""
  config = pretrain_c4.get_config()
  config.model.update(
      dict(
          d_model=2048,
          d_state=256,
          d_ff=5120,
          d_kv=64,
          num_heads=32,
          num_layers=24,
          num_decoder_layers=24,
      )
  )
  return config
