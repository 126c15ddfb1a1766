"""LOCOST fine-tuned on BookSum-Book as in the paper: 32,768 tokens to 1,024.

  python -m locost_jax.main --config=configs/finetune_booksum_book.py \
      --config.train.init_from=runs/pretrain_c4

Data: what `python -m papers.prepare --task=booksum_book` makes of the
authors' repository.
All else is as in configs/finetune_arxiv.py.

Hardware: as configs/finetune_arxiv.py.

Expected: the paper's Table 7 has ROUGE-1/2/L (not Lsum) of 38.6/8.1/16.2 on the
test split, read whole, up to 667,817 tokens:

  python -m locost_jax.main --config=configs/finetune_booksum_book.py \
      --evaluate --config.data.max_input_length=1000000 \
      --config.eval.batch_size=1 --config.mesh.data=1
"""

from configs import finetune_arxiv


def get_config(model='locost'):
  """Returns configs/finetune_arxiv.py for BookSum-Book."""
  config = finetune_arxiv.get_config(model)
  return finetune_arxiv.set_corpus(
      config, 'booksum_book', 32768, 1024, documents=314, epochs=100
  )
