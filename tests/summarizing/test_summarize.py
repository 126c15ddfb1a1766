"""The summarize command prints one line per document."""

import gzip
import io
import json
import sys
import types

import jax
import numpy as np
import pytest

import locost_jax
from locost_jax.summarizing import provenance
from locost_jax.summarizing.summarizer import Summarizer
from tests.summarizing.summarize_command import error_line
from tests.summarizing.summarize_command import write_documents


def test_one_line_per_document_in_order(run, call_json, tmp_path, monkeypatch):
  """Files, JSONL rows, gz and stdin; equals Summarizer.summarize."""
  texts = ['First text.', 'The second\ntext is longer.', 'Third.', 'Fourth.']
  (tmp_path / 'a.txt').write_text(texts[0])
  row = json.dumps({'document': texts[1], 'id': 7})
  (tmp_path / 'b.jsonl').write_text(
      f'{row}\n\n{json.dumps({"document": texts[2]})}\n'
  )
  with gzip.open(tmp_path / 'c.md.gz', 'wb') as f:
    f.write(b'\xef\xbb\xbf' + texts[3].encode())
  stdin = types.SimpleNamespace(buffer=io.BytesIO(b'From stdin.'))
  monkeypatch.setattr(sys, 'stdin', stdin)
  files = [tmp_path / name for name in ('a.txt', 'b.jsonl', 'c.md.gz')]
  status, rows, err = call_json(
      '--checkpoint', run, *files, '-', '--min_length=5'
  )
  assert status == 0
  ids = [str(files[0]), '7', f'{files[1]}:3', str(files[2]), '-']
  assert [row['id'] for row in rows] == ids
  texts.append('From stdin.')
  expected = locost_jax.load(str(run)).summarize(texts, min_length=5)
  assert [row['prediction'] for row in rows] == expected
  assert [row['tokens_total'] for row in rows] == [
      len(text.encode()) + 1 for text in texts
  ]
  assert len([line for line in err.splitlines() if 'tokens read' in line]) == 5


@pytest.mark.parametrize(
    'flags',
    [
        dict(no_repeat_ngram_size=2),
        dict(num_beams=3, length_penalty=0.5, early_stopping=True),
        dict(temperature=0.7, top_k=9, top_p=0.9, seed=5),
    ],
)
def test_a_row_holds_all_settings_that_reproduce_it(
    run, call_json, tmp_path, flags
):
  path, text = tmp_path / 'a.txt', 'A text to be read in full.'
  path.write_text(text)
  given = [f'--{key}={value}' for key, value in flags.items()]
  _, (row,), _ = call_json('--checkpoint', run, path, *given)
  assert row['source'] == str(path)
  assert row['sha256'] == provenance.hash_text(text)
  assert row['checkpoint']['path'] == str(run / 'checkpoints' / '2')
  assert row['checkpoint']['step'] == 2 and row['checkpoint']['fingerprint']
  assert (row['dtype'], row['backend']) == ('float32', 'cpu')
  assert row['versions']['jax'] == jax.__version__
  assert row['peak_memory_bytes'] > 2**20
  assert row['seconds'] == pytest.approx(
      row['seconds_encoding'] + row['seconds_decoding'], abs=2e-3
  )
  # From the run, from the flags, and defaults.
  settings = dict(max_length=6, num_beams=1, seed=0) | flags
  assert row['settings'].items() >= settings.items()
  assert row['settings']['max_input_length'] is None
  again = locost_jax.load(row['checkpoint']['path']).summarize([text], **flags)
  assert again == [row['prediction']]


def test_the_fingerprint_depends_on_the_weights(run, tmp_path):
  one = locost_jax.load(str(run))
  assert provenance.fingerprint(one) == provenance.fingerprint(
      locost_jax.load(str(run))
  )
  params = jax.tree.map(np.array, one.params)
  jax.tree.leaves(params)[0].reshape(-1)[3] += 1e-3
  other = Summarizer(one.model, params, one.vocabulary)
  assert provenance.fingerprint(one) != provenance.fingerprint(other)


# --- Batches and memory ------------------------------------------------------


def test_documents_of_similar_length_share_a_batch(
    run, call_json, tmp_path, batches
):
  """Summaries are printed in order and as early as possible."""
  lengths = [10, 200, 20, 30, 210, 40]
  texts = [letter * n for letter, n in zip('abcdef', lengths)]
  path = write_documents(tmp_path / 'a.jsonl', texts)
  command = '--checkpoint', run, path
  status, rows, _ = call_json(*command, '--batch_size=3')
  assert status == 0
  assert [row['tokens_total'] for row in rows] == [n + 1 for n in lengths]
  assert batches == [(3, 64), (2, 256), (1, 64)]
  _, alone, _ = call_json(*command, '--batch_size=1')
  assert [row['prediction'] for row in rows] == [
      row['prediction'] for row in alone
  ]


def test_too_large_for_the_memory(run, call, tmp_path, batches):
  """Batches shrink; a document that does not fit alone is refused."""
  small = write_documents(tmp_path / 'small.jsonl', ['x' * 5000] * 4)
  large = tmp_path / 'large.txt'
  large.write_text('y' * 30_000)
  command = '--checkpoint', run, '--memory_limit=0.276', large
  status, out, err = call(*command, small)
  assert status == 2 and len(out.splitlines()) == 5
  assert 'large.txt: (left out: 30001 tokens' in out.splitlines()[0]
  assert batches == [(2, 6144), (2, 6144)]
  line = error_line(err)
  assert 'large.txt: 30001 tokens need about 2' in line
  assert 'encoding 36 MiB' in line and '283 MiB are available' in line
  assert line.endswith('--max_input_length lowers the need')
  batches.clear()
  assert call(*command, '--max_input_length=1024')[0] == 0
  assert batches == [(1, 1024)]


@pytest.mark.parametrize(
    'error',
    [
        jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory'),
        # XLA's error under `ulimit -v`.
        jax.errors.JaxRuntimeError('INTERNAL: Out of memory allocating 4 b'),
        MemoryError(),
    ],
)
def test_a_device_out_of_memory_gets_smaller_batches(
    run, call_json, tmp_path, monkeypatch, error
):
  generate = Summarizer.generate

  def small_device(self, inputs, *arguments, **named):
    if inputs.shape[0] * inputs.shape[1] > 128:
      raise error
    return generate(self, inputs, *arguments, **named)

  monkeypatch.setattr(Summarizer, 'generate', small_device)
  lengths = [10, 11, 200, 12, 13, 14]
  path = write_documents(tmp_path / 'a.jsonl', ['x' * n for n in lengths])
  status, rows, err = call_json('--checkpoint', run, path)
  assert status == 2
  assert [row['tokens_total'] for row in rows] == [11, 12, 13, 14, 15]
  line = error_line(err)
  expected = 'a.jsonl:3: the device has not the memory for its 201 tokens: '
  assert line.endswith(f'{expected}--max_input_length lowers the need')
