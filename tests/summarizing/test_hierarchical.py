"""Summaries of summaries: budgets, levels, parts, the command."""

import re

import numpy as np
import pytest

import locost_jax
from locost_jax.config import decode_settings
from locost_jax.errors import InputError
from locost_jax.summarizing import parts as parts_lib
from locost_jax.summarizing import stream
from locost_jax.summarizing import texts
from tests.data.rows import read_jsonl
from tests.summarizing.summarize_command import make_row

COUNT = lambda text: len(text.split())
cut = lambda room: lambda text: parts_lib.split(text, room, COUNT)


def document(paragraphs, words, seed=0):
  """Paragraphs of different lengths; all words differ."""
  lengths = np.random.default_rng(seed).integers(1, words, paragraphs)
  number, made = 0, []
  for length in lengths:
    made.append(' '.join(f'w{number + i}' for i in range(length)))
    number += length
  return '\n\n'.join(made)


def job_of(text):
  return stream.Job(0, texts.Document('a', text, 'a.txt'), 'hash')


def options(most):
  return stream.Options(
      decode_settings.Settings(max_length=most, min_length=50),
      parts=stream.Parts('hierarchical', 0, 0),
  )


def run_levels(text, room, most, write):
  """`hierarchical` with a model that is a function: (row, calls, document)."""
  calls, names, shares = [], [], []

  def run(job, name, parts, settings, characters):
    names.append(name)
    shares.append(characters)
    calls.append((len(parts), settings.max_length))
    for i, part in reversed(list(enumerate(parts))):
      row = make_row(write(part, settings.max_length), COUNT(part))
      own = stream.Job(i, job.document._replace(text=part))
      yield stream.Done(own, row, tokens=np.array([5]))

  given = job_of(text), options(most), room, cut(room)
  done = parts_lib.summarize_levels(*given, run)
  assert names == [f'a, level {i + 1}' for i in range(len(calls))]
  # The levels together stand for the document.
  assert sum(shares) == pytest.approx(len(text)) and min(shares) > 0
  return done, calls


def first_words(text, most):
  return ' '.join(text.split()[:most])


def slow(text, room, most, write):
  """The recursion as one would write it without a word about speed."""
  parts = parts_lib.split(text, room, COUNT)
  if len(parts) == 1:
    return write(parts[0], most)
  length = parts_lib.budget(len(parts), room, most)
  return slow(
      '\n\n'.join(write(part, length) for part in parts), room, most, write
  )


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('room', [50, 120, 10_000])
def test_levels_are_the_recursion(room, seed):
  text = document(60, 40, seed)
  done, calls = run_levels(text, room, 30, first_words)
  assert done.row['prediction'] == slow(text, room, 30, first_words)
  assert done.row['levels'] == len(calls)
  assert done.row['tokens_read'] == COUNT(text)
  # Every level is shorter, and each but the last has the budget of its parts.
  for (parts, length), (fewer, _) in zip(calls, calls[1:]):
    assert fewer < parts or parts == 2
    assert length == parts_lib.budget(parts, room, 30)
  assert calls[-1] == (1, 30)
  if room == 10_000:
    assert calls == [(1, 30)] and done.row['parts_used'] == [0]


def test_the_budget():
  budget = parts_lib.budget
  assert budget(4, 400, 512) == 100  # all fit into one part
  assert budget(4, 400, 64) == 64
  assert budget(40, 400, 512) == 196  # another level will be needed
  assert budget(2, 50, 512) == 25


def test_levels_have_every_word_in_one_part():
  text = document(50, 90)
  done, _ = run_levels(text, 60, 30, first_words)
  assert len(done.levels) > 2
  for level in done.levels:
    assert [w for part in level for w in part.text.split()] == text.split()
    for part in level:
      assert part.summary == first_words(part.text, COUNT(part.summary))
    text = ' '.join(part.summary for part in level)


def test_parts_without_a_summary():
  text = document(40, 40)

  def write(part, most):
    return '' if 'w0 ' in f'{part} ' else first_words(part, most)

  done, calls = run_levels(text, 200, 40, write)
  assert done.row['parts_used'] == list(range(1, calls[0][0]))
  assert done.job.document.text == text
  done, calls = run_levels(text, 200, 40, lambda part, most: '')
  assert done.row['prediction'] == '' and done.row['parts_used'] == [0]
  assert len(calls) == 2  # of nothing there is one part


def test_an_error_of_a_part_is_that_of_the_document():
  text = document(40, 40)

  job = job_of(text)
  fail = lambda *_: [stream.Done(job, error=InputError('full'))] * 3
  done = parts_lib.summarize_levels(job, options(9), 99, cut(99), fail)
  assert str(done.error) == 'full' and done.job is job


def test_the_command(run, call, tmp_path):
  (tmp_path / 'a.txt').write_text(document(30, 12))
  (tmp_path / 'b.txt').write_text('Short.')
  flags = '--parts=hierarchical --part_length=128 --batch_size=1'
  arguments = ['--checkpoint', run, *flags.split()]
  output = tmp_path / 'out.jsonl'
  a, b = tmp_path / 'a.txt', tmp_path / 'b.txt'
  status, _, err = call(*arguments, b, f'--output={output}')
  assert status == 0, err
  status, _, err = call(*arguments, a, b, f'--output={output}')
  assert status == 0 and '1 of 2 documents were done before' in err
  long, short = read_jsonl(output)
  assert long['levels'] > 1 and set(long['parts_used']) < set(range(20))
  assert max(long['parts_used']) < long['parts']
  assert (short['levels'], short['parts']) == (1, 1)
  want = locost_jax.load(str(run)).summarize('Short.')
  assert short['prediction'] == want[0]
  page = tmp_path / 'page.html'
  status, _, err = call(*arguments, a, f'--report={page}')
  assert status == 0, err
  html = page.read_text()
  assert f'{long["parts"]} parts' in html and '<h2>Part by part</h2>' in html
  # The page shows the document itself, and each part leads to its place.
  assert a.read_text().split('\n\n') == [
      re.sub('<[^>]*>', '', p)
      for p in re.findall(r'<p id="p\d+".*?</a><span>(.*?)</span>', html)
  ]
  parts = html[html.index('id="parts"') : html.index('<h2>Sentence')]
  links = [int(n) for n in re.findall(r'href="#p(\d+)"', parts)]
  assert len(links) == long['parts'] and links == sorted(links)
  # The summaries in the file are enough to make the page later.
  later = tmp_path / 'later.html'
  status, _, err = call(
      *arguments, a, f'--output={output}', f'--report={later}'
  )
  assert status == 0 and '1 of 1 documents were done before' in err, err
  again = later.read_text()
  again = again[again.index('id="parts"') : again.index('<h2>Sentence')]
  assert re.findall('<p>.*?</p>', again) == re.findall('<p>.*?</p>', parts)


def test_levels_from_a_file(run):
  """Parts are cut as before; a row of another document is refused."""
  summarizer = locost_jax.load(str(run))
  text = document(30, 12)
  parts = parts_lib.split(text, 127, len)
  written = [f'Part {i}.' if i % 2 else '' for i in range(len(parts))]
  row = dict(
      settings=dict(part_length=128),
      level_summaries=[written],
      prediction='All of it.',
  )
  first, last = parts_lib.read_levels(summarizer, text, row)
  assert [part.text for part in first] == parts
  assert [part.summary for part in first] == written
  assert last[0].text == '\n\n'.join(filter(None, written))
  assert last[0].tokens == [*summarizer.vocabulary.encode('All of it.'), 1]
  with pytest.raises(InputError, match='4 summaries of 1 parts'):
    parts_lib.read_levels(
        summarizer, 'Short.', dict(row, level_summaries=[['a'] * 4])
    )
