"""Fixtures for tests of the summarize command."""

import functools
import json

import pytest

from locost_jax import summarize
from locost_jax.summarizing.summarizer import Summarizer
from tests import tiny_run


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  directory = tmp_path_factory.mktemp('summarize') / 'run'
  tiny_run.make(directory)
  return directory


@pytest.fixture
def call(run_command):
  return functools.partial(run_command, summarize)


@pytest.fixture
def call_json(call):
  """call_json(*arguments) -> (status, rows, stderr), with --format=json."""

  def call_json(*arguments):
    status, out, err = call(*arguments, '--format=json')
    return status, list(map(json.loads, out.splitlines())), err

  return call_json


@pytest.fixture
def batches(monkeypatch):
  """The shapes of all computed batches."""
  shapes, generate = [], Summarizer.generate

  def spy(self, inputs, *arguments, **named):
    shapes.append(inputs.shape)
    return generate(self, inputs, *arguments, **named)

  monkeypatch.setattr(Summarizer, 'generate', spy)
  return shapes
