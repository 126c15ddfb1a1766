"""A line about documents in a script that the vocabulary does not have."""

import warnings

import pytest

import locost_jax
from tests.summarizing.summarize_command import write_documents

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
def test_one_line_for_each_file(call, tmp_path, more):
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


def test_from_python_it_is_a_warning():
  summarizer = locost_jax.load('builtin:documentation')
  with pytest.warns(UserWarning, match=rf'^texts\[1\]: \d+% {WORDS}$') as found:
    summarizer.summarize([ENGLISH, JAPANESE], max_length=12, batch_size=1)
  assert len(found) == 1 and found[0].filename == __file__
  with warnings.catch_warnings(action='error'):
    summarizer.summarize(ENGLISH, max_length=12)
