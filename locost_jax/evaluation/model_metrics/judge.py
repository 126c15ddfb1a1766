"""A language model as judge: relevance, consistency, fluency, coherence.

LOCOST's appendix I: the model reads an article and a summary, and rates the
summary from 1 (worst) to 5 (best) on four dimensions. PROMPT is the paper's.
At most --sample documents are rated (500, drawn with --seed).

A rating counts if the answer has one number from 1 to 5 for its dimension. A
missing, out-of-range or contradictory rating is reported as missing, never
counted as 0. Every answer is written to a file at once, so that a second call
asks only for missing answers and for those without any rating.
"""

import hashlib
import json
import os
import re

import numpy as np

from locost_jax import files
from locost_jax import untrusted
from locost_jax.errors import InputError
from locost_jax.evaluation.metrics import metric
from locost_jax.evaluation.metrics import score_metric
from locost_jax.evaluation.model_metrics import endpoint as endpoint_lib

NAME = 'judge'
DIMENSIONS = ('relevance', 'consistency', 'fluency', 'coherence')
COLUMNS = tuple(metric.Column(name, name, 2) for name in DIMENSIONS)
# The environment variable of the key, the one of OpenAI's client.
KEY = 'OPENAI_API_KEY'
MOST_TOKENS = 512  # of an answer
_CHARACTERS = 4  # per English token, roughly
# Stop after this many failures in a row.
_GIVE_UP = 5
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


def run(rows, settings):
  """Rates the predictions with a language model: a `score_metric.Result`.

  Args:
    rows: list of `score_metric.Row` with documents.
    settings: `score_metric.Settings`; uses model, base_url, sample, seed and
      cache.

  Raises:
    InputError: the server refuses, or cannot be reached.
  """
  endpoint_lib.check(settings.base_url)
  endpoint = endpoint_lib.Endpoint(
      settings.base_url, settings.model, read_key()
  )
  check_writable(settings.cache)
  chosen = choose(len(rows), settings.sample, settings.seed)
  prompts = {
      i: PROMPT.format(article=rows[i].document, summary=rows[i].prediction)
      for i in chosen
  }
  paths = {
      i: os.path.join(settings.cache, key_of(endpoint, prompt) + '.json')
      for i, prompt in prompts.items()
  }
  answers = {i: text for i in chosen if (text := read(paths[i])) is not None}
  wanted = [i for i in chosen if i not in answers]
  settings.note(cost([prompts[i] for i in wanted], len(answers)))
  problems, usage = ask_all(
      endpoint, prompts, paths, wanted, answers, settings.show
  )
  values = np.full([len(rows), len(DIMENSIONS)], np.nan)
  for i, answer in answers.items():
    ratings = parse(answer)
    values[i] = [ratings[name] or np.nan for name in DIMENSIONS]
  missing = len(chosen) - (~np.isnan(values[chosen])).sum(0)
  return score_metric.Result(
      COLUMNS,
      {score_metric.PREDICTION: values},
      (
          settings.model.replace('|', '_'),
          'prompt:locost-1',
          f'sample:{len(chosen)}',
          f'seed:{settings.seed}',
      ),
      tuple(notes(dict(zip(DIMENSIONS, missing.tolist())), problems, chosen)),
      more=dict(
          sampled=chosen,
          missing=dict(zip(DIMENSIONS, missing.tolist())),
          problems=problems,
          calls=len(wanted),
          **usage,
      ),
  )


def read_key():
  """Returns the key from the environment, or ''.

  Raises:
    InputError: the key cannot be sent in a header. No message shows it.
  """
  key = os.environ.get(KEY, '').strip()
  if not key.isascii() or not key.isprintable():
    raise InputError(f'{KEY}: expected printable ASCII, as in an HTTP header')
  return key


def check_writable(directory):
  """Raises an InputError if answers cannot be written to a directory."""
  try:
    os.makedirs(directory, exist_ok=True)
  except OSError as error:
    raise InputError(f'--judge_cache={directory}: {error.strerror}') from None
  if not os.access(directory, os.W_OK):
    raise InputError(f'--judge_cache={directory}: cannot be written to')


def choose(total, sample, seed):
  """Returns the indices of the documents to rate, in order."""
  if total <= sample:
    return list(range(total))
  draw = np.random.default_rng(seed)
  return sorted(draw.choice(total, sample, replace=False).tolist())


def cost(prompts, known):
  """Returns a line with the number of calls and tokens of the prompts."""
  tokens = sum(-(-len(prompt) // _CHARACTERS) for prompt in prompts)
  return (
      f'{NAME}: {len(prompts):,} calls, about {tokens:,} tokens to read and at '
      f'most {len(prompts) * MOST_TOKENS:,} to write; {known:,} answers are '
      'cached'
  )


def ask_all(endpoint, prompts, paths, wanted, answers, show):
  """Asks for the missing answers, and writes each to its file at once.

  Args:
    endpoint: an `endpoint.Endpoint`.
    prompts: {i: str}.
    paths: {i: file of the answer}.
    wanted: list of i, the missing answers.
    answers: {i: str}; new answers are added.
    show: function (stage, done, total) that shows progress.

  Returns:
    ({problem: count}, {'prompt_tokens': ..., 'completion_tokens': ...}).

  Raises:
    InputError: the server rejects the request, or cannot be reached.
  """
  problems, usage, in_a_row = {}, {}, 0
  for done, i in enumerate(wanted):
    show(NAME, done, len(wanted))
    answer = endpoint_lib.ask(endpoint, prompts[i], MOST_TOKENS)
    for key, count in answer.usage.items():
      usage[key] = usage.get(key, 0) + count
    if answer.text is None:
      problems[answer.problem] = problems.get(answer.problem, 0) + 1
      in_a_row = in_a_row + 1 if answer.gave_up else 0
      if (not answer.reached and not answers) or in_a_row == _GIVE_UP:
        raise InputError(
            f'--base_url={endpoint.base_url}: {answer.problem}, '
            f'{in_a_row} documents in a row; {len(answers):,} answers are '
            'cached for the next call'
        )
      continue
    in_a_row = 0
    answers[i] = answer.text
    if any(parse(answer.text).values()):
      files.write(paths[i], json.dumps(dict(answer=answer.text)) + '\n')
  return problems, usage


def notes(missing, problems, chosen):
  """Yields warnings about missing ratings and answers."""
  if any(missing.values()):
    listed = ', '.join(f'{name} {count:,}' for name, count in missing.items())
    yield (
        f'warning: {NAME}: missing ratings, of {len(chosen):,}: {listed}; '
        'left out'
    )
  for problem, count in problems.items():
    yield f'warning: {NAME}: {count:,} documents without an answer: {problem}'


def key_of(endpoint, prompt):
  """Returns the file name of an answer, a hash that does not use the key."""
  parts = [endpoint.base_url, endpoint.model, MOST_TOKENS, prompt]
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read(path):
  """Returns the answer in a file; None if it is missing or damaged."""
  try:
    found = untrusted.read_object(path).get('answer')
  except (FileNotFoundError, InputError):
    return None
  return found if isinstance(found, str) else None


METRIC = score_metric.ScoreMetric(
    NAME,
    'a language model rates four dimensions from 1 to 5',
    run,
    (score_metric.DOCUMENT, score_metric.MODEL),
)
