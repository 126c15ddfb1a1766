"""LOCOST large, pretrained as configs/pretrain_c4.py: gap sentences from C4.

  python -m locost_jax.main --config=configs/locost_large.py

Sizes: T5 v1.1 large.

Data: as configs/pretrain_c4.py.

Hardware: a step on one document of 4,096 tokens takes 15.4 GiB, writing
910 tokens 9.3 GiB (computed by --dry_run for a CPU, parameters and
optimiser not split): GPUs of 24 GiB, or --config.mesh.fsdp over
smaller chips.

Expected: 775,510,528 parameters with T5's 32,100 tokens. Only the base
size has been trained for a paper.
"""

from configs import pretrain_c4


def get_config():
  """Returns pretrain_c4's config for another size of the model."""
  config = pretrain_c4.get_config()
  config.model.update(
      dict(
          d_model=1024,
          d_state=256,
          d_ff=2816,
          d_kv=64,
          num_heads=16,
          num_layers=24,
          num_decoder_layers=24,
      )
  )
  return config
