"""Span corruption equals the paper's example and plain loops; records."""

import collections
import itertools

import numpy as np
import pytest

from configs import default
from locost_jax.data import corpus as corpus_lib
from locost_jax.data import preprocessors
from locost_jax.data import span_corruption as spans
from locost_jax.data import tasks
from locost_jax.errors import InputError
from locost_jax.vocabularies import vocabulary as vocabulary_lib
from tests import bart_files
from tests import golden_records
from tests.batches import BYTES

WORDS = 'Thank you for inviting me to your party last week'.split()


def test_the_example_of_the_paper():
  is_noise = [word in ('for', 'inviting', 'last') for word in WORDS]
  ids, marks = np.arange(10), [100, 101, 102]
  inputs, targets = spans.cut_out(ids, np.array(is_noise), marks)
  assert inputs.tolist() == [0, 1, 100, 4, 5, 6, 7, 101, 9]
  assert targets.tolist() == [100, 2, 3, 101, 8]


def put_back(inputs, targets, marks):
  """Restores the text of an example."""
  of_mark, latest = {}, None
  for token in targets:
    if token in marks:
      latest = of_mark.setdefault(token, [])
    else:
      latest.append(token)
  text = []
  for token in inputs:
    text += of_mark.pop(token) if token in marks else [token]
  assert not of_mark
  return text


@pytest.mark.parametrize('length', [2, 3, 10, 64, 500, 3000])
@pytest.mark.parametrize('density, mean', [(0.15, 3), (0.5, 1), (0.9, 7)])
def test_what_is_cut_out(length, density, mean):
  marks = list(range(5000, 5100))
  for seed in range(5):
    generator = np.random.default_rng(seed)
    is_noise = spans.draw(length, density, mean, 100, generator)
    ids = generator.integers(0, 4000, length)
    inputs, targets = spans.cut_out(ids, is_noise, marks)
    assert put_back(inputs.tolist(), targets.tolist(), marks) == ids.tolist()
    noise = min(max(round(length * density), 1), length - 1)
    number = min(max(round(noise / mean), 1), 100, length - noise)
    assert is_noise.sum() == noise and not is_noise[0]
    used = [token for token in targets.tolist() if token >= 5000]
    assert used == marks[:number]
    assert [t for t in inputs.tolist() if t >= 5000] == used


def test_lengths_are_drawn_with_equal_probability():
  """There are 10 ways to write 6 as a sum of 3 positive numbers."""
  generator = np.random.default_rng(0)
  found = collections.Counter(
      tuple(spans._divide(6, 3, generator).tolist()) for _ in range(5000)
  )
  ways = [x for x in itertools.product(range(1, 5), repeat=3) if sum(x) == 6]
  assert found.keys() == set(ways)
  for count in found.values():
    assert abs(count - 500) < 5 * 500**0.5


@pytest.mark.parametrize('sizes', [(511, 63), (63, 511), (15, 15), (4000, 300)])
def test_the_longest_text_that_fits(sizes):
  for density, mean, most in (0.15, 3, 100), (0.5, 1.5, 100), (0.15, 3, 5):
    numbers = density, mean, most

    def fits(n):
      noise, number = spans.counts(n, *numbers)
      return n - noise + number <= sizes[0] and noise + number <= sizes[1]

    assert spans.longest(*sizes, *numbers) == max(
        n for n in range(2, 20_000) if fits(n)
    )
  assert spans.longest(1, 1, 0.15, 3, 100) == 0


def test_which_documents_are_drawn():
  names = [f'document {i}' for i in range(4000)]
  drawn = lambda *given: [spans.is_drawn(name, *given) for name in names]
  assert not any(drawn(0, 0)) and all(drawn(1, 0))
  assert abs(sum(drawn(0.25, 0)) - 1000) < 100
  assert drawn(0.25, 0) == drawn(0.25, 0) != drawn(0.25, 1)
  assert all(b for a, b in zip(drawn(0.2, 3), drawn(0.6, 3)) if a)


def make_rows(number=40):
  generator = np.random.default_rng(0)
  return [
      dict(
          id=f'{i}',
          text=' '.join(
              f'{" ".join(generator.choice(WORDS, 8)).capitalize()}.'
              for _ in range(12)
          ),
      )
      for i in range(number)
  ]


def make_config(**given):
  config = default.get_config()
  config.data.task = 'python_docs_gsg'
  config.data.max_input_length, config.data.max_target_length = 200, 60
  if given:
    config.span_corruption = given
  return config


def read(config, rows, vocabulary=BYTES):
  found = corpus_lib.corpus(config)
  make = preprocessors.maker(found, config.data, vocabulary)
  made = {row['id']: row for row in map(make, rows) if row is not None}
  for row in made.values():
    preprocessors.trim(row, config.data, vocabulary)
  return made


@pytest.mark.parametrize('vocabulary', [BYTES, golden_records.Marked()])
def test_records(vocabulary):
  """Documents that are not drawn have the same records as without it."""
  rows = make_rows()
  short = dict(id='short', text='Too short.')
  plain = read(make_config(), [*rows, short], vocabulary)
  mixed = read(make_config(share=0.5), [*rows, short], vocabulary)
  assert plain.keys() == mixed.keys() and 'short' not in plain
  marks, drawn, starts = spans.sentinels(vocabulary), 0, set()
  front = 0 if vocabulary.bos_id is None else 1
  for row in rows:
    old, new = plain[row['id']], mixed[row['id']]
    assert old.keys() == new.keys()
    if not spans.is_drawn(row['id'], 0.5, 0):
      assert new == old
      continue
    drawn += 1
    for key, text in ('inputs', 'text'), ('targets', 'reference'):
      assert new[key][-1] == vocabulary.eos_id
      assert new[key][:front] == [2] * front
      assert new[text] == vocabulary.decode(new[key][front:])
    assert 190 < len(new['inputs']) <= 200 or 55 < len(new['targets']) <= 60
    text = put_back(new['inputs'][front:-1], new['targets'][front:-1], marks)
    starts.add(row['text'].index(vocabulary.decode(text)))
  assert 10 < drawn < 30 and len(starts) > drawn / 2
  other = read(make_config(share=0.5, seed=1), rows, vocabulary)
  assert any(a['inputs'] != other[i]['inputs'] for i, a in mixed.items())


@pytest.mark.parametrize(
    'given, message',
    [
        (dict(rate=1), 'unknown keys rate; expected share, density'),
        (dict(share=1.5), 'span_corruption.share=1.5'),
        (dict(density=-0.1), 'span_corruption.density=-0.1'),
        (dict(mean_length=0.5), 'span_corruption.mean_length=0.5'),
        (dict(seed='a'), 'span_corruption.seed=a'),
    ],
)
def test_invalid_settings(given, message):
  with pytest.raises(InputError, match=message.replace('.', r'\.')):
    tasks.check(make_config(**given))


def test_a_vocabulary_without_sentinels_is_refused(tmp_path):
  config = make_config(share=0.5)
  config.data.vocabulary = str(bart_files.write(tmp_path))
  with pytest.raises(InputError, match='expected <extra_id_0>'):
    tasks.check(config)


def test_lengths_that_fit_no_example_are_refused(tmp_path):
  """Before anything is written, if the vocabulary exists."""
  config = make_config(share=0.5)
  config.data.max_target_length = 2  # a token and the end mark
  message = 'max_target_length=2: too short for span corruption'
  with pytest.raises(InputError, match=message):
    read(config, make_rows(1))
  vocabulary_lib.save_vocabulary(BYTES, tmp_path / 'vocabulary')
  config.data.vocabulary = str(tmp_path / 'vocabulary')
  with pytest.raises(InputError, match=message):
    tasks.check(config)
  config.data.max_target_length = 3
  tasks.check(config)
