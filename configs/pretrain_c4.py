"""LOCOST as the paper pretrained it: gap sentences from C4, 4096 tokens.

  python -m locost_jax.main --config=configs/pretrain_c4.py

Data: C4 (TFDS c4/en:3.1.0) where TFDS keeps it, ~/tensorflow_datasets or
--config.data.tfds_dir=DIR, prepared beforehand: nothing is downloaded. Or the
files of allenai/c4 (en/c4-*.json.gz) in corpora/c4_gsg, or any text as JSONL:
--config.data.train_files='texts-*.jsonl.gz' with the field `text`. T5's
SentencePiece model (32,000 pieces) as ./spiece.model or
--config.data.vocabulary=FILE; it is part of every released T5. A smaller
trial needs neither: configs/pretrain.py on text of your own.

Hardware: the paper took 16 GPUs for 140 hours. --config.mesh.data splits each
batch over the devices there are (all, by default). configs/pretrain_c4.py:small
and so on are other sizes, kept in runs/pretrain_c4-small; only base has been
trained for a paper. GiB of a step on one document of 4,096 tokens and of
writing 910 (computed by --dry_run for a CPU, parameters and optimiser not
split):

  tiny      14,782,080 parameters    0.8   0.3   for trials of a setup
  small     68,906,176               1.9   1.0
  base     234,724,224               4.8   3.0   chips of 16 GiB
  large    775,510,528              15.4   9.3   GPUs of 24 GiB, or mesh.fsdp
  xl     2,784,146,432              55.4  32.4   of 80 GiB, or mesh.fsdp

Expected: fine-tuned afterwards, as configs/finetune_arxiv.py does, the paper's
Table 2 has ROUGE-1/2/L of 43.8/17.0/39.7 on arXiv and 45.7/20.1/42.0 on PubMed,
at 4096 tokens.

Three peak learning rates are in circulation, all followed by 1 / sqrt(step):
- the paper's text says "identical to T5": Adafactor's 1 / sqrt(max(step, 10^4))
  (Raffel et al. 2020, section 3.1.2), that is --config.optim.name=adafactor
  --config.optim.learning_rate=0.01;
- its Table 8 prints 2e4 / sqrt(max(step, 10^4)), that is 200: a misprint;
- the released code has 0.02 sqrt(10001) / sqrt(max(step + 1, 10001)) for AdamW:
  0.02 for 10,000 steps, then 2 / sqrt(step). That is here.

In 1,000 steps on English novels (512 tokens, batch 4) nothing diverged, but AdamW
at 0.02 learned little. Validation loss of 1.3M and of 7.6M parameters (seeds 0
and 1), 28 November 2026; a model of token frequencies alone has 6.33:

  Adafactor 0.01                     5.14, 5.14   5.04, 5.02
  AdamW 0.001, warm-up of 100 steps  5.61
  AdamW 0.02, warm-up of 100 steps   6.09, 6.13   6.25, 6.19
  AdamW 0.02                         6.17, 6.18   6.21, 6.26
"""

from configs import default

# d_model, d_ff, num_heads, num_layers of T5 v1.1; no T5 is tiny.
SIZES = {
    'tiny': (256, 512, 4, 4),
    'small': (512, 1024, 6, 8),
    'base': (768, 2048, 12, 12),
    'large': (1024, 2816, 16, 24),
    'xl': (2048, 5120, 32, 24),
}


def get_config(size='base'):
  """Returns the pretraining column of the paper's Table 8.

  Args:
    size: one of SIZES.
  """
  if size not in SIZES:
    raise ValueError(f'{size!r}: expected one of {", ".join(SIZES)}')
  config = default.get_config()
  d_model, d_ff, num_heads, layers = SIZES[size]
  config.model.update(dict(d_model=d_model, d_ff=d_ff, num_heads=num_heads))
  config.model.update(dict(num_layers=layers, num_decoder_layers=layers))
  config.model.d_state = 64 if size == 'tiny' else 256
  config.model.dropout_rate = 0.0

  config.data.task = 'c4_gsg'
  config.data.vocabulary = 'spiece.model'
  config.data.max_input_length = 4096
  config.data.max_target_length = 910

  config.optim.name = 'adamw'
  config.optim.schedule = 'inverse_sqrt'
  config.optim.learning_rate = 0.02
  config.optim.flat_steps = 10_000
  config.optim.b1 = 0.9
  config.optim.b2 = 0.999
  config.optim.weight_decay = 0.0
  config.optim.clip = 1.0

  config.train.steps = 1_000_000
  config.train.batch_size = 256
  config.train.dtype = 'bfloat16'
  config.train.remat = 'full'
  config.train.eval_every = 10_000
  config.train.checkpoint_every = 2_000
  config.train.log_every = 100

  config.eval.examples = 512
  config.eval.batch_size = 64
  config.decode.max_length = 910
  return config
