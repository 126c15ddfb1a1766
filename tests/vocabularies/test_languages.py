"""Tokens of languages: mBART's behind a text, mBART-50's in front of it."""

import json
import pickle
import types

import numpy as np
import pytest
import tokenizers

from configs import default
import locost_jax
from locost_jax import summarize
from locost_jax.data import preprocessors
from locost_jax.data import tasks
from locost_jax.errors import InputError
from locost_jax.runs import checks
from locost_jax.summarizing import documents
from locost_jax.summarizing import reading
from locost_jax.summarizing import token_places
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests.runs import test_source_model

LANGUAGES = {'en_XX': 31, 'ro_RO': 32, 'fr_XX': 33}
FORMS = {'mbart': '$A </s> en_XX', 'mbart50': 'en_XX $A </s>'}
TEXT = 'the cat sat.'


def write(directory, form):
  """Writes a tokenizer.json with 31 pieces and three languages."""
  pieces = ['<s>', '<pad>', '</s>', '<unk>', '\u2581', '\u2581the', '\u2581cat']
  pieces += ['.', *'abcdefghijklmnopqrstuvw']
  model = tokenizers.models.Unigram(
      [(piece, -float(i)) for i, piece in enumerate(pieces)], 3
  )
  made = tokenizers.Tokenizer(model)
  made.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
  made.decoder = tokenizers.decoders.Metaspace()
  made.add_special_tokens(['<s>', '<pad>', '</s>', '<unk>'])
  made.add_special_tokens(list(LANGUAGES))
  made.post_processor = tokenizers.processors.TemplateProcessing(
      single=FORMS[form], special_tokens=[('</s>', 2), ('en_XX', 31)]
  )
  directory.mkdir(parents=True, exist_ok=True)
  made.save(str(directory / 'tokenizer.json'))
  assert {name: made.token_to_id(name) for name in LANGUAGES} == LANGUAGES
  return made


def as_read(form, ids, language):
  i = LANGUAGES[language]
  return [*ids, 2, i] if form == 'mbart' else [i, *ids, 2]


@pytest.mark.parametrize('form', FORMS)
def test_texts_are_marked(form, tmp_path):
  theirs = write(tmp_path, form)
  ours = vocabulary_lib.load_vocabulary(tmp_path)
  ids = ours.encode(TEXT)
  assert ours.languages == LANGUAGES
  read = lambda vocabulary, most=None: reading.read(
      vocabulary, documents.Text(TEXT), None, most
  ).pages[0]
  assert read(ours) == theirs.encode(TEXT).ids == as_read(form, ids, 'en_XX')
  other = vocabulary_lib.with_language(ours, 'ro_RO')
  for vocabulary in (
      other,
      pickle.loads(pickle.dumps(other)),
      vocabulary_lib.save_vocabulary(other, tmp_path / 'saved')
      or vocabulary_lib.load_vocabulary(tmp_path / 'saved'),
  ):
    assert read(vocabulary) == as_read(form, ids, 'ro_RO')
    assert read(vocabulary, 5) == as_read(form, ids[:3], 'ro_RO')
    assert vocabulary.fingerprint == other.fingerprint != ours.fingerprint
  front = [32] if form == 'mbart50' else []
  assert vocabulary_lib.surround(other, ids) == [*front, *ids, 2]
  assert other.start_id == (32 if form == 'mbart' else ours.start_id)
  for i in (31, 32):
    assert ours.decode([i, *ids, 2]) == other.decode([i, *ids]) == TEXT
  for most in (None, 6):
    (places,) = token_places.places(other, documents.Text(TEXT), None, most)
    assert len(places) == len(read(other, most))
    np.testing.assert_array_equal(
        places == -1, np.isin(read(other, most), [2, 32])
    )


@pytest.mark.parametrize('form', FORMS)
def test_a_run_reads_the_same_marks(form, tmp_path):
  write(tmp_path, form)
  ours, data = (
      vocabulary_lib.load_vocabulary(tmp_path),
      default.get_config().data,
  )
  ids, front = ours.encode(TEXT), [31] if form == 'mbart50' else []
  data.max_input_length = data.max_target_length = 5
  example = dict(inputs=front + ids, targets=front + ids)
  lengths = preprocessors.trim(example, data, ours)
  assert example['inputs'] == as_read(form, ids[:3], 'en_XX')
  kept = 3 if front else 4
  assert example['targets'] == [*front, *ids[:kept], 2]
  assert lengths['inputs'] == len(as_read(form, ids, 'en_XX'))


@pytest.mark.parametrize('form', FORMS)
def test_a_run_is_in_a_language(form, tmp_path):
  """With config.data.vocabulary, and with that of train.init_from."""
  write(tmp_path, form)
  config = default.get_config()
  config.data.language = 'ro_RO'
  setups = [types.SimpleNamespace(config=config)]
  found = []
  for config.data.vocabulary, config.train.init_from in (
      (str(tmp_path), ''),
      ('train', str(tmp_path)),
  ):
    (tmp_path / 'config.json').write_text('{}')
    found.append(checks.choose_vocabulary(setups, tmp_path / 'run'))
  found.append(tasks.in_language(found[0], config.data))
  assert len({x.fingerprint for x in found}) == 1
  first = found[0].start_id, found[0].bos_id
  assert first == ((32, None) if form == 'mbart' else (1, 32))
  ours = vocabulary_lib.load_vocabulary(tmp_path)
  assert ours.start_id == (31 if form == 'mbart' else 1)
  config.train.init_from = ''
  for vocabulary in 'train', 'byte':
    config.data.vocabulary = vocabulary
    for find in checks.choose_vocabulary, lambda *_: tasks.find_vocabulary(
        config
    ):
      with pytest.raises(InputError, match='data.language=ro_RO: .*no mark of'):
        find(setups, tmp_path / 'run')


@pytest.mark.parametrize('form', FORMS)
def test_a_model_writes_a_language(form, tmp_path):
  """It begins with its token; an mBART needs no decoder_start_token_id."""
  test_source_model.release('mbart', tmp_path / 'model')
  path = tmp_path / 'model' / 'config.json'
  config = json.loads(path.read_text())
  if form == 'mbart50':
    config['decoder_start_token_id'] = 2
  path.write_text(json.dumps(config))
  write(tmp_path / 'model', form)
  if form == 'mbart':
    with pytest.raises(InputError, match='no decoder_start_token_id'):
      locost_jax.load(tmp_path / 'model')
  s = locost_jax.load(tmp_path / 'model', language='ro_RO')
  assert s.tokenize(TEXT) == as_read(form, s.vocabulary.encode(TEXT), 'ro_RO')
  found = s.settings.start_id, s.settings.forced_first_token
  assert found == ((32, -1) if form == 'mbart' else (2, 32))
  s.summarize(TEXT, max_length=4)


def test_the_flags(tmp_path, succeed, run_command):
  """A prefix is read in front of each text; an unknown language is refused."""
  test_source_model.release('mbart', tmp_path / 'model')
  write(tmp_path / 'model', 'mbart50')
  path = tmp_path / 'model' / 'config.json'
  config = json.loads(path.read_text()) | {'decoder_start_token_id': 2}
  own = dict(prefix='fatal ', num_beams=2)
  config['task_specific_params'] = {'summarization': own}
  path.write_text(json.dumps(config))
  (tmp_path / 'a.txt').write_text(TEXT)
  (tmp_path / 'b.txt').write_text('the cat ' + TEXT)
  call = lambda *words: succeed(
      summarize,
      f'--checkpoint={tmp_path}/model',
      '--max_length=4',
      '--language=ro_RO',
      '--format=json',
      *words,
  )
  row = lambda out: json.loads(out.splitlines()[0])
  given, err = call('--prefix=the cat ', str(tmp_path / 'a.txt'))
  assert 'not followed: num_beams=2; give them as flags' in err
  _, err = call('--prefix=the cat ', '--num_beams=2', str(tmp_path / 'a.txt'))
  assert 'not followed' not in err
  whole, err = call(str(tmp_path / 'b.txt'))
  assert "num_beams=2, prefix='fatal '; give them as flags" in err
  given, whole = row(given), row(whole)
  assert given['settings']['prefix'] == 'the cat '
  assert 'prefix' not in whole['settings']
  for key in ('prediction', 'tokens_read', 'sha256'):
    assert given[key] == whole[key]
  status, _, err = run_command(
      summarize,
      f'--checkpoint={tmp_path}/model',
      '--language=ro',
      str(tmp_path / 'a.txt'),
  )
  assert (status, err.splitlines()[-1]) == (
      2,
      'error: language=ro: is none of the 3 of the vocabulary; the nearest '
      'is ro_RO',
  )
