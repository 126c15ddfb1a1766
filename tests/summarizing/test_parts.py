"""Summaries part by part: splitting, choosing, confidence and the command."""

import itertools
import math

import numpy as np
import pytest

import locost_jax
from locost_jax.config import decode_settings
from locost_jax.data import text as text_lib
from locost_jax.errors import InputError
from locost_jax.evaluation import predictions
from locost_jax.summarizing import documents as documents_lib
from locost_jax.summarizing import parts as parts_lib
from locost_jax.summarizing import stream
from tests.data.rows import read_jsonl
from tests.data.rows import write_jsonl
from tests.summarizing.summarize_command import make_row

WORDS = 'ant bee cat. Dog elk fox! gnu hen\n\nibis jay koi lynx\n\n \nmole newt'
count_words = lambda text: len(text.split())


def story(paragraphs, sentences=3):
  return '\n\n'.join(
      ' '.join(f'House {i} of {p} is {i * p} old.' for i in range(sentences))
      for p in range(paragraphs)
  )


@pytest.mark.parametrize('max_tokens', [1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize('text', [WORDS, story(7), 'one'])
def test_parts_have_all_words_and_fit(text, max_tokens):
  found = parts_lib.split(text, max_tokens, count_words)
  assert ' '.join(found).split() == text.split()
  assert max(map(count_words, found)) <= max_tokens


@pytest.mark.parametrize('max_tokens', [21, 23, 42, 46, 1000])
def test_a_part_has_as_many_whole_paragraphs_as_fit(max_tokens):
  """Each paragraph has 21 words."""
  found = parts_lib.split(story(7), max_tokens, count_words)
  each = max_tokens // 21
  expected = [
      '\n\n'.join(story(7).split('\n\n')[i : i + each])
      for i in range(0, 7, each)
  ]
  assert found == expected


def test_a_long_paragraph_is_split_between_sentences_and_then_words():
  text = 'Ant bee cat. Dog elk fox gnu hen ibis jay. Koi lynx.'
  assert len(text_lib.split_sentences(text)) == 3
  parts = 'Ant bee cat.|Dog elk fox|gnu hen ibis jay.|Koi lynx.'
  assert parts_lib.split(text, 4, count_words) == parts.split('|')
  assert parts_lib.split('abcdefgh', 3, len) == ['ab', 'cd', 'ef', 'gh']


def test_the_summaries_of_highest_confidence_are_chosen():
  """The choice equals a search over all sets of summaries."""
  generator = np.random.default_rng(0)
  for max_tokens in range(1, 40, 3):
    lengths = generator.integers(1, 12, 6).tolist()
    confidences = generator.normal(size=6)
    chosen = parts_lib.choose(lengths, confidences, max_tokens)
    best = int(np.argmax(confidences))
    assert best in chosen and chosen == sorted(chosen)
    # All sets, ordered by whether they contain the most confident summary, then
    # the second, and so on. The first one that fits is expected.
    order = np.argsort(-confidences)
    sets = [
        {int(i) for i, bit in zip(order, bits) if bit}
        for bits in itertools.product((1, 0), repeat=6)
    ]
    fits = lambda chosen, max_tokens=max_tokens, lengths=lengths: (
        sum(lengths[i] for i in chosen) <= max_tokens
    )
    expected = {best}
    if lengths[best] <= max_tokens:
      expected = next(one for one in sets if fits(one))
    assert set(chosen) == expected
  assert parts_lib.choose([5, 5, 5], [0, 0, 0], 10) == [0, 1]
  assert parts_lib.choose([5, 5, 5], [0, 2, 1], 10) == [1, 2]
  assert parts_lib.choose([5, 5, 5], [0, 2, 1], 0) == [0, 1, 2]
  assert parts_lib.choose([50], [0], 10) == [0]
  assert parts_lib.choose([], [], 10) == []


def reference_confidence(summarizer, text, tokens):
  """Sums the confidence token by token, without padding."""
  written = [summarizer.settings.start_id, *tokens[:-1]]
  logits = summarizer.logits([summarizer.tokenize(text)], [written])[0]
  total = 0.0
  for token, scores in zip(tokens, logits.astype(np.float64), strict=True):
    total += scores[token] - math.log(np.exp(scores - scores.max()).sum())
    total -= scores.max()
  return total / len(tokens)


@pytest.fixture(scope='module')
def books(tmp_path_factory):
  path = tmp_path_factory.mktemp('books') / 'books.jsonl'
  rows = [
      dict(id=f'b{n}', document=story(n), summary=f'{n}', all=[f'{n}', 'n'])
      for n in (5, 2)
  ]
  return write_jsonl(path, rows)


def run_parts(call, run, books, output, *more):
  flags = f'--output={output}', '--part_length=100', '--reference_field=summary'
  status, _, err = call(f'--checkpoint={run}', *flags, *more, books)
  assert status == 0, err
  return read_jsonl(output)


@pytest.mark.parametrize('options', [(), ('--num_beams=2',)])
def test_join_and_rank(call, run, books, tmp_path, options):
  """Equals summarising the parts one by one."""
  given = call, run, books
  joined = run_parts(*given, tmp_path / 'j.jsonl', '--parts=join', *options)
  flags = '--parts=rank', '--summary_length=12', *options
  ranked = run_parts(*given, tmp_path / 'r.jsonl', *flags)
  summarizer = locost_jax.load(run)
  count = lambda text: len(summarizer.vocabulary.encode(text))
  beams = dict(num_beams=2 if options else 1)
  for n, join, rank in zip((5, 2), joined, ranked, strict=True):
    texts = parts_lib.split(story(n), 99, count)  # 100 with the eos token
    assert join['parts'] == len(texts) > 1 and join['id'] == f'b{n}'
    each = summarizer.summarize(texts, max_length=6, batch_size=1, **beams)
    assert join['prediction'] == ' '.join(text.strip() for text in each)
    assert join['parts_used'] == list(range(len(texts)))
    assert join['tokens_total'] == sum(map(count, texts)) + len(texts)
    confidences = []
    for text in texts:
      inputs = [summarizer.tokenize(text)]
      tokens = summarizer.generate(inputs, max_length=6, **beams)[0]
      confidences.append(reference_confidence(summarizer, text, tokens))
    expected = parts_lib.choose(list(map(count, each)), confidences, 12)
    assert rank['parts_used'] == expected
    assert rank['prediction'] == ' '.join(each[i].strip() for i in expected)
    assert rank['settings']['parts'] == 'rank'
    assert rank['settings']['summary_length'] == 12
    assert rank['reference'] == f'{n}'
  # `score` can read the rows, also with several references.
  assert predictions.read(str(tmp_path / 'r.jsonl'))[1].references == ['2']
  flags = '--parts=join', '--reference_field=all'
  several = run_parts(*given, tmp_path / 's.jsonl', *flags)
  assert several[0]['references'] == ['5', 'n']


def test_a_part_with_an_empty_summary_is_counted_but_not_used(run):
  summarizer = locost_jax.load(run)
  rows = [make_row(*row) for row in (('One.', 3), (' ', 4), ('Two.', 5))]
  book = documents_lib.Document('book', '', 'book.txt')
  job = stream.Job(0, book, 'hash')
  done = [
      stream.Done(job._replace(number=i), row) for i, row in enumerate(rows)
  ]
  parts = stream.Parts('join', 9, 0)
  options = stream.Options(summarizer.settings, parts=parts)
  row = parts_lib.join(summarizer, job, options, list, lambda *_: done).row
  assert (row['prediction'], row['parts_used']) == ('One. Two.', [0, 2])
  assert (row['parts'], row['tokens_total'], row['seconds']) == (3, 12, 3.0)
  assert row['peak_memory_bytes'] == 5 and row['id'] == 'book'


@pytest.mark.parametrize(
    'options',
    [
        dict(max_length=3),
        dict(max_length=20, num_beams=2, length_penalty=0.5),
        dict(max_length=9, length_penalty=0.8, length_penalty_form='gnmt'),
        dict(max_length=9, temperature=2.0, no_repeat_ngram_size=1),
    ],
)
def test_confidence_equals_a_loop(run, options):
  summarizer = locost_jax.load(run)
  settings = decode_settings.change(summarizer.settings, options)
  text = 'Another house is old, and this one is not.'
  inputs, scores = [summarizer.tokenize(text)], []
  (tokens,) = summarizer.generate(
      inputs, settings=settings, on_scores=scores.extend
  )
  padded = np.pad(tokens, (0, 2), constant_values=settings.pad_id)
  done = stream.Done(job_of(text), None, None, padded, score=scores[0])
  assert parts_lib.confidence(settings, done) == pytest.approx(
      reference_confidence(summarizer, text, tokens), abs=2e-5
  )


# --- Summaries of summaries ---

cut = lambda room: lambda text: parts_lib.split(text, room, count_words)


def document(paragraphs, words, seed=0):
  """Paragraphs of different lengths; all words differ."""
  lengths = np.random.default_rng(seed).integers(1, words, paragraphs)
  number, made = 0, []
  for length in lengths:
    made.append(' '.join(f'w{number + i}' for i in range(length)))
    number += length
  return '\n\n'.join(made)


def job_of(text):
  return stream.Job(0, documents_lib.Document('a', text, 'a.txt'), 'hash')


def options(most):
  return stream.Options(
      decode_settings.Settings(max_length=most, min_length=50),
      parts=stream.Parts('hierarchical', 0, 0),
  )


def run_levels(text, room, most, write):
  """`hierarchical` with a model that is a function: (row, calls, document)."""
  calls, names = [], []

  def run(job, name, parts, settings):
    names.append(name)
    calls.append((len(parts), settings.max_length))
    for i, part in reversed(list(enumerate(parts))):
      row = make_row(write(part, settings.max_length), count_words(part))
      own = stream.Job(i, job.document._replace(text=part))
      yield stream.Done(own, row, tokens=np.array([5, 0]))

  given = job_of(text), options(most), room, cut(room)
  done = parts_lib.summarize_levels(*given, run)
  assert names == [f'a, level {i + 1}' for i in range(len(calls))]
  return done, calls


def first_words(text, most):
  return ' '.join(text.split()[:most])


def slow(text, room, most, write):
  """The recursion as one would write it without a word about speed."""
  parts = parts_lib.split(text, room, count_words)
  if len(parts) == 1:
    return write(parts[0], most)
  length = parts_lib.budget(len(parts), room, most)
  return slow(
      '\n\n'.join(write(part, length) for part in parts), room, most, write
  )


@pytest.mark.parametrize('seed', range(4))
@pytest.mark.parametrize('room', [50, 120, 10_000])
def test_levels_are_the_recursion(room, seed):
  text = document(60, 40, seed)
  done, calls = run_levels(text, room, 30, first_words)
  assert done.row['prediction'] == slow(text, room, 30, first_words)
  assert done.row['levels'] == len(calls)
  texts = done.row['level_summaries']
  assert list(map(len, texts)) == [number for number, _ in calls[:-1]]
  assert done.row['tokens_total'] == count_words(text)
  # Every level is shorter, and each but the last has the budget of its parts.
  for (parts, length), (fewer, _) in zip(calls, calls[1:]):
    assert fewer < parts or parts == 2
    assert length == parts_lib.budget(parts, room, 30)
  assert calls[-1] == (1, 30)
  if room == 10_000:
    assert calls == [(1, 30)] and done.row['parts_used'] == [0]


def test_the_budget():
  budget = parts_lib.budget
  assert budget(4, 400, 512) == 100  # all fit into one part
  assert budget(4, 400, 64) == 64
  assert budget(40, 400, 512) == 196  # another level will be needed
  assert budget(2, 50, 512) == 25


def test_parts_without_a_summary():
  text = document(40, 40)

  def write(part, most):
    return '' if 'w0 ' in f'{part} ' else first_words(part, most)

  done, calls = run_levels(text, 200, 40, write)
  assert done.row['parts_used'] == list(range(1, calls[0][0]))
  assert done.job.document.text == text
  done, calls = run_levels(text, 200, 40, lambda part, most: '')
  assert done.row['prediction'] == '' and done.row['parts_used'] == [0]
  assert len(calls) == 2  # of nothing there is one part


def test_an_error_of_a_part_is_that_of_the_document():
  text = document(40, 40)

  job = job_of(text)
  fail = lambda *_: [stream.Done(job, error=InputError('full'))] * 3
  done = parts_lib.summarize_levels(job, options(9), 99, cut(99), fail)
  assert str(done.error) == 'full' and done.job is job


def test_the_command_with_levels(run, call, tmp_path):
  (tmp_path / 'a.txt').write_text(document(30, 12))
  (tmp_path / 'b.txt').write_text('Short.')
  flags = '--parts=hierarchical --part_length=128 --batch_size=1'
  arguments = ['--checkpoint', run, *flags.split()]
  output = tmp_path / 'out.jsonl'
  a, b = tmp_path / 'a.txt', tmp_path / 'b.txt'
  status, _, err = call(*arguments, b, f'--output={output}')
  assert status == 0, err
  status, _, err = call(*arguments, a, b, f'--output={output}')
  assert status == 0 and '1 of 2 documents were done before' in err
  long, short = read_jsonl(output)
  assert long['levels'] > 1 and set(long['parts_used']) < set(range(20))
  assert max(long['parts_used']) < long['parts']
  assert (short['levels'], short['parts']) == (1, 1)
  want = locost_jax.load(str(run)).summarize('Short.')
  assert short['prediction'] == want[0]


def test_a_model_that_reads_pages_has_no_parts(run):
  summarizer = locost_jax.load(run)
  parts_lib.check(stream.Parts('join', 10**6, 0), summarizer)
  summarizer.pages = True
  with pytest.raises(InputError, match='reads pages or chunks by itself'):
    parts_lib.check(stream.Parts('join', 64, 0), summarizer)
