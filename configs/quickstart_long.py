"""configs/quickstart.py with a larger model, longer texts and more steps.

  python -m locost_jax.main --config=configs/quickstart_long.py

Hardware: 2 CPU cores, 36 minutes with one of them; 2.5M parameters.
Expected: a ROUGE-1 of 34 to 35, against 17.8 of the best constant output and
17.5 of the lead; a ROUGE-2 of 15 to 16. docs/results.md has three seeds.
The first of them comes with the package: builtin:documentation.
"""

from configs import default
from configs import quickstart


def get_config():
  """Returns a wider model and its two phases, trained longer."""
  config = quickstart.get_config()
  config.model.update(
      dict(
          d_model=192,
          d_ff=384,
          d_kv=32,
          num_heads=6,
          dropout_rate=0.1,
      )
  )
  config.data.vocabulary_size = 4000  # it is to have few megabytes
  config.optim.groups = ((default.TIME_SCALES, 0.1),)
  config.train.checkpoint_every = 500
  config.decode.min_length = 12  # docs/results.md has 14, too
  (_, pretrain), (_, finetune) = config.phases
  config.phases = (
      (
          'pretrain',
          {
              **pretrain,
              'train.steps': 600,
              'optim.warmup_steps': 0.0333,  # 20 steps
          },
      ),
      (
          'finetune',
          {
              **finetune,
              'data.max_input_length': 512,
              'data.input_buckets': (128, 256, 512),
              'train.steps': 5000,
              'train.eval_every': 2500,
              'optim.warmup_steps': 0.004,  # 20 steps
          },
      ),
  )
  return config
