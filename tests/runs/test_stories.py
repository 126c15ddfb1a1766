"""The two stories of docs/architecture.md name every file that they enter.

A training step and a summary of the tiny run are traced. Files of ops/, models/,
config/ and telemetry/, errors.py and files.py need not be named.
"""

import collections
from pathlib import Path
import re
import sys
import threading

import pytest

from locost_jax import models
from locost_jax import summarize
from locost_jax.data import pipeline
from tests import batches
from tests import small_training
from tests import tiny_run

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / 'locost_jax'
ASIDE = 'ops', 'models', 'config', 'telemetry', 'errors.py', 'files.py'
PAGE = (ROOT / 'docs' / 'architecture.md').read_text()


class Trace:
  """Remembers which files of the package have functions that are entered."""

  def __init__(self):
    self.entered = collections.defaultdict(set)

  def __call__(self, frame, event, argument):
    del argument
    code = frame.f_code
    if event == 'call' and code.co_filename.startswith(f'{PACKAGE}/'):
      file = Path(code.co_filename).relative_to(PACKAGE)
      if code.co_name != '<module>' and file.parts[0] not in ASIDE:
        self.entered[str(file)].add(code.co_name)

  def begin(self):
    threading.setprofile(self)
    sys.setprofile(self)

  def end(self):
    threading.setprofile(None)
    sys.setprofile(None)


def trace_step(directory):
  """Returns the files of a step, its batch, log line, and checkpoint."""
  config = tiny_run.make_config(steps=1)
  config.data.update(max_input_length=100, max_target_length=50)
  cache, _ = batches.make_cache(directory / 'cache', 8)
  trace = Trace()
  trace.begin()
  try:
    small_training.train(
        config,
        directory / 'run',
        models.build(config.model),
        lambda start: pipeline.train_batches(
            cache, batches.BYTES, config, start
        ),
        lambda params, step: {},
    )
  finally:
    trace.end()
  return trace.entered


def trace_summary(directory, succeed):
  """Returns the files of `summarize FILE`."""
  tiny_run.make(directory / 'run')
  text = directory / 'text.txt'
  text.write_text('The old mill stood by the river. Nobody ground corn there.')
  arguments = f'--checkpoint={directory / "run"}', text
  trace = Trace()
  trace.begin()
  try:
    succeed(summarize, *arguments)
  finally:
    trace.end()
  return trace.entered


def read_story(title):
  """Returns ({file: lines}, (files, lines), files also entered) of the page."""
  section = PAGE.partition(f'### {title}\n')[2].partition('\n#')[0]
  number = lambda text: int(text.replace(',', ''))
  files = dict(re.findall(r'\| `([\w/]+\.py)` \| ([\d,]+) \|', section))
  total = re.search(r'\| (\d+) files \| ([\d,]+) \|', section).groups()
  also = re.findall(r'`([\w/]+\.py)`', section.partition('It also enters')[2])
  return {f: number(n) for f, n in files.items()}, map(number, total), also


@pytest.mark.parametrize('title', ['A training step', 'A summary'])
def test_the_lines_of_a_story_are_those_of_its_files(title):
  files, (count, total), also = read_story(title)
  for file, lines in files.items():
    length = (PACKAGE / file).read_text().count('\n')
    assert abs(length - lines) <= 15, f'{file} has {length} lines now'
  assert (len(files), sum(files.values())) == (count, total)
  assert all((PACKAGE / file).is_file() for file in also)


def not_told(entered, title):
  """Returns the entered files that the page does not name."""
  files, _, also = read_story(title)
  return entered.keys() - {*files, *also}


def test_a_step_enters_the_files_of_its_story(tmp_path):
  entered = trace_step(tmp_path)
  assert 'train_step' in entered['training/step.py']
  assert not_told(entered, 'A training step') == set()


def test_a_summary_enters_the_files_of_its_story(tmp_path, succeed):
  entered = trace_summary(tmp_path, succeed)
  assert entered['generation/decode.py']
  assert not_told(entered, 'A summary') == set()
