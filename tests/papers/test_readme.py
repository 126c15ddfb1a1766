"""papers/README.md is complete; `test_planted` runs its commands."""

import re

import pytest

from tests.papers import reproduce

TEXT = reproduce.PAGE.read_text(encoding='utf-8')
PAPERS = reproduce.read(TEXT)
COMMANDS = {
    f'{paper.name} {number}': command
    for paper in PAPERS
    for number, command in paper.commands.items()
}


def missing(paper, rows):
  """Returns the tables and figures of a paper that have no row."""
  wanted = {
      f'{kind} {number}'
      for kind, count in reproduce.NUMBERS[paper.name].items()
      for number in range(1, count + 1)
  }
  return sorted(wanted.symmetric_difference({row[0] for row in rows}))


@pytest.mark.parametrize('paper', PAPERS, ids=lambda paper: paper.name)
def test_each_table_and_figure_has_rows_and_commands(paper):
  assert missing(paper, paper.rows) == []
  assert missing(paper, paper.rows[1:]) == [paper.rows[0][0]] or (
      paper.rows[1][0] == paper.rows[0][0]
  )
  used = set()
  for row in paper.rows:
    assert len(row) == 5 and all(row), row
    used.update(row[3].split(','))
  assert used == paper.commands.keys()


def test_the_page_is_short():
  assert TEXT.count('\n') <= 250


def test_percent_of_longt5():
  """LOCOST, tables 2 and 3: mean ROUGE relative to LongT5, from their rows."""
  cells = {
      (row[0], row[1].split(',')[0].split(';')[0]): row[2]
      for row in reversed(PAPERS[0].rows)
  }
  rows = [row for row in PAPERS[0].rows if row[0] == 'table 2']
  ours = [row[2] for row in rows if row[1].startswith('LOCOST, ')]
  ours += cells['table 3', 'LOCOST'].split('; ')
  theirs = cells['table 2', 'LongT5'].split('; ')
  theirs += cells['table 3', 'LongT5'].split('; ')
  mean = lambda text: sum(map(float, re.findall(r'[\d.]+', text)[:3])) / 3
  found = [100 * mean(a) / mean(b) for a, b in zip(ours, theirs, strict=True)]
  printed = [float(re.search(r'([\d.]+)%', text)[1]) for text in ours]
  assert printed == [96.1, 94.5, 95.2, 94.2, 93.5]
  assert [round(value, 1) for value in found] == [96.1, 94.1, 95.2, 94.2, 93.4]


@pytest.mark.parametrize('text', COMMANDS.values(), ids=COMMANDS)
def test_flags_exist(text, monkeypatch):
  """For every value of a loop."""
  monkeypatch.chdir(reproduce.ROOT)
  if reproduce.is_pytest(text):
    return reproduce.check_pytest(text)
  for command in reproduce.expand(text):
    if '--workdir' not in command or '--config=' in command:
      reproduce.parse(command)
