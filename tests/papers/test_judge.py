"""A language model as judge, with a local server."""

import json
import time

import numpy as np
import pytest

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric
from papers import judge
from papers import score
from tests import bucket_server
from tests.data.rows import write_jsonl as write

KEY = 'sk-very-secret-0123456789'
GOOD = 'Relevance: 4\nConsistency: 5\nFluency: 3\nCoherence: 2'
ROWS = [metric.Row(f'Summary {i}.', ['x'], f'Article {i}.') for i in range(6)]


class Judge(bucket_server.Server):
  """Serves chat completions; its url and '/v1' are --base_url.

  Attributes:
    bodies: of all requests, as dicts.
    headers: of all requests.
    answers: the next answers: a text; (status, headers); raw bytes; or None, to
      close the connection. Later answers are GOOD.
  """

  def __init__(self, answers=()):
    self.answers, self.bodies, self.headers = list(answers), [], []
    super().__init__()
    self.url += '/v1'

  def answer(self, request):
    assert request.path == '/v1/chat/completions'
    size = int(request.headers['Content-Length'])
    self.bodies.append(json.loads(request.rfile.read(size)))
    self.headers.append(dict(request.headers))
    found = self.answers.pop(0) if self.answers else GOOD
    if found is None:
      request.connection.close()
      return
    status, headers, body = 200, {}, found
    if isinstance(found, tuple):
      (status, headers), body = found, KEY.encode()
    elif isinstance(found, str):
      choices = [dict(message=dict(role='assistant', content=found))]
      usage = dict(prompt_tokens=10, completion_tokens=2)
      body = json.dumps(dict(choices=choices, usage=usage)).encode()
    request.send_response(status)
    for name, value in headers.items():
      request.send_header(name, value)
    request.send_header('Content-Length', str(len(body)))
    request.end_headers()
    request.wfile.write(body)


@pytest.fixture
def serve():
  """Starts judges, and closes them."""
  started = []

  def start(answers=()):
    started.append(Judge(answers))
    return started[-1]

  yield start
  for server in started:
    server.close()


@pytest.fixture
def waits(monkeypatch):
  """Records the waiting times in seconds instead of waiting."""
  found, sleep = [], time.sleep
  monkeypatch.setattr(
      judge.time, 'sleep', lambda s: found.append(s) if s >= 1 else sleep(s)
  )
  return found


NONE = (None,) * 4


def ratings(measured):
  return measured.values[metric.PREDICTION]


@pytest.mark.parametrize(
    'answer, expected',
    [
        (GOOD, (4, 5, 3, 2)),
        ('**Relevance:** 4/5\n**Consistency**: 5\n', (4, 5, None, None)),
        ('{"relevance": 4, "consistency": 1.5}', (4, 1.5, None, None)),
        ('| Relevance | 4 |\n| Fluency | 5 |', (4, None, 5, None)),
        ('Relevance (1-5): 2\nRelevance:\n2', (2, None, None, None)),
        ('Relevance - 4 out of 5. Coherence = [3]', (4, None, None, 3)),
        ('RELEVANCE RATING: 1. Poor.', (1, None, None, None)),
        # Nonsense, out of range, another scale, contradictions, ranges.
        ('', NONE),
        ('I am sorry, I cannot rate 5 summaries.', NONE),
        ('Relevance: 0\nConsistency: 6\nFluency: -3\nCoherence: 45', NONE),
        ('Relevance: 8/10\nFluency: 4/10\nCoherence: 50%', NONE),
        ('Relevance: 2\nRelevance: 4\nFluency: 3-4', NONE),
        ('Relevance: four\nConsistency: 4th', NONE),
    ],
)
def test_answers_are_parsed_or_missing(answer, expected):
  assert judge.parse(answer) == dict(zip(judge.DIMENSIONS, expected))


def rate(server, path, rows=ROWS, note=None, model='m', **more):
  show, cache = note or (lambda *_: None), str(path / 'cache')
  settings = metric.Settings(model=model, show=show)
  return judge.run(rows, settings, server.url, cache=cache, **more)


def test_the_request(serve, tmp_path, monkeypatch):
  monkeypatch.setenv(judge.KEY, KEY)
  server, shown = serve(), []
  note = lambda stage, done, total: shown.append((stage, len(server.bodies)))
  found = rate(server, tmp_path, ROWS[:1], note)
  (body,), (headers,) = server.bodies, server.headers
  assert headers['Authorization'] == f'Bearer {KEY}'
  assert body['model'] == 'm' and body['temperature'] == 0
  prompt = body['messages'][0]['content']
  assert 'Article: Article 0.\n\nSummary: Summary 0.\n' in prompt
  assert 'from 1 (worst) to 5 (best)' in prompt
  np.testing.assert_array_equal(ratings(found), [[4, 5, 3, 2]])
  tokens = -(-len(prompt) // 4)
  # The cost is shown before the first call.
  assert shown[0] == (
      f'judge: 1 calls, about {tokens:,} tokens to read, 0 answers are cached',
      0,
  )


def test_busy_servers_nonsense_and_the_cache(serve, tmp_path, waits):
  server = serve(
      [(500, {}), (429, {}), None, 'no idea', 'Relevance: 2', (400, {})]
      + [b'<html>', *[(503, {})] * 4]
  )
  found = rate(server, tmp_path)
  nan = np.nan
  np.testing.assert_array_equal(
      ratings(found),
      [[nan] * 4, [2, nan, nan, nan], [nan] * 4, [nan] * 4]
      + [[4, 5, 3, 2]] * 2,
  )
  assert waits == [1, 2, 4, 1, 2, 4, 8]
  summary = metric.summarize('judge', found)
  assert summary['values']['prediction']['relevance'] == 10 / 3
  assert found.more['missing']['relevance'] == 3
  assert found.notes == (
      'warning: judge: missing ratings, of 6: relevance 3, consistency '
      '4, fluency 4, coherence 4; left out',
      'warning: judge: 1 documents without an answer: status 400',
      'warning: judge: 1 documents without an answer: no completion in the '
      'answer',
  )
  # Only answers without ratings, damaged ones and another model's are asked.
  calls = len(server.bodies)
  again = rate(server, tmp_path)
  assert again.more['calls'] == 3 and len(server.bodies) == calls + 3
  for one in (tmp_path / 'cache').iterdir():
    one.write_text('{"answer": ')
  assert rate(server, tmp_path).more['calls'] == 6
  assert rate(server, tmp_path, model='other').more['calls'] == 6


def test_a_seeded_sample(serve, tmp_path):
  found = rate(serve(), tmp_path, sample=2, seed=3)
  rated = np.flatnonzero(~np.isnan(ratings(found)[:, 0])).tolist()
  assert len(rated) == 2 and rated == found.more['sampled']
  assert found.parts == ('m', 'prompt:locost-1', 'sample:2', 'seed:3')
  assert judge.choose(1000, 500, 0) != judge.choose(1000, 500, 1)
  assert len(set(judge.choose(1000, 500, 0))) == 500


@pytest.mark.parametrize(
    'answers',
    [
        [(401, {})],
        [(307, {'Location': 'http://127.0.0.1:1/'})],
        [(302, {'Location': 'http://127.0.0.1:1/'})],
        [None] * 5,
    ],
)
def test_refusals_end_the_command(
    serve, tmp_path, monkeypatch, capfd, waits, answers
):
  monkeypatch.setenv(judge.KEY, KEY)
  server = serve(answers)
  expected = f'status {answers[0][0]}' if answers[0] else 'no answer'
  with pytest.raises(InputError, match=f"{expected}.*the model 'm' and") as e:
    rate(server, tmp_path)
  assert len(server.bodies) == len(answers)
  assert KEY not in f'{e.value} {capfd.readouterr()}'


def test_invalid_keys_folders_and_addresses(serve, tmp_path, monkeypatch):
  monkeypatch.setenv(judge.KEY, 'sk-1\n\nsk-2')
  with pytest.raises(InputError) as error:
    judge.read_key()
  assert 'sk-' not in str(error.value) and judge.KEY in str(error.value)
  monkeypatch.setenv(judge.KEY, f' {KEY}\n')
  assert judge.read_key() == KEY
  (tmp_path / 'cache').write_text('')
  with pytest.raises(InputError, match='--judge_cache=.*/cache: File exists'):
    rate(serve(), tmp_path)
  for url in 'x', 'ftp://a/b', 'http://', 'https://a:b@c/v1', 'http://[x':
    with pytest.raises(InputError, match='--base_url'):
      judge.check_url(url)


def test_the_command(serve, tmp_path, monkeypatch, succeed):
  monkeypatch.setenv(judge.KEY, KEY)
  server = serve(['what?'])
  rows = [dict(prediction=a, references=b, document=c) for a, b, c, *_ in ROWS]
  path = write(tmp_path / 'p.jsonl', rows)
  flags = f'--base_url={server.url}', f'--judge_cache={tmp_path / "kept"}'
  flags += '--metrics=judge', '--model=m', f'--predictions={path}'
  out, err = succeed(score, *flags)
  assert out.splitlines()[-1] == (
      'judge|m|prompt:locost-1|sample:6|seed:0|n:6|ci:95'
  )
  assert '4.00 +-0.00 n:5' in out
  assert 'missing ratings, of 6: relevance 1' in err
  assert KEY not in out + err
  files = ''.join(one.read_text() for one in (tmp_path / 'kept').iterdir())
  assert KEY not in files and files.count('Relevance: 4') == 5
