"""`locost_jax.pipeline`: the call of transformers 4; the public names."""

import json
import shutil

import jax
import pytest

import locost_jax
from locost_jax.errors import InputError
from locost_jax.hugging_face import configs
from locost_jax.hugging_face import find_builtin
from locost_jax.summarizing.summarizer import Summarizer
from locost_jax.vocabularies import byte_vocabulary
from tests.summarizing.summarize_command import random_model

TEXT, MOST = 'Whales sing, and the sea listens. ' * 3, 256


@pytest.fixture(scope='module')
def summarizer():
  vocabulary = byte_vocabulary.ByteVocabulary()
  return random_model('bart', vocabulary, None, max_positions=MOST)


def test_the_options_of_transformers(summarizer):
  call = locost_jax.pipeline('summarization', model=summarizer, batch_size=2)
  texts = [TEXT, TEXT * 2, 'A short one.']
  want = summarizer.summarize(texts, max_length=29, min_length=10, num_beams=2)
  options = dict(max_length=30, min_length=10)  # of these one has the start
  options |= dict(do_sample=False, clean_up_tokenization_spaces=True)
  found = call(texts, num_beams=2, **options)
  assert found == [{'summary_text': text} for text in want]
  (want,) = summarizer.summarize(TEXT, max_length=12)
  assert call(TEXT, max_new_tokens=12) == [{'summary_text': want}]
  (want,) = summarizer.summarize(TEXT, max_length=12, min_length=12)
  for equal in (
      dict(max_new_tokens=12, min_new_tokens=12),
      dict(max_length=13, min_length=13),
  ):
    assert call(TEXT, **equal) == [{'summary_text': want}]
  assert call([]) == []
  (want,) = summarizer.summarize(TEXT, max_length=30, method='sample', seed=1)
  found = call(TEXT, max_new_tokens=30, do_sample=True, seed=1)
  assert found == [{'summary_text': want}]


def test_truncation_cuts_to_the_positions_of_the_model(summarizer):
  call, text = locost_jax.pipeline(model=summarizer), 'Whales sing. ' * MOST
  with pytest.raises(InputError, match=f'at most {MOST}'):
    call(text, max_length=8)
  want = summarizer.summarize(text, max_length=7, max_input_length=MOST)
  found = call(text, truncation=True, max_length=8)
  assert [row['summary_text'] for row in found] == want


@pytest.mark.parametrize(
    'arguments, options, line',
    [
        (('translation',), {}, "'translation'.*expected 'summarization'"),
        ((), {}, 'has no default model'),
        ((), dict(model='nowhere'), 'nowhere'),
    ],
)
def test_invalid_pipelines(arguments, options, line):
  with pytest.raises(InputError, match=line):
    locost_jax.pipeline(*arguments, **options)


@pytest.mark.parametrize(
    'options, line',
    [
        (dict(max_lenght=3), 'no option max_lenght.*max_length'),
        (dict(return_tensors=True), 'return_tensors=True: expected False'),
        (dict(do_sample=True, num_beams=3), 'do_sample=True, num_beams=3'),
    ],
)
def test_invalid_calls(summarizer, options, line):
  call = locost_jax.pipeline(model=summarizer)
  with pytest.raises(InputError, match=line):
    call(TEXT, **options)
  with pytest.raises(InputError, match='document 1 is of the type int'):
    call([TEXT, 3])


def test_settings_for_summarization(tmp_path):
  """In force in the pipeline; the command names them."""
  builtin = find_builtin.find_directory('builtin:documentation')
  model = shutil.copytree(builtin, tmp_path / 'model')
  config = json.loads((model / 'config.json').read_text())
  prefix = 'A list of the names of ships. '
  own = dict(num_beams=3, max_length=30, prefix=prefix)
  config['task_specific_params'] = dict(summarization=own, translation={})
  (model / 'config.json').write_text(json.dumps(config))
  pipe = locost_jax.pipeline('summarization', model=str(model))
  load, given = locost_jax.load(model), dict(num_beams=3, max_length=29)
  (want,) = load.summarize(prefix + TEXT, **given)
  assert pipe(TEXT) == pipe(prefix + TEXT) == [{'summary_text': want}]
  given['num_beams'] = 1
  (want,) = load.summarize(prefix + TEXT, **given)
  assert pipe(TEXT, num_beams=1) == [{'summary_text': want}]
  assert load.summarize(TEXT, **given) != [want]
  said = configs.describe_task_settings(model)
  shown = f'num_beams=3, max_length=30, prefix={prefix!r}; give them as flags'
  assert f'.summarization is not followed: {shown}' in said


def test_public_names_and_repr(summarizer):
  names = ['Summarizer', '__version__', 'load', 'pipeline', 'read']
  assert dir(locost_jax) == names and locost_jax.Summarizer is Summarizer
  size = sum(x.size for x in jax.tree.leaves(summarizer.params))
  assert repr(summarizer) == f'Summarizer(Bart, {size:,} parameters)'
