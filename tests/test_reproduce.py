"""REPRODUCE.md is complete and (slow) all its commands run."""

import collections
import re

import jax
import pytest

from tests import reproduce
from tests.evaluation import test_judge

TEXT = reproduce.PAGE.read_text(encoding='utf-8')
SECTIONS = reproduce.sections(TEXT)
COMMANDS = reproduce.commands_of(TEXT)
# 'LOCOST table 2, 3' -> command; a repeated command runs once.
OURS = {}
for section in [reproduce.before(TEXT), *SECTIONS]:
  for number, command in enumerate(section.commands, start=1):
    if not reproduce.is_pytest(command) and command not in OURS.values():
      OURS[f'{section.name}, {number}'] = command


def missing(sections):
  """Returns tables and figures without a section, or with two."""
  found = collections.Counter(section.name for section in sections)
  wanted = {
      f'{paper} {kind} {number}'
      for paper, kinds in reproduce.NUMBERS.items()
      for kind, count in kinds.items()
      for number in range(1, count + 1)
  }
  return sorted({name for name in found | {} if found[name] > 1}) + sorted(
      wanted.symmetric_difference(found)
  )


def test_each_table_and_figure_has_a_section():
  assert len(SECTIONS) == 48 and missing(SECTIONS) == []


def test_each_command_belongs_to_a_section():
  ours = {text for text in COMMANDS if not reproduce.is_pytest(text)}
  assert set(OURS.values()) == ours and len(ours) > 100


def test_percent_of_longt5():
  """LOCOST, tables 2 and 3: mean ROUGE relative to LongT5, from their rows."""
  tables = {section.name: section.rows for section in SECTIONS}
  ours = [row[1] for row in tables['LOCOST table 2'][:3]]
  theirs = tables['LOCOST table 2'][4][1].split('; ')
  ours += tables['LOCOST table 3'][0][1].split('; ')
  theirs += tables['LOCOST table 3'][1][1].split('; ')
  mean = lambda text: sum(map(float, re.findall(r'[\d.]+', text)[:3])) / 3
  found = [100 * mean(a) / mean(b) for a, b in zip(ours, theirs, strict=True)]
  printed = [float(re.search(r'([\d.]+)%', text)[1]) for text in ours]
  assert printed == [96.1, 94.5, 95.2, 94.2, 93.5]
  assert [round(value, 1) for value in found] == [96.1, 94.1, 95.2, 94.2, 93.4]


def test_missing_and_repeated_sections_are_found():
  assert missing(SECTIONS[1:]) == ['LOCOST table 1']
  assert missing([*SECTIONS, SECTIONS[-1]]) == ['SimCAS figure 9']


@pytest.mark.parametrize('section', SECTIONS, ids=lambda s: s.name)
def test_a_section_is_complete(section):
  """It has commands, and rows with the paper's number and its check."""
  assert section.commands and section.rows
  for row in section.rows:
    assert len(row) == 4, row
    name, paper, here, check = row
    assert name and paper and check in reproduce.CHECKS, row
    # Only rows of published systems have an empty column "here".
    assert bool(here) == (check != 'published'), row
  assert any(row[3] != 'published' for row in section.rows)


def test_files_and_links_exist():
  for path in re.findall(r'`((?:configs|tests|locost_jax)/[\w./]+)`', TEXT):
    assert (reproduce.ROOT / path).exists(), path
  for link in re.findall(r'\]\((?!https?:)([^)]+)\)', TEXT):
    file, _, anchor = link.partition('#')
    headings = re.findall(
        r'^#+ (.*)', (reproduce.ROOT / file).read_text(encoding='utf-8'), re.M
    )
    slugs = [
        re.sub(r'[^\w -]', '', h).lower().replace(' ', '-') for h in headings
    ]
    assert not anchor or anchor in slugs, link


@pytest.mark.parametrize('text', COMMANDS)
def test_flags_exist(text, monkeypatch):
  """For every value of a loop."""
  monkeypatch.chdir(reproduce.ROOT)
  if reproduce.is_pytest(text):
    return reproduce.check_pytest(text)
  for command in reproduce.expand(text):
    reproduce.parse(command)


# --- Running commands ---------------------------------------------------------


@pytest.fixture(scope='module')
def home(tmp_path_factory):
  """A directory with a reader's files and a cache of compiled programs."""
  pytest.importorskip('torch')
  home = tmp_path_factory.mktemp('reproduce')
  reproduce.make_home(home)
  yield home
  jax.config.update('jax_compilation_cache_dir', None)


@pytest.fixture(scope='module')
def judge():
  server = test_judge.Judge()
  yield server
  server.close()


@pytest.mark.slow
@pytest.mark.parametrize('text', OURS.values(), ids=OURS)
def test_command_runs(home, judge, text, monkeypatch):
  """In the page's order, because commands read the output of earlier ones."""
  reproduce.enter(home, monkeypatch)
  monkeypatch.setenv('OPENAI_API_KEY', test_judge.KEY)
  text = text.replace('http://localhost:8000/v1', judge.url)
  assert reproduce.run(reproduce.expand(text)[0]) == 0
