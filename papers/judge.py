"""A language model as judge: relevance, consistency, fluency, coherence.

LOCOST's appendix I: the model reads an article and a summary, and rates the
summary from 1 (worst) to 5 (best) on four dimensions. PROMPT is the paper's.
At most --sample documents are rated (500, drawn with --seed).

A rating counts if the answer has one number from 1 to 5 for its dimension. A
missing, out-of-range or contradictory rating is reported as missing, never
counted as 0. Every answer is written to a file at once: a second call asks only
for missing answers and for those without any rating.

The server speaks OpenAI's chat completions. Its key (OPENAI_API_KEY) is sent in
a header to this server only (redirects are refused), and never shown.
"""

import hashlib
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.parse
import urllib.request

import numpy as np

from locost_jax import files
from locost_jax.errors import InputError
from locost_jax.errors import visible
from locost_jax.evaluation.metrics import metric

DIMENSIONS = ('relevance', 'consistency', 'fluency', 'coherence')
COLUMNS = tuple(metric.Column(name, name, 2) for name in DIMENSIONS)
# The environment variable of the key, the one of OpenAI's client.
KEY = 'OPENAI_API_KEY'
MOST_TOKENS = 512  # of an answer
_CHARACTERS = 4  # per English token, roughly
_WAITS = 1, 2, 4, 8  # seconds before a request to a busy server is repeated
_TIMEOUT = 300.0  # seconds
_MOST_BYTES = 1 << 22  # of an answer
# This prompt cannot be answered; others may.
_OF_ONE_PROMPT = 400, 413, 422
PROMPT = """\
Imagine you are a human annotator now. You will evaluate the quality of \
summaries written for an article. Please follow these steps: Carefully read the \
article, and be aware of the information it contains. Read the proposed summary. \
Rate the summary on four dimensions: relevance, consistency, fluency, and \
coherence. You should rate on a scale from 1 (worst) to 5 (best). Definitions \
are as follows:

Relevance: The rating measures how well the summary captures the key points of \
the article. Consider whether all and only the important aspects are contained \
in the summary.

Consistency: The rating measures whether the facts in the summary are consistent \
with the facts in the original article. Consider whether the summary does \
reproduce all facts accurately and does not make up untrue information.

Fluency: This rating measures the quality of individual sentences, whether they \
are well-written and grammatically correct. Consider the quality of individual \
sentences.

Coherence: The rating measures the quality of all sentences collectively, to fit \
together and sound natural.

The article and the summary are given below:

Article: {article}

Summary: {summary}

Rate the summary in the following format:

Relevance:

Consistency:

Fluency:

Coherence:"""
# After a dimension's name: optional marks such as ** and (1-5), the number, and
# optionally its maximum, as in 4/5.
_RATING = (
    r'\b{name}\b["\'*_`\s]*(?:\(1\s*[-\u2013]\s*5\))?["\'*_`\s]*'
    r'(?:rating|score)?["\'*_`\s]*[:=\-\u2013|]*["\'*_`\s\[(]*'
    r'(-?\d+(?:\.\d+)?)(?:\s*(?:/|out of)\s*(\d+))?'
    r'(?![\w%/]|\.\d|\s*[-\u2013]\s*\d)'
)


def parse(answer):
  """Returns the ratings in a text, {dimension: 1 to 5, or None}.

  Args:
    answer: str. A rating is the number that follows its dimension's name; None
      if the number is missing, not from 1 to 5, or given twice with different
      values.
  """
  found = {}
  for name in DIMENSIONS:
    numbers = {
        (float(number), scale)
        for number, scale in re.findall(
            _RATING.replace('{name}', name), answer, re.IGNORECASE
        )
    }
    is_good = all(
        1 <= number <= 5 and scale in ('', '5') for number, scale in numbers
    )
    values = {number for number, _ in numbers}
    found[name] = values.pop() if is_good and len(values) == 1 else None
  return found


def run(rows, settings, base_url, sample=500, seed=0, cache=''):
  """Rates the predictions with a language model: a `metric.Result`.

  Args:
    rows: list of `metric.Row` with documents.
    settings: `metric.Settings`; model is a name that the server knows.
    base_url: of the server, such as https://api.openai.com/v1.
    sample: most documents to rate.
    seed: of the sample.
    cache: directory of the answers.

  Raises:
    InputError: the server refuses, or cannot be reached.
  """
  check_url(base_url)
  key = read_key()
  try:
    os.makedirs(cache, exist_ok=True)
  except OSError as error:
    raise InputError(f'--judge_cache={cache}: {error.strerror}') from None
  chosen = choose(len(rows), sample, seed)
  prompts = {
      i: PROMPT.format(article=rows[i].document, summary=rows[i].prediction)
      for i in chosen
  }
  paths = {
      i: os.path.join(cache, name_of(base_url, settings.model, prompt))
      for i, prompt in prompts.items()
  }
  answers = {i: text for i in chosen if (text := read(paths[i])) is not None}
  wanted = [i for i in chosen if i not in answers]
  problems = _ask_all(base_url, key, settings, prompts, paths, answers)
  values = np.full([len(rows), len(DIMENSIONS)], np.nan)
  for i, answer in answers.items():
    ratings = parse(answer)
    values[i] = [ratings[name] or np.nan for name in DIMENSIONS]
  counts = len(chosen) - (~np.isnan(values[chosen])).sum(0)
  missing = dict(zip(DIMENSIONS, counts.tolist()))
  return metric.Result(
      COLUMNS,
      {metric.PREDICTION: values},
      (
          settings.model.replace('|', '_'),
          'prompt:locost-1',
          f'sample:{len(chosen)}',
          f'seed:{seed}',
      ),
      tuple(_notes(missing, problems, len(chosen))),
      more=dict(
          sampled=chosen, missing=missing, problems=problems, calls=len(wanted)
      ),
  )


def _ask_all(base_url, key, settings, prompts, paths, answers):
  """Adds the missing {i: answer}, writes each; returns {problem: count}."""
  wanted = [i for i in prompts if i not in answers]
  tokens = sum(-(-len(prompts[i]) // _CHARACTERS) for i in wanted)
  settings.show(
      f'judge: {len(wanted):,} calls, about {tokens:,} tokens to read, '
      f'{len(answers):,} answers are cached',
      0,
      len(wanted),
  )
  problems = {}
  for done, i in enumerate(wanted):
    settings.show('judge', done, len(wanted))
    try:
      answers[i] = ask(base_url, settings.model, key, prompts[i])
    except ValueError as error:  # of this document alone
      if isinstance(error, InputError):
        raise
      problems[str(error)] = problems.get(str(error), 0) + 1
      continue
    if any(parse(answers[i]).values()):
      files.write(paths[i], json.dumps(dict(answer=answers[i])) + '\n')
  return problems


def _notes(missing, problems, total):
  if any(missing.values()):
    listed = ', '.join(f'{name} {count:,}' for name, count in missing.items())
    yield f'warning: judge: missing ratings, of {total:,}: {listed}; left out'
  for problem, count in problems.items():
    yield f'warning: judge: {count:,} documents without an answer: {problem}'


def check_url(base_url):
  """Raises an InputError if base_url is not an http(s) address."""
  try:
    parts = urllib.parse.urlsplit(base_url or '')
  except ValueError:  # such as [::1 without ]
    parts = urllib.parse.urlsplit('')
  if parts.scheme not in ('http', 'https') or not parts.netloc:
    raise InputError(
        f'--base_url={visible(base_url or "")}: expected an address such as '
        'https://api.openai.com/v1 or http://localhost:8000/v1'
    )
  if parts.username or parts.password:
    raise InputError(
        '--base_url: has a user or password in it; the key comes from the '
        'environment'
    )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
  """A redirect would send the key to another server."""

  def redirect_request(self, *_):
    return None


def ask(base_url, model, key, prompt):
  """Sends one prompt and returns the answer, a str.

  A busy or silent server is asked again after the seconds of _WAITS.

  Raises:
    ValueError: no answer to this prompt.
    InputError: the server would refuse every other prompt too.
  """
  message = dict(role='user', content=prompt)
  body = dict(
      model=model, messages=[message], temperature=0, max_tokens=MOST_TOKENS
  )
  headers = {'Content-Type': 'application/json', 'User-Agent': 'locost_jax'}
  if key:
    headers['Authorization'] = f'Bearer {key}'
  request = urllib.request.Request(
      base_url.rstrip('/') + '/chat/completions',
      json.dumps(body).encode(),
      headers,
  )
  opener = urllib.request.build_opener(_NoRedirects)
  problem = ''
  for wait in (0, *_WAITS):
    time.sleep(wait)
    try:
      with opener.open(request, timeout=_TIMEOUT) as response:
        return _text_of(response.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
      problem = f'status {error.code}'
      error.close()
      if error.code in _OF_ONE_PROMPT:
        raise ValueError(problem) from None
      if error.code < 500 and error.code not in (408, 409, 425, 429):
        break
    except (OSError, http.client.HTTPException) as error:
      problem = f'no answer ({getattr(error, "reason", None) or error})'
      problem = problem.replace(key, '***') if key else problem
  raise InputError(
      f'--base_url={base_url}: {problem}: check the address, the model '
      f'{model!r} and the key; answers so far are cached for the next call'
  )


def _text_of(data):
  """Returns the text in the JSON of a completion."""
  try:
    text = json.loads(data)['choices'][0]['message']['content']
  except (ValueError, LookupError, TypeError, RecursionError):
    text = None
  if not isinstance(text, str):
    raise ValueError('no completion in the answer')
  return text


def read_key():
  """Returns the key from the environment, or ''.

  Raises:
    InputError: the key cannot be sent in a header. No message shows it.
  """
  key = os.environ.get(KEY, '').strip()
  if not key.isascii() or not key.isprintable():
    raise InputError(f'{KEY}: expected printable ASCII, as in an HTTP header')
  return key


def choose(total, sample, seed):
  """Returns the indices of the documents to rate, in order."""
  if total <= sample:
    return list(range(total))
  draw = np.random.default_rng(seed)
  return sorted(draw.choice(total, sample, replace=False).tolist())


def name_of(base_url, model, prompt):
  """Returns the file name of an answer, a hash that does not use the key."""
  parts = [base_url, model, MOST_TOKENS, prompt]
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest() + '.json'


def read(path):
  """Returns the answer in a file; None if it is missing or damaged."""
  try:
    found = files.read_object(path).get('answer')
  except (FileNotFoundError, InputError):
    return None
  return found if isinstance(found, str) else None
