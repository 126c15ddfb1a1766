"""Streamed summaries, and `pipeline` with transformers' interface."""

import types

import jax
import numpy as np
import pytest

import locost_jax
from locost_jax import models
from locost_jax.errors import InputError
from locost_jax.summarizing.summarizer import Summarizer
from locost_jax.vocabularies import byte_vocabulary
from tests import tiny_run

TEXT = 'Whales sing, and the sea listens. ' * 3
METHODS = [
    dict(),
    dict(num_beams=3, length_penalty=0.8),
    dict(temperature=0.9, top_k=20, seed=3),
]


def load(name='locost'):
  from configs import finetune  # pylint: disable=g-import-not-at-top

  vocabulary = byte_vocabulary.ByteVocabulary()
  config = finetune.get_config(name)
  config.model.update(d_model=16, d_ff=16, vocab_size=vocabulary.size)
  model = models.build(config.model)
  one = np.ones((1, 1, 8) if name == 'pagesum' else (1, 8), np.int32)
  params = model.init(jax.random.key(4), one, np.ones((1, 8), np.int32))
  # Larger weights, so that texts of different documents and methods differ.
  params = jax.tree.map(lambda x: 3 * x, params['params'])
  return Summarizer(model, params, vocabulary)


@pytest.fixture(scope='module')
def summarizer():
  return load()


@pytest.mark.parametrize('options', METHODS, ids=['greedy', 'beam', 'sample'])
def test_pieces_are_the_summary(summarizer, options):
  options = dict(options, min_length=30, max_length=40)
  (want,) = summarizer.summarize([TEXT], **options)
  pieces = list(summarizer.stream(TEXT, **options))
  assert ''.join(pieces) == want and len(want) > 2


def test_pieces_end_between_words(summarizer, monkeypatch):
  """Pieces arrive before the summary is complete."""
  monkeypatch.setattr(
      summarizer.vocabulary.__class__,
      'decode',
      lambda self, ids: ' '.join(f'w{i}' for i in ids if i > 2),
  )
  pieces = list(summarizer.stream(TEXT, max_length=12))
  assert len(pieces) > 5
  assert all(piece[-1] == ' ' for piece in pieces[:-1])
  assert ''.join(pieces) == summarizer.summarize(TEXT, max_length=12)[0]


def test_a_closed_stream_stops_computing(summarizer, monkeypatch):
  from locost_jax.generation import generate  # pylint: disable=g-import-not-at-top

  steps, advance = [], generate.advance

  def spy(*arguments):
    steps.append(1)
    return advance(*arguments)

  monkeypatch.setattr(generate, 'advance', spy)
  monkeypatch.setattr(
      summarizer.vocabulary.__class__,
      'decode',
      lambda self, ids: ' '.join(f'w{i}' for i in ids if i > 2),
  )
  stream = summarizer.stream(TEXT, max_length=30)
  next(stream)
  stream.close()
  assert 0 < len(steps) < 10


def test_pages_are_streamed():
  summarizer = load('pagesum')
  (want,) = summarizer.summarize([TEXT], max_length=12)
  assert ''.join(summarizer.stream(TEXT, max_length=12)) == want


def test_a_stream_has_the_checks_of_summarize(summarizer):
  with pytest.raises(InputError, match='max_lenght: .*did you mean max_length'):
    next(summarizer.stream(TEXT, max_lenght=3))
  bare = Summarizer(summarizer.model, summarizer.params)
  with pytest.raises(InputError, match='without a vocabulary'):
    next(bare.stream(TEXT))


def test_a_pipeline_accepts_the_options_of_transformers(summarizer):
  call = locost_jax.pipeline('summarization', model=summarizer, batch_size=2)
  texts = [TEXT, TEXT * 2, 'A short one.']
  want = summarizer.summarize(texts, max_length=29, min_length=9, num_beams=2)
  found = call(
      texts,
      max_length=30,  # includes the start token
      min_length=10,
      num_beams=2,
      do_sample=False,
      clean_up_tokenization_spaces=True,
  )
  assert found == [{'summary_text': text} for text in want]
  assert call(TEXT, max_new_tokens=12) == [
      {'summary_text': summarizer.summarize(TEXT, max_length=12)[0]}
  ]
  assert call([]) == []
  sampled = call(TEXT, max_new_tokens=30, do_sample=True, seed=1)
  want = summarizer.summarize(TEXT, max_length=30, method='sample', seed=1)
  assert sampled == [{'summary_text': want[0]}]


def test_truncation_cuts_to_the_positions_of_the_model():
  call = locost_jax.pipeline(model=load('bart'))
  most = models.max_positions(call.summarizer.config)
  text = 'Whales sing. ' * most
  with pytest.raises(InputError, match=f'at most {most}'):
    call(text, max_length=8)
  want = call.summarizer.summarize(text, max_length=7, max_input_length=most)
  assert call(text, truncation=True, max_length=8) == [
      {'summary_text': want[0]}
  ]


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
def test_invalid_calls_of_a_pipeline(summarizer, options, line):
  call = locost_jax.pipeline(model=summarizer)
  with pytest.raises(InputError, match=line):
    call(TEXT, **options)
  with pytest.raises(InputError, match='document 1 is of the type int'):
    call([TEXT, 3])


def test_a_pipeline_of_a_directory(tmp_path):
  tiny_run.make(tmp_path / 'run')
  call = locost_jax.pipeline('summarization', str(tmp_path / 'run'))
  (found,) = call('A text.', max_new_tokens=5)
  want = locost_jax.load(str(tmp_path / 'run')).summarize(
      'A text.', max_length=5
  )
  assert found['summary_text'] == want[0]


def test_public_names_and_repr(summarizer):
  names = ['Summarizer', '__version__', 'load', 'pipeline', 'read']
  assert dir(locost_jax) == names
  assert locost_jax.Summarizer is Summarizer
  size = sum(x.size for x in jax.tree.leaves(summarizer.params))
  assert repr(summarizer) == f'Summarizer(Locost, {size:,} parameters)'


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  directory = tmp_path_factory.mktemp('stream') / 'run'
  tiny_run.make(directory)
  return directory


@pytest.mark.parametrize('options', [[], ['--num_beams=2']])
def test_the_command_prints_the_same_lines(run, run_command, tmp_path, options):
  from locost_jax import summarize  # pylint: disable=g-import-not-at-top

  for i, text in enumerate((TEXT, TEXT * 9, 'Short.')):
    (tmp_path / f'{i}.txt').write_text(text)
  arguments = ['--checkpoint', run, tmp_path, '--max_length=30', *options]
  want = run_command(summarize, *arguments)
  found = run_command(summarize, *arguments, '--stream')
  assert found[:2] == want[:2] and want[1].count('\n') == 3


def test_words_are_printed_one_by_one(capsys):
  from locost_jax.command_line.progress import Progress  # pylint: disable=g-import-not-at-top
  from locost_jax.summarizing import streamed_output  # pylint: disable=g-import-not-at-top

  words = types.SimpleNamespace(decode=lambda ids: ' '.join(map(str, ids)))
  stream = streamed_output.Stream(words, Progress())
  printed = []
  for tokens in ([], [1], [1, 2], [1, 2, 3]):
    stream.on_tokens([tokens])
    printed.append(capsys.readouterr().out)
  stream.end('1 2 3 4')
  printed.append(capsys.readouterr().out)
  assert printed == ['', '', '1', ' 2', ' 3 4\n']
  stream.on_tokens([[5, 6]])
  stream.end(None)
  stream.end(None)
  stream.end('')
  assert capsys.readouterr().out == '5\n\n'


@pytest.mark.parametrize(
    'option', ['--format=json', '--output=a.txt', '--parts=join']
)
def test_a_stream_goes_to_stdout_only(run, run_command, option):
  from locost_jax import summarize  # pylint: disable=g-import-not-at-top

  status, out, err = run_command(
      summarize, '--checkpoint', run, __file__, '--stream', option
  )
  assert (status, out) == (2, '') and '--stream prints to standard' in err
