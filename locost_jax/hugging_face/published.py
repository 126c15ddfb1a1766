"""Public checkpoints that this library can load: facts and their sources.

docs/models.md has the same table, and `python -m locost_jax.known_models` prints it.
None of them was downloaded here. Tests compare the architectures with the
released implementations, on small random weights (docs/weights.md).
"""

from typing import NamedTuple

UNKNOWN = 'unknown'
_HUB = 'https://huggingface.co/'


class Checkpoint(NamedTuple):
  """A public checkpoint. A fact that was not found is `UNKNOWN`.

  Attributes:
    name: org/name on the Hub; elsewhere, what its authors call it.
    architecture: `model.name` of the configs.
    corpus: what it was trained on.
    longest_input: tokens that it was trained to read, or can read.
    licence: of the weights.
    download: size of the weights.
    rouge: published ROUGE, or why it is missing.
    protocol: how that was computed.
    use: what it is good for, and what to mind.
    sources: addresses of the pages and papers with these facts.
    where: 'hub', or why no command downloads it.
  """

  name: str
  architecture: str
  corpus: str
  longest_input: str
  licence: str
  download: str
  rouge: str
  protocol: str
  use: str
  sources: tuple
  where: str = 'hub'


def command(row):
  """Returns the command that uses a checkpoint; '' if it has none.

  A checkpoint that is not fine-tuned to summarise is the start of a run.
  """
  if row.where != 'hub':
    return ''
  if row.rouge == NOT_FINE_TUNED:
    return (
        f'python -m locost_jax.main --config=configs/finetune.py:'
        f'{row.architecture} --config.data.train_files=train.jsonl '
        f'--config.train.init_from=hf://{row.name}'
    )
  length = row.longest_input.replace(',', '')
  return (
      f'python -m locost_jax.summarize --checkpoint=hf://{row.name} '
      f'--max_input_length={length} report.txt'
  )


NOT_FINE_TUNED = 'none: not fine-tuned'
_VERIFIED = "the Hub's evaluator, figures of the model card"
_LONGT5_PAPER = 'https://arxiv.org/abs/2112.07916'
_BART_PAPER = 'https://arxiv.org/abs/1910.13461'
_PAGESUM = 'https://github.com/yixinL7/PageSum'
_PAGESUM_PAPER = 'https://arxiv.org/abs/2205.12476'
_PAGESUM_PROTOCOL = (
    "Perl ROUGE-1.5.5 or its Python copy, the authors' cal_rouge.py; "
    'ROUGE-L of whole summaries'
)


def _pagesum(corpus, rouge, use):
  return Checkpoint(
      f'PageSum, {corpus}',
      'pagesum',
      corpus,
      '1,024 a page',
      UNKNOWN,
      UNKNOWN,
      rouge,
      _PAGESUM_PROTOCOL,
      use,
      (_PAGESUM, _PAGESUM_PAPER),
      "Google Drive, linked from the authors' page: a state dict without "
      'config.json. Put it as pytorch_model.bin next to the config.json and '
      'the tokenizer of facebook/bart-large-cnn; needs torch',
  )


CHECKPOINTS = (
    Checkpoint(
        'pszemraj/long-t5-tglobal-base-16384-book-summary',
        'longt5',
        'BookSum, chapters (kmfoda/booksum)',
        '16,384',
        'Apache-2.0, BSD-3-Clause',
        UNKNOWN,
        '36.20 / 6.05 / 16.62, Lsum 33.17',
        f'{_VERIFIED}; test split of kmfoda/booksum',
        'chapters, stories, reports',
        (
            f'{_HUB}pszemraj/long-t5-tglobal-base-16384-book-summary',
            f'{_HUB}pszemraj/long-t5-tglobal-base-16384-book-summary/'
            'discussions/4/files',
        ),
    ),
    Checkpoint(
        'pszemraj/long-t5-tglobal-xl-16384-book-summary',
        'longt5',
        'BookSum, chapters (kmfoda/booksum)',
        '16,384',
        'Apache-2.0, BSD-3-Clause',
        '11.4 GB',
        '34.01 / 7.09 / 17.09, Lsum 31.69',
        f'{_VERIFIED}; test split of kmfoda/booksum',
        'the same, for a large machine',
        (
            f'{_HUB}pszemraj/long-t5-tglobal-xl-16384-book-summary/tree/main',
            f'{_HUB}pszemraj/long-t5-tglobal-xl-16384-book-summary/commit/'
            'b04b6bda2847782a112c9414819848c437420094',
        ),
    ),
    Checkpoint(
        'Stancld/longt5-tglobal-large-16384-pubmed-3k_steps',
        'longt5',
        'PubMed (ccdv/pubmed-summarization)',
        '16,384',
        'Apache-2.0',
        '3.13 GB',
        UNKNOWN,
        UNKNOWN,
        'medical papers',
        (f'{_HUB}Stancld/longt5-tglobal-large-16384-pubmed-3k_steps',),
    ),
    Checkpoint(
        'google/long-t5-tglobal-base',
        'longt5',
        'C4, gap sentences',
        '16,384',
        'Apache-2.0',
        '990 MB (only a pickle is listed: needs torch)',
        NOT_FINE_TUNED,
        '',
        'a start for fine-tuning on long documents',
        (
            f'{_HUB}google/long-t5-tglobal-base/tree/'
            '55dd9cee965e1cda6a69fe5d04e5c4f8b522a182',
            _LONGT5_PAPER,
        ),
    ),
    Checkpoint(
        'google/long-t5-tglobal-large',
        'longt5',
        'C4, gap sentences',
        '16,384',
        'Apache-2.0',
        '3 GB (only a pickle is listed: needs torch)',
        NOT_FINE_TUNED,
        '',
        'the same, larger',
        (
            f'{_HUB}google/long-t5-tglobal-large/tree/'
            'e4464bbbe0a18d5bc905d7ed33761ae825655a16',
            _LONGT5_PAPER,
        ),
    ),
    Checkpoint(
        'facebook/bart-large-cnn',
        'bart',
        'CNN/DailyMail',
        '1,024',
        'MIT',
        UNKNOWN,
        '44.16 / 21.28 / 40.90',
        'the paper; the model card has 42.95 / 20.81 / 30.62, '
        'Lsum 40.04, on the training split',
        'news in a few sentences; also the parts of a longer document, with '
        '--parts=hierarchical',
        (
            f'{_HUB}facebook/bart-large-cnn',
            'https://paperswithcode.com/paper/'
            'bart-denoising-sequence-to-sequence-pre',
            _BART_PAPER,
        ),
    ),
    Checkpoint(
        'facebook/bart-large-xsum',
        'bart',
        'XSum',
        '1,024',
        'MIT',
        '1.63 GB',
        '45.45 / 22.35 / 37.23, Lsum 37.23',
        f'{_VERIFIED}; test split of XSum; the paper has 45.14 / 22.27 / 37.25',
        'news in one sentence',
        (
            f'{_HUB}facebook/bart-large-xsum/tree/'
            '11b65c131d59e3d10964281e22d34e6bd7628616',
            _BART_PAPER,
        ),
    ),
    Checkpoint(
        'google-t5/t5-base',
        't5',
        'C4, and supervised tasks, CNN/DailyMail among them',
        '512',
        'Apache-2.0',
        '892 MB',
        UNKNOWN,
        UNKNOWN,
        'short texts; the text must begin with "summarize: "',
        (
            f'{_HUB}google-t5/t5-base/tree/'
            'fe6d9bf207cd3337512ca838a8b453f87a9178ef',
            'https://arxiv.org/abs/1910.10683',
        ),
    ),
    Checkpoint(
        'google/flan-t5-base',
        't5',
        'instructions (Flan)',
        '512',
        'Apache-2.0',
        '990 MB',
        UNKNOWN,
        UNKNOWN,
        'short texts; the text must begin with the instruction',
        (
            f'{_HUB}google/flan-t5-base/tree/'
            'c782cba52f8ea6a704240578055cf1c3fc2f2ca9',
            'https://arxiv.org/abs/2210.11416',
        ),
    ),
    Checkpoint(
        'flbbb/locost-gsg-pretrained',
        'locost',
        'C4, gap sentences',
        '4,096 in training; reads any length',
        UNKNOWN,
        UNKNOWN,
        NOT_FINE_TUNED,
        '',
        'a start for fine-tuning on very long documents; the authors name no '
        'fine-tuned LOCOST',
        (
            'https://github.com/flbbb/locost-summarization',
            'https://aclanthology.org/2024.eacl-long.69/',
        ),
    ),
    _pagesum(
        'arXiv',
        '49.72 / 21.06 / 44.69',
        'papers, 7 pages; with sections as pages 49.84 / 21.19 / 44.89',
    ),
    _pagesum('PubMed', '48.24 / 21.06 / 44.26', 'medical papers, 7 pages'),
    _pagesum(
        'GovReport', '59.91 / 27.20 / 57.07', 'government reports, 20 pages'
    ),
    _pagesum(
        'MultiNews',
        '51.17 / 21.39 / 46.88',
        'several news articles, each a page',
    ),
    Checkpoint(
        'SimCAS',
        'simcas',
        '',
        '16,384',
        '',
        '',
        'none: no weights',
        '',
        'training: configs/finetune.py:simcas',
        (
            'https://github.com/xjw-nlp/SimCAS',
            'https://aclanthology.org/2024.acl-long.729/',
        ),
        "the authors' page names models without a link: no weights are "
        'published',
    ),
)


def table(rows=CHECKPOINTS):
  """Returns the lines of docs/models.md's two tables."""
  lines = [
      '| name on the Hub | architecture | trained on | longest input | licence '
      '| weights | ROUGE-1 / -2 / -L | protocol | good for | sources |',
      '|---|---|---|---|---|---|---|---|---|---|',
  ]
  lines += [_row(row, row.name) for row in rows if row.where == 'hub']
  lines += [
      '',
      '| not on the Hub | architecture | trained on | longest input | licence '
      '| weights | ROUGE-1 / -2 / -L | protocol | good for | sources |',
      '|---|---|---|---|---|---|---|---|---|---|',
  ]
  return lines + [
      _row(row, f'{row.name}: {row.where}')
      for row in rows
      if row.where != 'hub'
  ]


def _row(row, name):
  links = ', '.join(f'[{i + 1}]({url})' for i, url in enumerate(row.sources))
  cells = (name, *row[1:9], links)
  return '| ' + ' | '.join(cell or '-' for cell in cells) + ' |'
