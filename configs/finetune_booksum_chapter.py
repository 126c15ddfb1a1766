"""LOCOST fine-tuned on BookSum-Chapter as in the paper: 8,192 tokens to 512.

  python -m locost_jax.main --config=configs/finetune_booksum_chapter.py \
      --config.train.init_from=runs/pretrain_c4

Data: what `python -m papers.prepare --task=booksum_chapter` makes of
the authors' repository. Where summaries are gone from the web, the number of
rows is not the paper's: --config.data.check_sizes=False.
All else is as in configs/finetune_arxiv.py.

Hardware: as configs/finetune_arxiv.py.

Expected: the paper's Table 2 has ROUGE-1/2/L of 34.3/6.1/32.4 on the test
split.
"""

from configs import finetune_arxiv


def get_config(model='locost'):
  """Returns configs/finetune_arxiv.py for BookSum-Chapter."""
  config = finetune_arxiv.get_config(model)
  return finetune_arxiv.set_corpus(
      config, 'booksum_chapter', 8192, 512, documents=9_600, epochs=60
  )
