"""The source page of a summary, also in a real browser."""

import html.parser
import json
import re
import subprocess
import weakref

import numpy as np
import pytest

from locost_jax import summarize
from locost_jax.generation import generate
from locost_jax.summarizing import attribution
from locost_jax.summarizing import closest_words
from locost_jax.summarizing import page_contents
from locost_jax.summarizing import page_html
from locost_jax.summarizing import passages as passages_lib
from locost_jax.summarizing import source_page
from locost_jax.summarizing import written_tokens
from tests import browser
from tests import tiny_run

EVIL = """</script><script>document.title="broken"</script> <img src=x
onerror="alert(1)"> "quoted" & 'single' <b>bold</b> \u2028 &lt;"""
TEXT = '\n\n'.join(
    [
        'The rabbit ran across the wide green field.',
        f'The cook said: {EVIL}',
        'A caterpillar sat on a mushroom and smoked.',
        'Nobody read this last passage at all.',
    ]
)
SUMMARY = 'A caterpillar smoked on a mushroom. The cook said </script> & "no".'


def make_source(text=TEXT, summary=SUMMARY, peak=(2, 1)):
  """Makes a Source whose sentence i attended most to passage peak[i]."""
  passages = passages_lib.cut(text)
  P = len(passages)
  tokens = np.array([end - start for start, end in passages])
  tokens[-1] = 0  # not read
  spans = [(0, 35), (36, len(summary))]
  quotes = [text[start:end] for start, end in passages]
  closest = closest_words.closest_passages(
      [summary[slice(*span)] for span in spans], quotes
  )
  sentences = []
  for span, p, match in zip(spans, peak, closest):
    mass = np.full(P, 0.1)
    mass[p], mass[-1] = 0.7, 0
    best = np.argsort(-mass, kind='stable')[:3]
    attended = [closest_words.Match(int(b), mass[b]) for b in best]
    sentences.append(written_tokens.Sentence(span, mass, attended, match))
  mean = np.mean([sentence.mass for sentence in sentences], 0)
  given = text, summary, passages, tokens, sentences, mean
  return attribution.Source(
      *given, int(tokens.sum()) + 40, int(tokens.sum()) + 1
  )


class Reader(html.parser.HTMLParser):
  """Collects elements, ids, links and the texts of passages."""

  def __init__(self, text):
    super().__init__()
    self.tags, self.ids, self.links, self.texts = [], [], [], {}
    self.open, self.data, self.scripts = None, '', []
    self.feed(text)

  def handle_starttag(self, tag, attributes):
    attributes = dict(attributes)
    self.tags.append(tag)
    if 'id' in attributes:
      self.ids.append(attributes['id'])
    if 'href' in attributes:
      self.links.append(attributes['href'])
    assert 'src' not in attributes and not any(
        name.startswith('on') for name in attributes
    ), attributes
    if tag == 'p':
      self.open = attributes.get('id')
    if tag == 'script':
      self.scripts.append((attributes, ''))

  def handle_data(self, data):
    if self.open:
      self.texts[self.open] = self.texts.get(self.open, '') + data
    if self.tags and self.tags[-1] == 'script' and data.strip():
      attributes, old = self.scripts[-1]
      self.scripts[-1] = attributes, old + data

  def handle_endtag(self, tag):
    if tag == 'p':
      self.open = None
    if tag == 'script':
      self.tags.append('')


def test_text_is_escaped_everywhere():
  name = '</title><script>x</script>"\'&'
  page = source_page.page(name, make_source(), {'<key>': '"<value>'})
  reader = Reader(page)
  assert reader.tags.count('script') == 2  # the data and the page's script
  assert not {'img', 'b', 'link', 'iframe'} & set(
      re.findall(r'<(img|link|iframe)', page)
  )
  assert name not in page and '<key>' not in page and '"<value>' not in page
  assert ' '.join(EVIL.split()) in reader.texts['p2']
  assert 'http' not in page.replace('http-equiv', '')
  data = json.loads(reader.scripts[0][1])
  assert [row['top'][:1] for row in data['rows']] == [[], [3], [2]]
  assert '<' not in reader.scripts[0][1]


def test_a_lone_surrogate_is_written(tmp_path):
  page = source_page.page(
      'a\ud800', make_source('One \ud800.\n\nTwo.', SUMMARY, (0, 0)), {}
  )
  page.encode('utf-8')


def test_links_lead_both_ways():
  page = source_page.page('name', make_source(), {})
  reader = Reader(page)
  assert len(set(reader.ids)) == len(reader.ids)
  assert {link[1:] for link in reader.links} <= set(reader.ids)
  assert {'s1', 's2', 'p1', 'p2', 'p3', 'p4', 'summary'} <= set(reader.ids)
  document = page[page.index('class="document"') :]
  third = document.split('id="p3"')[1].split('</p>')[0]
  assert re.findall('href="#s(.)".*?>(.) ', third) == [
      ('1', '←'),
      ('2', '←'),
      ('1', '≈'),
  ]
  assert 'class="unread"' in document.split('id="p4"')[1][:30]
  card = page.split('id="s1"')[1].split('</article>')[0]
  assert card.index('href="#p3"') < card.index('href="#p1"')
  assert '<mark>' in card and '>70\u202f%<' in card


@pytest.mark.parametrize('P', [1, 3, 240, 1000])
def test_the_strip_keeps_the_total_mass(P):
  generator = np.random.default_rng(P)
  mass = generator.dirichlet(np.ones(P))
  tokens = generator.integers(0, 9, P)
  tokens[generator.integers(P)] = 9
  mass[tokens == 0] = 0
  edges = np.append(0, np.cumsum(tokens)) / tokens.sum()
  row = page_contents.make_strip(mass, edges, [])
  assert len(row['mass']) == len(row['passage']) == page_contents.COLUMNS
  np.testing.assert_allclose(sum(row['mass']), mass.sum(), atol=1e-3)
  for column, p in enumerate(row['passage']):  # it lies in that column
    left, right = np.array([column, column + 1]) / page_contents.COLUMNS
    assert tokens[p - 1] and edges[p - 1] < right + 1e-9
    assert edges[p] > left - 1e-9


def test_marks_shared_phrases_and_not_articles():
  quote = 'The old man and the sea are in the code of the harbour, the end.'
  rare = lambda word: word not in ('the', 'of', 'and', 'is')
  result = page_html.render_quote(
      quote, 'the code of the harbour is <x>.', rare
  )
  assert re.findall('<mark>(.*?)</mark>', result) == ['code of the harbour']
  assert re.sub('<.*?>', '', result) == quote
  long = 'start ' * 300 + 'the harbour lies here ' + 'end ' * 300
  result = page_html.render_quote(long, 'harbour', rare)
  assert '<mark>harbour</mark>' in result and len(result) < 700
  assert result.count('…') == 2


def read_untimed(path):
  """Returns the text of a page without its seconds."""
  text = re.sub('<dt>seconds</dt><dd>.*?</dd>', '', path.read_text())
  return re.sub(r'\d+\.\d s ·', '', text)


@pytest.mark.slow
def test_the_command_writes_pages(tmp_path, run_command, monkeypatch):
  """One document gives one page; several also give a list of pages.

  Documents are encoded once: pages reuse the states of decoding, also in
  batches, and equal pages that encode again. States of a batch are freed before
  the next one.
  """
  read, states, one_at_a_time = [], [], True
  encode = generate.encode

  def spy(*arguments):
    if one_at_a_time:
      assert all(state() is None for state in states), 'still there'
    read.append(arguments[2].shape)
    memory = encode(*arguments)
    states.append(weakref.ref(memory['states']))
    return memory

  monkeypatch.setattr(generate, 'encode', spy)
  tiny_run.make(tmp_path / 'run')
  files = [tmp_path / 'a.txt', tmp_path / 'b.txt']
  for file in files:
    file.write_text(f'Document {file.stem}.\n\nIt ends here.')

  def call(*arguments):
    status, out, err = run_command(
        summarize, f'--checkpoint={tmp_path / "run"}', *arguments
    )
    assert not status, err
    return out

  plain = call(files[0])
  report = tmp_path / 'one.html'
  assert call(files[0], f'--report={report}') == plain
  assert 'Document a.' in report.read_text()
  report = tmp_path / 'out.html'
  call(*files, f'--report={report}')
  links = Reader(report.read_text()).links
  assert links == ['out-1.html', 'out-2.html']
  for name, link in zip('ab', links):
    assert f'Document {name}.' in (tmp_path / link).read_text()
  assert read == [(1, 64), (1, 64), (2, 64)]
  again = *files, f'--report={report}', '--overwrite'
  call(*again, '--batch_size=1')
  assert read[3:] == [(1, 64), (1, 64)]
  pages = [read_untimed(tmp_path / link) for link in links]
  given, one_at_a_time = attribution.token_mass, False
  monkeypatch.setattr(attribution, 'token_mass', lambda *a: given(*a[:5]))
  call(*again)
  assert len(read) == 8  # the batch, then each document
  assert [read_untimed(tmp_path / link) for link in links] == pages


def chromium(tmp_path, *arguments):
  flags = (
      '--disable-quic --disable-component-update --disable-sync '
      '--hide-scrollbars --enable-logging=stderr --virtual-time-budget=3000 '
      '--window-size=1000,800'
  )
  command = [*browser.command(tmp_path / 'profile'), *flags.split()]
  done = subprocess.run(
      [*command, *arguments], capture_output=True, text=True, timeout=120
  )
  assert done.returncode == 0, done.stderr[-2000:]
  console = [line for line in done.stderr.splitlines() if 'CONSOLE' in line]
  return done.stdout, console


@browser.needed
def test_the_browser_runs_the_page(tmp_path):
  """No script error; the strip shows the sentence named in the address."""
  page = tmp_path / 'page.html'
  page.write_text(source_page.page('name', make_source(), {}))
  dom, console = chromium(tmp_path, '--dump-dom', f'{page.as_uri()}#s1')
  assert console == []
  assert 'data-ready="yes"' in dom
  assert '<title>name: where its summary comes from</title>' in dom
  chips = dom.split('class="chips"')[1].split('</div>')[0]
  assert re.findall('<a[^>]*class="on"[^>]*>([^<]*)<', chips) == ['1']
  passages = [
      int(p) for p in re.findall(r'<a href="#p(\d)" tabindex="-1"><rect', dom)
  ]
  heat = [float(x) for x in re.findall(r'fill-opacity="([\d.]+)"', dom)]
  assert len(passages) == len(heat) == page_contents.COLUMNS
  assert {p for p, h in zip(passages, heat) if h > 0.9} == {3}
  # Negative control: the browser reports a script that it cannot run.
  broken = page.read_text().replace("'use strict';", "'use strict'; x;")
  page.write_text(broken)
  dom, console = chromium(tmp_path, '--dump-dom', page.as_uri())
  assert console and 'data-ready="yes"' not in dom


def read_png(path):
  """Reads a PNG: uint8 [height, width, 3]."""
  from matplotlib import image  # pylint: disable=g-import-not-at-top

  return (image.imread(path)[..., :3] * 255).round().astype(np.uint8)


def take_picture(page):
  """Returns the pixels of a page in a light colour scheme."""
  picture = page.with_suffix('.png')
  light = '--blink-settings=preferredColorScheme=1'
  chromium(page.parent, f'--screenshot={picture}', light, page.as_uri())
  return read_png(picture)


@browser.needed
def test_the_browser_paints_the_strip(tmp_path):
  """The screenshot has the strip's colours at the passages' positions."""
  page = tmp_path / 'page.html'
  source = make_source(peak=(0, 0))
  html_text = source_page.page('name', source, {})
  # Only the strip, so that its position is known.
  html_text = html_text.replace(
      '</style>',
      """
      body > :not(.strip), .chips, .ends { display: none }
      .strip, .strip > div { padding: 0; max-width: none; border: 0 }
      </style>""",
  )
  page.write_text(html_text)
  row = take_picture(page)[15].astype(int)
  redness = row[:, 0] - row[:, 2]
  edge = int(source.tokens[0] / source.tokens.sum() * len(row))
  # The first passage has seven times the attention of each other one.
  assert redness[: edge - 10].min() > 100 > 60 > redness[edge + 10 :].max()


class Isolation(html.parser.HTMLParser):
  """Collects the elements that enclose each text with a direction mark."""

  def __init__(self, page):
    super().__init__()
    self.open, self.found = [], []
    self.feed(page)

  def handle_starttag(self, tag, attributes):
    if tag not in ('meta', 'input', 'rect', 'path', 'br', 'link'):
      self.open.append(tag)

  def handle_endtag(self, tag):
    if tag in self.open:
      del self.open[len(self.open) - 1 - self.open[::-1].index(tag) :]

  def handle_data(self, data):
    if '\u202e' in data:
      self.found.append(tuple(self.open))


def test_a_direction_mark_changes_only_its_own_text(tmp_path):
  """Each text is in an isolated element or fills a block."""
  turn = lambda text: '\n\n'.join(
      '\u202e'.join([part[:9], part[9:]]) for part in text.split('\n\n')
  )
  summary = f'{SUMMARY[:9]}\u202e{SUMMARY[9:45]}\u202e{SUMMARY[45:]}'
  source = make_source(turn(TEXT), summary)
  page = source_page.page('na\u202eme', source, {'key': 'val\u202eue'})
  source_page.write_index(
      tmp_path / 'index.html', [('a-1.html', 'na\u202eme', summary)] * 2
  )
  page += (tmp_path / 'index.html').read_text()
  style = re.sub(r'/\*.*?\*/', '', page, flags=re.DOTALL)
  rule = re.search(r'([^{}]+)\{\s*unicode-bidi: isolate;', style)
  selectors = [s.strip() for s in rule[1].split(',')]
  found = Isolation(page).found
  assert len(found) > 12
  for elements in found:
    pairs = set(elements) | {
        f'{outer} > {inner}' for outer, inner in zip(elements, elements[1:])
    }
    alone = elements[-1] in ('title', 'h1', 'dd', 'p') or 'svg' in elements
    assert alone or pairs & set(selectors), elements
