"""The results page: numbers, marks, and its width in a browser."""

import html
import html.parser
import json
import math
import random
import re
import statistics

import numpy as np
import pytest
from rouge_score import rouge_scorer

from configs import default
from locost_jax import main
from locost_jax import report
from locost_jax.command_line import commands
from locost_jax.figures import finished_runs
from locost_jax.reports import charts
from locost_jax.reports import contents
from locost_jax.reports import examples
from locost_jax.reports import marks
from locost_jax.reports import page as page_lib
from locost_jax.reports import source_texts
from locost_jax.workdir import phases as phases_lib
from tests import browser
from tests.runs import test_main
from tests.summarizing.test_source_page import chromium

ROWS = 12
EVIL = '</bdi><script>alert(1)</script> <b>"&\u202e'
SIZES = [
    flag
    for flag in test_main.SMALL
    if not re.search('input_length|buckets|examples|batch|vocabulary', flag)
] + [
    '--config.data.vocabulary=byte',
    '--config.data.max_input_length=512',
    '--config.data.input_buckets=512',
    '--config.data.target_buckets=16',
    '--config.train.batch_size=4',
    f'--config.eval.examples={ROWS}',
    f'--config.eval.batch_size={ROWS}',
    '--config.train.steps=4',
    '--config.train.log_every=1',
    '--config.train.eval_every=2',
    '--config.optim.cooldown_steps=0',
    '--config.eval.baselines=False',
]


def call_main(*arguments):
  with pytest.raises(SystemExit) as end:
    commands.run(
        main.main,
        main.define_flags,
        main.__doc__,
        ['main', test_main.CONFIG, *map(str, arguments)],
    )
  assert not end.value.code


@pytest.fixture(scope='module')
def workdir(tmp_path_factory):
  """A trained run whose predictions are replaced by better ones."""
  home = tmp_path_factory.mktemp('report')
  documents = [
      test_main.story(i).replace('\n', ' ') * (1 + i % 3) for i in range(ROWS)
  ]
  rows = [
      dict(id=f'd{i}', document=text, summary=f'Story {i} of the wood.')
      for i, text in enumerate(documents)
  ]
  for name in 'train', 'validation':
    test_main.write_rows(home / f'{name}.jsonl', rows)
  call_main(
      *SIZES,
      f'--workdir={home / "run"}',
      f'--config.data.train_files={home / "train.jsonl"}',
      f'--config.data.validation_files={home / "validation.jsonl"}',
  )
  (path,) = (home / 'run' / 'predictions').glob('*-4.jsonl')
  written = [json.loads(line) for line in path.read_text().splitlines()]
  generator = random.Random(0)
  for row in written:
    words = documents[int(row['id'][1:])].split()
    start = generator.randrange(9)
    row['prediction'] = ' '.join(
        ['Wonderful', *words[start : start + 5], 'wood.', EVIL]
    )
  written[0]['prediction'] = written[0]['reference']
  written[1]['prediction'] = ''
  test_main.write_rows(path, written)
  return home / 'run'


@pytest.fixture(scope='module')
def collected(workdir):
  return contents.collect(finished_runs.find_run(workdir), lags=64)


@pytest.fixture
def page(run_command, workdir, tmp_path):
  """The page of the run compared with itself, made by the command."""
  path = tmp_path / 'page.html'
  status, out, err = run_command(
      report, workdir, workdir / '..' / 'run', f'--output={path}', '--length=64'
  )
  assert (status, out) == (0, ''), err
  return path.read_text()


def mean_rouge(row):
  scorer = rouge_scorer.RougeScorer(['rouge1', 'rouge2', 'rougeLsum'])
  found = scorer.score(row['reference'], row['prediction'])
  return 100 * statistics.fmean(score.fmeasure for score in found.values())


def test_scores_are_those_of_rouge_score(page, collected):
  (scored,) = collected.scored
  means = [mean_rouge(row) for row in scored.rows]
  shown = re.findall(
      r'class="best">([\d.]+)</span><small>([\d.]+) to ([\d.]+)<', page
  )
  assert len(shown) == 10  # two equal runs, five numbers each
  value, low, high = map(float, shown[4])
  assert value == pytest.approx(statistics.fmean(means), abs=0.006)
  draws = np.random.default_rng(0)
  drawn = sorted(
      statistics.fmean(means[i] for i in draws.integers(ROWS, size=ROWS))
      for _ in range(1000)
  )
  assert low == pytest.approx(drawn[25], abs=0.2)
  assert high == pytest.approx(drawn[974], abs=0.2)
  signature = f'rouge|locost|stem:no|split:locost_jax-2|agg:max|rouge_score:0.1.2|n:{ROWS}|ci:95'
  assert page.count(f'<code>{signature}</code>') == 1
  assert 'Do not compare these scores' not in page


def test_scores_of_two_kinds_are_not_compared_silently(collected):
  (scored,) = collected.scored
  other = scored._replace(summary=dict(scored.summary, signature='rouge|x'))
  both = [collected, collected._replace(scored=[other])]
  assert 'Do not compare these scores' in page_lib.render(both, [{}, {}], 1)


def test_lengths_are_those_read_by_the_model(collected, workdir):
  (sources,) = collected.sources
  rows = {
      row['id']: row['document']
      for row in map(
          json.loads,
          (workdir.parent / 'validation.jsonl').read_text().splitlines(),
      )
  }
  assert sources.keys() == rows.keys()
  for name, source in sources.items():
    assert source.tokens == min(512, len(rows[name].encode()) + 1)
    assert rows[name].startswith(source.text().rstrip())
  ids = contents.ids_of(collected.scored[0])
  lost = source_texts.find(collected.run, 'other', 'validation', ids, None)
  assert lost == {}


def test_the_profile_equals_a_plain_loop(collected):
  (scored,), (sources,) = collected.scored, collected.sources
  profile = contents.profile(scored, sources)
  rows = sorted(
      (sources[row['id']].tokens, mean_rouge(row)) for row in scored.rows
  )
  assert sum(profile.counts) == ROWS and len(profile.counts) > 1
  start = 0
  for length, mean, low, high, count in zip(*profile):
    part = rows[start : start + count]
    start += count
    assert length == statistics.median(length for length, _ in part)
    assert mean == pytest.approx(statistics.fmean(s for _, s in part))
    assert low <= mean <= high
    # Documents of one length are all in one bin.
    assert start == ROWS or rows[start][0] > part[-1][0]
  assert contents.profile(scored, {}) is None


def test_best_and_worst_examples(collected):
  (scored,) = collected.scored
  by_score = sorted(scored.rows, key=mean_rouge)
  best, worst = contents.choose_examples([scored], 3)
  score = {row['id']: mean_rouge(row) for row in scored.rows}
  assert [score[name] for name in best] == pytest.approx(
      [mean_rouge(row) for row in by_score[::-1][:3]]
  )
  assert worst[0] == scored.rows[1]['id'] and score[best[0]] == 100
  best, worst = contents.choose_examples([scored], 99)
  assert sorted(best + worst) == sorted(score)
  short = scored._replace(rows=scored.rows[:5], scores=scored.scores[:5])
  best, worst = contents.choose_examples([scored, short], 9)
  assert sorted(best + worst) == sorted(row['id'] for row in short.rows)
  assert contents.choose_examples([scored], 0) == ([], [])


def plain_runs(summary, document, least):
  runs, i = [], 0
  text = f' {" ".join(document)} '
  while i < len(summary):
    n = 0
    while (
        i + n < len(summary) and f' {" ".join(summary[i : i + n + 1])} ' in text
    ):
      n += 1
    if n >= least:
      runs.append((i, i + n))
    i += max(1, n)
  return runs


@pytest.mark.parametrize('seed', range(20))
def test_copied_runs_by_searching_the_text(seed):
  """Runs have two words or more; consecutive words differ."""
  generator = random.Random(seed)
  document = generator.choices('ab ac ad ae'.split(), k=30)
  summary = generator.choices('ab ac ad ae x'.split(), k=12)
  pieces = marks.mark(' '.join(summary), ' '.join(document), [])
  words = [copied for text, copied, _ in pieces if text.strip()]
  within = {
      i
      for start, end in plain_runs(summary, document, 2)
      for i in range(start, end)
  }
  assert words == [i in within for i in range(len(summary))]


def test_marks_are_pieces_of_the_summary():
  summary = 'Nobody saw The big, bad wolf of Émile. No wolf.'
  pieces = marks.mark(summary, 'the BIG bad wolf; of emile', ['A wolf of no'])
  assert ''.join(text for text, *_ in pieces) == summary
  assert examples.render_marks(pieces) == (
      'Nobody saw <mark>The big, bad <span class="expected">wolf</span> '
      '<span class="expected">of</span> Émile</mark>. '
      '<span class="expected">No</span> <span class="expected">wolf</span>.'
  )
  pieces = marks.mark('a b', None, ['b'])
  assert pieces == [
      ('a', False, False),
      (' ', False, False),
      ('b', False, True),
  ]
  assert marks.mark('', 'a', ['b']) == []


class Reader(html.parser.HTMLParser):
  """Collects tags and attributes that may load a resource."""

  def __init__(self, text):
    super().__init__()
    self.tags, self.loads = set(), []
    self.feed(text)

  def handle_starttag(self, tag, attributes):
    self.tags.add(tag)
    self.loads += [
        (name, value)
        for name, value in attributes
        if name in ('src', 'href', 'srcset', 'action') or name.startswith('on')
    ]


def test_the_page_loads_nothing_and_escapes_texts(page):
  reader = Reader(page)
  assert not reader.tags & {'script', 'img', 'link', 'iframe', 'object', 'b'}
  assert reader.loads == []
  assert 'http' not in page.replace('http-equiv', '')
  assert 'url(' not in page and '@import' not in page
  assert html.escape('</bdi><script>alert(1)</script>') in page
  copied = re.findall('<mark>(.*?)</mark>', page)
  assert any('number' in re.sub('<.*?>', '', text) for text in copied)
  assert page.count('class="example"') == 6


def test_the_config_shows_differences_from_the_default(page, workdir):
  table = page[page.index('class="config"') :].split('</table>')[0]
  rows = {}
  for row in re.findall(r'<tr>(.*?)</tr>', table.replace('<wbr>', ''), re.S):
    cells = re.findall(r'<td[^>]*>(.*?)</td>', row)
    if cells:
      rows[cells[0]] = cells[1:]
  assert rows['model.d_model'] == ['16', '16', '768']
  assert rows['train.steps'] == ['4', '4', '1000']
  stored = json.loads((workdir / 'config.json').read_text())
  known = phases_lib.flatten(phases_lib.to_dict(default.get_config()))
  changed = {
      key
      for key, value in phases_lib.flatten(stored).items()
      if not key.startswith('shares.') and known.get(key) != value
  }
  assert rows.keys() == changed


def test_curves_and_kernels_are_drawn(page, collected, workdir):
  rows = [
      json.loads(line)
      for line in (workdir / 'metrics.jsonl').read_text().splitlines()
  ]
  losses = [
      (row['step'], row['train/loss']) for row in rows if 'train/loss' in row
  ]
  assert list(zip(*collected.curves['train/loss'])) == losses
  for heading in ('train/loss', 'eval/jsonl/loss', 'effective context, tokens'):
    assert f'<h3>{heading}</h3><svg' in page
  ranges, decays = collected.context
  assert ranges.shape == (1, 2, 16) and len(decays) == 1
  assert decays[0][0] == [1, 2, 4, 8, 16, 32]
  assert max(decays[0][1]) == 1


def test_a_chart_puts_points_where_their_values_are():
  line = charts.Line(
      'a', [1, 4, 16], [0.0, 5.0, 10.0], 1, [0, 4, 9], [1, 6, 10]
  )
  svg = charts.draw_lines([line], 'x', 'y', x_log=True, dots=True)
  (path,) = re.findall('class="line c1" d="M(.*?)"', svg)
  places = [list(map(float, p.split())) for p in path.split('L')]
  x, y = zip(*places)
  assert x[1] - x[0] == pytest.approx(x[2] - x[1], abs=0.11)
  assert y[0] - y[1] == pytest.approx(y[1] - y[2], abs=0.11) and y[0] > y[2]
  grid = {
      label: float(at)
      for at, label in re.findall(
          r'd="M46 ([\d.]+)H[\d.]+"/><text [^>]*>(.*?)<', svg
      )
  }
  assert grid['0'] == pytest.approx(y[0], abs=0.11)
  assert grid['10'] == pytest.approx(y[2], abs=0.11)
  assert len(re.findall('<circle', svg)) == 3
  assert charts.draw_lines([charts.Line('a', [], [])], 'x', 'y') == ''


@pytest.mark.parametrize('low, high', [(0, 1), (-3, 7.5), (1e-5, 2e-5), (5, 5)])
def test_ticks_are_round_and_inside(low, high):
  ticks = charts.linear_ticks(low, high)
  assert 1 <= len(ticks) <= 6
  assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
  for a, b in zip(ticks, ticks[1:]):
    step = (b - a) / 10 ** math.floor(math.log10(b - a) + 1e-6)
    assert min(abs(step - n) for n in (1, 2, 5, 10)) < 1e-3


def test_thinned_curves_are_means():
  x, y = charts.thin(list(range(1000)), [float(i % 5) for i in range(1000)])
  assert len(x) <= charts.MOST_POINTS and set(y) == {2.0}
  assert x[0] == 2 and charts.thin([1, 2], [3, 4]) == ([1, 2], [3, 4])


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['--output=a.html'], 'which runs?'),
        (['run'], '--output=FILE.html is missing'),
        (['none', '--output=a.html'], 'none: no such directory'),
        (['run/vocabulary', '--output=a.html'], 'no config.json of a run'),
        (['run', '--output=a.html', '--protocol=x'], 'no such protocol'),
        (['run', '--output=validation.jsonl'], 'exists already'),
    ],
)
def test_bad_input_is_one_line(
    run_command, monkeypatch, workdir, arguments, message
):
  monkeypatch.chdir(workdir.parent)
  before = (workdir.parent / 'validation.jsonl').read_bytes()
  status, out, err = run_command(report, *arguments)
  assert status == 2 and not out and err.count('\n') == 1 and message in err
  assert not (workdir.parent / 'a.html').exists()
  assert (workdir.parent / 'validation.jsonl').read_bytes() == before


def test_a_run_without_predictions_has_a_page(collected):
  bare = collected._replace(scored=[], sources=[], curves={}, context=None)
  text = page_lib.render([bare], [{}], 3)
  assert 'No predictions yet' in text and 'id="config"' in text
  assert 'id="curves"' not in text and 'id="examples"' not in text


def width_in_browser(tmp_path, page, width):
  """Returns the page's width in a window of a width, without scroll bars."""
  frame = tmp_path / 'frame.html'
  frame.write_text(
      f'<body><iframe style="width:{width}px;height:900px;border:0" '
      f'srcdoc="{html.escape(page)}"></iframe><script>'
      'onload = () => { const page = document.querySelector("iframe")'
      '.contentDocument.documentElement; document.body.dataset.width = '
      'page.scrollWidth + " " + page.querySelectorAll("svg.chart").length; };'
      '</script>'
  )
  dom, console = chromium(tmp_path, '--dump-dom', frame.as_uri())
  assert console == []
  return list(map(int, re.search('data-width="(.*?)"', dom)[1].split()))


@browser.needed
@pytest.mark.parametrize('width', [1280, 375])
def test_the_page_does_not_scroll_sideways(tmp_path, page, width):
  found, drawn = width_in_browser(tmp_path, page, width)
  assert found <= width and drawn >= 6
  # Negative control: a page that is too wide is found.
  wide = page.replace('</header>', '<p style="width:90rem">x</p></header>')
  assert width_in_browser(tmp_path, wide, width)[0] > width
