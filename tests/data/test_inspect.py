"""data/inspect.py: numbers match hand counts; examples, notes and errors."""

import json

import numpy as np
import pytest

from locost_jax.data import inspect
from tests import tiny_run
from tests.data.rows import write_jsonl


@pytest.fixture
def files(tmp_path):
  train = [
      dict(id=f't{i}', document='x' * n, summary='y' * (i + 1))
      for i, n in enumerate([3, 9, 9, 20, 30])
  ]
  train += [
      dict(id='empty', document=' ', summary='a'),
      dict(id='copy', document='x' * 9, summary='b'),
  ]
  held = [
      dict(id='v', document='x' * 20, summary='c'),
      dict(id='w', document='z\nz', summary='d'),
  ]
  train = write_jsonl(tmp_path / 't.jsonl', train)
  held = write_jsonl(tmp_path / 'v.jsonl', held)
  return [
      f'--output={tmp_path / "out"}',
      *tiny_run.flags(
          f'data.train_files={train} data.validation_files={held} '
          'data.vocabulary=byte data.max_input_length=11 '
          'data.max_target_length=4'
      ),
  ]


def test_numbers(succeed, files, tmp_path):
  out, _ = succeed(inspect, *files, '--format=json')
  result = json.loads(out)
  assert result == json.loads((tmp_path / 'out' / 'jsonl.json').read_text())
  train = result['splits']['train']
  lengths = np.array([3, 9, 9, 20, 30, 9]) + 1  # the end mark
  assert train['documents'] == 6 and train['unusable'] == 1
  assert train['copies'] == 2  # of 'x' * 9
  assert train['inputs'] == dict(
      mean=lengths.mean(),
      median=np.median(lengths),
      longest=31,
      p90=np.percentile(lengths, 90),
      # Of 1.55 tokens each.
      histogram=[0, 0, 1, 0, 0, 0, 3, *6 * [0], 1, *5 * [0], 1],
      documents_cut=2 / 6,
      tokens_cut=(21 - 11 + 31 - 11) / lengths.sum(),
  )
  targets = np.array([1, 2, 3, 4, 5, 1]) + 1
  assert train['targets']['documents_cut'] == 2 / 6
  assert train['targets']['tokens_cut'] == 3 / targets.sum()
  assert result['shared'] == {'train, validation': 1}
  assert [row['id'] for row in result['examples']] == ['t0', 't1', 't2']
  # Cut, as the model reads them.
  assert result['examples'][2] == dict(id='t2', inputs='x' * 9, targets='yyy')


def test_text(succeed, files):
  out, _ = succeed(inspect, *files)
  lines = out.splitlines()
  assert lines[0] == 'jsonl: tokens, marks included'
  assert lines[3].split() == (
      'train 6 inputs 14 10 26 31 11 33.3% 34.9%'.split()
  )
  assert 'train: 1 documents are without input or target (left out)' in lines
  assert 'train: 2 inputs are copies of another' in lines
  assert 'train, validation: 1 inputs are in both' in lines
  assert '  reads:  xxx' in lines and '  writes: y' in lines


def test_pages_as_the_model_reads_them(run_command, succeed, tmp_path):
  rows = [
      dict(
          document='aa. ' * 9,
          summary='b',
          query='q',
          sections=[dict(heading='H', text='c' * n) for n in (3, 30)],
      )
  ]
  file = write_jsonl(tmp_path / 'p.jsonl', rows)
  flags = [
      '--format=json',
      f'--output={tmp_path / "out"}',
      *tiny_run.flags(
          f'data.train_files={file} data.validation_files={file} '
          'data.vocabulary=byte data.page_length=16 data.num_pages=2 '
          'data.max_input_length=20'
      ),
  ]
  out, _ = succeed(inspect, *flags, '--config.data.pages=discourse')
  result = json.loads(out)
  assert result['kept'] == [32, 512]
  # Pages 'H\nccc' and 'H\n' with 30, each after 'q' and a blank line.
  inputs = result['splits']['train']['inputs']
  assert inputs['longest'] == 5 + 32 + 1
  assert inputs['tokens_cut'] == (32 - (16 - 3 - 1)) / (5 + 32 + 1)
  assert result['examples'][0]['inputs'] == ('q\n\nH\nccc\nq\n\nH\n' + 'c' * 10)
  status, out, _ = run_command(inspect, *flags, '--config.data.pages=chunks')
  inputs = json.loads(out)['splits']['train']['inputs']
  assert inputs['longest'] == 36 + 1
  assert inputs['tokens_cut'] == (36 - 20) / 37
