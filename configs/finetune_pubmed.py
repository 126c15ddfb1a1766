"""LOCOST fine-tuned on PubMed as in the paper: 4,096 tokens to 512.

  python -m locost_jax.main --config=configs/finetune_pubmed.py \
      --config.train.init_from=runs/pretrain_c4

Data: TFDS scientific_papers/pubmed, prepared beforehand, or what
`python -m papers.prepare --task=pubmed` makes of the authors' files.
All else is as in configs/finetune_arxiv.py.

Hardware: as configs/finetune_arxiv.py.

Expected: the paper's Table 2 has ROUGE-1/2/L of 45.7/20.1/42.0 on the test
split.
"""

from configs import finetune_arxiv


def get_config(model='locost'):
  """Returns configs/finetune_arxiv.py for PubMed."""
  config = finetune_arxiv.get_config(model)
  return finetune_arxiv.set_corpus(
      config, 'pubmed', 4096, 512, documents=119_924, epochs=60
  )
