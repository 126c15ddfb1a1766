"""LOCOST fine-tuned on GovReport as in the paper: 16,384 tokens to 1,024.

  python -m locost_jax.main --config=configs/finetune_govreport.py \
      --config.train.init_from=runs/pretrain_c4

Data: SCROLLS' version, TFDS scrolls/gov_report, prepared beforehand, or the
files of its gov_report.zip in corpora/govreport. Its test summaries may
be hidden: then only validation can be measured.
All else is as in configs/finetune_arxiv.py.

Hardware: as configs/finetune_arxiv.py.

Expected: the paper's Table 3 has ROUGE-1/2/L of 56.5/26.8/28.9.
"""

from configs import finetune_arxiv


def get_config(model='locost'):
  """Returns configs/finetune_arxiv.py for GovReport."""
  config = finetune_arxiv.get_config(model)
  return finetune_arxiv.set_corpus(
      config, 'govreport', 16384, 1024, documents=17_457, epochs=60
  )
