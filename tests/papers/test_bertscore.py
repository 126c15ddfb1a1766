"""BERTScore and BLANC match reference packages and definitions."""

import json
import re

import numpy as np
import pytest

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric
from papers import bertscore
from papers import blanc
from papers import score
from papers import torch_models
from tests.data.rows import write_jsonl as write
from tests.evaluation import tiny_models

torch = pytest.importorskip('torch', reason='needs the extra `metrics`')
pytest.importorskip('transformers', reason='needs the extra `metrics`')
torch.set_num_threads(1)  # more threads are slower for tiny models

PREDICTIONS = (
    'The town was flooded.',
    'The council paid. Nobody had expected that.',
    'Rain on the river; rain',
)
REFERENCES = (
    'The river rose.',
    'The council built walls. It paid for the bridge.',
    'The rain was on the town, and in the river',
)
DOCUMENT = ' '.join(tiny_models.TEXTS)
PAIRS = [metric.Row(a, [b]) for a, b in zip(PREDICTIONS, REFERENCES)]


@pytest.fixture(scope='module')
def bert(tmp_path_factory):
  return str(tiny_models.bert(tmp_path_factory.mktemp('models') / 'bert'))


def numbers(measured):
  return measured.values[metric.PREDICTION]


# bert-score 0.3.13 on this model, layer 2: precision, recall, F1 x 100.
GOLDEN = (
    (94.5413, 93.0042, 93.7665),
    (96.3045, 94.2273, 95.2546),
    (94.2583, 95.1057, 94.6801),
)


@pytest.mark.parametrize('batch_size', [1, 8])
def test_bertscore_equals_the_package(bert, batch_size):
  settings = metric.Settings(model=bert, batch_size=batch_size)
  found = bertscore.run(PAIRS, settings, layer=2)
  np.testing.assert_allclose(numbers(found), GOLDEN, atol=2e-4)
  assert found.parts == tuple('bert layer:2 idf:no baseline:no agg:max'.split())
  assert not found.notes


def test_matching_equals_the_equations_of_the_paper():
  draw = np.random.default_rng(0)
  ours, theirs = (draw.normal(size=(n, 5)) for n in (4, 6))
  ours /= np.linalg.norm(ours, axis=1, keepdims=True)
  theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
  v, w = draw.random(4), draw.random(6)
  precision = sum(n * max(x @ y for x in theirs) for n, y in zip(v, ours))
  recall = sum(n * max(x @ y for y in ours) for n, x in zip(w, theirs))
  precision, recall = precision / sum(v), recall / sum(w)
  np.testing.assert_allclose(
      bertscore.match(ours, theirs, v, w),
      (precision, recall, 2 * precision * recall / (precision + recall)),
  )


def test_bertscore_of_several_references_and_none(bert):
  settings = metric.Settings(model=bert)
  rows = [
      metric.Row(PREDICTIONS[0], [REFERENCES[1], REFERENCES[0]]),
      metric.Row('', ['Rain.']),
      metric.Row('Rain.', [' ']),
  ]
  found = bertscore.run(rows, settings, layer=2)
  alone = bertscore.run(
      [PAIRS[0], metric.Row(PREDICTIONS[0], [REFERENCES[1]])], settings, layer=2
  )
  best = numbers(alone)[numbers(alone)[:, 2].argmax()]
  np.testing.assert_allclose(numbers(found), [best, [0] * 3, [0] * 3], 1e-6)
  assert '2 pairs with an empty' in found.notes[0]


def test_long_texts_are_cut_with_a_warning(bert):
  rows = [metric.Row('rain ' * 100, ['rain ' * 200])]
  found = bertscore.run(rows, metric.Settings(model=bert), layer=2)
  assert '2 texts are longer than the 64 tokens' in found.notes[0]
  same = bertscore.run(
      [metric.Row('rain ' * 62, ['rain ' * 62])],
      metric.Settings(model=bert),
      layer=2,
  )
  np.testing.assert_allclose(numbers(found), numbers(same), 1e-6)
  assert not same.notes


def test_blanc_equals_the_package(tmp_path):
  """blanc 0.3.4 on this model, x 100, with our sentence splitter."""
  model = tiny_models.bert(tmp_path / 'm', scale=1.0, seed=8)
  texts = tiny_models.TEXTS
  documents = DOCUMENT, ' '.join(texts[::-1]), texts[1]
  rows = [
      metric.Row(prediction, ['x'], document)
      for prediction, document in zip(PREDICTIONS, documents)
  ]
  for batch_size in 1, 8:
    found = blanc.run(
        rows, metric.Settings(model=str(model), batch_size=batch_size)
    )
    np.testing.assert_allclose(
        numbers(found)[:, 0], [100 / 19, -100 / 19, 100 / 7]
    )
  assert found.parts == ('m', 'gap:2', 'lengths:4,2')
  empty = blanc.run(
      [metric.Row('Rain.', ['x'], 'a b c')],
      metric.Settings(model=str(model)),
  )
  assert np.isnan(numbers(empty)).all()  # no word is long enough to be masked


def test_blanc_by_hand():
  filled = np.array([True, True, False, False, False])
  helped = np.array([True, False, True, True, False])
  assert blanc.score(filled, helped) == pytest.approx(1 / 5)
  tokens = ['town', 'wa', '##lls', 'a', 'river', 'built']
  assert blanc.masks(tokens) == [{0, 4}, {1, 5}]
  summary = [['a'] * 30, ['b'] * 30]
  assert blanc.fit(summary, ['x'] * 20, 90) == (
      ['a'] * 30 + ['b'] * 30,
      ['x'] * 20,
  )
  assert blanc.fit(summary, ['x'] * 150, 140) == (['a'] * 30, ['x'] * 100)
  assert blanc.fit(summary, ['x'] * 150, 110) == (['a'] * 10, ['x'] * 100)


def as_file(path, document=DOCUMENT):
  rows = [
      dict(prediction=a, reference=b, document=document)
      for a, b in zip(PREDICTIONS, REFERENCES)
  ]
  return f'--predictions={write(path, rows)}'


def test_nothing_is_downloaded_and_no_code_is_run(tmp_path):
  code = dict(AutoConfig='code.Config', AutoModel='code.Model')
  config = dict(model_type='other', auto_map=code)
  (tmp_path / 'config.json').write_text(json.dumps(config))
  (tmp_path / 'code.py').write_text(f'open("{tmp_path}/ran", "w")\n')
  with pytest.raises(InputError, match="got model_type='other'"):
    torch_models.load('bertscore', str(tmp_path), 'AutoModel', 'a model')
  assert not (tmp_path / 'ran').exists()


def test_an_unsuitable_model_does_not_stop_the_other_metrics(
    bert, tmp_path, run_command
):
  other = tiny_models.bert(tmp_path / 'm', 'BertForNextSentencePrediction')
  status, out, err = run_command(
      score,
      as_file(tmp_path / 'p.jsonl'),
      '--metrics=blanc,bertscore',
      f'--model=blanc={other},bertscore={bert}',
      '--layer=2',
  )
  assert status == 2 and err.count('error: ') == 1
  assert re.search('error: .*blanc.* without the weights cls.pre', err)
  assert '\nbertscore|bert|layer:2|' in out
