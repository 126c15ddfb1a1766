"""The paper's Figure 5: books cut at 1K to 32K for training, read whole.

  for length in 1024 2048 4096 8192 16384 32768; do
    python -m locost_jax.main --config=configs/sweep_input_length.py \
        --config.data.max_input_length=$length --workdir=runs/sweep/$length
    python -m locost_jax.main --config=configs/sweep_input_length.py \
        --evaluate --workdir=runs/sweep/$length --config.mesh.data=1 \
        --config.data.max_input_length=1000000 --config.eval.batch_size=1
  done

Data and model are those of configs/finetune_booksum_book.py. Each length is a
run of 100 epochs; its best checkpoint is chosen on validation books cut at the
same length, and reads whole books in the second command, one at a time.

Hardware: as configs/finetune_arxiv.py.

Expected: ROUGE on whole books rises with the length trained at, up to 32K
(38.6/8.1/16.2 for ROUGE-1/2/L, Table 7).
"""

from configs import finetune_booksum_book


def get_config():
  """Returns the config of a point of Figure 5, at 1,024 tokens."""
  config = finetune_booksum_book.get_config()
  config.data.max_input_length = 1024
  return config
