"""The summarize command prints one line per document."""

import gzip
import io
import json
import shutil
import sys
import types

import jax
import numpy as np
import pytest

from locost_jax import summarize
from locost_jax.command_line import commands
from locost_jax.generation import decode_settings
from locost_jax.summarizing import batching
from locost_jax.summarizing import pretrained
from locost_jax.summarizing import summaries
from locost_jax.summarizing.summarizer import Summarizer
from locost_jax.vocabularies import byte_vocabulary
from tests.summarizing.summarize_command import rows_of


def test_one_line_per_document_in_order(run, call, tmp_path, monkeypatch):
  """Files, JSONL rows, gz and stdin; equals Summarizer.summarize."""
  texts = ['First text.', 'The second\ntext is longer.', 'Third.', 'Fourth.']
  (tmp_path / 'a.txt').write_text(texts[0])
  (tmp_path / 'b.jsonl').write_text(
      json.dumps({'document': texts[1], 'id': 7})
      + '\n\n'
      + json.dumps({'document': texts[2]})
      + '\n'
  )
  with gzip.open(tmp_path / 'c.md.gz', 'wb') as f:
    f.write(b'\xef\xbb\xbf' + texts[3].encode())
  stdin = types.SimpleNamespace(buffer=io.BytesIO(b'From stdin.'))
  monkeypatch.setattr(sys, 'stdin', stdin)
  files = [tmp_path / name for name in ('a.txt', 'b.jsonl', 'c.md.gz')]
  status, out, err = call(
      '--checkpoint', run, *files, '-', '--format=json', '--min_length=5'
  )
  rows = [json.loads(line) for line in out.splitlines()]
  assert status == 0
  assert [row['id'] for row in rows] == [
      str(files[0]),
      '7',
      f'{files[1]}:3',
      str(files[2]),
      '-',
  ]
  expected = pretrained.load(str(run)).summarize(
      texts + ['From stdin.'], min_length=5
  )
  assert [row['prediction'] for row in rows] == expected
  assert [row['tokens_read'] for row in rows] == [
      len(text.encode()) + 1 for text in texts + ['From stdin.']
  ]
  assert len([line for line in err.splitlines() if 'tokens read' in line]) == 5


def test_plain_form_has_no_newlines(run, call, tmp_path, monkeypatch):
  monkeypatch.setattr(
      byte_vocabulary.ByteVocabulary,
      'decode',
      lambda self, ids: 'one\ntwo  three',
  )
  (tmp_path / 'a.txt').write_text('x')
  assert call('--checkpoint', run, tmp_path / 'a.txt')[:2] == (
      0,
      'one two three\n',
  )


def test_output_file_and_kept_tokens(run, call, tmp_path):
  (tmp_path / 'a.txt').write_text('abcdefghij')
  output = tmp_path / 'out.jsonl'
  status, out, err = call(
      '--checkpoint',
      run,
      tmp_path / 'a.txt',
      f'--output={output}',
      '--max_input_length=6',
  )
  row = json.loads(output.read_text())
  assert (status, out, row['tokens_read'], row['tokens_kept']) == (0, '', 11, 6)
  assert '11 tokens read, 6 kept' in err and 'peak memory' in err
  assert sorted(p.name for p in tmp_path.iterdir()) == ['a.txt', 'out.jsonl']


def test_a_row_holds_all_settings_that_reproduce_it(run, call, tmp_path):
  (tmp_path / 'a.txt').write_text('A text.')
  row = json.loads(
      call(
          '--checkpoint',
          run,
          tmp_path / 'a.txt',
          '--format=json',
          '--no_repeat_ngram_size=2',
      )[1]
  )
  assert row['source'] == str(tmp_path / 'a.txt')
  assert row['sha256'] == summaries.hash_text('A text.')
  assert row['checkpoint']['path'] == str(run / 'checkpoints' / '2')
  assert row['checkpoint']['step'] == 2 and row['checkpoint']['fingerprint']
  assert (row['dtype'], row['backend'], row['versions']['jax']) == (
      'float32',
      'cpu',
      jax.__version__,
  )
  assert row['peak_memory_bytes'] > 2**20
  assert row['seconds'] == pytest.approx(
      row['seconds_encoding'] + row['seconds_decoding'], abs=2e-3
  )
  # From the run, from the flag, and defaults.
  settings = row['settings']
  assert (
      settings['max_length'],
      settings['no_repeat_ngram_size'],
      settings['num_beams'],
      settings['seed'],
      settings['max_input_length'],
  ) == (6, 2, 1, 0, None)
  again = pretrained.load(row['checkpoint']['path']).summarize(
      ['A text.'], no_repeat_ngram_size=2
  )
  assert again == [row['prediction']]


def test_the_fingerprint_depends_on_the_weights(run, tmp_path):
  one = pretrained.load(str(run))
  assert summaries.fingerprint(one) == summaries.fingerprint(
      pretrained.load(str(run))
  )
  params = jax.tree.map(np.array, one.params)
  jax.tree.leaves(params)[0].reshape(-1)[3] += 1e-3
  other = Summarizer(one.model, params, one.vocabulary)
  assert summaries.fingerprint(one) != summaries.fingerprint(other)


@pytest.mark.parametrize(
    'arguments, expected',
    [
        (['missing.txt', '--checkpoint=RUN'], 'missing.txt: no such file'),
        (['nothing', '--checkpoint=RUN'], 'nothing: a directory with nothing'),
        (['empty.txt', '--checkpoint=RUN'], 'empty.txt: an empty document'),
        (['latin.txt', '--checkpoint=RUN'], 'latin.txt: not UTF-8 (byte 3'),
        (['bad.jsonl', '--checkpoint=RUN'], 'bad.jsonl:1: not JSON'),
        (
            ['text.jsonl', '--checkpoint=RUN'],
            "text.jsonl:1: no field 'document'",
        ),
        (['none.jsonl', '--checkpoint=RUN'], 'none.jsonl: holds no document'),
        (['a.txt', '--checkpoint=nowhere'], 'nowhere: no such directory'),
        (['a.txt', '--checkpoint=.'], 'config.json'),
        (['a.txt'], '--checkpoint=DIR is missing'),
        (['--checkpoint=RUN'], 'no FILE given'),
        (
            ['a.txt', '--checkpoint=RUN', '--max_lenght=3'],
            'did you mean --max_length?',
        ),
        (['a.txt', '--checkpoint=RUN', '--max_length=0'], '--max_length=0'),
        (['a.txt', '--checkpoint=nowhere', '--num_beams=0'], '--num_beams=0'),
        (
            [
                'a.txt',
                '--checkpoint=nowhere',
                '--max_length=3',
                '--min_length=4',
            ],
            '--min_length=4 must lie between 0 and max_length=3',
        ),
        (
            ['a.txt', '--checkpoint=RUN', '--min_length=7'],
            '--min_length=7 must lie between 0 and max_length=6',
        ),
        (
            ['a.txt', '--checkpoint=nowhere', '--temperature=0'],
            '--temperature=0',
        ),
        (
            ['a.txt', '--checkpoint=nowhere', '--top_p=1.5'],
            '--top_p=1.5: expected 0 < top_p <= 1',
        ),
        (
            ['a.txt', '--checkpoint=nowhere', '--num_beams=2', '--top_k=3'],
            "--num_beams=2 must be 1 with method='sample'",
        ),
        (
            [
                'a.txt',
                '--checkpoint=nowhere',
                '--num_beams=2',
                '--method=greedy',
            ],
            "--num_beams=2 must be 1 with method='greedy'",
        ),
        (
            ['a.txt', '--checkpoint=RUN', '--method=beam'],
            '--num_beams=1 must be',
        ),
        (['a.txt', '--checkpoint=RUN', '--output=no/dir/x'], 'no directory'),
        (['a.txt', '--checkpoint=RUN', '--output=nothing'], 'is a directory'),
        # Documents are checked before the checkpoint.
        (['missing.txt', '--checkpoint=nowhere'], 'missing.txt: no such file'),
    ],
)
def test_bad_input(run, call, tmp_path, monkeypatch, arguments, expected):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'a.txt').write_text('A text.')
  (tmp_path / 'empty.txt').write_text(' \n')
  (tmp_path / 'latin.txt').write_bytes(b'caf\xe9 au lait')
  (tmp_path / 'bad.jsonl').write_text('{"document"\n')
  (tmp_path / 'text.jsonl').write_text('{"text": "x"}\n')
  (tmp_path / 'none.jsonl').write_text('')
  (tmp_path / 'nothing').mkdir()
  before = sorted(tmp_path.iterdir())
  status, out, err = call(*(a.replace('RUN', str(run)) for a in arguments))
  assert status == 2 and out == ''
  assert len(err.strip().splitlines()) == 1 and expected in err
  assert sorted(tmp_path.iterdir()) == before


def test_bad_documents_do_not_stop_the_others(run, call, tmp_path):
  (tmp_path / 'a.jsonl').write_text(
      '{"document": "One."}\n{"document"\n{"document": "Two."}\n'
  )
  (tmp_path / 'b.txt').write_bytes(b'\xff')
  output = tmp_path / 'out.jsonl'
  status, _, err = call(
      '--checkpoint',
      run,
      tmp_path / 'a.jsonl',
      tmp_path / 'missing.txt',
      tmp_path / 'b.txt',
      f'--output={output}',
  )
  assert status == 2
  assert [row['id'][-2:] for row in rows_of(output)] == [':1', ':3']
  errors = [line for line in err.splitlines() if line.startswith('error: ')]
  assert len(errors) == 3 and 'a.jsonl:2' in errors[0]
  assert 'missing.txt' in errors[1] and 'b.txt' in errors[2]


@pytest.mark.parametrize(
    'given, expected',
    [
        ({}, dict(method='beam', num_beams=4, length_penalty=0.8)),
        (dict(num_beams=1), dict(method='greedy', num_beams=1)),
        (dict(method='greedy'), dict(method='greedy', num_beams=1)),
        (dict(num_beams=2), dict(method='beam', num_beams=2)),
        (dict(top_k=5), dict(method='sample', num_beams=1, top_k=5)),
        (dict(method='sample', seed=3), dict(method='sample', seed=3)),
        (dict(length_penalty=2.0), dict(method='beam', length_penalty=2.0)),
    ],
)
def test_flags_override_the_settings_of_the_run(given, expected):
  values = commands.flags.FlagValues()
  summarize.define_flags(values, [])
  values(['x', *(f'--{key}={value}' for key, value in given.items())])
  settings = summarize.choose_settings(
      values, decode_settings.Settings(num_beams=4, length_penalty=0.8)
  )
  assert {key: settings[key] for key in expected} == expected


@pytest.mark.parametrize(
    'flags',
    [
        dict(num_beams=3, length_penalty=0.5, early_stopping=True),
        dict(temperature=0.7, top_k=9, top_p=0.9, seed=5),
    ],
)
def test_flags_are_used(run, call, tmp_path, flags):
  text = 'A text to be read in full.'
  (tmp_path / 'a.txt').write_text(text)
  _, out, _ = call(
      '--checkpoint',
      run,
      tmp_path / 'a.txt',
      '--format=json',
      *(f'--{key}={value}' for key, value in flags.items()),
  )
  (expected,) = pretrained.load(str(run)).summarize(text, **flags)
  assert json.loads(out)['prediction'] == expected
  assert {key: json.loads(out)['settings'][key] for key in flags} == flags


# --- Batches and memory ------------------------------------------------------


def test_documents_of_similar_length_share_a_batch(
    run, call, tmp_path, batches
):
  """Summaries are printed in order and as early as possible."""
  lengths = [10, 200, 20, 30, 210, 40]
  (tmp_path / 'a.jsonl').write_text(
      ''.join(
          json.dumps({'document': chr(97 + i) * n}) + '\n'
          for i, n in enumerate(lengths)
      )
  )
  status, out, _ = call(
      '--checkpoint',
      run,
      tmp_path / 'a.jsonl',
      '--format=json',
      '--batch_size=3',
  )
  rows = [json.loads(line) for line in out.splitlines()]
  assert status == 0
  assert [row['tokens_read'] for row in rows] == [n + 1 for n in lengths]
  assert batches == [(3, 64), (2, 256), (1, 64)]
  _, out, _ = call(
      '--checkpoint',
      run,
      tmp_path / 'a.jsonl',
      '--format=json',
      '--batch_size=1',
  )
  alone = [json.loads(line) for line in out.splitlines()]
  assert [row['prediction'] for row in rows] == [
      row['prediction'] for row in alone
  ]


def test_batches_keep_the_order_of_documents():
  rows = lambda length: {8: 2, 16: 1, 32: 0}[length]
  assert batching.make_batches(
      [
          (8, 'a'),
          (16, 'b'),
          (32, 'c'),
          (8, 'd'),
          (16, 'e'),
          (8, 'f'),
          (32, 'g'),
      ],
      lambda job: job[0],
      rows,
  ) == [
      (8, [(8, 'a'), (8, 'd')]),
      (16, [(16, 'b')]),
      (32, [(32, 'c')]),
      (16, [(16, 'e')]),
      (8, [(8, 'f')]),
      (32, [(32, 'g')]),
  ]


def test_too_large_for_the_memory(run, call, tmp_path, batches):
  """Batches shrink; a document that does not fit alone is refused.

  The length in the message fits.
  """
  (tmp_path / 'small.jsonl').write_text(
      '\n'.join(json.dumps({'document': 'x' * 5000}) for _ in range(4))
  )
  (tmp_path / 'large.txt').write_text('y' * 30_000)
  files = [tmp_path / 'large.txt', tmp_path / 'small.jsonl']
  status, out, err = call(
      '--checkpoint', run, *files, '--format=json', '--memory_limit=0.276'
  )
  assert status == 2 and len(out.splitlines()) == 4
  assert batches == [(2, 6144), (2, 6144)]
  (line,) = [line for line in err.splitlines() if line.startswith('error: ')]
  assert 'large.txt: 30001 tokens need about 2' in line
  assert 'encoding 36 MiB' in line and '283 MiB are available' in line
  fits = int(line.split('--max_input_length=')[1].split()[0])
  batches.clear()
  assert (
      call(
          '--checkpoint',
          run,
          files[0],
          '--memory_limit=0.276',
          f'--max_input_length={fits}',
      )[0]
      == 0
  )
  assert batches == [(1, fits)]


def test_a_device_out_of_memory_gets_smaller_batches(
    run, call, tmp_path, monkeypatch
):
  generate = Summarizer.generate

  def small_device(self, inputs, *arguments, **named):
    if inputs.shape[0] * inputs.shape[1] > 128:
      raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory')
    return generate(self, inputs, *arguments, **named)

  monkeypatch.setattr(Summarizer, 'generate', small_device)
  (tmp_path / 'a.jsonl').write_text(
      '\n'.join(
          json.dumps({'document': 'x' * n}) for n in (10, 11, 200, 12, 13, 14)
      )
  )
  status, out, err = call(
      '--checkpoint', run, tmp_path / 'a.jsonl', '--format=json'
  )
  assert status == 2
  assert [json.loads(line)['tokens_read'] for line in out.splitlines()] == [
      11,
      12,
      13,
      14,
      15,
  ]
  (line,) = [line for line in err.splitlines() if line.startswith('error: ')]
  assert 'a.jsonl:3: the device has not the memory for its 201 tokens' in line


def test_vocabulary_that_does_not_fit(run, call, tmp_path):
  """With more tokens than the model has rows, the weights are not read."""
  copy = tmp_path / 'run'
  shutil.copytree(run, copy)
  config = json.loads((copy / 'config.json').read_text())
  config['model']['vocab_size'] = 100
  (copy / 'config.json').write_text(json.dumps(config))
  (tmp_path / 'a.txt').write_text('A text.')
  status, _, err = call('--checkpoint', copy, tmp_path / 'a.txt')
  assert status == 2 and 'vocabulary' in err and '359' in err and '100' in err
  shutil.rmtree(copy / 'vocabulary')
  status, _, err = call('--checkpoint', copy, tmp_path / 'a.txt')
  assert status == 2 and len(err.strip().splitlines()) == 1


def test_help(call):
  status, out, err = call('--help')
  assert status == 0 and err == ''
  for word in ('--checkpoint', '--max_length', '--output', 'standard input'):
    assert word in out
