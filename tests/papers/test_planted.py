"""Each row of papers/README.md comes out of the commands that it names.

All commands that compute numbers run for every value of their loops, in the
page's order, on planted summaries (`planted`), so that what they print is known:
here from rouge_score's own scorer and by hand. EXPECTED names the systems of a
row independently of the page.
"""

import collections
import importlib.util
import itertools
import json
import math
from pathlib import Path
import re

import jax
import numpy as np
import pytest

import locost_jax
from papers import plot
from papers.figures import kernels
from papers.figures import one_document
from papers.figures import start_states
from tests.evaluation import tiny_models
from tests.papers import planted
from tests.papers import reproduce
from tests.runs import test_main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ('matplotlib', 'torch'))),
        reason='needs the extras `plot` and `peers`',
    ),
]
PAPERS = {
    paper.name: paper
    for paper in reproduce.read(reproduce.PAGE.read_text(encoding='utf-8'))
}
SIX = 'arxiv pubmed govreport summscreen multinews wcep'.split()
# LONG: of LOCOST, except in tables 3 and 7, and of PageSum.
NUMBERS = dict(
    SHORT='R-1 R-2 R-L',
    LONG='R-1 R-2 R-Lsum',
    MODELS='R-1 R-2 R-Lsum F1 BLANC-help',
    RATINGS='relevance consistency fluency coherence',
    SIZES='train validation test',
)
# Paper|table|beginning of the row|systems|what * stands for|numbers
ROWS = """
LOCOST|table 2|LOCOST, arXiv|finetune_*-locost|arxiv|MODELS %
LOCOST|table 2|LOCOST, PubMed|finetune_*-locost|pubmed|MODELS %
LOCOST|table 2|LOCOST, Book|finetune_*_chapter-locost|booksum|MODELS %
LOCOST|table 2|LongT5|finetune_*-longt5|arxiv pubmed booksum_chapter|MODELS
LOCOST|table 2|LED|finetune_*-led|arxiv pubmed booksum_chapter|MODELS %
LOCOST|table 3|LOCOST|finetune_*-locost|govreport summscreenfd|SHORT %
LOCOST|table 3|LongT5|finetune_*-longt5|govreport summscreenfd|SHORT
LOCOST|table 3|LED|finetune_*-led|govreport summscreenfd|SHORT %
LOCOST|table 3|BART|finetune_*-bart_base|govreport summscreenfd|SHORT %
LOCOST|table 5|LOCOST|finetune_pubmed-*|locost longt5|RATINGS
LOCOST|table 7|LOCOST|finetune_*_book@1000000|booksum|SHORT mean
LOCOST|table 7|LongT5|finetune_*_book-longt5@32768|booksum|SHORT mean
LOCOST|table 7|BART|books-*|bart t5_large|SHORT mean
PageSum|table 2|arXiv|pagesum-*|arxiv pubmed|LONG
PageSum|table 2|GovReport|pagesum-*|govreport_7 govreport|LONG
PageSum|table 2|LED|led-*|arxiv pubmed govreport|LONG
PageSum|table 2|PRIMERA|primera-*|arxiv|LONG
PageSum|table 3|discourse|pagesum-*|arxiv_discourse|LONG
PageSum|table 3|LED|*-arxiv|led primera|LONG
PageSum|table 4|reference|pagesum-*|arxiv arxiv_discourse|coherence
PageSum|table 4|reference|*|reference shuffled|coherence
PageSum|table 5|spatial|pagesum-*|multinews multinews_document|LONG
PageSum|table 5|PRIMERA|primera-*|multinews|LONG
PageSum|table 6|32|pagesum-*|arxiv_128x32 arxiv_256x16|LONG
PageSum|table 6|8|pagesum-*|arxiv_512x8 arxiv_1024x4|LONG
PageSum|table 7|global|pagesum-*|arxiv_global multinews_global|LONG
SimCAS|table 1|LED|*-arxiv|led primera|LONG
SimCAS|table 3|PRIMERA|primera-*|govreport_authors summscreen|SHORT F1
SimCAS|table 4|PRIMERA|primera-*|multinews wcep|SHORT
SimCAS|figure 3|NarrativeQA|simcas-*|narrativeqa|words
SimCAS|figure 7|BART|simcas-bart_*|cnn_dailymail xsum|SHORT mean
SimCAS|figure 7|BART|led-*|cnn_dailymail xsum|SHORT mean
SimCAS|table 11|4,096|simcas-wcep@*|4094 8190|SHORT F1
SimCAS|table 11|16,384|simcas-*|wcep@32766 wcep@1000000 wcep|SHORT F1
SimCAS|table 1|SimCAS base|simcas-*|arxiv pubmed|LONG F1
SimCAS|table 1|SimCAS large|simcas-*_large|arxiv pubmed|LONG F1
SimCAS|table 1|BART base|simcas-bart_*|arxiv pubmed|LONG F1
SimCAS|table 1|BART large|simcas-bart_*_large|arxiv pubmed|LONG F1
SimCAS|table 3|SimCAS base|simcas-*|govreport summscreen|SHORT F1
SimCAS|table 3|SimCAS large|simcas-*_large|govreport summscreen|SHORT F1
SimCAS|table 3|BART base|simcas-bart_*|govreport summscreen|SHORT F1
SimCAS|table 3|BART large|simcas-bart_*_large|govreport summscreen|SHORT F1
SimCAS|table 4|SimCAS base|simcas-*|multinews wcep@1000000|SHORT F1
SimCAS|table 4|SimCAS large|simcas-*_large|multinews wcep|SHORT F1
SimCAS|table 4|BART base|simcas-bart_*|multinews wcep|SHORT F1
SimCAS|table 4|BART large|simcas-bart_*_large|multinews wcep|SHORT F1
PageSum|table 2|the authors|*|predictions|LONG
LOCOST|table 9|arXiv|*|arxiv pubmed|SIZES
LOCOST|table 9|GovReport|*|govreport summscreenfd|SIZES
LOCOST|table 9|BookSum|booksum_*|chapter book|SIZES
PageSum|table 1|arXiv|*|arxiv pubmed|SIZES
PageSum|table 1|GovReport|*|govreport_authors multinews|SIZES
SimCAS|table 6|arXiv|*|arxiv pubmed|SIZES
SimCAS|table 6|GovReport|*|govreport_authors summscreen multinews|SIZES
SimCAS|table 6|WCEP|*|wcep narrativeqa_plot|SIZES
"""
# {(paper, table, beginning of the row): {system: numbers}}
EXPECTED = {}
for _line in ROWS.strip().splitlines():
  *_row, _systems, _names, _numbers = _line.split('|')
  _numbers = ' '.join(NUMBERS.get(x, x) for x in _numbers.split())
  EXPECTED.setdefault(tuple(_row), {}).update(
      (_systems.replace('*', name), _numbers) for name in _names.split()
  )


# Paper|table|beginning of the row|question of bench|K tokens|models or parts
# !: out of memory.
COSTS = """
LOCOST|table 1|LOCOST|encode|16 64 256 600|locost
LOCOST|table 1|full|encode|1 4 16|t5 longt5 led
LOCOST|table 3|memory in tr|train|16|locost longt5 led bart
LOCOST|table 3|memory in inf|encode|16|locost longt5 led bart
LOCOST|figure 4|curves|train|1 4 16 64|locost t5 led longt5
LOCOST|figure 4|curves|encode|1 4 16 64 256 512|locost t5 led longt5
LOCOST|figure 4|longest|train|4 8 16 32 64 128!|locost longt5
LOCOST|figure 4|longest|encode|4 16 64 256! 512! 1024!|locost longt5
LOCOST|table 4|LOCOST|generate|4 16|locost longt5 led t5
LOCOST|table 4|LOCOST|train|4 16|locost longt5 led t5
PageSum|table 7|global|pages|4 16|encode write
SimCAS|figure 2|selected|pages|2 4 8 16 64 256|encode select write
SimCAS|table 10|selection|pages|2 4 8 16 64 256|encode select
SimCAS|table 10|share|pages|2 4 8 16 64 256|encode select write
"""
COSTS = [line.split('|') for line in COSTS.strip().splitlines()]
JSON = ' --format=json'
# Rows that a test of their own checks.
OWN_TEST = {
    'LOCOST': 'figure 1, figure 3, table 6, figure 5, figure 6, figure 7',
    'PageSum': 'figure 1, figure 3, figure 4, table 8',
    'SimCAS': 'figure 2, table 2, table 5, figure 4, figure 5, table 9, '
    'figure 6, figure 8, figure 9',
}


class Ran(collections.namedtuple('Ran', 'text out figures')):
  """A command, what it printed, and the pictures it drew."""


class Runs:
  """Runs the commands of a paper, and of those before it, when asked."""

  def __init__(self, figures):
    self._figures, self._left, self._found = figures, list(PAPERS), {}

  def __getitem__(self, name):
    """Returns {number of a command: [Ran, ...]} of a paper."""
    while name not in self._found:
      paper = PAPERS[self._left.pop(0)]
      own = self._found[paper.name] = {}
      for number, line in paper.commands.items():
        line = line.replace('s in 0 1 2 3 4', 's in 0 1')
        if reproduce.is_pytest(line):
          continue
        for text in reproduce.expand(line):
          self._figures.clear()
          text += JSON * ('papers.seeds' in text)
          out = planted.run(text)
          one = Ran(text, out, tuple(self._figures))
          own.setdefault(number, []).append(one)
    return self._found[name]


@pytest.fixture(scope='module')
def ran(tmp_path_factory):
  """The Runs of the page."""
  home, figures = tmp_path_factory.mktemp('planted'), []
  with pytest.MonkeyPatch.context() as patch:
    write = lambda row: planted.write('predictions', row['id'])
    reproduce.make_home(home, planted.rows_of, write)
    reproduce.enter(home, patch)
    tiny_models.bert(home / 'bert')  # for all models of the Hub
    planted.plant(patch, figures)
    yield Runs(figures)
  jax.config.update('jax_compilation_cache_dir', None)


def of_row(ran, paper, table, start):
  """Returns the Rans of the commands that a row of the page names."""
  for row in PAPERS[paper].rows:
    if row[0] == table and row[1].startswith(start):
      numbers = row[3].split(',')
      return [one for n in numbers for one in ran[paper].get(n, ())]
  raise AssertionError(f'{paper}, {table}: no row {start}')


def expected(system, number, paper):
  """Returns a number of a system as a command prints it."""
  if number in NUMBERS['SIZES']:
    return planted.sizes(system, number, 1 if paper == 'LOCOST' else 2)
  if system in ('reference', 'shuffled'):
    return dict(reference='0.9800', shuffled='0.9500')[system]
  scores = {k: x.mean() for k, x in planted.rouge(system).items()}
  half = scores['R-1'] / 2  # `planted.of_model`
  if number == '%':
    last = 'R-L' if 'report' in system or 'summ' in system else 'R-Lsum'
    other = re.sub('-[^-]*$', '-longt5', system)
    ratio = planted.mean_rouge(system, last) / planted.mean_rouge(other, last)
    return f'{100 * ratio:.1f}'
  if number == 'mean':
    return f'{planted.mean_rouge(system, "R-L"):.2f}'
  if number == 'coherence' and paper == 'PageSum':
    return f'{half / 100:.4f}'
  columns = 'relevance consistency fluency coherence'.split()
  found = {**scores, 'words': scores['R-1'], 'F1': half - 2}
  found |= {'BLANC-help': half}
  found |= {name: half - i for i, name in enumerate(columns)}
  return f'{found[number]:.2f}'


def problems(runs, paper, wanted):
  """Returns what the commands of a row do not print, of {system: numbers}."""
  printed = collections.defaultdict(set)
  for one in runs:
    for key, value in planted.read(one.text, one.out).items():
      printed[key].add(value)
  return [
      f'{system} {number}: {value}, got {printed[place] or "nothing"}'
      for system, numbers in wanted.items()
      for number in numbers.split()
      for value in [expected(system, number, paper)]
      for title in ['F1' if number == 'words' else number]
      for place in [(system.partition('@')[0], title)]
      if value not in printed[place]
  ]


@pytest.mark.parametrize('name', PAPERS)
def test_each_row_is_checked(name):
  """Here, or by the tests that its commands run."""
  known = [
      f'{row[1]} {row[2]}' for row in (*EXPECTED, *COSTS) if row[0] == name
  ]
  for table, label, _, numbers, _ in PAPERS[name].rows:
    lines = [PAPERS[name].commands[n] for n in numbers.split(',')]
    assert (
        any(f'{table} {label}'.startswith(start) for start in known)
        or table in OWN_TEST[name].split(', ')
        or all(map(reproduce.is_pytest, lines))
    ), (table, label)


@pytest.mark.parametrize('row', EXPECTED, ids=' '.join)
def test_numbers_of_a_row_come_out_of_its_commands(ran, row):
  assert problems(of_row(ran, *row), row[0], EXPECTED[row]) == []


def test_figure_1_of_locost(ran):
  """Circles at (memory of inference, mean ROUGE), and areas by training's."""
  (one,) = of_row(ran, 'LOCOST', 'figure 1', 'LOCOST')[-1:]
  (figure,) = one.figures
  panels = {axis.get_title(loc='left'): axis for axis in figure.axes}
  assert panels.keys() == {'govreport', 'summscreenfd'}
  for task, axis in panels.items():
    circles = {
        text.get_text(): (*circle.get_offsets()[0], circle.get_sizes()[0])
        for text, circle in zip(axis.texts, axis.collections, strict=True)
    }
    assert circles.keys() == {'locost', 'longt5', 'led', 'bart'}
    for model, (memory, rouge, area) in circles.items():
      ending = 'bart_base' if model == 'bart' else model
      system = f'finetune_{task}-{ending}'
      assert rouge == pytest.approx(planted.mean_rouge(system, 'R-L'))
      size = planted.cost('encode', name_of('encode', model), 1 << 14)
      assert memory == size
      ours, of_led = (
          planted.cost('train', name_of('train', name), 1 << 14)
          for name in (model, 'led')
      )
      wanted = max(30, circles['led'][2] * ours / of_led)
      assert area == pytest.approx(wanted)


def name_of(question, model):
  """Returns how bench names a model, or a part of one."""
  if question == 'pages':
    return model
  kernels = ', kernels made' if question == 'encode' else ''
  return (
      f'locost{kernels}, ours' if model == 'locost' else f'{model}, memory kept'
  )


@pytest.mark.parametrize('row', COSTS, ids=' '.join)
def test_costs(ran, row):
  """Each length and model has its line with seconds, samples/s and memory."""
  *row, question, lengths, models = row
  runs = [x for x in of_row(ran, *row) if f' bench {question} ' in x.text]
  for length, model in itertools.product(lengths.split(), models.split()):
    name, tokens = name_of(question, model), 1024 * int(length.strip('!'))
    size = planted.cost(question, name, tokens)
    lines = re.findall(
        rf'^ *{tokens} +{name}  .*', '\n'.join(x.out for x in runs), re.M
    )
    line = lines[0] if lines else ''
    assert f' {size / 2**20:.3g} ' in line, (tokens, name)
    assert f'{size >> 20} MiB' in line or f'{size / 2**30:.1f} GiB' in line
    assert ('True' in line) == ('!' in length)


def test_kernels_of_locost(ran):
  """The first layer, tokens before: channel 0, and all channels at lag 0."""
  for table, label in ('figure 3', 'kernels, '), ('figure 6', 'kernels of'):
    (one,) = of_row(ran, 'LOCOST', table, label)[-1:]
    own = abs(kernels.of_layers('runs/pretrain_c4', 2048)[0])
    drawn = one.figures[0].axes[0].lines[0].get_ydata()
    np.testing.assert_allclose(drawn, own[0, 0] / own[:, 0].max(), rtol=1e-5)
  (one,) = of_row(ran, 'LOCOST', 'figure 7', 'kernels of')[-1:]
  drawn = one.figures[0].axes[0].collections[0].get_array()[:, 0]
  want = np.clip(own[0, :, 0] / own.max(), 1e-3, 1)
  np.testing.assert_allclose(sorted(drawn), sorted(want), rtol=1e-5)


def test_figure_4_and_table_8_of_pagesum(ran):
  """Pairs that a summary fuses: printed, drawn, and in JSON."""
  tasks = 'govreport_authors', 'arxiv'
  runs = of_row(ran, 'PageSum', 'figure 4', 'GovReport')
  documents = range(planted.DOCUMENTS)
  for task, axis in zip(sorted(tasks), runs[-1].figures[0].axes, strict=True):
    (out,) = [x.out for x in runs if x.text.endswith(f'--task={task}')]
    assert '6 documents, 12 summary sentences, 6 fuse' in out
    shares = [
        other / n for n, other in (planted.place(task, i) for i in documents)
    ]
    counts = np.histogram(shares, 20, (0, 1))[0]
    assert [bar.get_height() for bar in axis.patches] == counts.tolist()
    for n, count in enumerate(counts.reshape(10, 2).sum(1)):
      assert re.search(rf'^{n / 10:.1f} - .*  {count}( |$)', out, re.M)
  (one,) = [x for x in runs if '--format=json' in x.text]
  places = [(0, planted.place(tasks[0], i)[1]) for i in documents]
  pairs = json.loads(one.out)['pairs']
  assert [(pair['first'], pair['second']) for pair in pairs] == places


def test_figure_3_of_pagesum(ran):
  runs = of_row(ran, 'PageSum', 'figure 3', 'MultiNews')[-2:]
  for task, one in zip(('arxiv', 'multinews'), runs, strict=True):
    _, weights = one_document.weights_of_pages(
        locost_jax.load(f'runs/pagesum-{task}'), *first(task)
    )
    np.testing.assert_array_equal(image_of(one), weights.T)


def test_figures_6_and_8_of_simcas(ran):
  *_, one = of_row(ran, 'SimCAS', 'figure 6', 'a report')
  model = locost_jax.load('runs/simcas-govreport')
  _, mass, _ = one_document.attention(model, *first('govreport_authors'))
  np.testing.assert_array_equal(image_of(one), np.sqrt(mass))
  *_, one = of_row(ran, 'SimCAS', 'figure 8', 'cosines')
  states = start_states.of_document(model, Path('report.txt').read_text())
  np.testing.assert_array_equal(image_of(one), start_states.cosines(states)[0])


def first(task):
  """Returns document and summary of the first row of a corpus's test split."""
  row, *_ = planted.rows_of(task, 'test')
  return row['document'], row['summary']


def image_of(one):
  return one.figures[0].axes[0].images[0].get_array()


def test_figure_2_of_simcas(ran):
  runs = of_row(ran, 'SimCAS', 'figure 2', 'selected')
  (figure,) = [figure for one in runs for figure in one.figures]
  drawn = [axis.lines[0].get_ydata() for axis in figure.axes]
  assert np.transpose(drawn).tolist() == planted.weights('simcas-arxiv')[1]


def test_figure_5_of_simcas(ran):
  of_row(ran, 'SimCAS', 'figure 5', 'six')
  for task in 'govreport_authors', *SIX[:2], *SIX[3:]:
    found = json.loads(Path(f'runs/lengths/{task}.json').read_text())
    lengths = [
        len(row['document']) + 2 for row in planted.rows_of(task, 'train')
    ]
    counts, _ = np.histogram(lengths, 20, (0, max(lengths)))
    assert found['splits']['train']['inputs']['histogram'] == counts.tolist()


def test_texts_are_those_of_the_run(ran):
  for paper, table, file, run in (
      ('PageSum', 'table 8', 'case', 'pagesum-govreport_7'),
      ('SimCAS', 'figure 9', *['simcas-govreport'] * 2),
      ('SimCAS', 'figure 9', *['simcas-bart_govreport'] * 2),
  ):
    of_row(ran, paper, table, '')
    model, text = locost_jax.load(f'runs/{run}'), Path('report.txt').read_text()
    (found,) = test_main.read_rows(Path(f'{file}.jsonl'))
    assert [found['prediction']] == model.summarize([text], max_length=4)


def as_text(one):
  """Returns a command of papers.seeds as on the page."""
  return one.text.removesuffix(JSON)


def test_every_picture_is_drawn(ran):
  """One of each kind of `papers.plot`."""
  from matplotlib import image  # pylint: disable=g-import-not-at-top

  kinds = set()
  for own in map(ran.__getitem__, PAPERS):
    for text in (one.text for one in sum(own.values(), [])):
      if ' papers.plot ' in text:
        pixels = image.imread(planted.flag(text, 'output'))
        assert pixels.shape[1] >= 300 and pixels[..., :3].std() > 0.02, text
        kinds.add(text.split()[3])
  assert kinds == plot.KINDS.keys() - {'curves'}  # see `test_plot`


def seeds_of(one):
  """Returns {row: numbers} of a command of papers.seeds."""
  (table,) = json.loads(one.out)['tables']
  return {row['name']: row for row in table['rows']}


def test_table_6_of_locost(ran):
  runs = of_row(ran, 'LOCOST', 'table 6', 'LOCOST')
  for model in 'locost', 'longt5':
    (one,) = [
        x
        for x in runs
        if f'seeds --workdir=runs/finetune_arxiv-{model} ' in x.text
    ]
    rows = seeds_of(one)
    first, second = (
        planted.mean_rouge(f'finetune_arxiv-{model}{of}', 'R-Lsum')
        for of in ('', '@8192')
    )
    assert rows['4,096 tokens']['rouge_mean'] == pytest.approx(first)
    assert rows['8,192 tokens']['rouge_mean'] == pytest.approx(second)
    gain = rows['8,192 tokens']['gain']
    assert gain == pytest.approx(100 * (second / first - 1))
    assert f' {gain:.1f}\n' in planted.run(as_text(one))


def test_figure_5_of_locost(ran):
  *_, one = of_row(ran, 'LOCOST', 'figure 5', 'LOCOST')
  (line,) = (
      x for x in one.figures[0].axes[0].lines if x.get_label() == 'locost'
  )
  assert dict(zip(*line.get_data())) == {
      2**n: pytest.approx(planted.mean_rouge(f'sweep/{2**n}@1000000', 'R-L'))
      for n in range(10, 16)
  }


def test_figure_1_of_pagesum(ran):
  *_, one = of_row(ran, 'PageSum', 'figure 1', 'arXiv')
  curve, mean = one.figures[0].axes[0].lines
  assert list(curve.get_ydata()) == [1, 0.5, 0.25]
  assert list(mean.get_ydata()) == [0.25, 0.25]


def test_table_2_of_simcas(ran):
  *_, one = of_row(ran, 'SimCAS', 'table 2', 'R-1')
  own = {'simcas-bart_govreport': 'R-1 R-2 R-L F1'}
  scored = one._replace(out=one.out.partition('Pearson')[0])
  assert problems([scored], 'SimCAS', own) == []
  scores = planted.rouge('simcas-bart_govreport')
  lines = [line.split() for line in one.out.splitlines()]
  titles, *rows = lines[[x[:1] == ['Pearson'] for x in lines].index(True) :]
  row = {words[0]: dict(zip(titles, words)) for words in rows if words}
  for a, b in ('R-1', 'R-2'), ('R-1', 'R-L'), ('R-2', 'R-L'):
    want = np.corrcoef(scores[a], scores[b])[0, 1]
    assert row[a][b] == f'{want:.3f}'


def test_table_5_of_simcas(ran):
  """Mean and spread over seeds on validation, by the corpus's protocol."""
  runs = [
      one
      for start in ('arXiv', 'GovReport', 'Multi-News', 'NarrativeQA')
      for one in of_row(ran, 'SimCAS', 'table 5', start)
      if 'papers.seeds' in one.text
  ]
  words = '', 'unchunked_', 'unaligned_', 'unselected_'
  for word, task in itertools.product(words, [*SIX, 'narrativeqa']):
    (one,) = {x for x in runs if f'/{word}{task} ' in x.text}
    rows, values, key = seeds_of(one), [], 'rouge_mean'
    assert list(rows) == ['seed 0', 'seed 1', 'mean', 'spread']
    for seed in 0, 1:
      home = Path(f'runs/seeds/{word}{task}/seed-{seed}')
      stored = json.loads((home / 'config.json').read_text())
      assert stored['train']['seed'] == seed
      # All share the records.
      assert (home / 'cache').resolve() == (home.parent / 'cache').resolve()
      system = f'seeds/{word}{task}/seed-{seed}', 'validation'
      last = 'R-Lsum' if task in ('arxiv', 'pubmed') else 'R-L'
      values.append(planted.mean_rouge(system[0], last, system[1]))
      if task == 'narrativeqa':
        values[-1], key = planted.rouge(*system)['R-1'].mean(), 'f1'
    assert rows['mean'][key] == pytest.approx(np.mean(values))
    assert rows['spread'][key] == pytest.approx(np.std(values, ddof=1))
  assert 'spread: the sample standard dev' in planted.run(as_text(one))


def test_figure_4_of_simcas(ran):
  """Mean and deviation over seeds for 0, 10 and 100 examples."""
  *_, one = of_row(ran, 'SimCAS', 'figure 4', 'SimCAS')
  (axis,), counts = one.figures[0].axes, [0, 10, 100]
  configs = dict(simcas='simcas.py:arxiv', bart='simcas.py:bart_arxiv')
  configs['led'] = 'finetune_arxiv.py:led'
  for line, band in zip(axis.lines, axis.collections, strict=True):
    system = f'few/{configs.pop(line.get_label())}-'
    scores = [
        [planted.mean_rouge(f'{system}{n}-{seed}', 'R-Lsum') for seed in (0, 1)]
        for n in counts
    ]
    mean, deviation = np.mean(scores, 1), np.std(scores, 1, ddof=1)
    assert list(line.get_xdata()) == counts
    assert line.get_ydata() == pytest.approx(mean)
    corners = band.get_paths()[0].vertices
    highest = [corners[corners[:, 0] == n, 1].max() for n in counts]
    assert highest == pytest.approx(mean + deviation)
  assert not configs


def test_table_9_of_simcas(ran):
  for start, word in ('BART', 'bart_'), ('SimCAS', ''):
    runs = of_row(ran, 'SimCAS', 'table 9', start)
    for task in [*SIX, 'narrativeqa']:
      flag = f'--workdir=runs/simcas-{word}{task} --evaluate'
      (one,) = [x for x in runs if flag in x.text and '@' not in x.text]
      (table,) = json.loads(one.out)['tables']
      *_, last = table['rows']
      want = math.exp(planted.loss_of(f'simcas-{word}{task}'))
      assert table['split'] == 'test'
      assert last['perplexity'] == pytest.approx(want)


# --- What the checks catch ----------------------------------------------------


@pytest.mark.parametrize('name', PAPERS)
def test_a_dropped_system_is_caught(ran, name):
  for row, wanted in EXPECTED.items():
    names = {system.partition('@')[0] for system in wanted}
    for system in names - {'reference', 'shuffled'} if row[0] == name else ():
      kept = [
          one
          for one in of_row(ran, *row)
          if not re.search(rf'=(runs/)?{system}(\.jsonl)?( |$)', one.text)
      ]
      assert problems(kept, name, wanted), (row, system)
