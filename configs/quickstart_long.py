"""configs/quickstart.py with more of everything: at most an hour.

  python -m locost_jax.main --config=configs/quickstart_long.py

Hardware: 2 CPU cores, at most an hour.
Expected: a ROUGE-1 above that of the best constant output.
"""

from configs import quickstart


def get_config():
  """Returns a wider and deeper model and its two phases, trained longer."""
  config = quickstart.get_config()
  config.model.update(dict(
      d_model=256, d_state=64, d_ff=768, d_kv=32, num_heads=8, num_layers=3,
      num_decoder_layers=3))
  config.optim.cooldown = 500
  (_, pretrain), (_, finetune) = config.phases
  config.phases = (
      ('pretrain', {**pretrain, 'train.steps': 1500}),
      ('finetune', {**finetune, 'train.steps': 4000, 'train.eval_every': 1000}),
  )
  return config
