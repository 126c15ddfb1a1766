"""Evaluation: scores that do not depend on batches, predictions, baselines."""

import errno
import json
import os
import types

import jax
import numpy as np
import pytest

from locost_jax import files
from locost_jax import models
from locost_jax.devices import sharding
from locost_jax.evaluation import baselines
from locost_jax.evaluation import content
from locost_jax.evaluation import evaluate
from locost_jax.evaluation import metric_table
from locost_jax.evaluation import predictions
from locost_jax.summarizing.summarizer import Summarizer
from locost_jax.training import losses
from locost_jax.training import step as step_lib
from tests import mesh_program
from tests import tiny_run
from tests.batches import as_batch
from tests.batches import BYTES
from tests.data.rows import read_jsonl
from tests.data.rows import write_jsonl
from tests.evaluation.test_protocols import rouge

TEXTS = [
    'The first of them. It has two sentences.',
    'Second. No more.',
    'A third text, longer than both of the others together. Yes.',
    'Four.',
    'The fifth and last one.',
]
TARGETS = ['one', 'two two', 'three, three', 'four', 'the fifth']


def make_params(model):
  """Random parameters, large enough that predictions differ."""
  init = jax.jit(lambda key: step_lib.init_params(key, model))
  return jax.tree.map(lambda x: x * 2, init(jax.random.key(1)))


@pytest.fixture(scope='module')
def setup():
  """(config, model, params, mesh)."""
  config = tiny_run.make_config()
  model = models.build(config.model)
  params = make_params(model)
  return config, model, params, sharding.make_mesh(config.mesh)


def measure(setup, batches, *names, common=None, **more):
  """Calls `evaluate.measure` with a setup: returns (metrics, rows)."""
  config, model, params, mesh = setup
  what = types.SimpleNamespace(
      model=model,
      vocabulary=BYTES,
      config=config,
      mesh=mesh,
      common=common,
  )
  return evaluate.measure(what, params, batches, names or None, **more)


def generate(setup, **decoding):
  """Returns the summaries of single documents."""
  config, model, params, _ = setup
  most = config.decode.max_length
  summarizer = Summarizer(model, params, BYTES)
  return [
      BYTES.decode(
          summarizer.generate(
              batch['encoder_input_tokens'], max_length=most, **decoding
          )[0]
      )
      for batch, _ in make_batches(1)
  ]


def padded(texts, rows, length):
  """Returns the ids of texts and their end marks; [] of an empty text."""
  made = np.zeros((rows, length), np.int32)
  for row, text in zip(made, texts):
    ids = BYTES.encode(text) + [1] if text else []
    row[: len(ids)] = ids
  return made


def make_batches(batch_size, L=64, T=16):
  """Yields batches of the texts; the last is filled with padding rows."""
  for start in range(0, len(TEXTS), batch_size):
    part = range(start, min(start + batch_size, len(TEXTS)))
    inputs = padded([TEXTS[i] for i in part], batch_size, L)
    targets = padded([TARGETS[i] for i in part], batch_size, T)
    batch = as_batch(inputs, targets, targets > 0)
    yield batch, dict(
        id=[f'd{i}' for i in part], reference=[TARGETS[i] for i in part]
    )


def test_scores_do_not_depend_on_batches(setup):
  """One document at a time is the reference."""
  _, model, params, _ = setup

  @jax.jit
  def sums(params, batch):
    logits = model.apply(
        {'params': params},
        batch['encoder_input_tokens'],
        batch['decoder_input_tokens'],
    )
    return losses.cross_entropy(
        logits, batch['decoder_target_tokens'], batch['decoder_loss_weights']
    )

  total, tokens = np.sum(
      [jax.device_get(sums(params, batch)) for batch, _ in make_batches(1)], 0
  )
  predictions = generate(setup)
  expected = rouge(predictions, TARGETS)
  for batch_size, length in (2, 64), (3, 96):
    metrics, rows = measure(setup, make_batches(batch_size, length))
    assert metrics['loss'] == pytest.approx(total / tokens, rel=1e-5)
    assert [row['prediction'] for row in rows] == predictions
    assert [row['id'] for row in rows] == [f'd{i}' for i in range(5)]
    assert {key: metrics[key] for key in expected} == expected
  # Weighting the last batch like a full one would give a different mean.
  wrong = np.mean(
      [
          measure(setup, iter([pair]), 'loss')[0]['loss']
          for pair in make_batches(3, 96)
      ]
  )
  assert abs(wrong - total / tokens) > 1e-4


BEAMS = dict(num_beams=3, length_penalty=0.6, no_repeat_ngram_size=2)
SAMPLING = dict(temperature=0.7, top_k=40, seed=5)


@pytest.mark.parametrize('decoding, batch_size', [(BEAMS, 2), (SAMPLING, 3)])
def test_summaries_follow_the_config(setup, decoding, batch_size):
  config, *rest = setup
  config = config.copy_and_resolve_references()
  config.decode.update(decoding)
  _, rows = measure((config, *rest), make_batches(batch_size), 'rouge')
  expected = generate(setup, **decoding)
  assert [row['prediction'] for row in rows] == expected


def test_names_and_predictions_file(setup, tmp_path):
  config, path = setup[0], tmp_path / 'predictions' / 'task-test-3.jsonl'
  metrics, rows = measure(setup, make_batches(2))
  predictions.try_write(path, rows, predictions.metadata(config, len(rows)))
  mean = np.mean([metrics[n] for n in ('rouge1', 'rouge2', 'rougeLsum')])
  assert metrics['rouge_mean'] == pytest.approx(mean)
  rows = read_jsonl(path)
  for row in rows:
    assert row['signature'].endswith('|rouge_score:0.1.2|n:5')
    assert row['settings']['num_beams'] == config.decode.num_beams
    assert row['settings']['method'] == 'greedy'
    assert row.keys() == {
        *('id', 'prediction', 'reference', 'tokens_kept'),
        *('signature', 'settings', 'test_set'),
    }
  lengths = [
      (batch['encoder_input_tokens'] != 0).sum(1)[: len(info['id'])]
      for batch, info in make_batches(2)
  ]
  kept = [row['tokens_kept'] for row in rows]
  assert kept == np.concatenate(lengths).tolist()
  assert [row['reference'] for row in rows] == TARGETS
  assert list(path.parent.iterdir()) == [path]


def test_an_evaluation_keeps_predictions_of_other_settings(tmp_path, capsys):
  config = tiny_run.make_config()
  path = tmp_path / 'predictions' / 'task-test-3.jsonl'
  rows = [dict(id=str(i), prediction='p', reference='r') for i in range(20)]
  several = [dict(row, reference=['r', 's']) for row in rows]

  def write(rows, checkpoint=None, **changes):
    changed = config.copy_and_resolve_references()
    changed.unlock()
    changed.update_from_flattened_dict(changes)
    predictions.try_write(
        path, rows, predictions.metadata(changed, len(rows), checkpoint)
    )

  def written():
    return {file.name: len(read_jsonl(file)) for file in path.parent.iterdir()}

  write(rows)
  write([dict(row, prediction='new') for row in rows], dict(step=3))
  assert written() == {path.name: 20} and not capsys.readouterr().err
  assert path.read_text().count('"new"') == 20
  for some, changes in (
      (rows[:5], {}),
      (several, {}),
      (rows, {'decode.num_beams': 3}),
      (rows, {'decode.seed': 3}),
      (rows, {'data.max_input_length': 7}),
      (rows, {'data.input_field': 'other'}),
      (rows, {'data.num_pages': 3}),
      (rows, {'model.select': 'ppo', 'model.selection': 'sample'}),
  ):
    before = written()
    for _ in range(2):
      write(some, **changes)
    new = written().keys() - before.keys()
    assert len(new) == 1 and written().items() >= before.items()
    assert written()[new.pop()] == len(some)
    assert f'{path} has other settings' in capsys.readouterr().err
  # A file of an older version has fewer settings, and is kept too.
  old = [dict(row, settings=dict(num_beams=1)) for row in rows]
  write_jsonl(path, old)
  write(rows)
  assert json.loads(path.read_text().split('\n')[0]) == old[0]


def make_records(texts):
  return [
      dict(targets=np.array(BYTES.encode(text) + [1]), reference=text)
      for text in texts
  ]


def measure_baselines(batches, records, metrics):
  return dict(baselines.measure(batches, records, BYTES, metrics))


def test_several_references(setup, tmp_path):
  """The best one counts; the file and the baselines use `references`."""
  batches = list(make_batches(2))
  _, rows = measure(setup, batches, 'rouge')
  first = batches[0][1]
  first['reference'][0] = [first['reference'][0], rows[0]['prediction']]
  path = tmp_path / 'p.jsonl'
  measured, written = measure(setup, batches)
  predictions.try_write(path, written)
  best = [row['reference'] for row in rows]
  best[0] = rows[0]['prediction']
  single = rouge([row['prediction'] for row in rows], best)
  assert measured['rouge1'] == pytest.approx(single['rouge1'])
  written = read_jsonl(path)
  assert written[0]['references'] == first['reference'][0]
  assert 'reference' not in written[0] and 'references' not in written[1]
  records = make_records(TARGETS)
  names = measure_baselines(batches, records, ('rouge',))
  assert any(f'best constant: “{text}”' in names for text in TARGETS)


def test_a_stopped_evaluation_continues(setup, tmp_path, monkeypatch, capsys):
  """Generates only batches that are missing or of another checkpoint."""
  path, generate, calls = tmp_path / 'there' / 'x.jsonl', evaluate._generate, []

  def run(step=3, most=99):
    def generate_some(*arguments):
      if len(calls) == most:
        raise KeyboardInterrupt
      calls.append(arguments)
      return generate(*arguments)

    monkeypatch.setattr(evaluate, '_generate', generate_some)
    calls.clear()
    generated = evaluate.GeneratedBatches(path, dict(step=step))
    return generated, measure(setup, make_batches(2), generated=generated)

  _, whole = run()
  assert len(calls) == 3
  assert run()[1] == whole and not calls
  for step, most in (4, 2), (4, 0):  # stopped after 2, after 0
    with pytest.raises(KeyboardInterrupt):
      run(step, most)
  path.write_text(path.read_text()[:-5])  # killed while writing the line
  generated, results = run(4)
  assert results == whole and len(calls) == 2
  assert '1 batches were generated before' in capsys.readouterr().err
  generated.remove()
  assert not path.exists()
  path.write_text('{"step": 4}\n{"tokens": [["x"]]}\n')
  assert run(4)[1] == whole and len(calls) == 3
  monkeypatch.setattr(files, 'Journal', full_disk)
  assert run(5)[1] == whole and len(calls) == 3
  assert 'No space left' in capsys.readouterr().err


def full_disk(path, content):
  raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.mark.parametrize('batch_size', [1, 2, 3, 5])
def test_exchanged_inputs(batch_size):
  """Each document gets the input of another one; the rest does not change."""
  common = content.Common((), ())
  before = list(content.with_weights(make_batches(batch_size), common))
  after = list(baselines.exchange_inputs(before, BYTES))
  for (old, info), (new, new_info) in zip(before, after):
    assert info == new_info
    n = len(info['id'])
    for key in old:
      assert old[key].shape == new[key].shape
      if key != 'encoder_input_tokens' and n > 1:
        np.testing.assert_array_equal(old[key], new[key])
    if n > 1:
      x, y = (pair['encoder_input_tokens'][:n] for pair in (old, new))
      assert (x != y).any(axis=1).all()
      assert sorted(map(tuple, x)) == sorted(map(tuple, y))
  # A single document is left out in the first batch, but not in later ones.
  for i, (batch, _) in enumerate(after):
    for key in 'decoder_loss_weights', content.WEIGHTS:
      assert batch[key].any() == (batch_size > 1 or i > 0)
  if batch_size == 1:
    tokens = lambda pairs: [pair[0]['encoder_input_tokens'] for pair in pairs]
    for own, last in zip(tokens(after)[1:], tokens(before)):
      width = min(own.shape[1], last.shape[1])
      np.testing.assert_array_equal(own[0, :width], last[0, :width])


def paged_batch(documents, length):
  """Makes a batch of documents, each a list of pages; targets are TARGETS."""
  names = [f'{i}' for i in range(len(documents))]
  tokens = [padded(pages, len(pages), length) for pages in documents]
  targets = padded(TARGETS, len(documents), 32)
  batch = as_batch(np.array(tokens), targets, targets > 0)
  return batch, dict(id=names, reference=TARGETS[: len(documents)])


def test_baselines_read_every_page():
  """An empty page is '.' in the release and has no token in the paper."""
  documents = (
      ['One ends', 'Two begins. It ends.', 'Three.'],
      ['.', '.', 'All of it. On the last page.'],
      ['First.', '', 'Second.'],
  )
  batch = paged_batch(documents, 32)
  inputs = batch[0]['encoder_input_tokens']
  assert [content.input_text(tokens, BYTES) for tokens in inputs] == [
      'One ends\nTwo begins. It ends.\nThree.',
      'All of it. On the last page.',
      'First.\nSecond.',
  ]
  reference = 'One. Two.'  # targets have two sentences, so leads have two
  records = [dict(targets=np.array([1]), reference=reference)]
  measured = measure_baselines([batch], records, ('rouge',))
  leads = 'One ends Two begins.', 'All of it. On the last page.'
  expected = rouge([*leads, 'First. Second.'], TARGETS[:3])
  assert measured['lead: first 2 sentences'] == expected


def test_baselines():
  records = make_records(('two of them', 'the fifth', 'nothing'))
  measured = measure_baselines(
      make_batches(2), iter(records), ('loss', 'rouge')
  )
  loss = baselines.unigram_loss(
      [r['targets'] for r in records],
      [r['targets'] for r in make_records(TARGETS)],
      BYTES.size,
  )
  first = [text.partition('.')[0] + '.' for text in TEXTS]
  # Only the last two targets share words with their documents.
  chosen = ['', '', '', 'Four.', 'The fifth and last one.']
  assert measured == {
      'unigrams of the targets': {'loss': pytest.approx(loss)},
      'lead: first sentence': rouge(first, TARGETS),
      'best constant: “the fifth”': rouge(['the fifth'] * 5, TARGETS),
      'oracle: chosen sentences': rouge(chosen, TARGETS),
  }


@pytest.mark.parametrize(
    'names, documents, expected',
    [
        (('loss', 'rouge', 'recall'), 499, 'loss'),
        (('loss', 'rouge', 'recall'), 500, 'rouge_mean'),
        (('loss',), 500, 'loss'),
        (('rouge',), 3, 'rouge_mean'),
        (('recall',), 3, 'recall'),
    ],
)
def test_choice_of_the_metric_for_the_best_checkpoint(
    names, documents, expected
):
  assert metric_table.choose_best_by(names, documents) == expected


def measure_on_eight_devices():
  assert jax.device_count() == 8
  config = tiny_run.make_config()
  model = models.build(config.model)
  mesh = sharding.make_mesh(config.mesh)
  params = jax.device_put(make_params(model), sharding.replicated(mesh))
  return measure((config, model, params, mesh), make_batches(8))


@pytest.mark.mesh
def test_eight_devices_give_the_same_scores(setup):
  """Rows are sharded over eight devices, in a separate process."""
  metrics, rows = mesh_program.run('measure_on_eight_devices', module=__name__)
  expected, expected_rows = measure(setup, make_batches(8))
  assert rows == expected_rows
  assert metrics == pytest.approx(expected, rel=1e-5)
