"""configs/quickstart.py with a larger model, longer texts and more steps.

  python -m locost_jax.main --config=configs/quickstart_long.py

Hardware: 2 CPU cores, at most an hour by the quickstart's rate of steps.
Expected: not run to its end yet; the quickstart's numbers are the floor.
"""

from configs import quickstart


def get_config():
  """Returns a wider and deeper model and its two phases, trained longer."""
  config = quickstart.get_config()
  config.model.update(dict(
      d_model=192, d_state=32, d_ff=512, d_kv=32, num_heads=6, num_layers=2,
      num_decoder_layers=2))
  (_, pretrain), (_, finetune) = config.phases
  config.phases = (
      ('pretrain', {**pretrain, 'train.steps': 400}),
      ('finetune', {**finetune, 'train.steps': 2000, 'train.eval_every': 1000,
                    'optim.cooldown': 1000}),
  )
  return config
