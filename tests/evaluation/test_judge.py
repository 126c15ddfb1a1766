"""A language model as judge, with a local server."""

import http.server
import json
import threading
import time

import numpy as np
import pytest

from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.model_metrics import endpoint
from locost_jax.evaluation.model_metrics import judge
from tests.evaluation import test_score

KEY = 'sk-very-secret-0123456789'
GOOD = 'Relevance: 4\nConsistency: 5\nFluency: 3\nCoherence: 2'
ROWS = [
    score_metric.Row(f'Summary {i}.', ['x'], f'Article {i}.') for i in range(6)
]


class Judge:
  """Serves chat completions until it is closed.

  Attributes:
    url: for --base_url.
    bodies: of all requests, as dicts.
    headers: of all requests.
    answers: the next answers: a text; (status, headers); raw bytes; or None, to
      close the connection. Later answers are GOOD.
  """

  def __init__(self, answers=()):
    self.answers, self.bodies, self.headers = list(answers), [], []
    judge_server = self

    class Handler(http.server.BaseHTTPRequestHandler):

      def do_POST(self):
        judge_server.answer(self)

      def log_message(self, *_):
        pass

    self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    self.url = f'http://127.0.0.1:{self._server.server_port}/v1'
    threading.Thread(target=self._server.serve_forever, daemon=True).start()

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
      message = dict(role='assistant', content=found)
      body = json.dumps(
          dict(
              choices=[dict(message=message)],
              usage=dict(prompt_tokens=10, completion_tokens=2),
          )
      ).encode()
    request.send_response(status)
    for name, value in headers.items():
      request.send_header(name, value)
    request.send_header('Content-Length', str(len(body)))
    request.end_headers()
    request.wfile.write(body)

  def close(self):
    self._server.shutdown()
    self._server.server_close()


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
      endpoint.time, 'sleep', lambda s: found.append(s) if s >= 1 else sleep(s)
  )
  return found


def settings(server, path, **more):
  return score_metric.Settings(
      model='m', base_url=server.url, cache=str(path / 'cache'), **more
  )


def ratings(measured):
  return measured.values[score_metric.PREDICTION]


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
        ('', (None,) * 4),
        ('I am sorry, I cannot rate 5 summaries.', (None,) * 4),
        (
            'Relevance: 0\nConsistency: 6\nFluency: -3\nCoherence: 45',
            (None,) * 4,
        ),
        ('Relevance: 8/10\nFluency: 4/10\nCoherence: 50%', (None,) * 4),
        ('Relevance: 2\nRelevance: 4\nFluency: 3-4', (None,) * 4),
        ('Relevance: four\nConsistency: 4th', (None,) * 4),
    ],
)
def test_answers_are_parsed_or_missing(answer, expected):
  assert judge.parse(answer) == dict(zip(judge.DIMENSIONS, expected))


def test_the_request(serve, tmp_path, monkeypatch):
  monkeypatch.setenv(judge.KEY, KEY)
  server, noted = serve(), []
  found = judge.run(ROWS[:1], settings(server, tmp_path, note=noted.append))
  (body,), (headers,) = server.bodies, server.headers
  assert headers['Authorization'] == f'Bearer {KEY}'
  assert body['model'] == 'm' and body['temperature'] == 0
  prompt = body['messages'][0]['content']
  assert 'Article: Article 0.\n\nSummary: Summary 0.\n' in prompt
  assert 'from 1 (worst) to 5 (best)' in prompt
  np.testing.assert_array_equal(ratings(found), [[4, 5, 3, 2]])
  assert found.more['prompt_tokens'] == 10 and not found.notes
  tokens = -(-len(prompt) // 4)
  assert noted == [
      f'judge: 1 calls, about {tokens:,} tokens to read and at most 512 to '
      'write; 0 answers are cached'
  ]


def test_cost_is_shown_before_the_first_call(serve, tmp_path):
  server, seen = serve(), []
  note = lambda line: seen.append((line[:13], len(server.bodies)))
  judge.run(ROWS, settings(server, tmp_path, note=note))
  assert seen == [('judge: 6 call', 0)] and len(server.bodies) == 6


def test_requests_to_busy_servers_are_repeated(serve, tmp_path, waits):
  server = serve(
      [
          (500, {}),
          (429, {'Retry-After': '7'}),
          None,
          (503, {'Retry-After': 'x'}),
      ]
  )
  found = judge.run(ROWS[:1], settings(server, tmp_path))
  np.testing.assert_array_equal(ratings(found), [[4, 5, 3, 2]])
  assert waits == [1, 7, 4, 8] and len(server.bodies) == 5


def test_nonsense_is_missing_reported_and_never_zero(serve, tmp_path, waits):
  server = serve(
      ['no idea', 'Relevance: 2', (400, {}), b'<html>', *[(500, {})] * 5]
  )
  found = judge.run(ROWS, settings(server, tmp_path))
  nan = np.nan
  np.testing.assert_array_equal(
      ratings(found),
      [
          [nan] * 4,
          [2, nan, nan, nan],
          [nan] * 4,
          [nan] * 4,
          [nan] * 4,
          [4, 5, 3, 2],
      ],
  )
  summary = score_metric.summarize('judge', found)
  assert summary['values']['prediction'] == dict(
      relevance=3, consistency=5, fluency=3, coherence=2
  )
  assert summary['documents']['prediction']['relevance'] == 2
  assert found.more['missing'] == dict(
      relevance=4, consistency=5, fluency=5, coherence=5
  )
  assert found.notes == (
      'warning: judge: missing ratings, of 6: relevance 4, consistency '
      '5, fluency 5, coherence 5; left out',
      'warning: judge: 1 documents without an answer: status 400',
      'warning: judge: 1 documents without an answer: no completion in the '
      'answer',
      'warning: judge: 1 documents without an answer: status 500',
  )
  assert waits == [1, 2, 4, 8]


def test_answers_are_cached(serve, tmp_path):
  server = serve(['nonsense'])
  first = judge.run(ROWS, settings(server, tmp_path))
  assert len(server.bodies) == 6 and np.isnan(ratings(first)[0]).all()
  noted = []
  again = judge.run(ROWS, settings(server, tmp_path, note=noted.append))
  # Only the answer without ratings is requested again.
  assert len(server.bodies) == 7 and noted[0].startswith('judge: 1 calls')
  np.testing.assert_array_equal(ratings(again)[1:], ratings(first)[1:])
  judge.run(ROWS, settings(server, tmp_path)._replace(model='other'))
  assert len(server.bodies) == 13
  one = next((tmp_path / 'cache').iterdir())
  one.write_text('{"answer": ')  # a damaged file is requested again
  judge.run(ROWS, settings(server, tmp_path)._replace(model='other'))
  judge.run(ROWS, settings(server, tmp_path))
  assert len(server.bodies) == 14


def test_a_seeded_sample(serve, tmp_path):
  server = serve()
  found = judge.run(ROWS, settings(server, tmp_path, sample=2, seed=3))
  rated = np.flatnonzero(~np.isnan(ratings(found)[:, 0])).tolist()
  assert len(server.bodies) == 2 and rated == found.more['sampled']
  assert found.parts == ('m', 'prompt:locost-1', 'sample:2', 'seed:3')
  assert judge.choose(1000, 500, 0) == judge.choose(1000, 500, 0)
  assert judge.choose(1000, 500, 0) != judge.choose(1000, 500, 1)
  assert len(set(judge.choose(1000, 500, 0))) == 500


@pytest.mark.parametrize(
    'answer, expected',
    [
        ((401, {}), 'the server answered status 401 (Unauthorized)'),
        ((404, {}), "check the address, the model 'm' and the key"),
        ((307, {'Location': 'http://127.0.0.1:1/'}), 'status 307'),
    ],
)
def test_refusals_end_the_command(
    serve, tmp_path, monkeypatch, capfd, answer, expected
):
  monkeypatch.setenv(judge.KEY, KEY)
  server = serve([answer])
  with pytest.raises(InputError) as error:
    judge.run(ROWS, settings(server, tmp_path))
  assert expected in str(error.value) and len(server.bodies) == 1
  assert KEY not in f'{error.value} {capfd.readouterr()}'


def test_an_unreachable_server_ends_the_command(serve, tmp_path, waits):
  server = serve()
  server.close()
  with pytest.raises(InputError, match='no answer .*; 0 answers are cached'):
    judge.run(ROWS, settings(server, tmp_path))
  assert waits == [1, 2, 4, 8]
  server = serve([GOOD, *[(500, {})] * 25])
  with pytest.raises(InputError, match='500, 5 documents in a row; 1 answers'):
    judge.run(ROWS, settings(server, tmp_path))


def test_invalid_keys_and_folders_are_refused(tmp_path, monkeypatch):
  monkeypatch.setenv(judge.KEY, 'sk-1\n\nsk-2')
  with pytest.raises(InputError) as error:
    judge.read_key()
  assert 'sk-' not in str(error.value) and judge.KEY in str(error.value)
  monkeypatch.setenv(judge.KEY, f' {KEY}\n')
  assert judge.read_key() == KEY
  (tmp_path / 'file').write_text('')
  with pytest.raises(InputError, match='--judge_cache=.*/file: File exists'):
    judge.check_writable(str(tmp_path / 'file'))


def test_the_key_is_never_shown():
  assert KEY not in repr(endpoint.Endpoint('http://x', 'm', KEY))


@pytest.mark.parametrize(
    'url', ['x', 'ftp://a/b', 'http://', 'https://a:b@c/v1', 'http://[x']
)
def test_bad_addresses(url):
  with pytest.raises(InputError, match='--base_url'):
    endpoint.check(url)


def test_the_command(serve, tmp_path, monkeypatch, capsys):
  monkeypatch.setenv(judge.KEY, KEY)
  server = serve(['what?'])
  rows = [dict(prediction=a, references=b, document=c) for a, b, c in ROWS]
  path = test_score.write(tmp_path / 'p.jsonl', rows)
  test_score.call(
      path,
      '--metrics=judge',
      '--model=m',
      f'--base_url={server.url}',
      f'--judge_cache={tmp_path / "kept"}',
  )
  out, err = capsys.readouterr()
  assert out.splitlines()[-1] == (
      'judge|m|prompt:locost-1|sample:6|seed:0|n:6|ci:95'
  )
  assert '4.00 +-0.00 n:5' in out
  assert err.startswith('judge: 6 calls, about ')
  assert 'missing ratings, of 6: relevance 1' in err
  assert KEY not in out + err
  files = ''.join(one.read_text() for one in (tmp_path / 'kept').iterdir())
  assert KEY not in files and files.count('Relevance: 4') == 5
