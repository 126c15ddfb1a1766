"""No summary has sentinels (<extra_id_0> and so on)."""

import dataclasses
import types

import numpy as np
import pytest

from locost_jax import models
from locost_jax.config import decode_settings
from locost_jax.devices import sharding
from locost_jax.evaluation import evaluate
from locost_jax.summarizing import summarizer as summarizer_lib
from locost_jax.vocabularies import byte_vocabulary
from tests import tiny_run
from tests.models import small

TEXT = 'A text to read.'


@pytest.fixture(scope='module')
def summarizer():
  """A model that prefers a sentinel to all other tokens."""
  config = tiny_run.make_config()
  model = models.build(config.model)
  params = small.drawn_params(model, 0.3)
  vocabulary = byte_vocabulary.ByteVocabulary()
  found = summarizer_lib.Summarizer(model, params, vocabulary)
  logits = found.logits(np.array([found.tokenize(TEXT)]), [[0]])[0, 0]
  best = params['token_embedding']['embedding'][logits.argmax()]
  params['token_embedding']['embedding'] = (
      params['token_embedding']['embedding'].at[300].set(10 * best)
  )
  return summarizer_lib.Summarizer(model, params, vocabulary)


@pytest.mark.parametrize(
    'options', (dict(), dict(num_beams=3), dict(temperature=2.0, top_k=3))
)
def test_sentinels_are_never_written(summarizer, options):
  inputs = np.array([summarizer.tokenize(TEXT)])
  bare = summarizer_lib.Summarizer(summarizer.model, summarizer.params)
  banned = summarizer.vocabulary.sentinel_ids
  plain = bare.generate(inputs, max_length=6, **options)
  assert np.isin(plain, banned).any()  # it does not know which they are
  found = summarizer.generate(inputs, max_length=6, **options)
  assert not np.isin(found, banned).any()
  text = summarizer.vocabulary.decode(found[0])
  assert summarizer.summarize(TEXT, max_length=6, **options) == [text]
  forced = summarizer.generate(inputs, max_length=2, forced_first_token=300)
  assert forced[0, 0] == 300


def test_evaluation_writes_none(summarizer):
  config = tiny_run.make_config()
  batch = dict(encoder_input_tokens=np.array([summarizer.tokenize(TEXT)]))
  mesh = sharding.make_mesh(config.mesh)
  given = dict(model=summarizer.model, vocabulary=summarizer.vocabulary)
  what = types.SimpleNamespace(**given, config=config, mesh=mesh)
  tokens = evaluate._generate(what, summarizer.params, batch, 1)
  banned = summarizer.vocabulary.sentinel_ids
  assert not np.isin(tokens, banned).any()


def test_stored_settings_have_no_list_of_them():
  settings = decode_settings.Settings(banned_ids=(7, 8))
  stored = decode_settings.as_dict(settings)
  assert 'banned_ids' not in stored
  assert decode_settings.from_config(stored) == dataclasses.replace(
      settings, banned_ids=()
  )
