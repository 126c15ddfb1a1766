"""The page of a summary: escaped, linked; in print, by keyboard, on phones."""

import html.parser
import json
import os
import re
import weakref

import numpy as np
import pytest

import locost_jax
from locost_jax.attribution import attribution
from locost_jax.attribution import page as page_lib
from locost_jax.attribution import passages as passages_lib
from locost_jax.generation import generate
from locost_jax.models import parameters
from locost_jax.summarizing import provenance
from tests import browser
from tests import browser_driver
from tests.summarizing.summarize_command import make_row

EVIL = """</script><script>document.title="broken"</script> <img src=x
onerror="alert(1)"> "quoted" & 'single' <b>bold</b> \u2028 &lt; {{ 7 * 7 }} {% x %}"""
TEXT = '\n\n'.join(
    [
        'The rabbit ran across the wide green field.',
        f'The cook said: {EVIL}',
        'A caterpillar sat on a mushroom and smoked.',
        'Nobody read this last passage at all.',
    ]
)
SUMMARY = 'A caterpillar smoked on a mushroom. The cook said </script> & "no".'

ORIGIN = {
    'model': 'locost',
    'parameters': '16,812,345',
    'checkpoint': f'/{"a_long_name" * 9}/checkpoints/1200',
    'step': '1,200',
    'dtype': 'bfloat16',
    'tokens read': '9,123 of 10,000',
    'seconds': '12.3 (encoding 4.5, decoding 7.8)',
}
SETTINGS = {'method': 'beam', 'num_beams': 4, 'max_length': 128, 'seed': 7}


def make_source(text=TEXT, summary=SUMMARY, peak=(2, 1)):
  """Makes a Source whose sentence i attended most to passage peak[i]."""
  passages = passages_lib.cut(text)
  P = len(passages)
  tokens = np.array([end - start for start, end in passages])
  tokens[-1] = 0  # not read
  spans = [(0, 35), (36, len(summary))]
  quotes = [text[start:end] for start, end in passages]
  mass = np.full((2, P), 0.1)
  mass[:, -1], mass[0, peak[0]], mass[1, peak[1]] = 0, 0.7, 0.7
  written = attribution.Written(summary, spans, None, None, np.arange(2))
  sentences = written.describe_sentences(mass, quotes)
  mean = mass.mean(0)
  given = text, summary, passages, tokens, sentences, mean
  return attribution.Source(
      *given, int(tokens.sum()) + 40, int(tokens.sum()) + 1
  )


class Reader(html.parser.HTMLParser):
  """Collects the elements of a page, and its texts with what encloses them."""

  def __init__(self, page):
    super().__init__()
    self.elements, self.texts, self._open = [], [], []
    self.feed(page)
    self.ids, self.links = (
        [element[key] for _, element in self.elements if key in element]
        for key in ('id', 'href')
    )
    assert len(set(self.ids)) == len(self.ids)
    self.missing = {link[1:] for link in self.links} - set(self.ids)

  def handle_starttag(self, tag, attributes):
    element = tag, dict(attributes)
    assert 'src' not in element[1]
    assert not any(name.startswith('on') for name in element[1]), element
    self.elements.append(element)
    if tag not in ('meta', 'input', 'rect', 'path'):
      self._open.append(element)

  def handle_endtag(self, tag):
    while tag not in ('rect', 'path') and self._open.pop()[0] != tag:
      pass

  def handle_data(self, data):
    self.texts.append((list(self._open), data))

  def text_in(self, tag, key, value):
    """Returns the text of elements like <tag key="value">."""
    return ''.join(
        text
        for around, text in self.texts
        if any(t == tag and a.get(key) == value for t, a in around)
    )


def test_text_is_escaped_everywhere():
  """And a lone surrogate is written."""
  name = '</title><script>x</script>"\'&\ud800'
  page = page_lib.render(name, make_source(), {'<key>': '"<value>'})
  assert page.encode()
  reader = Reader(page)
  tags = [tag for tag, _ in reader.elements]
  assert tags.count('script') == 2  # the data and the page's script
  assert not {'img', 'link', 'iframe'} & set(tags)
  assert (
      name[:-1] not in page and '<key>' not in page and '"<value>' not in page
  )
  assert ' '.join(EVIL.split()) in reader.text_in('p', 'id', 'p2')
  assert 'http' not in page.replace('http-equiv', '')
  data = reader.text_in('script', 'id', 'data')
  tops = [row['top'][:1] for row in json.loads(data)['rows']]
  assert tops == [[], [3], [2]] and '<' not in data


def test_links_lead_both_ways():
  page = page_lib.render('name', make_source(), {})
  reader = Reader(page)
  assert 'copied' not in page.split('<body>')[1]
  assert not reader.missing
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
  row = page_lib.make_strip(mass, edges, [])
  assert len(row['mass']) == len(row['passage']) == page_lib.COLUMNS
  np.testing.assert_allclose(sum(row['mass']), mass.sum(), atol=1e-3)
  for column, p in enumerate(row['passage']):  # it lies in that column
    left, right = np.array([column, column + 1]) / page_lib.COLUMNS
    assert tokens[p - 1] and edges[p - 1] < right + 1e-9
    assert edges[p] > left - 1e-9


def test_marks_shared_phrases_and_not_articles():
  quote = 'The old man and the sea are in the code of the harbour, the end.'
  rare = lambda word: word not in ('the', 'of', 'and', 'is')
  find = lambda quote, sentence: [
      quote[a:b] for a, b in page_lib.find_shared_phrases(quote, sentence, rare)
  ]
  found = find(quote, 'the code of the harbour is <x>.')
  assert found == ['code of the harbour']
  # A long passage is cut around its first phrase.
  long = 'start ' * 90 + 'the harbour lies here ' + 'end ' * 100
  source = make_source(f'{long}\n\nB.\n\nC.', 'The harbour. Of C.', (0, 0))
  card = page_lib.render('name', source, {}).split('<blockquote>')[1]
  card = card.split('</blockquote>')[0]
  assert 'harbour</mark>' in card and len(card) < 600
  assert card.count('…') == 2


def read_untimed(path):
  """Returns the text of a page without its seconds."""
  text = re.sub('<dt>seconds</dt><dd>.*?</dd>', '', path.read_text())
  return re.sub(r'\d+\.\d s ·', '', text)


@pytest.mark.slow
def test_the_command_writes_pages(run, call, tmp_path, monkeypatch):
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
  files = [tmp_path / 'a.txt', tmp_path / 'b.txt']
  for file in files:
    file.write_text(f'Document {file.stem}.\n\nIt ends here.')

  def write(*arguments):
    status, out, err = call(f'--checkpoint={run}', *arguments)
    assert not status, err
    return out

  plain = write(files[0])
  report = tmp_path / 'one.html'
  assert write(files[0], f'--report={report}') == plain
  assert 'Document a.' in report.read_text()
  report = tmp_path / 'out.html'
  write(*files, f'--report={report}')
  links = Reader(report.read_text()).links
  assert links == ['out-1.html', 'out-2.html']
  for name, link in zip('ab', links):
    assert f'Document {name}.' in (tmp_path / link).read_text()
  assert read == [(1, 64), (1, 64), (2, 64)]
  again = *files, f'--report={report}', '--overwrite'
  write(*again, '--batch_size=1')
  assert read[3:] == [(1, 64), (1, 64)]
  pages = [read_untimed(tmp_path / link) for link in links]
  given, one_at_a_time = attribution.attribute, False
  monkeypatch.setattr(attribution, 'attribute', lambda *a: given(*a[:4]))
  write(*again)
  assert len(read) == 8  # the batch, then each document
  assert [read_untimed(tmp_path / link) for link in links] == pages


def read_settings(page):
  """Returns {name: value} from the foot of a page."""
  foot = page[page.index('<footer') :]
  return dict(re.findall('<dt>(.*?)</dt><dd>(.*?)</dd>', foot))


def test_a_page_names_its_model_after_the_summary():
  source = make_source()
  page = page_lib.render('name', source, SETTINGS, origin=ORIGIN)
  shown = read_settings(page)
  assert shown.items() >= ORIGIN.items()
  assert shown['num_beams'] == '4' and 'seed' not in shown
  line = 'locost · 16,812,345 parameters · step 1,200 · 12.3 s'
  assert page.index('id="summary"') < page.index(line)
  row = dict(make_row('', 1000), tokens_read=9, documents_in_batch=2, cut_at=32)
  origin = {**ORIGIN, **provenance.describe_row(row)}
  settings = dict(SETTINGS, method='sample')
  sampled = page_lib.render('name', source, settings, origin=origin)
  shown = read_settings(sampled)
  assert shown['seed'] == '7' and shown['tokens read'] == '9 of 1,000'
  assert shown['seconds'].endswith('share of a batch of 2 documents)')
  assert '<small>(cut at 32 tokens)</small>' in sampled


def test_one_sentence_is_not_compared_with_itself():
  source = make_source()
  one = source._replace(sentences=source.sentences[:1])
  pages = [page_lib.render('name', x, SETTINGS) for x in (source, one)]
  for shown in 'during the whole summary', 'little about this', '; summary ':
    assert [shown in ' '.join(page.split()) for page in pages] == [True, False]


def test_labels_are_apart():
  assert page_lib.spread([50, 50.5, 10]) == [50, 54, 10]
  assert page_lib.spread([99, 98, 97]) == [100, 96, 92]
  assert page_lib.spread([]) == []


def test_the_command_names_the_model(run, call, tmp_path):
  """The page of a new summary and of one from an earlier call."""
  document, page = tmp_path / 'a.txt', tmp_path / 'a.html'
  document.write_text('Document a.')
  output = f'--output={tmp_path / "o.jsonl"}'
  command = '--checkpoint', run, document, output, f'--report={page}'
  pages = []
  for _ in range(2):
    status, _, err = call(*command, '--num_beams=2')
    assert status == 0, err
    pages.append(page.read_text())
  assert pages[0] == pages[1]
  shown = read_settings(pages[0])
  params = locost_jax.load(run).params
  assert shown['parameters'] == f'{parameters.count(params):,}'
  assert shown['model'] == 'locost' and shown['dtype'] == 'float32'
  name = os.path.basename(run)  # not the directories of this machine
  assert shown['checkpoint'] == f'{name}/checkpoints/{shown["step"]}'
  assert str(run) not in pages[0]
  assert shown['num_beams'] == '2' and 'seed' not in shown
  assert re.match(r'\d+\.\d \(encoding \d+\.\d, decoding ', shown['seconds'])


def test_a_direction_mark_changes_only_its_own_text():
  """Each text is in an isolated element or fills a block."""
  turn = lambda text: '\n\n'.join(
      '\u202e'.join([part[:9], part[9:]]) for part in text.split('\n\n')
  )
  summary = f'{SUMMARY[:9]}\u202e{SUMMARY[9:45]}\u202e{SUMMARY[45:]}'
  source = make_source(turn(TEXT), summary)
  page = page_lib.render('na\u202eme', source, {'key': 'val\u202eue'})
  index = page_lib.render_index([('a-1.html', 'na\u202eme', summary)] * 2)
  style = re.sub(r'/\*.*?\*/', '', page, flags=re.DOTALL)
  rule = re.search(r'([^{}]+)\{\s*unicode-bidi: isolate;', style)
  selectors = [s.strip() for s in rule[1].split(',')]
  found = [
      [tag for tag, _ in around]
      for around, text in Reader(page).texts + Reader(index).texts
      if '\u202e' in text
  ]
  assert len(found) > 12
  for elements in found:
    pairs = set(elements) | {
        f'{outer} > {inner}' for outer, inner in zip(elements, elements[1:])
    }
    alone = elements[-1] in ('title', 'h1', 'dd', 'p') or 'svg' in elements
    assert alone or pairs & set(selectors), elements


@pytest.fixture(scope='module')
def tab(tmp_path_factory):
  """A browser with the page of a long document."""
  directory = tmp_path_factory.mktemp('browser')
  text = '\n\n'.join(
      [
          TEXT,
          'x' * 300,  # a word wider than a phone
          *['The mushroom and the caterpillar of the field. ' * 20] * 30,
      ]
  )
  path = directory / 'page.html'
  name = 'a_name_of_a_file_that_is_wider_than_a_phone.txt'
  source = make_source(text)
  path.write_text(page_lib.render(name, source, SETTINGS, origin=ORIGIN))
  with browser_driver.open_page(directory / 'profile') as page:
    page.resize(1000, 800)
    page.open(path.as_uri())
    yield page


@browser.needed
def test_the_keyboard_opens_the_sources_of_a_sentence(tab):
  """Tab reaches each sentence with a visible focus; Enter goes to it."""
  active = 'document.activeElement.'
  links = []
  for _ in range(5):
    tab.press('Tab')
    style = tab.run(f'getComputedStyle({active[:-1]}).outline')
    assert 'solid' in style and '2px' in style, style
    links.append(tab.run(f'{active}closest("p") && {active}hash'))
  assert links == [None, None, None, '#s1', '#s2']
  tab.press('Enter')
  assert tab.run('location.hash') == '#s2'
  assert tab.run('document.querySelector(".chips .on").textContent') == '2'
  top, height = tab.run(
      '[document.querySelector("#s2").getBoundingClientRect().top, innerHeight]'
  )
  assert 0 <= top < height / 2
  tab.press('Tab')  # the next Tab stays inside the sentence
  assert tab.run(f'{active}closest("article").id') == 's2'


@browser.needed
def test_a_phone_does_not_scroll_sideways(tab):
  tab.resize(360, 740, mobile=True)
  width = 'Math.max(document.documentElement.scrollWidth, innerWidth)'
  assert tab.run(width) == 360
  # Negative control: an element that is too wide is detected.
  tab.run('document.querySelector("h1").style.width = "500px"')
  assert tab.run(width) > 360
  tab.run('document.querySelector("h1").style.width = ""')
  tab.resize(1000, 800)


@browser.needed
def test_print_is_black_on_white_without_controls(tab):
  """Also in a dark colour scheme, which only affects the screen."""
  tab.emulate(scheme='dark')
  screen = tab.screenshot()
  tab.emulate('print', 'dark')
  show = lambda selector, key: tab.run(
      f'getComputedStyle(document.querySelector("{selector}"))["{key}"]'
  )
  assert show('body', 'color') == 'rgb(0, 0, 0)'
  assert show('body', 'backgroundColor') == 'rgb(255, 255, 255)'
  assert show('.chips', 'display') == show('.back', 'display') == 'none'
  assert show('.strip', 'position') == 'static'
  assert show('.summary a', 'backgroundImage') == 'none'
  assert show('blockquote', 'breakInside') == 'avoid'
  assert show('footer', 'display') == 'block'
  assert np.median(screen) < 60 and np.median(tab.screenshot()) == 255
  tab.emulate()


@browser.needed
def test_the_browser_runs_the_page(tab, tmp_path):
  """No script error; the strip shows the sentence named in the address."""
  page = tmp_path / 'page.html'
  page.write_text(page_lib.render('name', make_source(), {}))
  tab.open(f'{page.as_uri()}#s1')
  ready = 'document.documentElement.dataset.ready'
  assert tab.run(ready) == 'yes' and tab.errors == []
  assert tab.run('document.title') == 'name: where its summary comes from'
  assert tab.run('document.querySelector(".chips .on").textContent') == '1'
  columns = tab.run(
      '[...document.querySelectorAll(".map svg a")].map((a) => [a.getAttribute('
      '"href"), a.lastElementChild.getAttribute("fill-opacity"), '
      'a.firstElementChild.textContent.slice(0, 5)])'
  )
  assert len(columns) == page_lib.COLUMNS
  found = {(link, name) for link, heat, name in columns if float(heat) > 0.9}
  assert found == {('#p3', '¶ 3: ')}
  # Negative control: the browser reports a script that it cannot run.
  broken = page.read_text().replace("'use strict';", "'use strict'; x;")
  page.write_text(broken)
  tab.open(page.as_uri())
  assert tab.run(ready) is None and tab.errors


@browser.needed
def test_the_browser_paints_the_strip(tab, tmp_path):
  """The screenshot has the strip's colours at the passages' positions."""
  page = tmp_path / 'page.html'
  source = make_source(peak=(0, 0))
  # Only the strip, so that its position is known.
  style = """
      body > :not(.strip), .chips, .ends { display: none }
      .strip, .strip > div { padding: 0; max-width: none; border: 0 }
      </style>"""
  html_text = page_lib.render('name', source, {})
  page.write_text(html_text.replace('</style>', style))
  tab.open(page.as_uri())
  row = tab.screenshot()[15].astype(int)
  redness = row[:, 0] - row[:, 2]
  edge = int(source.tokens[0] / source.tokens.sum() * len(row))
  # The first passage has seven times the attention of each other one.
  assert redness[: edge - 10].min() > 100 > 60 > redness[edge + 10 :].max()
