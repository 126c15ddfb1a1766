"""LOCOST fine-tuned on SummScreenFD as in the paper: 16,384 tokens to 512.

  python -m locost_jax.main --config=configs/finetune_summscreenfd.py \
      --config.train.init_from=runs/pretrain_c4

Data: SCROLLS' version, TFDS scrolls/summ_screen_fd, prepared beforehand, or
the files of its summ_screen_fd.zip in corpora/summscreenfd. Its test
summaries may be hidden: then only validation can be measured.
All else is as in configs/finetune_arxiv.py.

Hardware: as configs/finetune_arxiv.py.

Expected: the paper's Table 3 has ROUGE-1/2/L of 33.4/8.1/19.7.
"""

from configs import finetune_arxiv


def get_config(model='locost'):
  """Returns configs/finetune_arxiv.py for SummScreenFD."""
  config = finetune_arxiv.get_config(model)
  return finetune_arxiv.set_corpus(
      config, 'summscreenfd', 16384, 512, documents=3_673, epochs=60
  )
