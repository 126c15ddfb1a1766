"""Asks a language model behind an OpenAI-compatible endpoint.

POST BASE_URL/chat/completions with a model and messages. What a server answers
in a hurry (429, 5xx) or not at all is asked again after 1, 2, 4 and 8 seconds,
or as long as its Retry-After says. The key is sent in a header, to this server
only: redirects are refused, and no message shows it.
"""

import http.client
import json
import time
from typing import Any, NamedTuple
import urllib.error
import urllib.parse
import urllib.request

from locost_jax.errors import InputError
from locost_jax.errors import visible

_ATTEMPTS = 5
_LONGEST_WAIT = 60.0  # seconds, whatever Retry-After says
_TIMEOUT = 300.0  # seconds
_MOST_BYTES = 1 << 22  # of an answer
_LATER = (408, 409, 425, 429)  # and 5xx: asked again
# What no document changes: a wrong key, no right, no such path or model, a
# redirect.
_FATAL = (301, 302, 303, 307, 308, 401, 403, 404, 405)


class Answer(NamedTuple):
  """The outcome of one request.

  Attributes:
    text: of the model; None: it gave no answer.
    problem: why not, in words.
    usage: {'prompt_tokens': ..., 'completion_tokens': ...} as far as counted.
    reached: whether a server answered at all.
    gave_up: whether it might have answered later.
  """

  text: str | None
  problem: str = ''
  usage: dict = {}
  reached: bool = True
  gave_up: bool = False


class Endpoint(NamedTuple):
  """Where a language model is.

  Attributes:
    base_url: such as https://api.openai.com/v1.
    model: the name that the server knows.
    key: or ''.
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
  """Raises an InputError for what is no http(s) address."""
  try:
    parts = urllib.parse.urlsplit(base_url)
  except ValueError:  # an unfinished [::1
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
  """Sends one prompt; never raises for what a server does, but:

  Args:
    endpoint: an Endpoint.
    prompt: str.
    max_tokens: of the answer.

  Returns:
    An Answer.

  Raises:
    InputError: the server refuses the key, the model or the address: so it
      would for every other prompt.
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
        return Answer(None, problem)  # too long, for example
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
    found = json.loads(data)
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
  """How long to wait: what the server says, or 1, 2, 4, ... seconds."""
  try:
    wait = float(retry_after)
  except (TypeError, ValueError):  # missing, or a date
    wait = 2.0**attempt
  return min(max(wait, 0.0), _LONGEST_WAIT) if wait == wait else 1.0


def _hide(text, key):
  return text.replace(key, '***') if key else text
