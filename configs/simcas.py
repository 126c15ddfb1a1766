"""SimCAS fine-tuned from BART as in its paper (Xie et al., ACL 2024).

  python -m locost_jax.main --config=configs/simcas.py:arxiv
  python -m locost_jax.main --config=configs/simcas.py:arxiv_large
  python -m locost_jax.main --config=configs/simcas.py:wcep --evaluate \
      --config.data.max_input_length=32766

A word after the file names the corpus; the run is kept in runs/simcas-arxiv and
so on. With `_large` behind the word BART-large reads 8,192 tokens in training,
otherwise BART-base 16,384. ROUGE-1/2/L and BERTScore of the paper on the test
splits, base and large:

  arxiv          47.22 19.35 42.25 63.51   48.14 19.77 42.93 63.78
  pubmed         48.17 21.11 43.90 66.33   48.65 21.40 44.14 66.52
  govreport      59.30 25.95 27.07 68.17   60.29 26.68 27.97 68.64
  summscreen     43.45 12.74 18.38 62.46   44.15 13.42 18.50 62.82
  multinews      48.88 20.01 25.32 65.05   49.40 20.47 25.96 65.40
  wcep           45.68 22.80 37.71 70.59   46.29 24.45 38.61 71.38
  narrativeqa    F1 of the answers, base, validation: 31.76
  cnn_dailymail  in a picture only (figure 7)
  xsum           likewise

More can be read than in training, as in the last command (table 11, wcep,
base):

  4,096 tokens   44.96 22.60 37.17 69.74
  8,192          45.41 22.79 37.40 70.51
  16,384         45.22 22.48 37.34 70.46
  32,768         45.45 22.56 37.45 70.52
  all            45.68 22.80 37.71 70.59

ROUGE-L is rougeLsum for arxiv and pubmed, rougeL for the others; the text is
lower-cased and tokenised as in the Penn Treebank. BERTScore reads
facebook/bart-large-mnli.

Data: what `python -m papers.prepare` makes of the authors' files of
arxiv, pubmed, govreport_authors, summscreen (ForeverDreaming and TVMegaSite)
and narrativeqa_plot, in corpora/, or files of the Hub or of TFDS.
narrativeqa reads Wikipedia's plot summary too: its scores cannot be compared
with those of systems that read the story alone.

Start: facebook/bart-base or facebook/bart-large from the Hugging Face Hub,
or --config.train.init_from=DIR with its files. It lends its
vocabulary. The selector begins with new parameters.

Hardware: the paper used 8 GPUs (V100) of 32 GB. Here a batch is as many
documents as the release accumulates on one of them, computed one by one.

Expected: the table above; these runs have not been repeated here.

Ablations (table 5), words before the corpus; bart_ is without all three:

  unchunked_arxiv    --config.model.chunk=one --config.data.pages=
                     --config.data.max_input_length=1024
  unaligned_arxiv    --config.model.align=none
  unselected_arxiv   --config.train.objective=likelihood
                     --config.model.select=none   (or first_k: 2,048 tokens)

Mean of ROUGE-1/2/L (narrativeqa: F1), base, validation splits:

               without chunks  alignment  selection   SimCAS
  arxiv             30.10        36.12      32.70      36.46
  pubmed            29.63        37.20      34.32      37.77
  govreport         31.23        37.12      32.91      37.54
  summscreen        19.71        20.69      19.63      25.15
  multinews         25.34        31.45      27.98      31.36
  wcep              28.42        35.01      30.33      35.31
  narrativeqa       21.70        31.52      23.20      31.76

Few examples (figure 4, 4,096 tokens read, seeds 0 to 4; the number of steps is
not in the paper): --config.data.train_examples=10 --config.data.seed=0
--config.data.max_input_length=4094 --config.train.steps=100.

Where paper and release differ, the release decides; the paper's way is a key:

  align           start and end states are shifted    --config.model.align=mean
  chunks          cut when full, not by sentences
                                         --config.data.pages=sentence_chunks
  padding         is read and can be selected   --config.model.padding=tokens
                  (the paper does not say)
  skip            reward of skipped tokens       --config.selector.skip=paper
  govreport       length penalty 2, warm-up 1,600
                 --config.decode.length_penalty=4.0 and a warm-up of 6,400 or
                 10,000 (optim.warmup_steps, optim.flat_steps one less)
  narrativeqa     length penalty 3, warm-up 1,600
                 --config.decode.length_penalty=1.0, likewise
  Adam's epsilon  1e-8                              --config.optim.eps=1e-6

The numbers of epochs are the paper's; the release's say 100 for all corpora.

What differs from both:

- Articles of multinews and wcep are joined with `|||||`, not `</s>`, and stay
  in order; the release shuffles them anew each time they are read.
- Of the two answers of narrativeqa the first is learned, not one at random.
- A run is evaluated on the first 500 documents of the validation split, not on
  all (--config.eval.examples=0), and reads there as much as in training; the
  release's large models read 16,384 tokens.
- The best checkpoint has the highest mean of ROUGE-1/2/Lsum.

CNN/DailyMail and XSum are in the paper to show that inputs of one chunk are
read as BART reads them, without numbers of a recipe. Here they train as arxiv
does and are written as BART's own models are: 55 to 140 tokens, length penalty
2; 10 to 60 tokens, 6 beams.
"""

from typing import NamedTuple

from configs import default


class Recipe(NamedTuple):
  """One corpus.

  Attributes:
    task: its name.
    documents: those of its training split.
    epochs: passes over them.
    warmup: w, steps until the rate is the largest.
    accumulate: documents of a batch.
    written: fewest and most tokens of a summary, its marks not counted.
    length_penalty: of beams.
    num_beams: of beam search.
    every: generator updates per turn of the selector.
    eval_every: steps between evaluations.
  """

  task: str
  documents: int
  epochs: int
  warmup: int
  accumulate: int
  written: tuple
  length_penalty: float
  num_beams: int = 4
  every: int = 50
  eval_every: int = 1000


class Size(NamedTuple):
  """A BART, and the tokens that it is trained to read.

  Attributes:
    start: its name on the Hugging Face Hub.
    model: keys of config.model.
    tokens: of a document, <s> and </s> of the whole counted.
  """

  start: str
  model: dict
  tokens: int


RECIPES = {
    'arxiv': Recipe('arxiv', 203_037, 10, 10_000, 8, (50, 300), 5.0),
    'pubmed': Recipe('pubmed', 119_924, 10, 10_000, 16, (40, 400), 4.0),
    'govreport': Recipe(
        'govreport_authors', 17_519, 20, 1600, 8, (50, 740), 2.0, eval_every=500
    ),
    'summscreen': Recipe('summscreen', 22_588, 20, 6400, 8, (50, 750), 4.0),
    'multinews': Recipe('multinews', 44_972, 20, 6400, 16, (150, 400), 2.0),
    'wcep': Recipe(
        'wcep', 8_158, 100, 1600, 8, (15, 40), 2.0, every=100, eval_every=400
    ),
    # The release's 1 and 20 count the marks here: all three, at most 20.
    'narrativeqa': Recipe(
        'narrativeqa_plot', 32_747, 10, 1600, 4, (0, 18), 3.0
    ),
    'cnn_dailymail': Recipe(
        'cnn_dailymail', 287_113, 10, 10_000, 8, (55, 140), 2.0
    ),
    'xsum': Recipe('xsum', 204_045, 10, 10_000, 8, (10, 60), 1.0, num_beams=6),
}
BASE = Size('hf://facebook/bart-base', {}, 16_384)
LARGE = Size(
    'hf://facebook/bart-large',
    default.BART_LARGE,
    8_192,
)
# The word of an experiment -> (its corpus, the model's size).
EXPERIMENTS = {name: (recipe, BASE) for name, recipe in RECIPES.items()} | {
    f'{name}_large': (recipe, LARGE) for name, recipe in RECIPES.items()
}

# The word before an experiment's -> the keys that it changes.
_UNCHUNKED = {
    'model.chunk': 'one',
    'data.pages': '',
    'data.max_input_length': 1024,
}
_UNSELECTED = {'train.objective': 'likelihood', 'model.select': 'none'}
ABLATIONS = {
    'bart': _UNCHUNKED | _UNSELECTED,
    'unchunked': _UNCHUNKED,
    'unaligned': {'model.align': 'none'},
    'unselected': _UNSELECTED,
}


def get_config(name='arxiv'):
  """Returns the config of an experiment.

  Args:
    name: one of EXPERIMENTS, or one of ABLATIONS, `_` and one of EXPERIMENTS.
  """
  ablation, _, rest = name.partition('_')
  if ablation in ABLATIONS:
    config = get_config(rest)
    config.update_from_flattened_dict(ABLATIONS[ablation])
    return config
  if name not in EXPERIMENTS:
    raise ValueError(f'{name!r}: expected one of {", ".join(EXPERIMENTS)}')
  (recipe, size), config = EXPERIMENTS[name], default.get_config()
  set_model(config, size)
  set_data(config, recipe, size)
  set_training(config, recipe)
  set_decoding(config, recipe)
  return config


def set_model(config, size):
  """Sets a SimCAS of a BART's sizes, and what it starts from."""
  config.model = default.simcas()
  config.model.update(size.model)
  # Those of facebook/bart-base and bart-large, which the release keeps.
  config.model.dropout_rate = 0.1
  config.model.attention_dropout_rate = 0.1
  config.model.activation_dropout_rate = 0.1
  config.train.init_from = size.start


def set_data(config, recipe, size):
  """Sets the corpus, its chunks and its targets."""
  config.data.task = recipe.task
  config.data.pages = 'chunks'
  config.data.page_length = 512
  # The release cuts the text with one <s> and </s> around it, and then chunks
  # what is between them; here marks do not count.
  config.data.max_input_length = size.tokens - 2
  config.data.max_target_length = 1024
  config.data.targets_start = 'bos'


def set_training(config, recipe):
  """Sets appendix B and the release: two optimisers that take turns."""
  w = recipe.warmup
  # lr(n) = 1e-4 sqrt(w) min(n^-0.5, n w^-1.5), appendix I.
  config.optim.schedule = 'inverse_sqrt'
  config.optim.learning_rate = 1e-4
  config.optim.flat_steps = w - 1
  config.optim.warmup_steps = w
  config.optim.clip = 0.0
  config.optim.label_smoothing = 0.1
  config.optim.groups = ((r'logits_bias', 0.0),)
  config.train.objective = 'simcas'
  config.selector.every = recipe.every
  config.train.batch_size = recipe.accumulate
  config.train.accumulate = recipe.accumulate
  epoch = -(-recipe.documents // config.train.batch_size)
  config.train.steps = recipe.epochs * epoch
  config.checkpoint.metric = 'rouge_mean'
  config.train.eval_every = recipe.eval_every
  config.train.checkpoint_every = recipe.eval_every
  config.train.log_every = 50
  config.eval.batch_size = 1


def set_decoding(config, recipe):
  """Sets how summaries are written, as the release does."""
  fewest, most = recipe.written
  config.decode.num_beams = recipe.num_beams
  config.decode.length_penalty = recipe.length_penalty
  config.decode.no_repeat_ngram_size = 3
  config.decode.early_stopping = True
  # </s> is read first, <s> is forced, and </s> is forced at the end. The
  # release counts all three: at most M + 2, at least m + 1; here what is read
  # first does not count.
  config.decode.start = 'start_id'
  config.decode.forced_first_token = 0
  config.decode.forced_last_token = 2
  config.decode.max_length = most + 1
  config.decode.min_length = fewest + 1
