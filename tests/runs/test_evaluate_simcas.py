"""`main --evaluate` of a SimCAS: report and errors."""

import json
import shutil

import pytest

import locost_jax
from locost_jax import main
from locost_jax.config import model_keys
from locost_jax.errors import InputError
from tests import tiny_run
from tests.hugging_face.converting import GOLDEN
from tests.python import ROOT
from tests.runs import test_main
from tests.runs.test_other_models import tiny_flags

KEYS = tiny_run.flags(
    'data.vocabulary=byte data.max_input_length=64 data.page_length=16 '
    'data.max_target_length=16 decode.max_length=8 eval.baselines=False '
    'train.steps=1 train.batch_size=4'
)


def flags(folder, name='simcas'):
  return [
      f'--config={ROOT}/configs/finetune.py:{name}',
      *tiny_flags(name),
      f'--config.data.train_files={folder / "rows.jsonl"}',
      f'--config.data.validation_files={folder / "rows.jsonl"}',
      *KEYS,
      '--config.phases=()',  # one phase is enough
      f'--workdir={folder / "run"}',
  ]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp('simcas')


@pytest.fixture
def trained(succeed, folder):
  """A folder with rows, one of them empty, and a run of one step."""
  if (folder / 'run').exists():
    return folder
  rows = [
      dict(document=f'The story of cat {i}. ' * (1 + i % 3), summary='A cat.')
      for i in range(7)
  ]
  rows.append(dict(document=' ', summary='Nothing.'))
  test_main.write_rows(folder / 'rows.jsonl', rows)
  select = '--config.model.select=first_k'
  succeed(main, *flags(folder), *test_main.LOSS_ONLY, select)
  return folder


def stored_with(folder, **model):
  """Changes keys of the model in the stored config."""
  path = folder / 'run' / 'config.json'
  config = json.loads(path.read_text())
  config['model'].update(model)
  path.write_text(json.dumps(config))


def test_an_evaluation_reports_its_selection(trained, succeed):
  """All rows count, also the empty one, which is a chunk of marks."""
  evaluate = *flags(trained), '--evaluate'
  out, err = succeed(
      main, *evaluate, '--config.model.select=first_k', '--format=json'
  )
  (table,) = json.loads(out)['tables']
  assert table['documents'] == 8 and 'selection' not in table
  assert 'selected' not in err
  for selection, words in (
      ('sample', 'selected by sampling'),
      ('argmax', 'selected by argmax'),
  ):
    keys = dict(select='ppo', selection=selection)
    stored_with(trained, **keys)
    given = [f'--config.model.{key}={value}' for key, value in keys.items()]
    out, err = succeed(main, *evaluate, *given, '--format=json')
    (table,) = json.loads(out)['tables']
    assert table['selection'] == words
    assert f'8 documents, {words}' in err
  out, _ = succeed(main, *evaluate, *given)
  assert '8 documents, selected by argmax' in out


def test_a_run_of_another_model_is_refused(trained, run_command):
  """A SimCAS run is neither evaluated nor loaded as another model."""
  path = trained / 'run' / 'config.json'
  stored = json.loads(path.read_text())
  own = model_keys.MODELS['simcas'].keys() - model_keys.MODELS['bart'].keys()
  for name, words in (
      ('bart', 'selector/'),
      ('pagesum', "pages='chunks' must be one of"),
  ):
    status, out, err = run_command(main, *flags(trained, name), '--evaluate')
    assert status == 2 and not out and 'Traceback' not in err
    assert f'config.model.name was "simcas", now "{name}": give its con' in err
    model = {key: x for key, x in stored['model'].items() if key not in own}
    path.write_text(json.dumps(stored | {'model': model | {'name': name}}))
    with pytest.raises(InputError) as error:
      locost_jax.load(trained / 'run')
    assert words in str(error.value) and '\n' not in str(error.value)
    path.write_text(json.dumps(stored))


@pytest.mark.parametrize(
    'source, key, words',
    [
        ('bart', 'simcas_limit', 'lacks the tensor .*agent'),
        ('pagesum', 'simcas_limit', 'are of pagesum and of simcas: expected'),
        ('simcas', 'pagesum_padding', 'are of pagesum and of simcas: expected'),
    ],
)
def test_files_of_another_model_are_refused(source, key, words, tmp_path):
  """A config.json that does not match the tensors."""
  target = tmp_path / source
  shutil.copytree(GOLDEN / source, target)
  path = target / 'config.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | {key: 9}))
  with pytest.raises(InputError, match=words) as error:
    locost_jax.load(target)
  assert '\n' not in str(error.value)
