"""The time left of all documents, and the progress of pages."""

import functools
import re

import numpy as np
import pytest

from locost_jax.command_line import progress
from locost_jax.summarizing import stream
from locost_jax.summarizing import write_summaries


def test_time_in_proportion_to_characters():
  now = [100.0]
  left = stream.TimeLeft(100, lambda: now[0])
  now[0] = 105.0
  assert left.seconds() is None
  now[0] = 110.0
  left.finish(20)
  assert left.seconds() == pytest.approx(40)  # 80 characters at 2 a second
  now[0] = 140.0
  assert left.seconds() == pytest.approx(10)  # the clock runs in a batch, too
  now[0] = 190.0
  assert left.seconds() == 0
  left.finish(80)
  assert left.seconds() == 0


@pytest.fixture
def show_all(monkeypatch):
  """Every line of the progress is printed."""
  monkeypatch.setattr(
      write_summaries,
      'Progress',
      functools.partial(progress.Progress, seconds=0.0),
  )


def write_document(path, paragraphs=12):
  words = np.random.default_rng(0).integers(0, 99, (paragraphs, 12))
  path.write_text('\n\n'.join(' '.join(map(str, line)) for line in words))
  return path


@pytest.mark.parametrize('parts', ['join', 'rank', 'hierarchical'])
def test_the_time_left_is_that_of_all_documents(
    run, call, tmp_path, show_all, monkeypatch, parts
):
  finished = []
  finish = stream.TimeLeft.finish

  def spy(self, characters):
    finished.append(characters)
    finish(self, characters)

  monkeypatch.setattr(stream.TimeLeft, 'finish', spy)
  paths = [write_document(tmp_path / name) for name in ('a.txt', 'b.txt')]
  flags = f'--parts={parts} --part_length=128 --batch_size=2 --max_length=40'
  status, _, err = call('--checkpoint', run, *flags.split(), *paths)
  assert status == 0, err
  lines = [line for line in err.splitlines() if ', part ' in line]
  assert len(lines) > 20 and not any(line.endswith(' left') for line in lines)
  # From the second batch on there is an estimate, also in the second document.
  first = next(i for i, line in enumerate(lines) if ', part 3/' in line)
  assert all(re.search('  all in [^ ]+( s)?$', line) for line in lines[first:])
  level = ', level 1' if parts == 'hierarchical' else ''
  assert lines[0].startswith(f'{paths[0]}{level}, part 1/')
  assert any(line.startswith(f'{paths[1]}{level}, part 1/') for line in lines)
  characters = sum(len(path.read_text()) for path in paths)
  assert sum(finished) == pytest.approx(characters, rel=0.05)


def test_one_document_has_the_time_of_its_stage(run, call, tmp_path, show_all):
  path = write_document(tmp_path / 'a.txt')
  _, _, err = call(
      '--checkpoint', run, '--min_length=60', '--max_length=60', path
  )
  lines = [line for line in err.splitlines() if '  decoding  ' in line]
  assert any(line.endswith(' left') for line in lines), err
  assert 'all in' not in err


def test_a_page_shows_its_progress(run, call, tmp_path, show_all):
  path = write_document(tmp_path / 'a.txt')
  command = '--checkpoint', run, f'--report={tmp_path / "page.html"}', path
  status, _, err = call(*command, '--parts=hierarchical', '--part_length=128')
  assert status == 0, err
  found = re.findall(rf'^{path}  page  (\d+)/(\d+)', err, re.M)
  parts, levels = re.search(r'(\d+) parts, (\d+) levels', err).groups()
  (total,) = {int(total) for _, total in found[1:]}
  assert found[0] == ('0', '1')
  assert [int(done) for done, _ in found[1:]] == list(range(total))
  assert total >= int(parts) + int(levels) - 1
  assert any(
      line.endswith(' left') for line in err.splitlines() if ' page ' in line
  )


def test_a_continued_command_counts_within_its_total(
    run, call, tmp_path, show_all
):
  """Its documents have the numbers that they have among all documents."""
  paths = [str(write_document(tmp_path / f'{i}.txt')) for i in range(3)]
  rest = '--checkpoint', run, '--max_length=4', f'--output={tmp_path}/o.jsonl'
  assert call(*rest, paths[0])[0] == 0
  status, _, err = call(*rest, *paths)
  assert status == 0
  counts = re.findall(r'^(\d)/(\d)(?: and 1 more)?  \w+ing', err, re.M)
  assert counts and all(int(at) <= int(total) == 3 for at, total in counts), err
