"""Reads the directory of a run: its metrics, predictions and scores."""

import os
from pathlib import Path
import re
from typing import Any, NamedTuple

from locost_jax.data import sources
from locost_jax.errors import InputError
from locost_jax.evaluation import predictions
from locost_jax.evaluation import scoring
from locost_jax.evaluation.metrics import protocols
from locost_jax.workdir import find

SPLITS = ('test', 'validation')


class Run(NamedTuple):
  """A run of `main`.

  Attributes:
    name: short name for legends.
    workdir: WORKDIR.
    home: directory of the checkpoints: WORKDIR, or its last finished phase.
    step: step of the best checkpoint.
    config: the config as nested dicts.
  """

  name: str
  workdir: Path
  home: Path
  step: int
  config: Any


class Scored(NamedTuple):
  """The predictions of a run and their scores.

  Attributes:
    path: file of the predictions.
    split: 'test' or 'validation'.
    task: name of the task.
    rows: list of dicts, as `main` wrote them.
    pairs: list of `predictions.Pair`.
    scores: for each pair {kind of ROUGE: F1 x 100}.
    summary: the result of `scoring.summarize`.
  """

  path: Path
  split: str
  task: str
  rows: list
  pairs: list
  scores: list
  summary: dict


def find_run(directory):
  """Returns the Run of a WORKDIR.

  Raises:
    InputError: the directory is not that of a run, or has no checkpoint.
  """
  if not os.path.isdir(directory):
    raise InputError(f'{directory}: no such directory; expected a WORKDIR')
  found = find.find_run(directory)
  if found is None:
    raise InputError(
        f'{directory}: no config.json of a run in it; expected a WORKDIR'
    )
  home, step_directory, config = found
  path = Path(os.path.abspath(directory))
  return Run(
      path.name, path, Path(home), int(Path(step_directory).name), config
  )


def find_runs(directories):
  """Returns the Runs of WORKDIRs, with unique names."""
  runs = [find_run(directory) for directory in directories]
  names = [run.name for run in runs]
  return [
      run
      if names.count(run.name) == 1
      else run._replace(name=f'{run.workdir.parent.name}/{run.name}')
      for run in runs
  ]


def find_metrics(path):
  """Returns the metrics.jsonl of a WORKDIR, or the file itself."""
  if not os.path.isdir(path):
    return Path(path)
  home = find_run(path).home
  return home / 'metrics.jsonl'


def find_predictions(run, split=''):
  """Finds the predictions of a run's best checkpoint.

  Args:
    run: a Run.
    split: 'test' or 'validation'; '': test, or validation if there is no test.

  Returns:
    List of (path, task, split, step), one per task. They are of the best
    checkpoint if it was evaluated, otherwise of the latest evaluated step;
    the newest if it was evaluated with several settings.
  """
  found = {}
  for path in sorted((run.home / 'predictions').glob('*.jsonl')):
    match = re.fullmatch(
        r'(.+)-(test|validation)-(\d+)(?:\.settings-\w+)?', path.stem
    )
    if match and split in ('', match[2]):
      task, own, step = match[1], match[2], int(match[3])
      written = path.stat().st_mtime_ns
      rank = (own == SPLITS[0], step == run.step, step, written)
      if task not in found or rank > found[task][0]:
        found[task] = rank, (path, task, own, step)
  return [entry for _, entry in found.values()]


def score(run, split='', protocol='locost', processes=1, show=None):
  """Scores the predictions of a run, each task separately.

  Args:
    run: a Run.
    split: see `find_predictions`.
    protocol: name of a `protocols.Protocol`.
    processes, show: see `scoring.score_pairs`.

  Returns:
    List of Scored.
  """
  protocol, found = protocols.find(protocol), []
  for path, task, own, _ in find_predictions(run, split):
    pairs = predictions.read(str(path))
    scores = scoring.score_pairs(pairs, protocol, processes, show)
    found.append(
        Scored(
            path,
            own,
            task,
            list(sources.read_jsonl([str(path)])),
            pairs,
            scores,
            scoring.summarize(scores, protocol),
        )
    )
  return found
