"""`tests.on_gpu`, which waits for a GPU, runs on a CPU at a tiny size."""

import json

import numpy as np

from tests import python
from tests.models import golden
from tests.on_gpu import __main__ as command
from tests.on_gpu import golden as golden_job

# {part: names of its rows}; golden has too many.
NAMES = {
    'speed': [
        f'{model} 64 {question}'
        for model in ('locost', 'longt5')
        for question in ('encode', 'generate', 'train')
    ],
    'memory': [
        f'{model} {length} encode'
        for model, length in (
            ('locost', 32),
            ('locost', 256),
            ('longt5', 32),
            ('longt5', 192),
        )
    ],
    'book': ['locost 512 generate'],
    'resume': [
        f'{flags}{run}'
        for flags in ('', 'deterministic, ')
        for run in ('again', 'killed')
    ],
}
NAMES['speed_no_triton'] = NAMES['speed'][:3]
ABSENT = 'pytest tensorflow seqio torch transformers rouge_score nltk'.split()


def test_every_part_at_a_tiny_size_and_without_pytest(tmp_path):
  lines = [f'import sys\nsys.modules[{name!r}] = None' for name in ABSENT]
  (tmp_path / 'sitecustomize.py').write_text('\n'.join(lines))
  run = lambda *words: python.run(
      '-m', 'tests.on_gpu', *words, paths=[tmp_path], JAX_PLATFORMS='cpu'
  )
  run(*command.PARTS, f'--output={tmp_path}', '--tiny')
  for part in command.PARTS:
    found = json.loads((tmp_path / f'{part}.json').read_text())
    assert found['device'] == 'cpu' and found['command'].endswith('--tiny')
    names = [row['name'] for row in found['rows']]
    if part in NAMES:
      assert names == NAMES[part]
    else:
      states = 'locost_a_tiny states kernels and logits: '
      assert {f'{states}enc_last', f'{states}ssm_kernel_0'} < set(names)
      assert all(x['difference'] <= x['tolerance'] for x in found['rows'])
  table = run('table', tmp_path).stdout
  assert all(f'| {name} |' in table for name in sum(NAMES.values(), []))


def test_a_changed_golden_array_fails(monkeypatch):
  real = golden.arrays

  def changed(folder, name='io'):
    io = real(folder, name)
    wrong = io['f64/logits'].copy()
    wrong.flat[0] += 0.01
    return io | {'f64/logits': wrong}

  monkeypatch.setattr(golden, 'arrays', changed)
  cases = golden_job.list_cases(tiny=True)
  monkeypatch.setattr(golden_job, 'list_cases', lambda _: [next(cases)])
  rows = {
      row['name'].rpartition(' ')[2]: row
      for row in golden_job.run({'tiny': True})
  }
  assert [name for name in rows if 'error' in rows[name]] == ['logits']
  np.testing.assert_allclose(rows['logits']['difference'], 0.01, rtol=0.1)
  assert rows['enc_last']['difference'] <= rows['enc_last']['tolerance']


def test_what_ends_a_job_is_its_row(tmp_path):
  job = command.plan('book', tiny=True)[0] | dict(kind='nothing')
  (row,) = command.run_job(job, tmp_path, 60)
  assert row['name'] == 'locost 512'
  assert row['error'].startswith('status 1: ') and 'nothing' in row['error']
  (row,) = command.run_job(job, tmp_path, 0)
  assert row['error'].startswith('ended after 0 seconds')
