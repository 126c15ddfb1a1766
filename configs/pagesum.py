"""PageSum fine-tuned from BART-large as in its paper (Liu et al. 2022).

  python -m locost_jax.main --config=configs/pagesum.py:arxiv
  python -m locost_jax.main --config=configs/pagesum.py:arxiv --evaluate \
      --config.eval.metrics="('loss','rouge')"

A word after the file names the experiment; the run is kept in
runs/pagesum-arxiv and so on. ROUGE-1/2/L of the paper on the test splits:

  arxiv               7 pages of equally many sentences   49.72 21.06 44.69
  arxiv_discourse     8 pages, a section each             49.84 21.19 44.89
  arxiv_128x32        4,096 tokens as 32 pages of 128     47.67 18.76 42.82
  arxiv_256x16        likewise                            48.29 19.32 43.38
  arxiv_512x8         likewise                            48.82 19.80 43.85
  arxiv_1024x4        likewise                            48.66 19.90 43.74
  arxiv_global        the same, decoded as one sequence   48.57 19.92 43.71
  pubmed              7 pages of equally many sentences   48.24 21.06 44.26
  govreport           20 pages of equally many sentences  59.91 27.20 57.07
  govreport_7         7 of them                           59.05 26.37 56.22
  multinews           7 pages of equally many sentences   49.03 19.10 44.73
  multinews_document  7 pages, an article each            51.17 21.39 46.88
  multinews_global    the same, decoded as one sequence   48.75 19.03 44.48

Data: what `python -m papers.prepare` makes of the authors' files of
arxiv, pubmed and govreport_authors, in corpora/, or the files of the Hub or of
TFDS, which has no sections of arXiv, without which arxiv_discourse would be
spatial; a line says so while the text is tokenised.

Start: facebook/bart-large-cnn from the Hugging Face Hub, or
--config.train.init_from=DIR with its files. It lends its vocabulary.

Hardware: the paper used one GPU of 48 GB, 5 to 25 hours for an epoch. A batch
of 16 documents is computed one document after the other (govreport: two).

Expected: the table above; these runs have not been repeated here. The paper's
ROUGE is of lower-cased text, tokenised as in the Penn Treebank, with stemmer.

Where the paper is silent, the authors' release decides:

- A page that a document lacks holds the text '.', and its weight is like any
  other's. --config.data.empty_page= leaves such pages out, as the paper reads
  for arxiv_discourse, whose documents have different numbers of pages.
- Targets start with <s>, which is read and not predicted; summaries start with
  </s> and a forced <s>, one position later. To write as it was trained:
  --config.decode.start=bos --config.decode.forced_first_token=-1, and one less
  for max_length and min_length, which count <s> where it is written.
- The bias of the output is not trained.

The best checkpoint is the one with the smallest cross entropy on the validation
split, measured once an epoch (here without label smoothing). Of multinews the
paper says at most 8 pages, the release 7; govreport_7 is not in the release.
"""

from typing import NamedTuple

from configs import default


class Recipe(NamedTuple):
  """One experiment.

  Attributes:
    task: the corpus.
    documents: those of its training split.
    pages: P.
    target: tokens kept of a target.
    written: fewest and most tokens of a summary, its marks not counted.
    locality: data.pages.
    page_length: tokens of a page.
    rows: documents computed at once.
    is_global: whether one decoder reads all pages.
  """

  task: str
  documents: int
  pages: int
  target: int
  written: tuple
  locality: str = 'spatial'
  page_length: int = 1024
  rows: int = 1
  is_global: bool = False


ARXIV = Recipe('arxiv', 203_037, 7, 400, (100, 350))
GOVREPORT = Recipe('govreport_authors', 17_519, 7, 1024, (500, 900))
MULTINEWS = Recipe('multinews', 44_972, 7, 400, (150, 400))
DOCUMENTS = MULTINEWS._replace(locality='document')
# Section 5.5: documents are cut to this many tokens first.
CUT = 4096

RECIPES = {
    'arxiv': ARXIV,
    'arxiv_discourse': ARXIV._replace(pages=8, locality='discourse'),
    'arxiv_128x32': ARXIV._replace(pages=32, page_length=128),
    'arxiv_256x16': ARXIV._replace(pages=16, page_length=256),
    'arxiv_512x8': ARXIV._replace(pages=8, page_length=512),
    'arxiv_1024x4': ARXIV._replace(pages=4),
    'arxiv_global': ARXIV._replace(pages=4, is_global=True),
    'pubmed': Recipe('pubmed', 119_924, 7, 400, (150, 400)),
    'govreport': GOVREPORT._replace(pages=20, rows=2),
    'govreport_7': GOVREPORT,
    'multinews': MULTINEWS,
    'multinews_document': DOCUMENTS,
    'multinews_global': DOCUMENTS._replace(is_global=True),
}


def get_config(name='arxiv'):
  """Returns the config of an experiment.

  Args:
    name: one of RECIPES.
  """
  if name not in RECIPES:
    raise ValueError(f'{name!r}: expected one of {", ".join(RECIPES)}')
  recipe, config = RECIPES[name], default.get_config()
  set_model(config, recipe)
  set_data(config, recipe)
  set_training(config, recipe)
  set_decoding(config, recipe)
  return config


def set_model(config, recipe):
  """Sets a PageSum of BART-large's sizes, and what it starts from."""
  config.model = default.pagesum()
  config.model.update(
      dict(
          **default.BART_LARGE,
          dropout_rate=0.1,
          decoding='global' if recipe.is_global else 'pages',
      )
  )
  config.train.init_from = 'hf://facebook/bart-large-cnn'


def set_data(config, recipe):
  """Sets the corpus, its pages and its targets."""
  config.data.task = recipe.task
  config.data.pages = recipe.locality
  config.data.num_pages = recipe.pages
  config.data.page_length = recipe.page_length
  if recipe.task == 'arxiv' and recipe.pages * recipe.page_length == CUT:
    config.data.document_length = CUT
  config.data.max_target_length = recipe.target
  config.data.targets_start = 'bos'


def set_training(config, recipe):
  """Sets section 5.1 and the release: 10 epochs of batches of 16."""
  # lr(n) = 2e-3 min(n^-0.5, n 10000^-1.5), equation 11.
  config.optim.schedule = 'inverse_sqrt'
  config.optim.learning_rate = 2e-5
  config.optim.flat_steps = 9999
  config.optim.warmup_steps = 10000
  config.optim.clip = 0.0
  config.optim.label_smoothing = 0.1
  config.optim.groups = ((r'logits_bias', 0.0),)
  config.train.remat = 'none'
  if recipe.task == GOVREPORT.task:
    config.optim.name = 'adafactor'
    config.optim.scale_by_parameter = False
    config.train.remat = 'full'
  config.train.batch_size = 16
  config.train.accumulate = 16 // recipe.rows
  epoch = -(-recipe.documents // config.train.batch_size)
  config.train.steps = 10 * epoch
  config.train.eval_every = epoch
  config.train.checkpoint_every = epoch
  config.train.log_every = 50
  config.eval.examples = 0
  config.eval.batch_size = recipe.rows
  config.eval.metrics = ('loss',)
  config.checkpoint.metric = 'loss'


def set_decoding(config, recipe):
  """Sets how summaries are written, as the release does."""
  fewest, most = recipe.written
  config.decode.num_beams = 4
  config.decode.length_penalty = 2.0
  config.decode.no_repeat_ngram_size = 3
  # </s> is read first and <s> is forced. The release counts both and the end
  # mark: at most M + 2, at least m + 1; here what is read first does not count.
  config.decode.start = 'start_id'
  config.decode.forced_first_token = 0
  config.decode.max_length = most + 1
  config.decode.min_length = fewest + 1
