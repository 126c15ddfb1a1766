"""Metrics of the papers that a model computes match transformers."""

import numpy as np
import pytest

from locost_jax.evaluation.metrics import metric
from papers import score
from papers import sentences
from tests.data.rows import write_jsonl as write
from tests.evaluation import tiny_models
from tests.papers.test_bertscore import DOCUMENT
from tests.papers.test_bertscore import numbers

torch = pytest.importorskip('torch', reason='needs the extra `metrics`')
transformers = pytest.importorskip(
    'transformers', reason='needs the extra `metrics`'
)
torch.set_num_threads(1)  # more threads are slower for tiny models


def test_coherence_is_equation_12(tmp_path):
  model = str(tiny_models.bert(tmp_path / 'm', scale=0.6))
  texts = [DOCUMENT, 'The river rose. The town was flooded in spring.', 'Rain.']
  rows = [metric.Row(text, [DOCUMENT]) for text in texts]
  found = sentences.coherence(rows, metric.Settings(model=model, batch_size=2))
  tokenizer = transformers.AutoTokenizer.from_pretrained(model)
  theirs = transformers.BertForNextSentencePrediction.from_pretrained(model)

  def follows(one, other):
    with torch.no_grad():
      logits = theirs.eval()(
          **tokenizer(one, other, return_tensors='pt')
      ).logits
    return logits.softmax(-1)[0, 0].item()

  a, b, c = tiny_models.TEXTS
  first = (follows(a, b) + follows(b, c)) / 2
  second = follows('The river rose.', 'The town was flooded in spring.')
  np.testing.assert_allclose(
      numbers(found)[:, 0], [first, second, np.nan], atol=1e-5
  )
  np.testing.assert_allclose(found.values['reference'][:, 0], first, atol=1e-5)
  assert follows(a, b) != pytest.approx(follows(b, a), abs=1e-3)
  orders = [sentences.shuffled([a, b, c], f'0:{i}') for i in range(3)]
  np.testing.assert_allclose(
      found.values['shuffled'][:, 0],
      [(follows(x, y) + follows(y, z)) / 2 for x, y, z in orders],
      atol=1e-5,
  )
  assert found.more['p_values'].keys() == {
      'prediction - reference',
      'prediction - shuffled',
      'reference - shuffled',
  }


def test_locality_is_the_mean_cosine_at_each_distance(tmp_path):
  bert = str(tiny_models.bert(tmp_path / 'bert'))
  rows = [
      metric.Row('x', ['x'], DOCUMENT),
      metric.Row('x', ['x'], 'One.'),
  ]
  found = sentences.locality(rows, metric.Settings(model=bert, batch_size=2))
  tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
  model = transformers.AutoModel.from_pretrained(bert).eval()
  with torch.no_grad():
    x, y, z = (
        model(**tokenizer(t, return_tensors='pt')).last_hidden_state[0, 0]
        for t in tiny_models.TEXTS
    )
  cosine = lambda a, b: torch.cosine_similarity(a, b, 0).item()
  near, far = (cosine(x, y) + cosine(y, z)) / 2, cosine(x, z)
  assert near != pytest.approx(far, abs=1e-4)
  assert found.more['similarities'] == [
      dict(distance=1, similarity=pytest.approx(near, abs=1e-5), count=2),
      dict(distance=2, similarity=pytest.approx(far, abs=1e-5), count=1),
  ]
  np.testing.assert_allclose(
      found.values['document'],
      [[near, (2 * near + far) / 3], [np.nan] * 2],
      atol=1e-5,
  )


def test_models_that_do_not_fit_give_one_line(tmp_path, run_command):
  bert = tiny_models.bert(tmp_path / 'bert', 'BertForMaskedLM')
  (tmp_path / 'config.json').write_text('{"model_type": "t5"}')
  (tmp_path / 'empty').mkdir()
  bad = tmp_path / 'bad.jsonl'
  bad.write_text('[metadata]')
  row = dict(prediction='a', reference='b')
  none = write(tmp_path / 'none.jsonl', [row])
  path = write(tmp_path / 'p.jsonl', [row | dict(document=DOCUMENT)])
  for name, model, expected in (
      ('coherence', bert, 'without the weights'),
      ('coherence', tmp_path, "model_type='t5'"),
      ('bertscore', bert, 'needs --layer=N, 1 <= N <= 3'),
      ('bertscore', tmp_path / 'absent', 'no such directory'),
      ('blanc', tmp_path / 'empty', 'holds no config.json'),
      ('blanc,coherence', 'blanc=x', '--metrics=coherence needs a model: --m'),
      ('blanc', f'x --documents={bad}', f'{bad}:1: not JSON'),
      ('blanc', f'x --predictions={none}', "no 'document', which --metrics=bl"),
  ):
    flags = f'--predictions={path} --metrics={name} --model={model}'
    status, _, err = run_command(score, *flags.split())
    assert status == 2 and expected in err and err.count('\n') == 1
