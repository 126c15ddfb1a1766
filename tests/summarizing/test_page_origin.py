"""A source page names its model; works in print, by keyboard, on phones."""

import os
import re

import numpy as np
import pytest

import locost_jax
from locost_jax.models import parameters
from locost_jax.summarizing import page_origin
from locost_jax.summarizing import source_page
from tests import browser
from tests import browser_driver
from tests.summarizing import test_source_page
from tests.summarizing.summarize_command import make_row

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


def read_settings(page):
  """Returns {name: value} from the foot of a page."""
  foot = page[page.index('<footer') :]
  return dict(re.findall('<dt>(.*?)</dt><dd>(.*?)</dd>', foot))


def test_a_page_names_its_model_after_the_summary():
  source = test_source_page.make_source()
  page = source_page.page('name', source, SETTINGS, origin=ORIGIN)
  shown = read_settings(page)
  assert shown.items() >= ORIGIN.items()
  assert shown['num_beams'] == '4' and 'seed' not in shown
  line = 'locost · 16,812,345 parameters · step 1,200 · 12.3 s'
  assert page.index('id="summary"') < page.index(line)
  sampled = source_page.page('name', source, dict(SETTINGS, method='sample'))
  assert read_settings(sampled)['seed'] == '7'


def test_seconds_name_the_batch():
  row = dict(make_row('', 1000), tokens_kept=9, documents_in_batch=2)
  shown = page_origin.describe_row(row)
  assert shown['tokens read'] == '9 of 1,000'
  assert shown['seconds'].endswith('share of a batch of 2 documents)')


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


@pytest.fixture(scope='module')
def tab(tmp_path_factory):
  """A browser with the page of a long document."""
  directory = tmp_path_factory.mktemp('browser')
  text = '\n\n'.join(
      [
          test_source_page.TEXT,
          'x' * 300,  # a word wider than a phone
          *['The mushroom and the caterpillar of the field. ' * 20] * 30,
      ]
  )
  path = directory / 'page.html'
  name = 'a_name_of_a_file_that_is_wider_than_a_phone.txt'
  source = test_source_page.make_source(text)
  path.write_text(source_page.page(name, source, SETTINGS, origin=ORIGIN))
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
def test_print_is_black_on_white_without_controls(tab, tmp_path):
  """Also in a dark colour scheme, which only affects the screen."""
  tab.emulate(scheme='dark')
  tab.screenshot(tmp_path / 'screen.png')
  tab.emulate('print', 'dark')
  tab.screenshot(tmp_path / 'print.png')
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
  screen, paper = (
      np.median(test_source_page.read_png(tmp_path / f'{name}.png'))
      for name in ('screen', 'print')
  )
  assert screen < 60 and paper == 255
  tab.emulate()
