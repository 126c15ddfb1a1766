"""Error messages name the cause."""

import functools
import math
import re
import resource
import warnings

import pytest

import locost_jax
from locost_jax.config import progress
from locost_jax.devices import memory
from locost_jax.summarizing import write_summaries
from locost_jax.summarizing.summarizer import Summarizer
from tests.summarizing.summarize_command import error_line
from tests.summarizing.summarize_command import write_documents

pytestmark = pytest.mark.usefixtures('guard')


def test_a_tokenizer_error_fails_only_its_document(
    run, call, tmp_path, monkeypatch
):
  read = Summarizer.read

  def fail(self, text, *arguments):
    if text.text == 'bad':
      raise RecursionError('in\nthe tokenizer')
    return read(self, text, *arguments)

  for name in 'good', 'bad':
    (tmp_path / f'{name}.txt').write_text(name)
  monkeypatch.setattr(Summarizer, 'read', fail)
  status, out, err = call(
      '--checkpoint', run, tmp_path / 'bad.txt', tmp_path / 'good.txt'
  )
  assert status == 2 and 'bad.txt: (left out: cannot be' in out.splitlines()[0]
  assert error_line(err) == (
      f'error: {tmp_path}/bad.txt: cannot be tokenised: RecursionError: in '
      'the tokenizer'
  )


def test_the_limit_of_the_address_space(tmp_path, monkeypatch):
  (tmp_path / 'proc/self').mkdir(parents=True)
  (tmp_path / 'proc/self/status').write_text('VmSize:\t 1048576 kB\n')
  limits = {resource.RLIMIT_AS: (3 * 2**30, math.inf)}
  monkeypatch.setattr(resource, 'getrlimit', limits.get)
  assert memory.free_host_bytes(tmp_path) == 2 * 2**30
  limits[resource.RLIMIT_AS] = resource.RLIM_INFINITY, math.inf
  assert memory.free_host_bytes(tmp_path) is None


def last_line(err):
  return err.splitlines()[-1]


def test_the_last_line_counts_documents_and_names_files(
    run, call, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  for name in 'ab':
    (tmp_path / f'{name}.txt').write_text(f'The text of {name}.')
  (tmp_path / 'empty.txt').write_text(' ')
  command = '--checkpoint', run, '--max_length=4', '--batch_size=1'
  _, out, err = call(*command, 'a.txt')
  assert out.count('\n') == 1 and '1/1  a.txt' in last_line(err)
  _, out, err = call(*command, 'a.txt', 'b.txt')
  assert out.count('\n') == 2
  assert last_line(err) == '2 documents summarised'
  status, out, err = call(*command, 'a.txt', 'empty.txt', 'none.txt')
  assert (status, out.count('\n'), out.count('left out:')) == (2, 3, 2)
  assert last_line(err) == '1 document summarised, 2 left out'
  files = '--output=o.jsonl', '--report=r.html'
  _, out, err = call(*command, *files, 'a.txt')
  assert out == ''
  where = 'summaries in o.jsonl; report in r.html'
  assert last_line(err) == f'1 document summarised; {where}'
  _, _, err = call(*command, *files, 'a.txt', 'b.txt', '--overwrite')
  assert last_line(err) == f'2 documents summarised; {where}'
  _, _, err = call(*command, *files, 'a.txt', 'b.txt')  # done before
  assert last_line(err) == f'2 documents summarised; {where}'


@pytest.fixture
def show_all(monkeypatch):
  """Every line of the progress is printed."""
  monkeypatch.setattr(
      write_summaries,
      'Progress',
      functools.partial(progress.Progress, seconds=0.0),
  )


def write_document(path):
  paragraphs = (f'The text of {i} and {i * i}.' for i in range(12))
  path.write_text('\n\n'.join(paragraphs))
  return path


@pytest.mark.parametrize(
    'parts, level', [('rank', ''), ('hierarchical', ', level 1')]
)
def test_the_progress_names_the_parts(
    run, call, tmp_path, show_all, parts, level
):
  paths = [write_document(tmp_path / name) for name in ('a.txt', 'b.txt')]
  flags = f'--parts={parts} --part_length=128 --batch_size=2 --max_length=40'
  status, _, err = call('--checkpoint', run, *flags.split(), *paths)
  assert status == 0, err
  for path in paths:
    assert f'\n{path}{level}, part 1/' in f'\n{err}'


def test_the_progress_of_a_document_has_the_time_left(
    run, call, tmp_path, show_all
):
  path = write_document(tmp_path / 'a.txt')
  page = f'--report={tmp_path / "page.html"}'
  lengths = '--min_length=60', '--max_length=60'
  _, _, err = call('--checkpoint', run, *lengths, page, path)
  assert re.search(rf'^{path}  decoding  .* left$', err, re.M), err
  assert f'\n{path}  page  0/1\n' in err


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


JAPANESE = (
    '\u6628\u65e5\u3001\u96e8\u304c\u964d\u308a\u307e\u3057\u305f\u3002\n' * 9
)
ENGLISH = 'Return a list of the words.\n' * 9
WORDS = (
    "of its tokens are characters that the model's vocabulary does not have; "
    'expected a model trained on this language'
)


@pytest.mark.parametrize(
    'more', [[], ['--parts=join'], ['--parts=hierarchical']]
)
def test_one_line_for_each_file_in_an_unknown_script(call, tmp_path, more):
  write_documents(tmp_path / 'a.jsonl', [ENGLISH, JAPANESE, JAPANESE])
  (tmp_path / 'b.txt').write_text(JAPANESE)
  (tmp_path / 'c.txt').write_text(ENGLISH)
  command = '--checkpoint=builtin:documentation', '--max_length=12', *more
  names = [tmp_path / name for name in ('a.jsonl', 'b.txt', 'c.txt')]
  status, out, err = call(*command, '--batch_size=1', *names)
  assert status == 0 and out.count('\n') == 5
  found = [line for line in err.splitlines() if line.endswith(WORDS)]
  assert [line.partition(': ')[0] for line in found] == [
      f'{tmp_path}/a.jsonl:2',
      f'{tmp_path}/b.txt',
  ]
  assert 10 < int(found[0].partition(': ')[2].partition('%')[0]) <= 100


def test_from_python_an_unknown_script_is_a_warning():
  summarizer = locost_jax.load('builtin:documentation')
  with pytest.warns(UserWarning, match=rf'^texts\[1\]: \d+% {WORDS}$') as found:
    summarizer.summarize([ENGLISH, JAPANESE], max_length=12, batch_size=1)
  assert len(found) == 1 and found[0].filename == __file__
  with warnings.catch_warnings(action='error'):
    summarizer.summarize(ENGLISH, max_length=12)
