"""configs/quickstart.py with a larger model, longer texts and more steps.

  python -m locost_jax.main --config=configs/quickstart_long.py

Hardware: 2 CPU cores; 67 minutes next to another run; 2.9M parameters.
Expected: a ROUGE-1 of 32, one point above the quickstart's, against 17.8 of the
best constant output and 17.5 of the lead.
"""

from configs import quickstart


def get_config():
  """Returns a wider and deeper model and its two phases, trained longer."""
  config = quickstart.get_config()
  config.model.update(
      dict(
          d_model=192,
          d_state=32,
          d_ff=512,
          d_kv=32,
          num_heads=6,
          num_layers=2,
          num_decoder_layers=2,
          dropout_rate=0.1,
      )
  )
  (_, pretrain), (_, finetune) = config.phases
  config.phases = (
      (
          'pretrain',
          {**pretrain, 'train.steps': 400, 'optim.warmup_steps': 0.05},
      ),
      (
          'finetune',
          {
              **finetune,
              'train.steps': 3500,
              'train.eval_every': 1750,
              'optim.warmup_steps': 0.01,
              'optim.cooldown_steps': 0.5,
          },
      ),
  )
  return config
