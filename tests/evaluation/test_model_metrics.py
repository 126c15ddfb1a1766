"""Metrics computed by a model match reference packages and definitions."""

import json

import numpy as np
import pytest

from locost_jax.errors import InputError
from locost_jax.evaluation import score_metric_table
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.model_metrics import bertscore
from locost_jax.evaluation.model_metrics import blanc
from locost_jax.evaluation.model_metrics import coherence
from locost_jax.evaluation.model_metrics import entailment
from locost_jax.evaluation.model_metrics import hhem
from locost_jax.evaluation.model_metrics import locality
from locost_jax.evaluation.model_metrics import torch_models
from locost_jax.summarizing import pretrained
from locost_jax.vocabularies import sentencepiece_training
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
PAIRS = [score_metric.Row(a, [b]) for a, b in zip(PREDICTIONS, REFERENCES)]


@pytest.fixture(scope='module')
def bert(tmp_path_factory):
  return str(tiny_models.bert(tmp_path_factory.mktemp('models') / 'bert'))


def numbers(measured):
  return measured.values[score_metric.PREDICTION]


# --- BERTScore ---------------------------------------------------------------

# bert-score 0.3.13 on this model, layer 2: precision, recall, F1 x 100.
GOLDEN = {
    False: (
        (94.5413, 93.0042, 93.7665),
        (96.3045, 94.2273, 95.2546),
        (94.2583, 95.1057, 94.6801),
    ),
    True: (
        (94.0691, 91.8534, 92.9480),
        (96.4301, 93.9987, 95.1989),
        (94.9375, 95.3251, 95.1309),
    ),
}


@pytest.mark.parametrize('idf', GOLDEN)
@pytest.mark.parametrize('batch_size', [1, 8])
def test_bertscore_equals_the_package(bert, idf, batch_size):
  settings = score_metric.Settings(
      model=bert, layer=2, idf=idf, batch_size=batch_size
  )
  found = bertscore.run(PAIRS, settings)
  np.testing.assert_allclose(numbers(found), GOLDEN[idf], atol=2e-4)
  word = 'yes' if idf else 'no'
  assert found.parts == (
      'bert',
      'layer:2',
      f'idf:{word}',
      'baseline:no',
      'agg:max',
  )
  assert not found.notes


def test_matching_equals_the_equations_of_the_paper():
  draw = np.random.default_rng(0)
  ours, theirs = (draw.normal(size=(n, 5)) for n in (4, 6))
  ours /= np.linalg.norm(ours, axis=1, keepdims=True)
  theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
  v, w = draw.random(4), draw.random(6)
  precision = sum(
      v[j] * max(x @ ours[j] for x in theirs) for j in range(4)
  ) / sum(v)
  recall = sum(w[i] * max(theirs[i] @ y for y in ours) for i in range(6)) / sum(
      w
  )
  np.testing.assert_allclose(
      bertscore.match(ours, theirs, v, w),
      (precision, recall, 2 * precision * recall / (precision + recall)),
  )
  assert bertscore.match(ours, theirs, 0 * v, w) is None


def test_idf_by_hand():
  weights = bertscore.idf([[1, 2, 2], [1, 3], [1]])
  assert weights[1] == 0
  assert weights[2] == pytest.approx(np.log(4 / 2))
  assert weights[9] == pytest.approx(np.log(4))


def test_bertscore_of_several_references_and_none(bert):
  settings = score_metric.Settings(model=bert, layer=2)
  rows = [
      score_metric.Row(PREDICTIONS[0], [REFERENCES[1], REFERENCES[0]]),
      score_metric.Row('', ['Rain.']),
      score_metric.Row('Rain.', [' ']),
  ]
  found = bertscore.run(rows, settings)
  alone = bertscore.run(
      [PAIRS[0], score_metric.Row(PREDICTIONS[0], [REFERENCES[1]])], settings
  )
  best = numbers(alone)[numbers(alone)[:, 2].argmax()]
  np.testing.assert_allclose(numbers(found), [best, [0] * 3, [0] * 3], 1e-6)
  assert '2 pairs with an empty' in found.notes[0]


def test_baseline_rescales(bert, tmp_path):
  path = tmp_path / 'base|line.tsv'
  path.write_text('LAYER,P,R,F\n1,0,0,0\n2,0.5,0.6,0.8\n')
  found = bertscore.run(
      PAIRS, score_metric.Settings(model=bert, layer=2, baseline=str(path))
  )
  b = np.array([0.5, 0.6, 0.8])
  expected = 100 * (np.array(GOLDEN[False]) / 100 - b) / (1 - b)
  np.testing.assert_allclose(numbers(found), expected, atol=2e-3)
  assert found.parts[3] == 'baseline:base_line.tsv'
  empty = bertscore.run(
      [score_metric.Row('', ['x'])],
      score_metric.Settings(model=bert, layer=2, baseline=str(path)),
  )
  assert not numbers(empty).any()
  with pytest.raises(InputError, match='a row for layer 3'):
    bertscore.read_baseline(str(path), 3)
  with pytest.raises(InputError, match='cannot be read: No such file'):
    bertscore.read_baseline(str(tmp_path / 'absent'), 3)


def test_long_texts_are_cut_with_a_warning(bert):
  rows = [score_metric.Row('rain ' * 100, ['rain ' * 200])]
  found = bertscore.run(rows, score_metric.Settings(model=bert, layer=2))
  assert '2 texts are longer than the 64 tokens' in found.notes[0]
  same = bertscore.run(
      [score_metric.Row('rain ' * 62, ['rain ' * 62])],
      score_metric.Settings(model=bert, layer=2),
  )
  np.testing.assert_allclose(numbers(found), numbers(same), 1e-6)
  assert not same.notes


# --- BLANC-help --------------------------------------------------------------


def test_blanc_equals_the_package(tmp_path):
  """blanc 0.3.4 on this model, x 100, with our sentence splitter."""
  model = tiny_models.bert(tmp_path / 'm', scale=1.0, seed=8)
  documents = (
      DOCUMENT,
      ' '.join(tiny_models.TEXTS[::-1]),
      tiny_models.TEXTS[1],
  )
  rows = [
      score_metric.Row(prediction, ['x'], document)
      for prediction, document in zip(PREDICTIONS, documents)
  ]
  for batch_size in 1, 8:
    found = blanc.run(
        rows, score_metric.Settings(model=str(model), batch_size=batch_size)
    )
    np.testing.assert_allclose(
        numbers(found)[:, 0], [100 / 19, -100 / 19, 100 / 7]
    )
  assert found.parts == ('m', 'gap:2', 'lengths:4,2')
  empty = blanc.run(
      [score_metric.Row('Rain.', ['x'], 'a b c')],
      score_metric.Settings(model=str(model)),
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


# --- Faithfulness ------------------------------------------------------------

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


@pytest.fixture(scope='module')
def pieces(tmp_path_factory):
  """A SentencePiece model and its tokenizer in transformers."""
  path = tmp_path_factory.mktemp('pieces') / 'spiece.model'
  ones = [
      f'1 {word} 1' for word in tiny_models.WORDS
  ]  # so that 1 becomes a piece
  vocabulary = sentencepiece_training.train(
      [*tiny_models.TEXTS, *ones, 'predict 0', hhem.PROMPT], path, 300
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
  assert entailment.answers(loaded.vocabulary) == (no, yes)
  expected = []
  for passage, sentence in SENTENCES:
    text = f'predict: {passage}</s>{sentence}'
    ids = tokenizer(text, return_tensors='pt').input_ids
    ours = entailment.prompt(loaded.vocabulary, passage, sentence)
    assert ours == ids[0].tolist()
    with torch.no_grad():
      logits = theirs(
          input_ids=ids, decoder_input_ids=torch.zeros((1, 1), dtype=torch.long)
      ).logits[0, 0]
    expected.append(logits[[no, yes]].softmax(0)[1].item())
  assert np.ptp(expected) > 0.01
  for batch_size in 1, 4:
    found = entailment.probabilities(loaded, SENTENCES, batch_size)
    np.testing.assert_allclose(found, expected, atol=1e-4)
  rows = [score_metric.Row(' '.join(PREDICTIONS[:2]), ['x'], DOCUMENT)]
  measured = entailment.run(rows, score_metric.Settings(model=str(tmp_path)))
  assert measured.parts[:2] == (tmp_path.name, 'prompt:predict')
  parts = [PREDICTIONS[0], *PREDICTIONS[1].split('. ')]
  parts[1] += '.'
  each = entailment.probabilities(loaded, [(DOCUMENT, x) for x in parts], 2)
  np.testing.assert_allclose(numbers(measured)[0, 1], each.mean(), 1e-4)


@pytest.mark.parametrize('published', [False, True])
def test_hhem_equals_transformers(tmp_path, pieces, monkeypatch, published):
  theirs = save_t5(tmp_path, pieces, 'T5ForTokenClassification')
  if published:
    sizes = {key: T5[key] for key in ('d_model', 'd_kv', 'd_ff', 'num_layers')}
    sizes |= dict(num_heads=3, feed_forward_proj='gated-gelu')
    sizes['vocab_size'] = pieces[0].size
    monkeypatch.setattr(hhem, 'FLAN_T5_BASE', sizes)
    from safetensors import torch as files

    path = tmp_path / 'model.safetensors'
    weights = files.load_file(path)
    files.save_file({f't5.{key}': x for key, x in weights.items()}, path)
    config = dict(model_type='HHEMv2Config', foundation='google/flan-t5-base')
    (tmp_path / 'config.json').write_text(json.dumps(config))
  expected = []
  for passage, sentence in SENTENCES:
    text = '<pad> ' + hhem.PROMPT.format(premise=passage, hypothesis=sentence)
    ids = pieces[2](text, return_tensors='pt').input_ids
    assert hhem.prompt(pieces[0], passage, sentence) == ids[0].tolist()
    with torch.no_grad():
      logits = theirs(input_ids=ids).logits[0, 0]
    expected.append(logits.softmax(-1)[1].item())
  assert np.ptp(expected) > 0.01
  loaded = hhem.load(str(tmp_path), str(tmp_path))
  for batch_size in 1, 4:
    found = hhem.probabilities(loaded, pieces[0], SENTENCES, batch_size)
    np.testing.assert_allclose(found, expected, atol=1e-5)
  rows = [score_metric.Row(PREDICTIONS[0], ['x'], DOCUMENT)]
  measured = hhem.run(
      rows, score_metric.Settings(model=str(tmp_path), threshold=0)
  )
  np.testing.assert_allclose(numbers(measured), [[100, expected[0]]], atol=1e-5)


# --- PageSum's metrics -------------------------------------------------------


def test_coherence_is_equation_12(tmp_path):
  model = str(tiny_models.bert(tmp_path / 'm', scale=0.6))
  texts = [DOCUMENT, 'The river rose. The town was flooded in spring.', 'Rain.']
  rows = [score_metric.Row(text, [DOCUMENT]) for text in texts]
  found = coherence.run(rows, score_metric.Settings(model=model, batch_size=2))
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
  orders = [coherence.shuffled([a, b, c], f'0:{i}') for i in range(3)]
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


def test_locality_is_the_mean_cosine_at_each_distance(bert):
  rows = [
      score_metric.Row('x', ['x'], DOCUMENT),
      score_metric.Row('x', ['x'], 'One.'),
  ]
  found = locality.run(rows, score_metric.Settings(model=bert, batch_size=2))
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


# --- The command, and models that do not fit ---------------------------------


def as_file(path, document=DOCUMENT):
  return test_score.write(
      path,
      [
          dict(prediction=a, reference=b, document=document)
          for a, b in zip(PREDICTIONS, REFERENCES)
      ],
  )


def test_the_command_takes_several_models(bert, tmp_path, capsys):
  test_score.call(
      as_file(tmp_path / 'p.jsonl'),
      '--metrics=rouge,bertscore,blanc,coherence,locality',
      f'--model=bertscore={bert},blanc={bert},coherence={bert},locality={bert}',
      '--layer=2',
      '--correlation',
      '--format=json',
  )
  found = json.loads(capsys.readouterr().out)
  metrics = found['metrics']
  assert [one['signature'] for one in metrics.values()][1:] == [
      'bertscore|bert|layer:2|idf:no|baseline:no|agg:max|n:3|ci:95',
      'blanc|bert|gap:2|lengths:4,2|n:3|ci:95',
      'coherence|bert|seed:0|n:3|ci:95',
      'locality|bert|pool:first|n:3|ci:95',
  ]
  assert metrics['bertscore']['values']['prediction']['bertscore'] == (
      pytest.approx(np.mean([row[2] for row in GOLDEN[False]]), abs=1e-3)
  )
  titles = found['correlation']['titles']
  rouge1 = titles.index('R-1')
  f1 = titles.index('bertscore F1')
  assert -1 <= found['correlation']['values'][rouge1][f1] <= 1


def test_an_unsuitable_model_does_not_stop_the_other_metrics(
    bert, tmp_path, pieces, capsys
):
  (tmp_path / 't5').mkdir()
  save_t5(tmp_path / 't5', pieces)
  with pytest.raises(InputError, match='--metrics=blanc needs a masked'):
    test_score.call(
        as_file(tmp_path / 'p.jsonl'),
        '--metrics=blanc,bertscore',
        f'--model=blanc={tmp_path / "t5"},bertscore={bert}',
        '--layer=2',
    )
  assert '\nbertscore|bert|layer:2|' in capsys.readouterr().out


@pytest.mark.parametrize(
    'metric, kind, expected',
    [
        ('coherence', 'BertForMaskedLM', 'without the weights'),
        (
            'blanc',
            'BertForNextSentencePrediction',
            'without the weights cls.pre',
        ),
        ('entailment', 'BertForMaskedLM', "describes model_type='bert'"),
        (
            'hhem',
            'BertForMaskedLM',
            'T5ForTokenClassification with two labels, ',
        ),
        ('bertscore', 'BertForMaskedLM', 'needs --layer=N, 1 <= N <= 3'),
    ],
)
def test_other_architectures_give_one_line(tmp_path, metric, kind, expected):
  model = tiny_models.bert(tmp_path / 'm', kind)
  with pytest.raises(InputError) as error:
    test_score.call(
        as_file(tmp_path / 'p.jsonl'), f'--metrics={metric}', f'--model={model}'
    )
  message = str(error.value)
  assert expected in message and '\n' not in message
  assert metric in message or metric == 'entailment'


@pytest.mark.parametrize(
    'metric', ['bertscore', 'blanc', 'coherence', 'locality', 'hhem']
)
def test_a_t5_and_an_empty_folder_are_refused(tmp_path, pieces, metric):
  (tmp_path / 'm').mkdir()
  path = as_file(tmp_path / 'p.jsonl')
  for model, expected in (
      (tmp_path / 'absent', 'no such directory'),
      (tmp_path / 'm', 'holds no config.json'),
  ):
    with pytest.raises(InputError, match=expected):
      test_score.call(path, f'--metrics={metric}', f'--model={model}')
  save_t5(tmp_path / 'm', pieces)
  if metric in ('bertscore', 'locality'):  # its encoder embeds texts
    settings = score_metric.Settings(model=str(tmp_path / 'm'), layer=1)
    rows = [score_metric.Row('Rain.', ['Rain.'], DOCUMENT)]
    (numbers_,) = (
        score_metric_table.METRICS[metric].run(rows, settings).values.values()
    )
    assert not np.isnan(numbers_).any()
    return
  with pytest.raises(InputError) as error:
    test_score.call(path, f'--metrics={metric}', f'--model={tmp_path / "m"}')
  assert "model_type='t5'" in str(error.value)
  assert '\n' not in str(error.value)


def test_nothing_is_downloaded_and_no_code_is_run(tmp_path):
  (tmp_path / 'config.json').write_text(
      json.dumps(
          dict(
              model_type='other',
              auto_map=dict(AutoConfig='code.Config', AutoModel='code.Model'),
          )
      )
  )
  (tmp_path / 'code.py').write_text(f'open("{tmp_path}/ran", "w")\n')
  with pytest.raises(InputError, match="got model_type='other'"):
    torch_models.load('bertscore', str(tmp_path), 'AutoModel', 'a model')
  assert not (tmp_path / 'ran').exists()


def test_every_metric_has_a_line():
  for entry in score_metric_table.METRICS.values():
    assert entry.what and '\n' not in entry.what
