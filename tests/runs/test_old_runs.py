"""A run of an earlier commit can be continued, evaluated and used.

This includes keys that were added after it.
"""

import dataclasses
import hashlib
import json
import tarfile

import pytest

from configs import default
from locost_jax import main
from locost_jax import models
from locost_jax import summarize
from locost_jax.config import keys
from locost_jax.config import schema
from locost_jax.models import locost
from locost_jax.workdir import phases as phases_lib
from tests.data.rows import read_jsonl
from tests.python import ROOT

OLD = ROOT / 'tests' / 'old_runs'
# Commits.
RUNS = '46990e7', 'd54c30f'
FILE = OLD / 'd54c30f' / 'train.jsonl'
OPTIONS = '--num_beams=3', '--no_repeat_ngram_size=1', '--min_length=10'
DOCUMENT = json.loads(FILE.read_text().split('\n')[0])['document']


@dataclasses.dataclass(frozen=True)
class LaterConfig(locost.LocostConfig):
  """LOCOST's config in a later version with one more key."""

  later_key: int = 3


@pytest.fixture(params=['today', 'later'])
def version(request, monkeypatch):
  """The current keys, or a later version with one more key in each section."""
  if request.param == 'today':
    return
  key = keys.Key(3, 'of a later version')
  monkeypatch.setitem(keys.SECTIONS, 'later_section', {})
  for section in ('data', 'optim', 'train', 'eval', 'mesh', 'later_section'):
    monkeypatch.setitem(keys.SECTIONS[section], 'later_key', key)
    monkeypatch.setitem(keys.SHARED, f'{section}.later_key', key)
  monkeypatch.setitem(keys.MODELS['locost'], 'later_key', key)
  _, make = models.MODELS['locost']
  monkeypatch.setitem(models.MODELS, 'locost', (LaterConfig, make))


@pytest.fixture(params=RUNS)
def commit(request):
  return request.param


@pytest.fixture
def workdir(commit, tmp_path, monkeypatch):
  """A copy of the old run, stopped in its second phase of 8 steps."""
  (archive,) = (OLD / commit).glob('run.tar.*')
  with tarfile.open(archive) as members:
    # Python 3.11.2, Debian's, has no filters.
    members.extraction_filter = getattr(tarfile, 'data_filter', None)
    members.extractall(tmp_path)
  # The newer archive has the files that its caches were made of.
  has_files = (tmp_path / 'train.jsonl').exists()
  monkeypatch.chdir(tmp_path if has_files else ROOT)
  for cache in (tmp_path / 'run' / 'cache').glob('*'):
    move_cache(cache, tmp_path / 'train.jsonl')
  return tmp_path / 'run'


def move_cache(path, file):
  """Renames a token cache as if its file had always been where it is now."""
  key = json.loads((path / 'key.json').read_text())
  key['corpus']['files'][0][0] = str(file)
  text = json.dumps(key, indent=2, sort_keys=True)
  (path / 'key.json').write_text(text)
  checksums = json.loads((path / 'checksums.json').read_text())
  digest = hashlib.sha256(text.encode()).hexdigest()
  checksums['key.json'] = f'{len(text)} {digest}'
  (path / 'checksums.json').write_text(json.dumps(checksums))
  # The name's last word is a hash of the key.
  compact = json.dumps(key, sort_keys=True).encode()
  name = path.name.rpartition('-')[0]
  path.rename(
      path.with_name(f'{name}-{hashlib.sha256(compact).hexdigest()[:16]}')
  )


def check_numbers(workdir, expected):
  """The losses and the last evaluation of a run are those of the old one."""
  rows = read_jsonl(workdir / 'finetune' / 'metrics.jsonl')
  measured = [row for row in rows if 'eval/jsonl/loss' in row]
  found = {row['step']: row for row in rows if 'train/loss' in row}
  for row in expected['steps']:
    for key, value in row.items():
      assert found[row['step']][key] == pytest.approx(value, rel=2e-4), key
  for key, value in expected['evaluation'].items():
    assert measured[-1][key] == pytest.approx(value, rel=2e-4), key


@pytest.mark.parametrize(
    'version, commit', [*zip(('today', 'later'), RUNS)], indirect=True
)
def test_an_old_run_continues_evaluates_and_summarises(
    version, commit, workdir, succeed, tmp_path
):
  expected = json.loads((OLD / commit / 'expected.json').read_text())
  caches = sorted(path.name for path in workdir.glob('cache/*'))
  command = [f'--config={OLD / commit / "config.py"}', f'--workdir={workdir}']
  _, err = succeed(main, *command)
  assert 'pretrain on jsonl: 4 steps, done before' in err
  check_numbers(workdir, expected)
  if caches:  # it reads the token caches of the old run
    assert 'tokenising' not in err
    assert caches == sorted(
        path.name for path in workdir.glob('cache/*') if path.is_dir()
    )
  # Its config is now stored with the current keys.
  stored = json.loads((workdir / 'finetune' / 'config.json').read_text())
  assert stored['optim']['cooldown_steps'] == 3
  assert 'cooldown' not in stored['optim']

  # The old --evaluate measured only the first 6 documents.
  evaluate = ['--evaluate', '--config.eval.examples=6', '--format=json']
  out, _ = succeed(main, *command, *evaluate)
  assert json.loads(out)['loss'] == pytest.approx(
      expected['evaluated'], rel=2e-4
  )
  (tmp_path / 'text.txt').write_text(DOCUMENT + '\n')
  flags = f'--checkpoint={workdir}', '--program_cache=off', *OPTIONS
  out, _ = succeed(summarize, *flags, tmp_path / 'text.txt')
  assert out.replace(' (cut at 16 tokens)', '') == expected['summary'] + '\n'


def test_an_old_run_summarises_before_it_continues(version, workdir, succeed):
  (workdir / 'text.txt').write_text('The ship lies at anchor.')
  flags = f'--checkpoint={workdir}', '--program_cache=off'
  out, _ = succeed(summarize, *flags, workdir / 'text.txt')
  assert out.strip()


@pytest.mark.parametrize(
    'key, old, new', [('b1', 0.9, 0.8), ('warmup_steps', 0, 3)]
)
def test_other_values_are_still_refused(
    commit, workdir, run_command, key, old, new
):
  command = f'--config={OLD / commit / "config.py"}', f'--workdir={workdir}'
  status, _, err = run_command(main, *command, f'--config.optim.{key}={new}')
  assert status == 2 and f'config.optim.{key} was {old}, now {new}' in err


def test_old_keys_become_current_keys():
  stored = {
      'optim': {'schedule': 'constant', 'ramp': 20, 'warmup': 7, 'cooldown': 5},
      'train': {'steps': 9},
      'phases': [['one', {'optim.ramp': 3, 'train.steps': 4}]],
  }
  assert schema.update(stored) == {
      'optim': {
          'schedule': 'constant',
          'warmup_steps': 20,
          'flat_steps': 0,  # the old key had no effect under this schedule
          'cooldown_steps': 5,
      },
      'train': {'steps': 9},
      'phases': [['one', {'optim.warmup_steps': 3, 'train.steps': 4}]],
  }
  assert 'ramp' in stored['optim']  # not changed in place


@pytest.mark.parametrize(
    'key, ignored', [(k, x) for k, given in keys.REMOVED.items() for x in given]
)
def test_a_removed_key_without_effect_is_ignored(key, ignored):
  section, _, name = key.rpartition('.')
  nested = lambda keys: {section: keys} if section else keys
  phase = lambda keys: dict(phases=[['one', keys | {'data.seed': 2}]])
  stored = nested({name: ignored, 'seed': 1}) | phase({key: ignored})
  assert schema.update(stored) == nested({'seed': 1}) | phase({})
  kept = {'data': {'packing': True, 'seed': 1}}
  assert schema.update(kept) == kept


@pytest.mark.parametrize('commit', ['d54c30f'], indirect=True)
def test_the_old_run_has_a_removed_key(workdir):
  """So the tests above show that the key is ignored."""
  stored = json.loads((workdir / 'finetune' / 'config.json').read_text())
  assert stored['data']['packing'] is False
  assert 'packing' not in default.get_config().data


def test_old_keys_in_phases_of_a_config_file(tmp_path):
  config = default.get_config()
  config.phases = (('one', {'optim.ramp': 3}),)
  (phase,) = phases_lib.make_phases(config, {}, tmp_path)
  assert phase.config.optim.warmup_steps == 3


@pytest.mark.parametrize('new', schema.RENAMED.values())
def test_new_names_are_keys(new):
  section, key = new.split('.')
  assert key in default.get_config()[section]
