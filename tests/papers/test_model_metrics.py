"""Metrics of the papers that a model computes match transformers."""

import json

import numpy as np
import pytest

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import score_metric
from locost_jax.summarizing import pretrained
from locost_jax.vocabularies import sentencepiece_training
from papers import score
from papers import sentences
from papers import support
from tests.evaluation import test_score
from tests.evaluation import tiny_models

torch = pytest.importorskip('torch', reason='needs the extra `metrics`')
transformers = pytest.importorskip(
    'transformers', reason='needs the extra `metrics`'
)
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
T5 = dict(
    d_model=24,
    d_kv=8,
    d_ff=40,
    num_layers=2,
    num_heads=3,
    decoder_start_token_id=0,
    feed_forward_proj='gated-gelu',
    tie_word_embeddings=False,
)


def numbers(measured):
  return measured.values[score_metric.PREDICTION]


@pytest.fixture(scope='module')
def pieces(tmp_path_factory):
  """A SentencePiece model and its tokenizer in transformers."""
  path = tmp_path_factory.mktemp('pieces') / 'spiece.model'
  ones = [
      f'1 {word} 1' for word in tiny_models.WORDS
  ]  # so that 1 becomes a piece
  vocabulary = sentencepiece_training.train(
      [*tiny_models.TEXTS, *ones, 'predict 0', support.PROMPT], path, 300
  )
  tokenizer = transformers.T5Tokenizer.from_pretrained(path.parent)
  return vocabulary, path, tokenizer


def save_t5(directory, pieces, kind='T5ForConditionalGeneration'):
  vocabulary, path, _ = pieces
  config = transformers.T5Config(vocab_size=vocabulary.size, **T5)
  model = tiny_models.fill(getattr(transformers, kind)(config), 0.3)
  model.eval().save_pretrained(directory)
  (directory / 'spiece.model').write_bytes(path.read_bytes())
  return model


SENTENCES = [
    (passage, sentence)
    for passage in (DOCUMENT, tiny_models.TEXTS[1])
    for sentence in PREDICTIONS
]


def test_our_t5_equals_transformers(tmp_path, pieces):
  theirs = save_t5(tmp_path, pieces)
  loaded = pretrained.load(tmp_path)
  tokenizer = pieces[2]
  no, yes = (tokenizer(x, add_special_tokens=False).input_ids[0] for x in '01')
  assert support.answers(loaded.vocabulary) == (no, yes)
  expected = []
  for passage, sentence in SENTENCES:
    text = f'predict: {passage}</s>{sentence}'
    ids = tokenizer(text, return_tensors='pt').input_ids
    ours = support.t5_prompt(loaded.vocabulary, passage, sentence)
    assert ours == ids[0].tolist()
    with torch.no_grad():
      logits = theirs(
          input_ids=ids, decoder_input_ids=torch.zeros((1, 1), dtype=torch.long)
      ).logits[0, 0]
    expected.append(logits[[no, yes]].softmax(0)[1].item())
  assert np.ptp(expected) > 0.01
  for batch_size in 1, 4:
    found = support.t5_probabilities(loaded, SENTENCES, batch_size)
    np.testing.assert_allclose(found, expected, atol=1e-4)
  rows = [score_metric.Row(' '.join(PREDICTIONS[:2]), ['x'], DOCUMENT)]
  measured = support.entailment(
      rows, score_metric.Settings(model=str(tmp_path))
  )
  assert measured.parts[:2] == (tmp_path.name, 'prompt:predict')
  parts = [PREDICTIONS[0], *PREDICTIONS[1].split('. ')]
  parts[1] += '.'
  each = support.t5_probabilities(loaded, [(DOCUMENT, x) for x in parts], 2)
  np.testing.assert_allclose(numbers(measured)[0, 1], each.mean(), 1e-4)


@pytest.mark.parametrize('published', [False, True])
def test_hhem_equals_transformers(tmp_path, pieces, monkeypatch, published):
  theirs = save_t5(tmp_path, pieces, 'T5ForTokenClassification')
  if published:
    sizes = {key: T5[key] for key in ('d_model', 'd_kv', 'd_ff', 'num_layers')}
    sizes |= dict(num_heads=3, feed_forward_proj='gated-gelu')
    sizes['vocab_size'] = pieces[0].size
    monkeypatch.setattr(support, 'FLAN_T5_BASE', sizes)
    from safetensors import torch as files

    path = tmp_path / 'model.safetensors'
    weights = files.load_file(path)
    files.save_file({f't5.{key}': x for key, x in weights.items()}, path)
    config = dict(model_type='HHEMv2Config', foundation='google/flan-t5-base')
    (tmp_path / 'config.json').write_text(json.dumps(config))
  expected = []
  for passage, sentence in SENTENCES:
    text = '<pad> ' + support.PROMPT.format(
        premise=passage, hypothesis=sentence
    )
    ids = pieces[2](text, return_tensors='pt').input_ids
    assert support.hhem_prompt(pieces[0], passage, sentence) == ids[0].tolist()
    with torch.no_grad():
      logits = theirs(input_ids=ids).logits[0, 0]
    expected.append(logits.softmax(-1)[1].item())
  assert np.ptp(expected) > 0.01
  loaded = support.load_hhem(str(tmp_path), str(tmp_path))
  for batch_size in 1, 4:
    found = support.hhem_probabilities(loaded, pieces[0], SENTENCES, batch_size)
    np.testing.assert_allclose(found, expected, atol=1e-5)
  rows = [score_metric.Row(PREDICTIONS[0], ['x'], DOCUMENT)]
  measured = support.hhem(
      rows, score_metric.Settings(model=str(tmp_path)), threshold=0
  )
  np.testing.assert_allclose(numbers(measured), [[100, expected[0]]], atol=1e-5)


def test_coherence_is_equation_12(tmp_path):
  model = str(tiny_models.bert(tmp_path / 'm', scale=0.6))
  texts = [DOCUMENT, 'The river rose. The town was flooded in spring.', 'Rain.']
  rows = [score_metric.Row(text, [DOCUMENT]) for text in texts]
  found = sentences.coherence(
      rows, score_metric.Settings(model=model, batch_size=2)
  )
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
      score_metric.Row('x', ['x'], DOCUMENT),
      score_metric.Row('x', ['x'], 'One.'),
  ]
  found = sentences.locality(
      rows, score_metric.Settings(model=bert, batch_size=2)
  )
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


def test_models_that_do_not_fit_give_one_line(tmp_path, pieces):
  bert = tiny_models.bert(tmp_path / 'bert', 'BertForMaskedLM')
  save_t5(tmp_path, pieces)
  path = test_score.write(
      tmp_path / 'p.jsonl',
      [dict(prediction='a', reference='b', document=DOCUMENT)],
  )
  for metric, model, expected in (
      ('coherence', bert, 'without the weights'),
      ('entailment', bert, "describes model_type='bert'"),
      ('hhem', bert, 'T5ForTokenClassification with two labels, '),
      ('coherence', tmp_path, "model_type='t5'"),
      ('locality', tmp_path / 'absent', 'no such directory'),
  ):
    with pytest.raises(InputError, match=expected) as error:
      test_score.call(
          path, f'--metrics={metric}', f'--model={model}', command=score
      )
    assert '\n' not in str(error.value)
