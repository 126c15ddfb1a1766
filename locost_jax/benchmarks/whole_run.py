"""Measures a training run of `main`: data loading, steps, saving, continuing.

There are two processes, one after the other: the first trains and saves, the
second continues from its checkpoint. The end of a step is seen in
metrics.jsonl, the end of a save in the directory of checkpoints.
"""

import json
from pathlib import Path
import tempfile
import threading
import time

from ml_collections import ConfigDict
import numpy as np

from locost_jax.benchmarks import processes
from locost_jax.benchmarks import timing
from locost_jax.errors import InputError

# Steps from one save to the next. The save falls into the first of them.
BETWEEN = 6
# Documents on disk, enough that successive batches differ.
RECORDS = 64
POLL_SECONDS = 0.01


def measure_run(spec):
  """Measures at one length: a row of the table.

  Args:
    spec: see `spec.make_spec`, with config (the whole config, as a dict) and
      directory (for temporary files).

  Returns:
    A dict. times and seconds have 'saving' (a save and the step after it),
    'during' (other steps while a state is being written), 'step' (all other
    steps except the first), 'writing' (from the end of a step until its state
    is on disk) and 'ready' (from the start of the second process until its
    first step is compiled and starts).

  Raises:
    processes.OutOfMemory, InputError: see `processes.WorkerProcess`.
  """
  last = BETWEEN * (spec['repeats'] + 1)
  with tempfile.TemporaryDirectory(
      prefix='run-', dir=spec['directory']
  ) as directory:
    spec = dict(spec, directory=directory)
    with processes.WorkerProcess(
        dict(spec, steps=last), spec['limit']
    ) as worker:
      seen = worker.measure()
    began = time.time()
    with processes.WorkerProcess(
        dict(spec, steps=last + 1), spec['limit']
    ) as worker:
      again = worker.measure()
  times = step_times(
      {int(step): when for step, when in seen['done'].items()},
      {int(step): when for step, when in seen['saved'].items()},
  )
  seconds = timing.medians(times)
  first = again['done'][str(last + 1)] - began
  times['ready'] = [first - seconds['step']]
  seconds['ready'] = times['ready'][0]
  return dict(
      seen,
      times=times,
      seconds=seconds,
      target_tokens=spec['tokens'],
      saving_ratio=seconds['saving'] / seconds['step'],
      peak_bytes=max(seen['peak_bytes'], again['peak_bytes']),
  )


def step_times(done, saved):
  """Returns the durations of steps and saves, in seconds.

  Args:
    done: {step: time at its end}, all steps of a run.
    saved: {step: time when its state was on disk}.

  Returns:
    {name: list of seconds}: step, saving, during, writing, see `measure_run`.
  """
  times = {name: [] for name in ('step', 'saving', 'during', 'writing')}
  for step in sorted(done)[1:]:  # the first step includes compilation
    begin = done[step - 1]
    if step - 1 in saved:
      kind = 'saving'
    elif any(done[save] <= begin < saved[save] for save in saved):
      kind = 'during'
    else:
      kind = 'step'
    times[kind].append(done[step] - begin)
  times['writing'] = [saved[step] - done[step] for step in sorted(saved)]
  return times


def prepare(spec, report):
  """Returns (known, run), see `processes.serve`."""
  from locost_jax import models
  from locost_jax.benchmarks import jax_programs
  from locost_jax.devices import sharding
  from locost_jax.telemetry import telemetry as telemetry_lib
  from locost_jax.training import train

  config, directory = make_config(spec), Path(spec['directory'])
  model = models.build(
      config.model, dtype=config.train.dtype, remat=config.train.remat
  )
  batches, workdir = make_batches(spec, config, directory), directory / 'run'
  workdir.mkdir(exist_ok=True)

  def run():
    report('training')
    with RunWatcher(workdir) as watcher:
      train.train(
          config,
          workdir,
          model,
          sharding.make_mesh(config.mesh),
          batches,
          lambda params, step: {},
          telemetry_lib.Options(),
      )
    state = sum(
        file.stat().st_size
        for file in (workdir / 'checkpoints' / str(spec['steps'])).rglob('*')
        if file.is_file()
    )
    return dict(
        watcher.seen(), state_bytes=state, **jax_programs.describe_device()
    )

  return jax_programs.describe_device(), run


def make_config(spec):
  """Makes the config of a run with the spec's steps and sizes."""
  config = ConfigDict(spec['config'])
  config.data.update(
      max_input_length=spec['length'], max_target_length=spec['tokens']
  )
  config.train.update(
      steps=spec['steps'],
      batch_size=spec['batch_size'],
      batch_tokens=0,
      dtype=spec['dtype'],
      seed=spec['seed'],
      log_every=1,
      checkpoint_every=BETWEEN,
      eval_every=0,
      init_from='',
  )
  return config


def make_batches(spec, config, directory):
  """Makes the train_batches of `train.train`: random tokens, read from disk."""
  try:
    import array_record  # noqa: F401

    from locost_jax.data import pipeline
    from locost_jax.data import records
    from locost_jax.vocabularies.byte_vocabulary import ByteVocabulary
  except ModuleNotFoundError as error:
    raise InputError(
        f'bench run needs {error.name}, which is not installed: '
        'pip install "locost_jax[train]"'
    ) from None
  path, size = directory / 'records', config.model.vocab_size
  if not path.exists():
    random = np.random.default_rng(spec['seed'])
    tokens = lambda length: random.integers(min(3, size - 1), size, length)
    records.write(
        path,
        {},
        (
            dict(inputs=tokens(spec['length']), targets=tokens(spec['tokens']))
            for _ in range(RECORDS)
        ),
        size,
    )
  cache = records.Cache(path)
  return lambda start: pipeline.train_batches(
      cache, ByteVocabulary(), config, start
  )


class RunWatcher:
  """Watches the files of a run in a thread; a context manager."""

  def __init__(self, workdir):
    """Starts at the current end of metrics.jsonl.

    Args:
      workdir: the run's directory.
    """
    self._lines, self._checkpoints = (
        workdir / 'metrics.jsonl',
        workdir / 'checkpoints',
    )
    self._rest, self._done, self._saved = b'', {}, {}
    self._last, self._ends, self._polled = {}, threading.Event(), time.time()
    self._place = self._lines.stat().st_size if self._lines.exists() else 0
    self._thread = threading.Thread(target=self._run, daemon=True)

  def __enter__(self):
    self._thread.start()
    return self

  def __exit__(self, *_):
    self._ends.set()
    self._thread.join()
    self._poll()

  def seen(self):
    """Returns dict(done, saved, data_wait).

    done and saved are {step: time.time()}; data_wait is the last logged share.
    The times of steps found in the same poll are spread evenly since the
    previous poll, because a tiny model does several steps between two polls.
    """
    return dict(
        done=self._done,
        saved=self._saved,
        data_wait=self._last.get('train/data_wait'),
    )

  def _run(self):
    while not self._ends.wait(POLL_SECONDS):
      self._poll()

  def _poll(self):
    before, now = self._polled, time.time()
    self._polled = now
    if self._lines.exists():
      with open(self._lines, 'rb') as file:
        file.seek(self._place)
        part = file.read()
      self._place += len(part)
      *lines, self._rest = (self._rest + part).split(b'\n')
      found = [line for line in map(json.loads, lines) if 'train/loss' in line]
      for count, line in enumerate(found, start=1):
        self._last = line
        self._done.setdefault(
            line['step'], before + (now - before) * count / len(found)
        )
    for step in self._done:
      if (
          step % BETWEEN == 0
          and step not in self._saved
          and (self._checkpoints / str(step)).exists()
      ):
        self._saved[step] = now
