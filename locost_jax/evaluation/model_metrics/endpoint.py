"""Sends prompts to an OpenAI-compatible endpoint.

POST BASE_URL/chat/completions with a model and messages. A request that fails
with 408, 409, 425, 429 or 5xx, or gets no answer, is repeated after 1, 2, 4 and
8 seconds, or after the server's Retry-After. The key is sent in a header, to
this server only: redirects are refused. No message shows the key.
"""

import http.client
import json
import time
from typing import Any, NamedTuple
import urllib.error
import urllib.parse
import urllib.request

from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.errors import visible

_ATTEMPTS = 5
_LONGEST_WAIT = 60.0  # seconds, whatever Retry-After says
_TIMEOUT = 300.0  # seconds
_MOST_BYTES = 1 << 22  # of an answer
_LATER = (408, 409, 425, 429)  # and 5xx: the request is repeated
# Failures of every document: redirects, wrong key, no permission, wrong path or
# model.
_FATAL = (301, 302, 303, 307, 308, 401, 403, 404, 405)


class Answer(NamedTuple):
  """The outcome of one request.

  Attributes:
    text: the model's answer, or None.
    problem: why there is no answer.
    usage: {'prompt_tokens': ..., 'completion_tokens': ...}, if the server
      counts them.
    reached: whether a server answered at all.
    gave_up: whether all attempts failed, so that a later call may succeed.
  """

  text: str | None
  problem: str = ''
  usage: dict = {}
  reached: bool = True
  gave_up: bool = False


class Endpoint(NamedTuple):
  """The address of a language model.

  Attributes:
    base_url: such as https://api.openai.com/v1.
    model: its name on the server.
    key: the API key, or ''.
  """

  base_url: str
  model: str
  key: str = ''

  def __repr__(self):
    return f'Endpoint({self.base_url!r}, {self.model!r})'  # never the key


class _NoRedirects(urllib.request.HTTPRedirectHandler):
  """A redirect would send the key to another server."""

  def redirect_request(self, *_):
    return None


def check(base_url):
  """Raises an InputError if base_url is not an http(s) address."""
  try:
    parts = urllib.parse.urlsplit(base_url)
  except ValueError:  # such as [::1 without ]
    parts = urllib.parse.urlsplit('')
  if parts.scheme not in ('http', 'https') or not parts.netloc:
    raise InputError(
        f'--base_url={visible(base_url)}: expected an address such as '
        'https://api.openai.com/v1 or http://localhost:8000/v1'
    )
  if parts.username or parts.password:
    raise InputError(
        '--base_url: has a user or password in it; the key comes from the '
        'environment'
    )


def ask(endpoint, prompt, max_tokens):
  """Sends one prompt; repeats it if the server is busy or does not answer.

  Args:
    endpoint: an Endpoint.
    prompt: str.
    max_tokens: of the answer.

  Returns:
    An Answer; a failure that concerns this prompt is in its `problem`.

  Raises:
    InputError: the server rejects the key, the model or the address, so every
      other prompt would fail too.
  """
  body = dict(
      model=endpoint.model,
      messages=[dict(role='user', content=prompt)],
      temperature=0,
      max_tokens=max_tokens,
  )
  problem, reached = '', False
  for attempt in range(_ATTEMPTS):
    try:
      return _read(_post(endpoint, body))
    except urllib.error.HTTPError as error:
      reached, status = True, error.code
      problem = f'status {status}'
      with error:
        wait = _seconds(error.headers.get('Retry-After'), attempt)
      if status in _FATAL:
        raise InputError(
            f'--base_url={endpoint.base_url}: the server answered {problem} '
            f'({http.client.responses.get(status, "unknown")}): check the '
            f'address, the model {endpoint.model!r} and the key'
        ) from None
      if status not in _LATER and status < 500:
        return Answer(None, problem)  # such as a prompt that is too long
    except (OSError, http.client.HTTPException) as error:
      reason = getattr(error, 'reason', None) or error
      problem = f'no answer ({_hide(str(reason), endpoint.key)})'
      wait = _seconds(None, attempt)
    if attempt + 1 < _ATTEMPTS:
      time.sleep(wait)
  return Answer(None, problem, reached=reached, gave_up=True)


def _post(endpoint, body):
  """Returns the bytes of the answer."""
  headers = {'Content-Type': 'application/json', 'User-Agent': 'locost_jax'}
  if endpoint.key:
    headers['Authorization'] = f'Bearer {endpoint.key}'
  request = urllib.request.Request(
      endpoint.base_url.rstrip('/') + '/chat/completions',
      json.dumps(body).encode(),
      headers,
  )
  opener = urllib.request.build_opener(_NoRedirects)
  with opener.open(request, timeout=_TIMEOUT) as response:
    return response.read(_MOST_BYTES)


def _read(data):
  """Returns the Answer in the JSON of a completion."""
  try:
    found = sources.loads(data.decode(), 'endpoint')
    text = found['choices'][0]['message']['content']
  except (ValueError, LookupError, TypeError, RecursionError):
    return Answer(None, 'no completion in the answer')
  if not isinstance(text, str):
    return Answer(None, 'no text in the answer')
  usage: Any = found.get('usage')
  usage = usage if isinstance(usage, dict) else {}
  return Answer(
      text,
      usage={
          key: usage[key]
          for key in ('prompt_tokens', 'completion_tokens')
          if type(usage.get(key)) is int
      },
  )


def _seconds(retry_after, attempt):
  """Returns the seconds to wait: Retry-After, or 1, 2, 4, ..."""
  try:
    wait = float(retry_after)
  except (TypeError, ValueError):  # missing, or a date
    wait = 2.0**attempt
  return min(max(wait, 0.0), _LONGEST_WAIT) if wait == wait else 1.0


def _hide(text, key):
  return text.replace(key, '***') if key else text
