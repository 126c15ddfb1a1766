"""The plot command: its errors, and the numbers in its pictures.

`test_planted` draws the pictures of papers/README.md.
"""

import functools
from xml.etree import ElementTree

import numpy as np
import pytest

import locost_jax
from locost_jax.attribution import attribution
from locost_jax.errors import InputError
from locost_jax.summarizing import token_places
from papers import plot
from papers.figures import costs
from papers.figures import curves
from papers.figures import one_document
from papers.figures import selection
from papers.figures import style
from tests import tiny_run
from tests.papers import small_models
from tests.runs import test_main

pytest.importorskip('matplotlib', reason='the pictures need matplotlib')


def points(line):
  return [list(map(float, pair)) for pair in zip(*line.get_data())]


PAIRS = [
    ('The cat sat.', 'The cat sat on the mat. It slept.'),
    ('A dog ran home.', 'The dog ran.'),
    ('Nothing alike.', 'Words of another kind.'),
]


def make_costs(command):
  rows = [
      dict(name=name, length=n, peak_bytes=n * k, samples_per_second=k / n)
      for name, k in (('locost', 1000), ('longt5', 3000))
      for n in (1024, 4096)
  ]
  rows.append(dict(rows[0], length=16384, peak_bytes=16384 * 1000))
  rows.append(
      dict(name='longt5', length=16384, out_of_memory=True, peak_bytes=7)
  )
  return dict(question=command, rows=rows)


@pytest.fixture(scope='module')
def home(tmp_path_factory):
  """A directory with one trained run, two models and small files."""
  home = tmp_path_factory.mktemp('plot')
  tiny_run.make(home / 'run')
  rows = [
      dict(id=str(i), prediction=ours, reference=theirs)
      for i, (ours, theirs) in enumerate(PAIRS)
  ]
  (home / 'run' / 'predictions').mkdir()
  for split, own in ('test', rows), ('validation', rows[:2]):
    path = home / 'run' / 'predictions' / f'tiny-{split}-2.jsonl'
    test_main.write_rows(path, own)
  for name in 'simcas', 'pagesum':
    small_models.write(home / name, name)
  (home / 'text.txt').write_text(
      '\n\n'.join(f'House {i} is old. It has a green door.' for i in range(6))
  )
  rows = [
      dict(document=f'House {i} is old. It is red.', summary=f'House {i}.')
      for i in (1, 2)
  ]
  test_main.write_rows(home / 'rows.jsonl', rows)
  pairs = dict(task='arxiv', split='test', distances=[0.0, 0.52, 1.0])
  test_main.write_rows(home / 'pairs.json', [pairs])
  test_main.write_rows(home / 'train.json', [make_costs('train')])
  keys = 'step', 'train/selected', 'train/reward'
  rows = [dict(zip(keys, row)) for row in ((1, 8, 1), (2, 7, 2))]
  test_main.write_rows(home / 'selecting.jsonl', rows)
  return home


@pytest.fixture
def call(run_command, monkeypatch, home):
  monkeypatch.chdir(home)
  return functools.partial(run_command, plot)


def test_a_vector_graphic_has_text(call, tmp_path):
  path = tmp_path / 'out.svg'
  arguments = 'curves', 'run', 'selecting.jsonl', f'--output={path}'
  assert call(*arguments) == (0, '', '')
  root = ElementTree.parse(path).getroot()
  assert root.tag.endswith('svg')
  assert any(element.tag.endswith('text') for element in root.iter())


@pytest.mark.parametrize(
    'arguments, message',
    [
        ('', 'no such picture: expected one of curves, kernels'),
        ('curve run', "'curve': no such picture; did you mean curves?"),
        ('curves run', '--output=FILE is missing'),
        ('curves run --output=a.pdf', 'expected FILE.png or FILE.svg'),
        ('curves run --output=nowhere/a.png', 'no directory nowhere'),
        ('curves --output=a.png', 'curves: expected RUN [RUNS ...], got []'),
        ('kernels run run --output=a.png', 'kernels: expected WORKDIR, got ['),
        ('curves no --output=a.png', 'no: no such file'),
        ('curves run --keys=lo --output=a.png', '--keys=lo: no such number'),
        ('cost pairs.json --output=a.png', 'pairs.json: expected a result of'),
        (
            'similarity pairs.json --output=a.png',
            'pairs.json: expected what papers',
        ),
        ('score_memory run --output=a.png', 'locost: its memory is not known'),
        ('score_memory run train.json --output=a.png', 'is not known'),
        ('attention simcas rows.jsonl --output=a.png', 'expected one, or --ro'),
        (
            'attention simcas rows.jsonl --row=3 --output=a.png',
            'has 2 documents',
        ),
        # It was trained on all examples.
        ('low_resource run --output=a.png', 'run: row 1 lacks examples'),
        ('score_length simcas --output=a.png', 'simcas: no config.json of a'),
        ('interdependent train.json --output=a.png', 'distances=null: expect'),
        ('page_weights run text.txt --output=a.png', 'weighs no pages'),
        ('start_states run text.txt --output=a.png', 'expected a SimCAS'),
        ('kernels simcas --output=a.png', 'expected a LOCOST, got Sim'),
        ('score_length run --protocol=x --output=a.png', 'no such protocol'),
    ],
)
def test_bad_input_is_one_line(call, home, arguments, message):
  status, out, err = call(*arguments.split())
  assert status == 2 and not out and err.count('\n') == 1
  assert err.startswith('error: ') and message in err, err
  assert not (home / 'a.png').exists()


def test_files_are_replaced_only_with_overwrite(call, tmp_path):
  path = tmp_path / 'a.png'
  path.write_text('mine')
  arguments = ['curves', 'run', f'--output={path}']
  status, _, err = call(*arguments)
  assert status == 2 and 'exists already' in err
  assert path.read_text() == 'mine'
  assert call(*arguments, '--overwrite')[0] == 0
  assert path.read_bytes().startswith(b'\x89PNG')
  status, _, err = call('curves', str(path), f'--output={path}', '--overwrite')
  assert status == 2 and 'expected another file' in err


def test_curves_have_the_numbers_of_the_files(home):
  path = home / 'run' / 'metrics.jsonl'
  figure = curves.draw(str(home / 'run'), str(home / 'selecting.jsonl'))
  rows = test_main.read_rows(path)
  panels = {axis.get_title(): axis for axis in figure.axes}
  assert panels.keys() == {'train/loss', 'eval/tiny/rouge_mean'}
  for key, axis in panels.items():
    expected = [[row['step'], row[key]] for row in rows if key in row]
    assert [points(line) for line in axis.lines] == [expected]
  chosen = curves.choose_keys([path], ['eval/*', 'train/lo*', 'train/loss'])
  assert chosen == ['eval/tiny/rouge_mean', 'train/loss']


def test_a_cross_marks_the_length_that_ran_out_of_memory(home, tmp_path):
  figure = costs.draw(str(home / 'train.json'))
  memory, speed = figure.axes
  ours, theirs, cross = memory.lines
  assert points(ours) == [[n, n * 1000] for n in (1024, 4096, 16384)]
  assert points(theirs)[-1] == [4096, 4096 * 3000]
  assert points(cross) == [[16384, 4096 * 3000]] and cross.get_marker() == 'x'
  assert points(speed.lines[1]) == [[1024, 3000 / 1024], [4096, 3000 / 4096]]
  rows = [
      dict(name=name, length=64, peak_bytes=peak, samples_per_second=speed)
      for name, peak, speed in (
          ('forward', 3, 5.0),
          ('step, none', 5, 2.0),
          ('step, full', 4, 1.0),
      )
  ]
  alone = dict(question='train', rows=rows)
  for broken in (
      dict(question='encode', rows=[]),
      dict(question=['train'], rows=[]),
      dict(question='train', rows=[3]),
      dict(question='train', rows=[dict(name='x')]),
      dict(question='gsg', rows=[dict(name='all', length=5)]),
  ):
    path = test_main.write_rows(tmp_path / 'x.json', [broken])
    with pytest.raises(InputError, match='json: expected a result of `bench'):
      costs.read([path])
  path = test_main.write_rows(tmp_path / 'alone.json', [alone])
  assert costs.read([path]) == {'train': {'step, none': [(64, 5, 2.0)]}}


def test_page_weights_of_words_come_from_their_tokens(home):
  summarizer = locost_jax.load(home / 'pagesum')
  text = (home / 'text.txt').read_text()
  words, weights = one_document.weights_of_pages(
      summarizer, text, 'An old house.'
  )
  assert words == ['An', 'old', 'house.']
  np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
  tokens = token_places.summary_tokens(summarizer, 'An old house.')
  memory = summarizer.memory_of(summarizer.tokenize(text))
  of_tokens = attribution.page_weights(summarizer, memory, tokens)
  # Tokens are bytes: each belongs to the word that it is in or follows.
  texts = [summarizer.vocabulary.decode([token]) for token in tokens]
  rows, word = {0: [], 1: [], 2: []}, 0
  for own, letter in zip(of_tokens, texts):
    if letter:
      rows[word].append(own)
      word += letter == ' '
  for word, own in rows.items():
    np.testing.assert_allclose(weights[word], np.mean(own, 0), atol=1e-6)


def test_attention_equals_that_of_the_source_page(home):
  summarizer = locost_jax.load(home / 'simcas')
  given = summarizer, (home / 'text.txt').read_text(), 'Old house.'
  tokens, mass, selected = one_document.attention(*given)
  ids = token_places.summary_tokens(summarizer, 'Old house.')
  source = attribution.attribute(*given[:2], ids)
  is_text = [bool(token) for token in tokens]
  assert ''.join(tokens) == 'Old house.' and mass.shape[0] == len(ids)
  np.testing.assert_allclose(
      mass[is_text].mean(0), source.selection.mass, atol=1e-5
  )
  np.testing.assert_allclose(selected, source.selection.columns, atol=1e-9)


def test_formatted_numbers():
  found = [style.format_count(n) for n in (1, 1000, 1024, 16384, 2**20)]
  assert found == ['1', '1,000', '1K', '16K', '1M']


def test_selected_tokens_and_reward_of_a_run(tmp_path):
  """Rows are left out if numbers are missing, 0 or null, or if cut off."""
  rows = [
      {'step': 5, 'train/selected': 0.0, 'train/reward': 0.0},
      {'step': 10, 'train/selected': 120.5, 'train/reward': 3.0},
      {'step': 10, 'eval/loss': 1.0},
      {'step': 20, 'train/selected': 60.0, 'train/reward': None},
      {'step': 30, 'train/selected': 31, 'train/reward': 9.5},
  ]
  path = test_main.write_rows(tmp_path / 'metrics.jsonl', rows)
  with open(path, 'a') as f:
    f.write('{"step": 40, "train/sel')
  left, right = selection.draw_training(path).axes
  assert points(left.lines[0]) == [[10, 120.5], [20, 60], [30, 31]]
  assert points(right.lines[0]) == [[10, 3], [30, 9.5]]
  rows = [{'step': 1, 'train/loss': 2.0}]
  path = test_main.write_rows(tmp_path / 'm.jsonl', rows)
  with pytest.raises(InputError, match="'train/selected'; expected .*loss"):
    selection.draw_training(path)
